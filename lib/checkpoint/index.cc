// checkpoint/index.cc: see index.h.
#include "checkpoint/index.h"

#include <algorithm>
#include <map>

#include "base/align.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_object.h"
#include "base/text.h"
#include "train/query/user_state.h"

namespace gsel::checkpoint {
namespace {

Json numbers_of(const gsel_range& range) {
  Json pair = Json::array();
  pair.push(range.begin);
  pair.push(range.end);
  return pair;
}

int64_t whole_number(const JsonObject& owner, const char* field, const JsonArray& array, size_t i) {
  const std::optional<double> n = array.number(i);
  if (!n || *n < 0 || *n > 9007199254740992.0 || *n != static_cast<double>(static_cast<int64_t>(*n)))
    owner.refuse(field, "has an item that is no whole number from 0 on");
  return static_cast<int64_t>(*n);
}

gsel_range range_of(const JsonObject& owner, const char* field, const JsonArray& pair) {
  if (pair.size() != 2) owner.refuse(field, "has a range without two numbers");
  return {whole_number(owner, field, pair, 0), whole_number(owner, field, pair, 1)};
}

// Refuses names that lead out of the folder.
std::string file_name(JsonObject& object, const char* field) {
  std::string name = object.require_text(field);
  if (name.empty() || name.front() == '.' || name.find('/') != name.npos)
    object.refuse(field, "is no name of a file in this folder");
  return name;
}

IndexPiece piece_of(JsonObject object, const std::vector<IndexTensor>& tensors,
                    const std::map<std::string, int32_t>& by_name) {
  const std::string name = object.require_text("tensor");
  const auto tensor = by_name.find(name);
  if (tensor == by_name.end()) object.refuse("tensor", fmt::format("is {}, which is not in tensors", in_quotes(name)));
  const std::vector<int64_t>& shape = tensors[static_cast<size_t>(tensor->second)].shape;
  std::string file = file_name(object, "file"), key = object.require_text("key");
  std::vector<Region::Intervals> intervals;
  const JsonArray dims = object.array("intervals");
  for (size_t d = 0; d < dims.size(); ++d) {
    const JsonArray list = dims.array(d);
    Region::Intervals& of_dim = intervals.emplace_back();
    for (size_t i = 0; i < list.size(); ++i) of_dim.push_back(range_of(object, "intervals", list.array(i)));
  }
  std::optional<gsel_range> range;
  if (object.has("range")) range = range_of(object, "range", object.array("range"));
  object.finish();
  try {
    return {tensor->second, std::move(file), std::move(key), Region(shape, std::move(intervals), range)};
  } catch (const Error& e) {
    object.refuse({}, "is no region of " + in_quotes(name) + ": " + e.message());
  }
}

void check_format(JsonObject& object) {
  const int32_t format = object.whole("format", INT32_MAX, 0);
  if (format != kFormat) object.refuse("format", fmt::format("is {}; this version reads format {}", format, kFormat));
}

}  // namespace

uint64_t bytes_of(const IndexTensor& tensor) {
  return sizeof(float) * static_cast<uint64_t>(Region(tensor.shape).count());
}

std::string user_key(const std::string& name) {
  return "user:" + name;
}
std::string user_key(const IndexUser& user, int32_t rank) {
  return user_key(user.name) + (user.is_of_rank ? fmt::format("@{}", rank) : "");
}

std::string Index::text_of(const std::vector<IndexPiece>& some, const std::vector<IndexTensor>& of) {
  std::string text;
  for (const IndexPiece& piece : some) {
    Json item{{"tensor", of[static_cast<size_t>(piece.tensor)].name}, {"file", piece.file}, {"key", piece.key}};
    const Region& region = piece.region;
    if (region.product() != Region(region.shape()).count()) {
      Json dims = Json::array();
      for (size_t d = 0; d < region.shape().size(); ++d) {
        Json list = Json::array();
        for (const gsel_range& interval : region.intervals(d)) list.push(numbers_of(interval));
        dims.push(std::move(list));
      }
      item.set("intervals", std::move(dims));
    }
    if (region.count() != region.product()) item.set("range", numbers_of(region.range()));
    text += (text.empty() ? "    " : ",\n    ") + item.on_one_line();
  }
  return text;
}

std::string Index::text(const std::vector<std::string>& items) const {
  Json head{{"format", kFormat},
            {"step", numbers.step},
            {"ranks", n_ranks},
            {"updates", numbers.updates},
            {"first_sample", numbers.first_sample},
            {"seed", numbers.seed},
            {"optimizer", optimizer},
            {"loss_scale", numbers.loss_scale},
            {"good_steps", numbers.good_steps},
            {"overflows_left", numbers.overflows_left}};
  if (numbers.learning_rate) head.set("learning_rate", *numbers.learning_rate);
  std::string text = head.on_one_line();
  text.pop_back();
  text += ",\n  \"users\": [";
  for (size_t u = 0; u < users.size(); ++u)
    text +=
        fmt::format("{}{}", u ? ", " : "",
                    Json{{"name", users[u].name}, {"scope", users[u].is_of_rank ? "rank" : "shared"}}.on_one_line());
  text += "]";
  text += ",\n  \"tensors\": [\n";
  for (size_t t = 0; t < tensors.size(); ++t)
    text += fmt::format("    {}{}\n", Json{{"name", tensors[t].name}, {"shape", tensors[t].shape}}.on_one_line(),
                        t + 1 < tensors.size() ? "," : "");
  text += "  ],\n  \"pieces\": [\n";
  bool is_first = true;
  for (const std::string& of_rank : items) {
    if (of_rank.empty()) continue;
    text += (is_first ? "" : ",\n") + of_rank;
    is_first = false;
  }
  return text + "\n  ]}\n";
}

Index Index::parse(std::string_view text, const std::string& file) {
  const JsonSource source{"checkpoint index", file, text};
  const auto parsed = parse_json(text, source);
  JsonObject object(*parsed, source);
  check_format(object);
  Index index;
  TrainingNumbers& numbers = index.numbers;
  numbers.step = static_cast<int64_t>(object.number("step", 0, kMostSteps, 0));
  numbers.updates = static_cast<int64_t>(object.number("updates", 0, static_cast<uint64_t>(numbers.step), 0));
  for (const char* needed : {"step", "first_sample", "seed"})
    if (!object.has(needed)) object.refuse(needed, "is missing");
  numbers.first_sample = static_cast<int64_t>(object.number("first_sample", 0, kMostFirstSample, 0));
  numbers.seed = static_cast<int64_t>(object.number("seed", 0, INT64_MAX, 0));
  index.optimizer = object.require_text("optimizer");
  numbers.loss_scale = object.amount("loss_scale", 1);
  numbers.good_steps = static_cast<int64_t>(object.number("good_steps", 0, kMostSteps, 0));
  numbers.overflows_left = static_cast<int64_t>(object.number("overflows_left", 0, INT64_MAX, 0));
  if (object.has("learning_rate")) numbers.learning_rate = object.amount("learning_rate", 0);
  index.n_ranks = object.whole("ranks", INT32_MAX, 1);
  object.array("users").each([&](JsonObject item) {
    IndexUser user{item.require_text("name"), false};
    if (!is_state_name(user.name)) item.refuse("name", "is no name of a state of the program's own");
    if (std::ranges::find(index.users, user.name, &IndexUser::name) != index.users.end())
      item.refuse("name", "is another state's");
    const std::string scope = item.require_text("scope");
    if (scope != "rank" && scope != "shared") item.refuse("scope", "is neither \"rank\" nor \"shared\"");
    user.is_of_rank = scope == "rank";
    item.finish();
    index.users.push_back(std::move(user));
  });
  std::map<std::string, int32_t> by_name;
  object.array("tensors").each([&](JsonObject item) {
    IndexTensor tensor{item.require_text("name"), {}};
    if (tensor.name.starts_with(user_key({}))) item.refuse("name", "is that of a state of the program's own");
    const JsonArray shape = item.array("shape");
    for (size_t d = 0; d < shape.size(); ++d) tensor.shape.push_back(whole_number(item, "shape", shape, d));
    try {
      Region whole(tensor.shape);
    } catch (const Error& e) {
      item.refuse("shape", "has too many elements: " + e.message());
    }
    item.finish();
    if (!by_name.emplace(tensor.name, static_cast<int32_t>(index.tensors.size())).second)
      item.refuse("name", "is another tensor's");
    index.tensors.push_back(std::move(tensor));
  });
  object.array("pieces").each(
      [&](JsonObject item) { index.pieces.push_back(piece_of(std::move(item), index.tensors, by_name)); });
  object.finish();
  std::ranges::stable_sort(index.pieces, {}, &IndexPiece::tensor);
  return index;
}

void Index::check_coverage(const std::string& file, uint64_t most_bytes) const {
  uint64_t left = most_bytes / sizeof(float);
  for (const IndexPiece& piece : pieces) {
    const auto count = static_cast<uint64_t>(piece.region.count());
    if (count > left)
      throw Error(GSEL_ERR_PARSE, fmt::format("checkpoint index {}: the pieces have more bytes than the files, which "
                                              "have {}",
                                              file, most_bytes))
          .at({file, 0, 0, tensors[static_cast<size_t>(piece.tensor)].name});
    left -= count;
  }
  size_t at = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    std::vector<const Region*> regions;
    for (; at < pieces.size() && pieces[at].tensor == static_cast<int32_t>(t); ++at)
      regions.push_back(&pieces[at].region);
    const Region none(tensors[t].shape, {}, gsel_range{0, 0});
    regions.push_back(&none);
    const Coverage coverage = coverage_of(regions);
    if (coverage.is_exact()) continue;
    throw Error(GSEL_ERR_PARSE, fmt::format("checkpoint index {}: element {} of {} is in {}; expected each in one",
                                            file, coverage.whole, in_quotes(tensors[t].name),
                                            coverage.second < 0 ? "no piece" : "two pieces"))
        .at({file, 0, 0, tensors[t].name});
  }
}

