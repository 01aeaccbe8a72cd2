// checkpoint/weights_match.cc: see weights_match.h.
#include "checkpoint/weights_match.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace gsel::checkpoint {
namespace {

constexpr size_t kMostOfAKind = 10;

// A list of faults of one kind, of which a message has the first ones.
class Faults {
 public:
  void add(std::string what) {
    if (++n_ <= kMostOfAKind) first_.push_back(std::move(what));
  }
  bool empty() const { return n_ == 0; }
  std::string text(std::string_view noun, std::string_view fault) const {
    if (empty()) return {};
    const std::string more = n_ > kMostOfAKind ? fmt::format(", and {} more", n_ - kMostOfAKind) : std::string();
    return fmt::format("; {} {}: {}{}", with_noun(n_, noun), fault, fmt::join(first_, ", "), more);
  }

 private:
  size_t n_ = 0;
  std::vector<std::string> first_;
};

std::string shape_in_brackets(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_readable(gsel_dtype dtype) {
  return dtype == GSEL_F32 || dtype == GSEL_BF16 || dtype == GSEL_F16;
}

class TensorMatching {
 public:
  TensorMatching(const WeightPlan& plan, const std::vector<WeightParam>& params, const std::string& prefix,
                 const WeightFiles& files, WeightMatch& match)
      : plan_(plan), params_(params), prefix_(prefix), files_(files), match_(match) {
    for (const WeightSource& source : plan.sources) asked_.insert(source.name);
  }

  void find_sources() {
    for (const WeightSource& source : plan_.sources) {
      WeightMatch::Found& found = match_.sources.emplace_back();
      take(found, source.name);
      for (const std::string& alias : source.aliases)
        if (!asked_.contains(alias)) take(found, alias);
      if (found.tensor) check(source, found);
    }
  }

  void find_params() {
    for (size_t p = 0; p < params_.size(); ++p) {
      const std::vector<WeightPiece>& pieces = plan_.pieces[p];
      size_t n_missing = 0;
      std::string missing;
      bool is_optional = !pieces.empty();
      for (const WeightPiece& piece : pieces) {
        const WeightSource& source = plan_.sources[static_cast<size_t>(piece.source)];
        is_optional = is_optional && source.is_optional;
        if (match_.sources[static_cast<size_t>(piece.source)].tensor) continue;
        missing += fmt::format("{}{}", n_missing++ ? ", " : "", in_quotes(source.name, source.name.size()));
      }
      match_.is_filled.push_back(!pieces.empty() && n_missing == 0);
      if (match_.is_filled.back() || (is_optional && n_missing == pieces.size())) continue;
      unfilled_.add(fmt::format("{} ({})", in_quotes(params_[p].name, params_[p].name.size()),
                                pieces.empty() ? "no rule names it" : "missing " + missing));
    }
  }

  void find_unused(const std::vector<WeightRule>& rules) {
    for (const auto& [name, tensor] : files_.tensors()) {
      if (used_.contains(name)) continue;
      if (is_ignored(rules, name))
        ++match_.n_ignored;
      else
        unused_.add(in_quotes(name, name.size()));
    }
  }

  void verdict(const std::string& path) const {
    const std::string text = unfilled_.text("parameter", "without a tensor") +
                             unused_.text("tensor", "without a parameter") +
                             wrong_.text("tensor", "of another shape or type");
    if (!text.empty())
      throw Error(GSEL_ERR_MISMATCH, fmt::format("{} and the model differ: {}", path, text.substr(2)))
          .at({path, 0, 0, {}});
  }

 private:
  const WeightFiles::Tensor* tensor(const std::string& name) const {
    const auto found = files_.tensors().find(name);
    return found == files_.tensors().end() ? nullptr : &found->second;
  }

  // The first name that is there is the tensor's, others are of copies.
  void take(WeightMatch::Found& found, const std::string& stem) {
    std::vector<std::string> names{stem};
    if (!prefix_.empty()) names.push_back(prefix_ + stem);
    for (std::string& name : names) {
      const WeightFiles::Tensor* const there = tensor(name);
      if (!there || !used_.insert(name).second) continue;
      if (!found.tensor) {
        found.tensor = there;
        found.name = std::move(name);
      } else {
        found.copies.emplace_back(std::move(name), there);
        ++match_.n_ignored;
      }
    }
  }

  void check(const WeightSource& source, const WeightMatch::Found& found) {
    const auto one = [&](const std::string& name, const StoredTensor& stored) {
      if (stored.shape != source.shape)
        wrong_.add(fmt::format("{} has shape {}, and {} shape {}", in_quotes(name, name.size()),
                               shape_in_brackets(stored.shape), needing(source), shape_in_brackets(source.shape)));
      else if (!is_readable(stored.dtype()))
        wrong_.add(
            fmt::format("{} has type {}; expected F32, BF16 or F16", in_quotes(name, name.size()), stored.type_name()));
    };
    one(found.name, found.tensor->stored);
    for (const auto& [name, copy] : found.copies) {
      one(name, copy->stored);
      if (copy->stored.type != found.tensor->stored.type)
        wrong_.add(fmt::format("{} has type {}, and {}, of which it is a copy, {}", in_quotes(name, name.size()),
                               copy->stored.type_name(), in_quotes(found.name, found.name.size()),
                               found.tensor->stored.type_name()));
    }
  }

  // "w needs", "w1 and w2 need"
  std::string needing(const WeightSource& source) const {
    std::string names;
    for (const int32_t p : source.params) {
      const std::string& name = params_[static_cast<size_t>(p)].name;
      names += fmt::format("{}{}", names.empty() ? "" : " and ", in_quotes(name, name.size()));
    }
    return names + (source.params.size() > 1 ? " need" : " needs");
  }

  bool is_ignored(const std::vector<WeightRule>& rules, const std::string& name) const {
    std::vector<std::string_view> names{name};
    if (!prefix_.empty() && name.starts_with(prefix_)) names.push_back(std::string_view(name).substr(prefix_.size()));
    for (const WeightRule& rule : rules) {
      if (!rule.ignores()) continue;
      for (const NamePattern& pattern : rule.sources)
        for (const std::string_view one : names)
          if (pattern.match(one)) return true;
    }
    return false;
  }

  const WeightPlan& plan_;
  const std::vector<WeightParam>& params_;
  const std::string& prefix_;
  const WeightFiles& files_;
  WeightMatch& match_;
  std::set<std::string> asked_, used_;
  Faults unfilled_, unused_, wrong_;
};

}  // namespace

WeightMatch::WeightMatch(const WeightPlan& plan, const std::vector<WeightParam>& params,
                         const std::vector<WeightRule>& rules, const std::string& prefix, const WeightFiles& files,
                         const std::string& path) {
  TensorMatching matching(plan, params, prefix, files, *this);
  matching.find_sources();
  matching.find_params();
  matching.find_unused(rules);
  matching.verdict(path);
}

}  // namespace gsel::checkpoint
