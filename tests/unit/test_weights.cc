// Which elements of which tensors are the elements of a parameter: patterns of names, the rows of [[weights.map]], and
// the copies that follow from them for any region, against arrays that are joined, divided, transposed and permuted
// index by index.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/config.h"
#include "base/weight_keys.h"
#include "checkpoint/weights_plan.h"
#include "support/check.h"
#include "support/draw.h"

using namespace gsel::checkpoint;
using gsel::NamePattern;
using gsel::Region;
using gsel::WeightRule;
using gsel::test::Draw;

namespace {

// ---- names ----

void check_match(const char* pattern, const char* name, const char* other, const char* expected) {
  const auto captures = NamePattern(pattern).match(name);
  const std::string got = captures ? NamePattern(other).fill(*captures) : "no match";
  if (got != expected) fail_msg("%s on %s: expected %s, got %s", pattern, name, expected, got.c_str());
}

void a_name_is_matched_and_made_from_its_captures(void**) {
  check_match("h.{i}.ln_1.weight", "h.0.ln_1.weight", "h{i}.ln1.g", "h0.ln1.g");
  check_match("h.{i}.ln_1.weight", "h.12.ln_1.weight", "h{i}.ln1.g", "h12.ln1.g");
  check_match("h.{i}.ln_1.weight", "h.x.ln_1.weight", "", "no match");
  check_match("h.{i}.ln_1.weight", "h..ln_1.weight", "", "no match");
  check_match("h.{i}.ln_1.weight", "h.1.ln_1.weights", "", "no match");
  check_match("h{i}", "head", "", "no match");
  check_match("{a}.{b}", "3.14", "{b}/{a}", "14/3");
  check_match("{a}5", "1555", "{a}", "155");
  check_match("{a:text}.w", "left.w", "{a}", "left");
  check_match("{a:text}.w", "le.ft.w", "", "no match");
  check_match("{a:any}.w", "le.ft.w", "{a}", "le.ft");
  check_match("{a:any}.{b:any}", "x.y.z", "{a}|{b}", "x|y.z");
  check_match("plain", "plain", "plain", "plain");
  check_match("plain", "plain2", "", "no match");
  // Remembers what has failed: without that, this takes longer than any test may.
  check_match("{a:any}x{b:any}x{c:any}x{d:any}x{e:any}x{f:any}x{g:any}!", std::string(2000, 'x').c_str(), "",
              "no match");
}

void check_pattern_refused(const char* pattern, const char* why) {
  try {
    const NamePattern taken{std::string_view(pattern)};
  } catch (const gsel::Error& e) {
    if (e.code() == GSEL_ERR_ARG && strstr(e.what(), why)) return;
    fail_msg("%s: expected %s, got %s", pattern, why, e.what());
  }
  fail_msg("%s was taken", pattern);
}

void a_pattern_that_says_two_things_is_refused(void**) {
  check_pattern_refused("", "a name is empty");
  check_pattern_refused("h.{i", "at character 3");
  check_pattern_refused("h.i}", "at character 4");
  check_pattern_refused("{{i}", "at character 1");
  check_pattern_refused("{i}{j}", "two captures without text between them at character 4");
  check_pattern_refused("{i}.{i}", "a capture for the second time at character 5");
  check_pattern_refused("{I}", "lower case letters");
  check_pattern_refused("{}", "lower case letters");
  check_pattern_refused("{i:number}", "unknown kind");
}

// ---- rows ----

std::vector<WeightRule> rules_of(const std::string& toml) {
  return gsel::parse_config(toml, "f").weights.rules;
}

#define ROW "[[weights.map]]\nsource = \"a\"\ntarget = \"b\"\n"

void a_row_that_cannot_be_is_refused_with_its_place(void**) {
  static const struct {
    const char *toml, *message;
    int line, column;
  } rows[] = {
      {"[weights]\nmap = 3\n", "f:2: weights.map is an integer; expected sections [[weights.map]]", 2, 1},
      {"[weights]\nmap = [1]\n", "f:2: weights.map has an integer; expected sections [[weights.map]]", 2, 8},
      {"[weights]\nmaps = 3\n", "f:2: unknown key \"weights.maps\"", 2, 1},
      {"[weights]\nprefix = 3\n", "f:2: weights.prefix = 3 is an integer; expected text", 2, 1},
      {"[[weights.map]]\ntarget = \"b\"\n", "f:1: weights.map has no source", 1, 1},
      {"[[weights.map]]\nsource = \"a\"\n", "f:1: weights.map has no target; name a parameter, or set ignore = true", 1,
       1},
      {ROW "transposed = true\n",
       "f:4: unknown key \"weights.map.transposed\"; did you mean \"weights.map.transpose\"?", 4, 1},
      {ROW "transpose = 1\n", "f:4: weights.map.transpose is 1; expected true or false", 4, 1},
      {ROW "concat = -1\n", "f:4: weights.map.concat is -1; expected a dimension from 0 to 63", 4, 1},
      {ROW "concat = 0\n", "f:4: weights.map.concat needs several names in source, and there is one", 4, 1},
      {ROW "split = 0\n", "f:4: weights.map.split needs several names in target, and there is one", 4, 1},
      {ROW "parts = [1]\n", "f:4: weights.map.parts has 1 number, and the rule has 1 part", 4, 1},
      {ROW "permute = \"rows\"\n", "f:4: weights.map.permute is \"rows\"; expected \"halves_to_pairs\" or", 4, 1},
      {ROW "permute = \"halves_to_pairs\"\n", "f:4: weights.map.permute needs heads", 4, 1},
      {ROW "heads = 3\n", "f:4: weights.map.heads needs permute", 4, 1},
      {ROW "cast = \"f64\"\n", "f:4: weights.map.cast is \"f64\"; expected \"f32\", \"bf16\" or \"f16\"", 4, 1},
      {ROW "ignore = true\n", "f:3: weights.map.target beside ignore", 3, 1},
      {"[[weights.map]]\nsource = [\"a\", \"c\"]\ntarget = \"b\"\n",
       "f:2: weights.map.source has 2 names; several need concat = DIMENSION", 2, 1},
      {"[[weights.map]]\nsource = \"a\"\ntarget = [\"b\", \"c\"]\n",
       "f:3: weights.map.target has 2 names; several need split = DIMENSION", 3, 1},
      {"[[weights.map]]\nsource = [\"a\", \"c\"]\ntarget = \"b\"\nconcat = 0\nalias = \"d\"\n",
       "f:5: weights.map.alias needs one source, and there are 2", 5, 1},
      {"[[weights.map]]\nsource = \"a.{i}\"\n  target = \"b\"\n",
       "f:2: weights.map.source: \"a.{i}\" and \"b\" capture", 2, 1},
      {"[[weights.map]]\nsource = \"a\"\n  target = \"b.{i}\"\n",
       "f:2: weights.map.source: \"a\" and \"b.{i}\" capture", 2, 1},
      {"[[weights.map]]\n  target = \"b.{i\"\n", "f:2: weights.map.target: \"b.{i\" has a brace without its other half",
       2, 3},
      {"[[weights.map]]\nsource = [\"a\", [\"c\"]]\n", "f:2: weights.map.source has an array in its list", 2, 16},
      {"[[weights.map]]\nsource = { a = 1 }\n", "f:2: weights.map.source is a section; expected a name in quotes", 2,
       1},
      {"[[weights.map]]\nsource = []\n", "f:2: weights.map.source is 0 items in a list; expected a name in quotes", 2,
       1},
  };
  for (const auto& row : rows) try {
      rules_of(row.toml);
      fail_msg("%s was taken", row.toml);
    } catch (const gsel::Error& e) {
      if (e.code() != GSEL_ERR_CONFIG || !std::string(e.what()).starts_with(row.message) ||
          e.place().line != row.line || e.place().column != row.column)
        fail_msg("%s\nexpected %s at column %d\ngot %s at %d:%d", row.toml, row.message, row.column, e.what(),
                 e.place().line, e.place().column);
    }
}

void every_key_of_a_row_stands_in_the_documentation(void**) {
  const char* data = std::getenv("GSEL_TEST_DATA");
  assert_non_null(data);
  std::ifstream file(std::filesystem::path(data).parent_path().parent_path() / "docs/config.md");
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string text = stream.str();
  for (const gsel::WeightKey& key : gsel::weight_keys()) {
    const std::string row = fmt::format("| `weights.map.{}` | {} | {} | {} |\n", key.name, key.accepts,
                                        key.absent.empty() ? std::string() : fmt::format("`{}`", key.absent), key.help);
    if (text.find(row) == std::string::npos) fail_msg("docs/config.md lacks this row:\n%s", row.c_str());
  }
}

// ---- copies, against arrays ----

struct Array {
  std::vector<int64_t> shape;
  std::vector<int64_t> at;  // what element of which tensor: 10^6 * tensor + element