std::string ManifestFile::text() const {
  return Json{{"name", name}, {"bytes", sums.bytes}, {"xxh3_128", sums.whole}, {"blocks", sums.blocks}}.on_one_line();
}

std::string Manifest::text(int64_t step, const std::vector<std::string>& files) {
  const std::string text = fmt::format("{{\"format\": {}, \"step\": {}, \"block_bytes\": {}, \"files\": [\n  {}\n],\n",
                                       kFormat, step, kSumBlockBytes, fmt::join(files, ",\n  "));
  return text + fmt::format("\"xxh3_128\": \"{}\"}}\n", sum_of(text.data(), text.size()));
}

Manifest Manifest::parse(std::string_view text, const std::string& file) {
  const JsonSource source{"checkpoint manifest", file, text};
  const auto parsed = parse_json(text, source);
  JsonObject object(*parsed, source);
  check_format(object);
  Manifest manifest;
  manifest.step = static_cast<int64_t>(object.number("step", 0, INT64_MAX, 0));
  object.number("block_bytes", kSumBlockBytes, kSumBlockBytes, 0);
  object.array("files").each([&](JsonObject item) {
    ManifestFile of{file_name(item, "name"), {}};
    of.sums.bytes = item.number("bytes", 0, INT64_MAX, 0);
    of.sums.whole = item.require_text("xxh3_128");
    of.sums.blocks = item.texts("blocks");
    if (const uint64_t blocks = round_up(of.sums.bytes, kSumBlockBytes) / kSumBlockBytes;
        of.sums.blocks.size() != blocks)
      item.refuse("blocks", fmt::format("has {} sums; expected {}", of.sums.blocks.size(), blocks));
    item.finish();
    manifest.files.push_back(std::move(of));
  });
  const std::string sum = object.require_text("xxh3_128");
  object.finish();
  const size_t last = text.rfind("\"xxh3_128\"");
  const std::string end = fmt::format("\"xxh3_128\": \"{}\"}}\n", sum);
  if (last == text.npos || text.substr(last) != end || sum_of(text.data(), last) != sum)
    object.refuse("xxh3_128", "is not the checksum of the text before it");
  return manifest;
}

const ManifestFile& Manifest::file(const std::string& name, const std::string& path) const {
  const auto listed = std::ranges::find(files, name, &ManifestFile::name);
  if (listed == files.end())
    throw Error(GSEL_ERR_PARSE, fmt::format("{} has no {}, which the checkpoint needs", path, name))
        .at({path, 0, 0, name});
  return *listed;
}

}  // namespace gsel::checkpoint
