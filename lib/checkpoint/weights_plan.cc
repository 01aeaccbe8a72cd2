// checkpoint/weights_plan.cc: see weights_plan.h.
#include "checkpoint/weights_plan.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace gsel::checkpoint {
namespace {

using Shape = std::vector<int64_t>;

std::string in_brackets(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

template <class... Args>
[[noreturn]] void reject_map(const WeightRule& rule, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(GSEL_ERR_CONFIG, place_prefix(rule.place) + fmt::format(text, std::forward<Args>(args)...))
      .at(rule.place);
}

// What one rule says of the shapes of its targets.
class RuleOfParams {
 public:
  explicit RuleOfParams(const WeightRule& rule) : rule_(rule) {}

  // The targets' shapes in the layout of the file.
  std::vector<Shape> in_file(const std::vector<const WeightParam*>& targets) const {
    std::vector<Shape> shapes;
    for (const WeightParam* target : targets) {
      Shape& shape = shapes.emplace_back(target->shape);
      if (rule_.transpose && shape.size() < 2)
        reject_map(rule_, "{} has shape {}; transpose needs two dimensions", in_quotes(target->name),
                   in_brackets(target->shape));
      if (rule_.transpose) std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
      for (const int32_t dim : {rule_.concat_dim, rule_.split_dim})
        if (dim >= static_cast<int32_t>(shape.size()))
          reject_map(rule_, "{} has shape {}, and no dimension {}", in_quotes(target->name), in_brackets(target->shape),
                     dim);
    }
    return shapes;
  }

  // Extents of the sources along the dimension of concat.
  std::vector<int64_t> extents(int64_t whole, const WeightParam& target) const {
    const size_t n = rule_.sources.size();
    std::vector<int64_t> parts = rule_.parts.empty() ? std::vector<int64_t>(n, 1) : rule_.parts;
    int64_t sum = 0;
    for (const int64_t part : parts) sum += part;
    if (whole % sum != 0)
      reject_map(rule_, "{} elements of {} in dimension {} do not divide into {} parts in proportion {}", whole,
                 in_quotes(target.name), rule_.concat_dim, n, in_brackets(parts));
    for (int64_t& part : parts) part *= whole / sum;
    return parts;
  }

  // The tensor that all targets of split lie in.
  Shape joined(const std::vector<Shape>& shapes, const std::vector<const WeightParam*>& targets) const {
    Shape whole = shapes.front();
    if (shapes.size() == 1) return whole;
    const auto dim = static_cast<size_t>(rule_.split_dim);
    int64_t sum = 0, parts = 0;
    for (size_t t = 0; t < shapes.size(); ++t) {
      Shape other = shapes[t];
      sum += other[dim];
      if (!rule_.parts.empty()) parts += rule_.parts[t];
      other[dim] = whole[dim];
      if (other != whole)
        reject_map(rule_, "{} has shape {} and {} has shape {}; targets of split differ in one dimension alone",
                   in_quotes(targets[0]->name), in_brackets(targets[0]->shape), in_quotes(targets[t]->name),
                   in_brackets(targets[t]->shape));
    }
    for (size_t t = 0; t < rule_.parts.size(); ++t)
      if (shapes[t][dim] * parts != sum * rule_.parts[t])
        reject_map(rule_, "{} has {} of {} elements, and parts = {} gives it {} of {}", in_quotes(targets[t]->name),
                   shapes[t][dim], sum, in_brackets(rule_.parts), rule_.parts[t], parts);
    whole[dim] = sum;
    return whole;
  }

  // part: index of the source or the target. source: the tensor's shape. dim: of concat or split, in the file's layout;
  // in_target: the part's indices in it, to -1 for all; first_in_source: index where the part begins there.
  WeightPiece piece(const WeightParam& target, int32_t part, const Shape& source, int32_t dim, gsel_range in_target,
                    int64_t first_in_source) const {
    const size_t n = target.shape.size();
    std::vector<int64_t> strides(n, 1);
    for (size_t d = n; d-- > 1;) strides[d - 1] = strides[d] * source[d];
    if (dim >= 0) first_in_source *= strides[static_cast<size_t>(dim)];
    WeightPiece piece;
    piece.first = first_in_source;
    for (size_t d = 0; d < n; ++d) {
      const size_t of_file = rule_.transpose && d + 2 >= n ? 2 * n - 3 - d : d;
      gsel_range range{0, target.shape[d]};
      if (static_cast<int32_t>(of_file) == dim && in_target.end >= 0) range = in_target;
      piece.box.push_back(range);
      piece.digits.push_back({{range.end - range.begin, strides[of_file]}});
    }
    if (rule_.heads_order != HeadOrder::same && rule_.heads[static_cast<size_t>(part)] > 0)
      permute(target, rule_.heads[static_cast<size_t>(part)], piece);
    return piece;
  }

 private:
  void permute(const WeightParam& target, int64_t heads, WeightPiece& piece) const {
    if (target.shape.empty()) reject_map(rule_, "{} is one number; permute needs rows", in_quotes(target.name));
    const WeightPiece::Digit rows = piece.digits[0][0];
    if (rows.count % heads != 0 || rows.count / heads % 2 != 0)
      reject_map(rule_, "{} rows of {} are no {} of an even number of rows", rows.count, in_quotes(target.name),
                 with_noun(heads, "head"));
    const int64_t size = rows.count / heads, half = size / 2;
    const WeightPiece::Digit head{heads, size * rows.stride};
    if (rule_.heads_order == HeadOrder::halves_to_pairs)
      piece.digits[0] = {head, {half, rows.stride}, {2, half * rows.stride}};
    else
      piece.digits[0] = {head, {2, rows.stride}, {half, 2 * rows.stride}};
  }

  const WeightRule& rule_;
};

class Planning {
 public:
  Planning(const std::vector<WeightRule>& rules, const std::vector<WeightParam>& params, WeightPlan& plan)
      : rules_(rules), params_(params), plan_(plan), is_done_(params.size()) {
    for (size_t p = 0; p < params.size(); ++p) by_name_.emplace(params[p].name, static_cast<int32_t>(p));
  }

  void run() {
    plan_.pieces.resize(params_.size());
    for (size_t p = 0; p < params_.size(); ++p) {
      if (is_done_[p]) continue;
      if (rules_.empty())
        take_as_is(static_cast<int32_t>(p));
      else
        find_rule(params_[p].name);
    }
  }

 private:
  void take_as_is(int32_t p) {
    const WeightParam& param = params_[static_cast<size_t>(p)];
    const WeightRule same;
    plan_.sources.push_back({param.name, {}, param.shape, 0, false, {p}});
    WeightPiece piece = RuleOfParams(same).piece(param, 0, param.shape, -1, {0, -1}, 0);
    piece.source = static_cast<int32_t>(plan_.sources.size()) - 1;
    plan_.pieces[static_cast<size_t>(p)].push_back(std::move(piece));
  }

  void find_rule(const std::string& name) {
    const WeightRule* found = nullptr;
    NamePattern::Captures captures;
    for (const WeightRule& rule : rules_)
      for (const NamePattern& target : rule.targets) {
        auto matched = target.match(name);
        if (!matched) continue;
        if (found)
          reject_map(rule, "{} is a target of this rule and of that in line {}; expected one rule for each parameter",
                     in_quotes(name), found->place.line);
        found = &rule;
        captures = std::move(*matched);
      }
    if (found) apply(*found, captures);
  }

  void apply(const WeightRule& rule, const NamePattern::Captures& captures) {
    std::vector<const WeightParam*> targets;
    std::vector<int32_t> ids;
    for (const NamePattern& pattern : rule.targets) {
      const auto param = by_name_.find(pattern.fill(captures));
      if (param == by_name_.end())
        reject_map(rule, "{} is no parameter of the model, which has other targets of this rule",
                   in_quotes(pattern.fill(captures)));
      ids.push_back(param->second);
      targets.push_back(&params_[static_cast<size_t>(param->second)]);
      is_done_[static_cast<size_t>(param->second)] = true;
    }
    const RuleOfParams of(rule);
    const std::vector<Shape> shapes = of.in_file(targets);
    if (rule.concat_dim >= 0)
      concat(rule, captures, of, *targets.front(), ids.front(), shapes.front());
    else
      split(rule, captures, of, targets, ids, shapes);
  }

  void concat(const WeightRule& rule, const NamePattern::Captures& captures, const RuleOfParams& of,
              const WeightParam& target, int32_t param, const Shape& whole) {
    const auto dim = static_cast<size_t>(rule.concat_dim);
    const std::vector<int64_t> extents = of.extents(whole[dim], target);
    int64_t begin = 0;
    for (size_t s = 0; s < extents.size(); ++s) {
      Shape shape = whole;
      shape[dim] = extents[s];
      WeightPiece piece =
          of.piece(target, static_cast<int32_t>(s), shape, rule.concat_dim, {begin, begin + extents[s]}, 0);
      add(rule, captures, rule.sources[s], std::move(shape), param, std::move(piece));
      begin += extents[s];
    }
  }

  void split(const WeightRule& rule, const NamePattern::Captures& captures, const RuleOfParams& of,
             const std::vector<const WeightParam*>& targets, const std::vector<int32_t>& ids,
             const std::vector<Shape>& shapes) {
    const Shape whole = of.joined(shapes, targets);
    int64_t begin = 0;
    for (size_t t = 0; t < targets.size(); ++t) {
      WeightPiece piece = of.piece(*targets[t], static_cast<int32_t>(t), whole, rule.split_dim, {0, -1}, begin);
      if (rule.split_dim >= 0) begin += shapes[t][static_cast<size_t>(rule.split_dim)];
      add(rule, captures, rule.sources.front(), whole, ids[t], std::move(piece));
    }
  }

  // Targets of one rule share a tensor; those of two rules do not.
  void add(const WeightRule& rule, const NamePattern::Captures& captures, const NamePattern& pattern, Shape shape,
           int32_t param, WeightPiece piece) {
    std::string name = pattern.fill(captures);
    const auto [at, is_new] =
        sources_.emplace(name, SourceOf{static_cast<int32_t>(plan_.sources.size()), &rule, captures});
    if (is_new) {
      WeightSource source{std::move(name), {}, std::move(shape), rule.cast, rule.optional, {}};
      for (const NamePattern& alias : rule.aliases) source.aliases.push_back(alias.fill(captures));
      plan_.sources.push_back(std::move(source));
    } else if (at->second.rule != &rule || at->second.captures != captures || rule.targets.size() == 1) {
      reject_map(
          rule, "{} is the source of {} and of {}; expected one parameter, which layers share if they are tied",
          in_quotes(name), in_quotes(params_[static_cast<size_t>(param)].name),
          in_quotes(
              params_[static_cast<size_t>(plan_.sources[static_cast<size_t>(at->second.index)].params.front())].name));
    }
    piece.source = at->second.index;
    plan_.sources[static_cast<size_t>(piece.source)].params.push_back(param);
    plan_.pieces[static_cast<size_t>(param)].push_back(std::move(piece));
  }

  struct SourceOf {
    int32_t index;
    const WeightRule* rule;
    NamePattern::Captures captures;
  };
  const std::vector<WeightRule>& rules_;
  const std::vector<WeightParam>& params_;
  WeightPlan& plan_;
  std::vector<bool> is_done_;
  std::map<std::string, int32_t> by_name_;
  std::map<std::string, SourceOf> sources_;
};

}  // namespace

WeightPlan::WeightPlan(const std::vector<WeightRule>& rules, const std::vector<WeightParam>& params) {
  Planning(rules, params, *this).run();
}

}  // namespace gsel::checkpoint
