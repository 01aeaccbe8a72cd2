// program/stages.cc: see stages.h.
#include "program/stages.h"

#include <algorithm>

#include "program/shards.h"

namespace gsel {
namespace {

int32_t own_pipeline_rank(const Program& program) {
  return program.mesh.coordinate(program.rank, GSEL_AXIS_PIPELINE);
}

bool uses(const ProgramLayer& layer, int32_t value) {
  return std::ranges::count(layer.inputs, value) || std::ranges::count(layer.outputs, value);
}

// Sorts and removes duplicates; [0] if empty.
void settle(std::vector<int32_t>& ranks) {
  if (ranks.empty()) ranks.push_back(0);
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

std::vector<std::vector<int32_t>> ties_of(const Program& program, const std::vector<std::vector<int32_t>>& all) {
  std::vector<std::vector<int32_t>> result;
  for (size_t p = 0; p < all.size(); ++p)
    if (program.params[p].trainable && all[p].size() > 1 && !std::ranges::count(result, all[p]))
      result.push_back(all[p]);
  return result;
}

// n_ties: their number.
std::vector<int32_t> tie_of_params(const Program& program, const std::vector<std::vector<int32_t>>& all,
                                   int32_t* n_ties) {
  const std::vector<std::vector<int32_t>> sets = ties_of(program, all);
  std::vector<int32_t> result(all.size(), -1);
  for (size_t p = 0; p < all.size(); ++p)
    if (const auto found = std::ranges::find(sets, all[p]); program.params[p].trainable && found != sets.end())
      result[p] = static_cast<int32_t>(found - sets.begin());
  *n_ties = static_cast<int32_t>(sets.size());
  return result;
}

std::vector<int32_t> class_of_params(const Program& program, const std::vector<std::vector<int32_t>>& all) {
  int32_t n_ties = 0;
  std::vector<int32_t> result = tie_of_params(program, all, &n_ties);
  for (size_t p = 0; p < result.size(); ++p)
    if (program.params[p].partial_gradient) result[p] += n_ties + 1;
  return result;
}

}  // namespace

void check_stages(const Program& program) {
  const auto n_stages = std::ssize(program.rank_of_stage);
  const int32_t n_ranks = program.mesh.size[GSEL_AXIS_PIPELINE];
  std::vector<bool> seen(static_cast<size_t>(n_ranks));
  for (ptrdiff_t s = 0; s < n_stages; ++s) {
    const int32_t rank = program.rank_of_stage[s];
    if (rank < 0 || rank >= n_ranks)
      fail(GSEL_ERR_PROGRAM, "stage {} is on pipeline rank {}; 0 to {} exist", s, rank, n_ranks - 1);
    seen[rank] = true;
  }
  if (const auto idle = std::ranges::find(seen, false); idle != seen.end())
    fail(GSEL_ERR_PROGRAM, "pipeline rank {} has no stage; each has one or more", idle - seen.begin());
  int32_t last = -1;
  for (const ProgramLayer& l : program.layers) {
    if (l.stage < 0 || l.stage >= n_stages)
      fail(GSEL_ERR_PROGRAM, "layer \"{}\" is of stage {}; 0 to {} exist", l.name, l.stage, n_stages - 1);
    if (l.stage < last)
      fail(GSEL_ERR_PROGRAM, "layer \"{}\" is in stage {} but follows a layer of stage {}; order layers by stage",
           l.name, l.stage, last);
    if (l.stage > last + 1) fail(GSEL_ERR_PROGRAM, "stage {} has no layer", last + 1);
    last = l.stage;
  }
  if (last + 1 < n_stages && n_stages > 1) fail(GSEL_ERR_PROGRAM, "stage {} has no layer", last + 1);
}

int32_t pipeline_rank_of_layer(const Program& program, int32_t layer) {
  return program.rank_of_stage[program.layers[layer].stage];
}

bool is_here(const Program& program, int32_t layer) {
  return pipeline_rank_of_layer(program, layer) == own_pipeline_rank(program);
}

std::vector<std::vector<int32_t>> all_holders(const Program& program) {
  std::vector<std::vector<int32_t>> result(program.params.size());
  for (const ProgramLayer& l : program.layers)
    for (int32_t p : l.params) result[p].push_back(program.rank_of_stage[l.stage]);
  for (std::vector<int32_t>& ranks : result) settle(ranks);
  return result;
}

std::vector<int32_t> holders(const Program& program, int32_t param) {
  std::vector<int32_t> ranks;
  for (const ProgramLayer& l : program.layers)
    if (std::ranges::count(l.params, param)) ranks.push_back(program.rank_of_stage[l.stage]);
  settle(ranks);
  return ranks;
}

bool holds(const Program& program, int32_t param) {
  return std::ranges::count(holders(program, param), own_pipeline_rank(program)) > 0;
}

std::vector<std::vector<int32_t>> ties(const Program& program) {
  return ties_of(program, all_holders(program));
}

std::vector<int32_t> tie_of_params(const Program& program) {
  int32_t n_ties = 0;
  return tie_of_params(program, all_holders(program), &n_ties);
}

int32_t tie_of(const Program& program, int32_t param) {
  return tie_of_params(program)[param];
}

std::vector<int32_t> class_of_params(const Program& program) {
  return class_of_params(program, all_holders(program));
}

bool sums_partial(const Program& program, int32_t bucket) {
  return program.params[program.buckets[bucket].params.front()].partial_gradient && steps_here(program, bucket) &&
         program.mesh.sharing_size() > 1;
}

std::vector<int32_t> bucket_holders(const Program& program, int32_t bucket) {
  return holders(program, program.buckets[bucket].params.front());
}

bool counts_for_tie(const Program& program, int32_t bucket) {
  return bucket_holders(program, bucket).front() == own_pipeline_rank(program);
}

std::vector<int32_t> tied_ranks(const Program& program, int32_t bucket) {
  const std::vector<int32_t> along = program.mesh.group(program.rank, GSEL_AXIS_PIPELINE);
  std::vector<int32_t> ranks;
  for (int32_t holder : bucket_holders(program, bucket)) ranks.push_back(along[holder]);
  return ranks;
}

bool sums_tied(const Program& program, int32_t bucket) {
  return bucket_holders(program, bucket).size() > 1 && steps_here(program, bucket);
}

std::vector<bool> sums_tied(const Program& program) {
  const std::vector<std::vector<int32_t>> all = all_holders(program);
  std::vector<bool> result;
  for (size_t b = 0; b < program.buckets.size(); ++b)
    result.push_back(all[program.buckets[b].params.front()].size() > 1 && steps_here(program, static_cast<int32_t>(b)));
  return result;
}

std::vector<int32_t> chain(const Program& program, int32_t value) {
  std::vector<int32_t> ranks;
  for (const ProgramLayer& l : program.layers)
    if (uses(l, value) && !std::ranges::count(ranks, program.rank_of_stage[l.stage]))
      ranks.push_back(program.rank_of_stage[l.stage]);
  return ranks;
}

bool gradient_returns(const Program& program, int32_t value, int32_t pipeline_rank) {
  if (!program.values[value].needs_gradient) return false;
  const std::vector<int32_t> ranks = chain(program, value);
  const auto from = std::ranges::find(ranks, pipeline_rank);
  if (from == ranks.end()) return true;
  return std::ranges::any_of(program.layers, [&](const ProgramLayer& l) {
    return l.needs_backward_input && std::ranges::count(l.inputs, value) &&
           std::find(from, ranks.end(), program.rank_of_stage[l.stage]) != ranks.end();
  });
}

bool has_partial_loss(const Program& program) {
  const auto loss = std::ranges::find_if(program.layers, &ProgramLayer::is_loss);
  return loss != program.layers.end() && std::ranges::any_of(loss->outputs, [&](int32_t v) {
           return program.values[v].placement == Placement::partial;
         });
}

std::vector<ProgramBucket> plain_buckets(const Program& program) {
  const std::vector<std::vector<int32_t>> all = all_holders(program);
  const std::vector<int32_t> class_of = class_of_params(program, all);
  const int32_t last = class_of.empty() ? -1 : std::ranges::max(class_of);
  std::vector<ProgramBucket> buckets;
  for (gsel_dtype dtype : {GSEL_F32, GSEL_BF16, GSEL_F16})
    for (int32_t c = -1; c <= last; ++c) {
      ProgramBucket bucket;
      for (size_t p = 0; p < program.params.size(); ++p) {
        const bool fits = program.params[p].trainable && program.params[p].dtype == dtype && class_of[p] == c;
        if (fits && std::ranges::count(all[p], own_pipeline_rank(program)))
          bucket.params.push_back(static_cast<int32_t>(p));
      }
      if (!bucket.params.empty()) buckets.push_back(std::move(bucket));
    }
  return buckets;
}

}  // namespace gsel
