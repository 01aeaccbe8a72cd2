// program/verify.cc: follows the programs of all ranks together; when no rank can go on and some have not ended, that
// is a deadlock.
#include "program/verify.h"

#include <algorithm>
#include <deque>

#include "program/walker.h"

namespace gsel {
namespace {

void check_outlines(std::span<const Program* const> programs) {
  const Program& first = *programs.front();
  if (static_cast<size_t>(first.mesh.world_size()) != programs.size())
    fail(GSEL_ERR_PROGRAM, "the mesh has {} ranks and {} programs were given; give one per rank",
         first.mesh.world_size(), programs.size());
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& p = *programs[rank];
    if (static_cast<size_t>(p.rank) != rank)
      fail(GSEL_ERR_PROGRAM, "program {} in the list is of rank {}; give them in rank order", rank, p.rank);
    if (p.mesh != first.mesh || p.params != first.params || p.values != first.values || p.layers != first.layers)
      fail(GSEL_ERR_PROGRAM, "the programs of ranks 0 and {} are of different models or meshes", rank);
  }
}

// Every rank that waits for ever is told, up to a few: the cause is often not with the first.
void check_finished(const std::deque<Walker>& walkers) {
  constexpr int kTold = 4;
  int stuck = 0;
  int32_t first = -1;
  std::string text;
  for (const Walker& w : walkers) {
    if (w.finished()) continue;
    if (first < 0) first = w.program().rank;
    if (stuck++ < kTold)
      text += fmt::format("{}{}: waits for ever for {}", text.empty() ? "" : "; ", w.where_now(), w.waits_for());
  }
  if (stuck > kTold) text += fmt::format("; and {} more ranks", stuck - kTold);
  if (stuck) throw Error(GSEL_ERR_PROGRAM, text).about_rank(first);
}

// Every layer of every micro-batch runs forward exactly once along a pipeline; the rest of the step follows from it.
void check_complete(const std::deque<Walker>& walkers, const std::vector<int32_t>& stages) {
  const Program& first = walkers[stages.front()].program();
  for (int32_t rank : stages)
    if (walkers[rank].program().microbatches != first.microbatches)
      fail(GSEL_ERR_PROGRAM, "ranks {} and {} are stages of one pipeline and have other micro-batches", stages.front(),
           rank);
  const size_t wanted = first.layers.size() * first.microbatches.size();
  for (size_t i = 0; i < wanted; ++i) {
    const auto mb = static_cast<int32_t>(i / first.layers.size()), l = static_cast<int32_t>(i % first.layers.size());
    const auto times = std::ranges::count_if(stages, [&](int32_t rank) { return walkers[rank].ran_forward(l, mb); });
    if (times != 1)
      throw Error(GSEL_ERR_PROGRAM,
                  fmt::format("rank {}, end of step: the forward of layer \"{}\", micro-batch {}, runs on {} "
                              "ranks of its pipeline; it must run on one",
                              stages.front(), first.layers[l].name, mb, times))
          .about_rank(stages.front());
  }
}

}  // namespace

void verify(std::span<const Program* const> programs) {
  if (programs.empty()) fail(GSEL_ERR_ARG, "no programs were given");
  check_outlines(programs);
  Exchange exchange;
  std::deque<Walker> walkers;
  for (const Program* p : programs) walkers.emplace_back(*p, exchange);
  for (bool moved = true; moved;) {
    moved = false;
    for (Walker& w : walkers) moved |= w.advance();
  }
  check_finished(walkers);
  for (const Walker& w : walkers) w.check_end();
  for (const Walker& w : walkers) {
    const std::vector<int32_t> stages = w.program().mesh.group(w.program().rank, GSEL_AXIS_PIPELINE);
    if (stages.front() == w.program().rank) check_complete(walkers, stages);
  }
  exchange.check_received();
}

}  // namespace gsel