  int64_t count() const {
    int64_t n = 1;
    for (const int64_t dim : shape) n *= dim;
    return n;
  }
  int64_t offset(const std::vector<int64_t>& index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + index[d];
    return offset;
  }
  template <class Use>
  void each(Use&& use) const {
    std::vector<int64_t> index(shape.size(), 0);
    for (int64_t i = 0; i < count(); ++i) {
      int64_t rest = i;
      for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
      use(index);
    }
  }
};

Array numbered(std::vector<int64_t> shape, int64_t tensor) {
  Array array{std::move(shape), {}};
  for (int64_t i = 0; i < array.count(); ++i) array.at.push_back(1000000 * tensor + i);
  return array;
}

template <class From>
Array made(std::vector<int64_t> shape, From&& from) {
  Array array{std::move(shape), {}};
  array.each([&](const std::vector<int64_t>& index) { array.at.push_back(from(index)); });
  return array;
}

Array concatenated(const std::vector<Array>& parts, size_t dim) {
  std::vector<int64_t> shape = parts.front().shape;
  shape[dim] = 0;
  for (const Array& part : parts) shape[dim] += part.shape[dim];
  return made(shape, [&](std::vector<int64_t> index) {
    size_t p = 0;
    for (; index[dim] >= parts[p].shape[dim]; ++p) index[dim] -= parts[p].shape[dim];
    return parts[p].at[static_cast<size_t>(parts[p].offset(index))];
  });
}

Array taken(const Array& whole, size_t dim, int64_t begin, int64_t extent) {
  std::vector<int64_t> shape = whole.shape;
  shape[dim] = extent;
  return made(shape, [&](std::vector<int64_t> index) {
    index[dim] += begin;
    return whole.at[static_cast<size_t>(whole.offset(index))];
  });
}

Array transposed(const Array& array) {
  std::vector<int64_t> shape = array.shape;
  std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
  return made(shape, [&](std::vector<int64_t> index) {
    std::swap(index[index.size() - 2], index[index.size() - 1]);
    return array.at[static_cast<size_t>(array.offset(index))];
  });
}

// Rows [begin, begin + extent) of dimension 0 have so many heads.
Array permuted(const Array& array, int64_t begin, int64_t extent, int64_t heads, bool halves_to_pairs) {
  if (heads == 0) return array;
  const int64_t size = extent / heads;
  return made(array.shape, [&](std::vector<int64_t> index) {
    const int64_t row = index[0] - begin;
    if (row >= 0 && row < extent) {
      const int64_t head = row / size, in = row % size;
      const int64_t from = halves_to_pairs ? in % 2 * (size / 2) + in / 2 : in % (size / 2) * 2 + in / (size / 2);
      index[0] = begin + head * size + from;
    }
    return array.at[static_cast<size_t>(array.offset(index))];
  });
}

std::vector<int64_t> elements_of(const Region& region) {
  std::vector<int64_t> elements;
  Region::Cursor cursor(region);
  while (const auto run = cursor.next())
    for (int64_t i = 0; i < run->count; ++i) elements.push_back(run->whole + i);
  return elements;
}

Region drawn_region(Draw& draw, const std::vector<int64_t>& shape) {
  std::vector<Region::Intervals> intervals(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    if (draw.chance(50)) continue;
    for (int64_t at = 0; at < shape[d];) {
      const int64_t begin = at + draw.from(0, 2), end = begin + draw.from(0, 5);
      if (end > shape[d]) break;
      intervals[d].push_back({begin, end});
      at = end;
    }
  }
  const Region product(shape, intervals, std::nullopt);
  if (draw.chance(30)) return product;
  const auto most = static_cast<int32_t>(product.count());
  const int64_t begin = draw.from(0, most), end = draw.from(static_cast<int32_t>(begin), most);
  return {shape, intervals, gsel_range{begin, end}};
}

// All elements that the copies give to memory, each once.
void compare(const WeightPlan& plan, size_t param, const Array& expected, const Region& region) {
  std::vector<int64_t> memory(static_cast<size_t>(region.count()), -1);
  int64_t n = 0;
  for (const WeightPiece& piece : plan.pieces[param])
    each_copy(region, piece, [&](const WeightCopy& copy) {
      int64_t least = -1, most = -1, in_a_row = 0, last = -2;
      const auto descend = [&](auto& self, size_t d, int64_t file, int64_t at) -> void {
        if (d < copy.dims.size()) {
          if (copy.dims[d].count < 2) fail_msg("a dimension of %d", static_cast<int>(copy.dims[d].count));
          for (int64_t i = 0; i < copy.dims[d].count; ++i)
            self(self, d + 1, file + i * copy.dims[d].file, at + i * copy.dims[d].memory);
          return;
        }
        assert_true(at >= 0 && at < region.count());
        assert_int_equal(memory[static_cast<size_t>(at)], -1);
        memory[static_cast<size_t>(at)] = 1000000 * piece.source + file;
        least = least < 0 ? file : std::min(least, file);
        most = std::max(most, file);
        in_a_row += last + 1 == file;
        last = file;
        ++n;
      };
      descend(descend, 0, copy.file, copy.memory);
      assert_int_equal(copy.extent(), most - least + 1);
      if (copy.count() == copy.run()) assert_int_equal(in_a_row + 1, copy.run());
    });
  assert_int_equal(n, region.count());
  const std::vector<int64_t> elements = elements_of(region);
  for (size_t i = 0; i < elements.size(); ++i)
    if (memory[i] != expected.at[static_cast<size_t>(elements[i])])
      fail_msg("element %d of the region, %d of the parameter: expected %d, got %d", static_cast<int>(i),
               static_cast<int>(elements[i]), static_cast<int>(expected.at[static_cast<size_t>(elements[i])]),
               static_cast<int>(memory[i]));
}

void compare_regions(Draw& draw, const WeightPlan& plan, const std::vector<Array>& expected) {
  for (size_t p = 0; p < expected.size(); ++p) {
    compare(plan, p, expected[p], Region(expected[p].shape));
    for (int i = 0; i < 8; ++i) compare(plan, p, expected[p], drawn_region(draw, expected[p].shape));
  }
}

std::string list_of(const char* stem, size_t n) {
  std::string list;
  for (size_t i = 0; i < n; ++i) list += fmt::format("{}\"{}{}\"", i ? ", " : "", stem, i);
  return n == 1 ? list : "[" + list + "]";
}

void copies_are_what_the_rules_say_for_any_region(void**) {
  Draw draw(11);
  for (int trial = 0; trial < 3000; ++trial) {
    // In the layout of the file: parts along a dimension, which are sources or targets.
    const size_t n_dims = static_cast<size_t>(draw.from(1, 3));
    const bool transposes = n_dims >= 2 && draw.chance(50), splits = draw.chance(40);
    const size_t n_parts = static_cast<size_t>(draw.chance(40) ? 1 : draw.from(2, 3));
    const size_t dim = static_cast<size_t>(draw.from(0, static_cast<int32_t>(n_dims) - 1));
    std::vector<int64_t> shape(n_dims), proportion;
    for (int64_t& extent : shape) extent = 4 * draw.from(1, 3);
    for (size_t p = 0; p < n_parts; ++p) proportion.push_back(n_parts == 1 ? 1 : draw.from(1, 2));
    const int64_t unit = shape[dim];
    // Dimension 0 of the parameter, in the file's layout.
    const size_t rows_dim = transposes && n_dims == 2 ? 1 : 0;
    const int32_t order = draw.from(0, 2);
    std::string toml = fmt::format("[[weights.map]]\nsource = {}\ntarget = {}\ntranspose = {}\n",
                                   list_of("s", splits ? 1 : n_parts), list_of("t", splits ? n_parts : 1), transposes);
    if (n_parts > 1)
      toml += fmt::format("{} = {}\nparts = [{}]\n", splits ? "split" : "concat", dim, fmt::join(proportion, ", "));
    std::vector<int64_t> heads;
    for (size_t p = 0; p < n_parts; ++p) heads.push_back(draw.chance(30) ? 0 : draw.from(1, 2));
    if (order > 0)
      toml += fmt::format("permute = \"{}\"\nheads = [{}]\n", order == 1 ? "halves_to_pairs" : "pairs_to_halves",
                          fmt::join(heads, ", "));
    std::vector<Array> parts;
    int64_t whole_extent = 0;
    for (size_t p = 0; p < n_parts; ++p) {
      std::vector<int64_t> of_part = shape;
      of_part[dim] = unit * proportion[p];
      whole_extent += of_part[dim];
      parts.push_back(numbered(of_part, splits ? 0 : static_cast<int64_t>(p)));
    }
    std::vector<Array> targets;
    if (splits) {
      std::vector<int64_t> whole = shape;
      whole[dim] = whole_extent;
      const Array source = numbered(whole, 0);
      int64_t begin = 0;
      for (size_t p = 0; p < n_parts; ++p) {
        targets.push_back(taken(source, dim, begin, unit * proportion[p]));
        begin += unit * proportion[p];
      }
    } else {
      targets.push_back(concatenated(parts, dim));
    }
    std::vector<WeightParam> params;
    for (size_t t = 0; t < targets.size(); ++t) {
      if (transposes) targets[t] = transposed(targets[t]);
      int64_t begin = 0;
      for (size_t p = splits ? t : 0; order > 0 && p < (splits ? t + 1 : n_parts); ++p) {
        const int64_t extent = !splits && dim == rows_dim ? unit * proportion[p] : targets[t].shape[0];
        if (splits || dim == rows_dim) {
          targets[t] = permuted(targets[t], begin, extent, heads[p], order == 1);
          begin += splits ? 0 : extent;
          continue;
        }
        // Each source permutes its own columns of all rows.
        const size_t column = transposes && dim + 2 >= n_dims ? 2 * n_dims - 3 - dim : dim;
        const Array all = permuted(targets[t], 0, extent, heads[p], order == 1);
        const Array before = targets[t];
        int64_t first = 0;
        for (size_t q = 0; q < p; ++q) first += unit * proportion[q];
        targets[t] = made(before.shape, [&](const std::vector<int64_t>& index) {
          const bool is_in = index[column] >= first && index[column] < first + unit * proportion[p];
          return (is_in ? all : before).at[static_cast<size_t>(before.offset(index))];
        });
      }
      params.push_back({n_parts > 1 && splits ? fmt::format("t{}", t) : std::string("t0"), targets[t].shape});
    }
    try {
      const WeightPlan plan(rules_of(toml), params);
      compare_regions(draw, plan, targets);
    } catch (const gsel::Error& e) {
      fail_msg("%s: %s", toml.c_str(), e.what());
    }
  }
}

void without_rules_each_parameter_is_the_tensor_of_its_name(void**) {
  const std::vector<WeightParam> params{{"a", {2, 3}}, {"b", {}}, {"c", {5}}};
  const WeightPlan plan({}, params);
  assert_int_equal(plan.sources.size(), 3);
  for (size_t p = 0; p < 3; ++p) {
    assert_string_equal(plan.sources[p].name.c_str(), params[p].name.c_str());
    assert_true(plan.sources[p].shape == params[p].shape);
    compare(plan, p, numbered(params[p].shape, static_cast<int64_t>(p)), Region(params[p].shape));
  }
}

void check_plan_refused(const char* toml, std::vector<WeightParam> params, const char* message) {
  try {
    const WeightPlan plan(rules_of(toml), params);
  } catch (const gsel::Error& e) {
    if (e.code() == GSEL_ERR_CONFIG && std::string(e.what()) == message) return;
    fail_msg("expected %s\ngot %s", message, e.what());
  }
  fail_msg("%s was taken", toml);
}

void a_rule_that_does_not_fit_the_model_is_refused_with_its_place(void**) {
  check_plan_refused(ROW "transpose = true\n", {{"b", {4}}},
                     "f:1: \"b\" has shape [4]; transpose needs two dimensions");
  check_plan_refused(ROW ROW, {{"b", {4}}},
                     "f:4: \"b\" is a target of this rule and of that in line 1; expected one rule for each parameter");
  check_plan_refused(
      ROW "[[weights.map]]\nsource = \"a\"\ntarget = \"c\"\n", {{"b", {4}}, {"c", {4}}},
      "f:4: \"a\" is the source of \"c\" and of \"b\"; expected one parameter, which layers share if they "
      "are tied");
  check_plan_refused("[[weights.map]]\nsource = [\"a\", \"c\"]\ntarget = \"b\"\nconcat = 1\n", {{"b", {4}}},
                     "f:1: \"b\" has shape [4], and no dimension 1");
  check_plan_refused("[[weights.map]]\nsource = [\"a\", \"c\"]\ntarget = \"b\"\nconcat = 0\n", {{"b", {5}}},
                     "f:1: 5 elements of \"b\" in dimension 0 do not divide into 2 parts in proportion [1, 1]");
  check_plan_refused("[[weights.map]]\nsource = \"a\"\ntarget = [\"b\", \"c\"]\nsplit = 0\n", {{"b", {5}}},
                     "f:1: \"c\" is no parameter of the model, which has other targets of this rule");
  check_plan_refused("[[weights.map]]\nsource = \"a\"\ntarget = [\"b\", \"c\"]\nsplit = 0\n",
                     {{"b", {5, 2}}, {"c", {5, 3}}},
                     "f:1: \"b\" has shape [5, 2] and \"c\" has shape [5, 3]; targets of split differ in one dimension "
                     "alone");
  check_plan_refused("[[weights.map]]\nsource = \"a\"\ntarget = [\"b\", \"c\"]\nsplit = 0\nparts = [1, 2]\n",
                     {{"b", {5}}, {"c", {5}}}, "f:1: \"b\" has 5 of 10 elements, and parts = [1, 2] gives it 1 of 3");
  check_plan_refused(ROW "permute = \"halves_to_pairs\"\nheads = 2\n", {{"b", {6, 2}}},
                     "f:1: 6 rows of \"b\" are no 2 heads of an even number of rows");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_name_is_matched_and_made_from_its_captures),
      cmocka_unit_test(a_pattern_that_says_two_things_is_refused),
      cmocka_unit_test(a_row_that_cannot_be_is_refused_with_its_place),
      cmocka_unit_test(every_key_of_a_row_stands_in_the_documentation),
      cmocka_unit_test(copies_are_what_the_rules_say_for_any_region),
      cmocka_unit_test(without_rules_each_parameter_is_the_tensor_of_its_name),
      cmocka_unit_test(a_rule_that_does_not_fit_the_model_is_refused_with_its_place),
  };
  return cmocka_run_group_tests_name("weights", tests, nullptr, nullptr);
}
