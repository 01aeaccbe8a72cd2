// train/check/sum_checks.cc: checks of sums: accumulate, halves of backward, halves of a batch. See layer_check.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "train/check/layer_check.h"

namespace gsel::check {
namespace {

// Initial values of the gradient's magnitude, so that accumulation shows.
void fill_start(Buffer& start, const Buffer& gradient) {
  const double most = largest_magnitude(gradient), scale = most > 0 ? most : 1;
  for (int64_t i = 0; i < start.elems(); ++i) start.put(i, scale * (i % 2 ? -1 : 1) * (0.5 + 0.125 * double(i % 5)));
}

int32_t callback_of_gradient(const Layer& layer, int32_t role) {
  if (layer.backward) return GSEL_BACKWARD;
  return role == GSEL_BUFFER_D_INPUT ? GSEL_BACKWARD_INPUT : GSEL_BACKWARD_WEIGHT;
}

}  // namespace

// ---- accumulate ----

void LayerCheck::check_accumulation(int32_t callback) {
  Member plain = a_, added = a_;
  caller_.run(plain, round(callback));
  for (size_t i = 0; i < plain[GSEL_BUFFER_D_PARAM].size(); ++i)
    fill_start(added[GSEL_BUFFER_D_PARAM][i], plain[GSEL_BUFFER_D_PARAM][i]);
  const Member start = added;
  Round adding = round(callback);
  adding.accumulate = 1;
  caller_.run(added, adding);
  for (size_t p = 0; p < plain[GSEL_BUFFER_D_PARAM].size(); ++p) {
    const Buffer &g = plain[GSEL_BUFFER_D_PARAM][p], &k = start[GSEL_BUFFER_D_PARAM][p],
                 &got = added[GSEL_BUFFER_D_PARAM][p];
    if (g.is_absent) continue;
    Buffer want = g;
    for (int64_t i = 0; i < want.elems(); ++i) want.put(i, k.number(i) + (plain.produced[p] ? g.number(i) : 0));
    const double most = std::max(tolerance(), 1e-4) * 2 * largest_magnitude(k);
    const int64_t i = first_different(got, want, most);
    if (i < 0) continue;
    const bool overwrote = std::fabs(got.number(i) - g.number(i)) <= most;
    findings().breach(overwrote ? GSEL_BREACH_NOT_ACCUMULATED : GSEL_BREACH_WRONG_SUM, site(callback), got, i,
                      fmt::format("with accumulate 1 and {} there, a gradient of {} left {}; {}", shown(k.number(i)),
                                  shown(g.number(i)), shown(got.number(i)),
                                  overwrote ? "it was overwritten: add to it when accumulate is 1"
                                            : fmt::format("{} would be right", shown(want.number(i)))),
                      got.number(i), want.number(i));
  }
}

// Fills gradients with -0: an element that a kernel adds to does not stay -0. Untouched elements are only noted, as for
// an embedding whose rows no sample reads.
void LayerCheck::note_untouched(int32_t callback) {
  Member member = a_;
  for (Buffer& buffer : member[GSEL_BUFFER_D_PARAM])
    for (int64_t i = 0; i < buffer.elems(); ++i) buffer.put(i, -0.0);
  caller_.run(member, round(callback));
  for (const Buffer& buffer : member[GSEL_BUFFER_D_PARAM]) {
    if (buffer.is_absent || !member.produced[static_cast<size_t>(buffer.index)]) continue;
    auto is_untouched = [&](int64_t i) { return buffer.number(i) == 0 && std::signbit(buffer.number(i)); };
    int64_t n = 0, first = -1;
    for (int64_t i = 0; i < buffer.elems(); ++i)
      if (is_untouched(i) && n++ == 0) first = i;
    if (n > 0)
      findings().note(site(callback), buffer,
                      fmt::format("{} of {} were not added to, the first is element {}; samples that do not "
                                  "reach them explain it, as in an embedding, or else the parameter is longer than the "
                                  "kernel takes it to be",
                                  n, with_noun(buffer.elems(), "element"), first));
  }
}

// ---- halves of backward ----

void LayerCheck::check_halves() {
  const Layer& layer = *a_.layer;
  if (!layer.backward || !settings_.looks_for(GSEL_BREACH_HALVES)) return;
  for (int32_t callback : backward_callbacks()) {
    if (callback == GSEL_BACKWARD) continue;
    Member half = a_;
    caller_.run(half, round(callback));
    for (const Buffer* got : written_by(half, callback)) {
      const Buffer& whole = (*gradients_)[got->role][static_cast<size_t>(got->index)];
      compare_one(GSEL_BREACH_HALVES, callback, *got, whole, tolerance() * largest_magnitude(whole),
                  "from this half, and from the fused backward");
    }
  }
}

// ---- ranks in lockstep ----

void LayerCheck::compare_one(gsel_breach_kind kind, int32_t callback, const Buffer& got, const Buffer& whole,
                             double most, const std::string& what) {
  const int64_t i = first_different(got, whole, most);
  if (i < 0) return;
  findings().breach(kind, site(callback), got, i,
                    fmt::format("is {} {} {}", shown(got.number(i)), what, shown(whole.number(i))), got.number(i),
                    whole.number(i));
}

void LayerCheck::compare(gsel_breach_kind kind, int32_t callback, std::span<Member> ranks, const Buffer& whole,
                         const Together& together, const std::string& what) {
  Buffer joined = whole;
  double most = largest_magnitude(whole);
  auto of = [&](const Member& rank) -> const Buffer& { return rank[whole.role][static_cast<size_t>(whole.index)]; };
  if (together.how == Together::alike) {
    for (const Member& rank : ranks) compare_one(kind, callback, of(rank), whole, tolerance() * most, what);
    return;
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Buffer& summand = of(ranks[r]);
    if (together.how == Together::in_shards) {
      put_shard(summand, together.shards[r], joined);
      continue;
    }
    most = std::max(most, largest_magnitude(summand));
    for (int64_t i = 0; i < joined.elems(); ++i) joined.put(i, (r ? joined.number(i) : 0) + summand.number(i));
  }
  compare_one(kind, callback, joined, whole, tolerance() * most, what);
}

// ---- halves of a batch ----

// Split as over two ranks of the data axis, with its reductions.
void LayerCheck::check_batch() {
  const int64_t n = a_.n_samples(), cut = (n + 1) / 2;
  if (n < 2) return;
  std::vector<Member> halves;
  const Shard shards[] = {{0, 1, 0, cut, n}, {0, 1, cut, n, n}};
  for (const Shard& shard : shards) {
    Member half(*a_.model, *a_.layer, {a_.sample_ids.begin() + shard.begin, a_.sample_ids.begin() + shard.end});
    half.microbatch = static_cast<int32_t>(halves.size());
    half[GSEL_BUFFER_PARAM] = a_[GSEL_BUFFER_PARAM];
    for (int32_t role : {GSEL_BUFFER_INPUT, GSEL_BUFFER_D_OUTPUT})
      for (size_t i = 0; i < half[role].size(); ++i)
        if (a_[role][i].view.n_dims > 0) take_shard(a_[role][i], shard, half[role][i]);
    halves.push_back(std::move(half));
  }
  const Together rows{Together::in_shards, {shards[0], shards[1]}}, sum{Together::as_sum, {}};
  const std::string what =
      fmt::format("from {} and {} in calls of their own, and from all {} in one", cut, with_noun(n - cut, "sample"), n);
  caller_.run(halves, GSEL_AXIS_DATA, round(GSEL_FORWARD));
  for (const Buffer& whole : a_[GSEL_BUFFER_OUTPUT])
    compare(GSEL_BREACH_BATCH, GSEL_FORWARD, halves, whole, whole.view.n_dims ? rows : sum, what);
  run_backward(halves, GSEL_AXIS_DATA);
  for (int32_t role : {GSEL_BUFFER_D_INPUT, GSEL_BUFFER_D_PARAM})
    for (const Buffer& whole : (*gradients_)[role])
      if (!whole.is_absent)
        compare(GSEL_BREACH_BATCH, callback_of_gradient(*a_.layer, role), halves, whole,
                role == GSEL_BUFFER_D_INPUT ? rows : sum, what);
}

// ---- evaluation ----

bool LayerCheck::draws_noise() {
  Member other = a_;
  Round key = round(GSEL_FORWARD);
  key.rng_key += 1;
  caller_.run(other, key);
  return !std::ranges::equal(other[GSEL_BUFFER_OUTPUT], a_[GSEL_BUFFER_OUTPUT], {}, &Buffer::bytes, &Buffer::bytes);
}

// Outputs of layers with dropout or batch statistics may differ from training; others must not.
void LayerCheck::check_evaluation() {
  Member evaluated = a_;
  Round evaluation = round(GSEL_FORWARD);
  evaluation.evaluating = 1;
  if (!settings_.looks_for(GSEL_BREACH_EVALUATION) || !caller_.run(evaluated, evaluation)) return;
  const auto& phases = a_.layer->forward_phases;
  const bool has_statistics =
      std::ranges::any_of(phases, [](const gsel_phase& phase) { return phase.axis == GSEL_AXIS_DATA; });
  for (const Buffer& whole : a_[GSEL_BUFFER_OUTPUT]) {
    const Buffer& got = evaluated[GSEL_BUFFER_OUTPUT][static_cast<size_t>(whole.index)];
    if (got.bytes == whole.bytes) continue;
    if (has_statistics || draws_noise()) {
      findings().note(
          fmt::format("layer \"{}\" forward: evaluating gives another {} than training, as layers with {} do",
                      a_.layer->name, whole.name, has_statistics ? "batch statistics" : "noise"));
      return;
    }
    compare_one(GSEL_BREACH_EVALUATION, GSEL_FORWARD, got, whole, 0,
                "when evaluating, and when training, though no noise is drawn,");
  }
}

}  // namespace gsel::check
