// program/verify.cc: follows the programs of all ranks together; when no rank can go on and some have not ended, that
// is a deadlock.
#include "program/verify.h"

#include <deque>

#include "program/coverage.h"
#include "program/outline.h"
#include "program/walker.h"

namespace gsel {
namespace {

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

// Every sample by every layer, for each place on the tensor axis: ranks along it share the samples.
void check_coverage(const std::deque<Walker>& walkers) {
  const Program& first = walkers.front().program();
  for (int32_t place = 0; place < first.mesh.size[GSEL_AXIS_TENSOR]; ++place) {
    Coverage coverage(first);
    for (const Walker& w : walkers) {
      const Program& program = w.program();
      if (program.mesh.coordinate(program.rank, GSEL_AXIS_TENSOR) != place) continue;
      coverage.add_rank(program);
      w.each_forward([&](int32_t layer, int32_t mb) { coverage.add_forward(program, layer, mb); });
    }
    coverage.check();
  }
}

}  // namespace

void verify(std::span<const Program* const> programs, Purpose purpose) {
  if (programs.empty()) fail(GSEL_ERR_ARG, "no programs were given");
  check_outlines(programs);
  Exchange exchange;
  std::deque<Walker> walkers;
  for (const Program* p : programs) walkers.emplace_back(*p, exchange, purpose);
  for (bool moved = true; moved;) {
    moved = false;
    for (Walker& w : walkers) moved |= w.advance();
  }
  check_finished(walkers);
  for (const Walker& w : walkers) w.check_end();
  check_coverage(walkers);
  exchange.check_ended();
}

}  // namespace gsel
