// program/verify/verify.cc: follows the programs of all ranks together; when no rank can go on and some have not ended,
// that is a deadlock.
#include "program/verify/verify.h"

#include <deque>

#include "program/verify/coverage.h"
#include "program/verify/outline.h"
#include "program/verify/post_validation.h"
#include "program/verify/walker.h"

namespace gsel {
namespace {

// Every sample by every layer, for each place on the tensor axis: ranks along it share the samples.
void check_coverage(const std::deque<Walker>& walkers) {
  const Program& first = walkers.front().program();
  for (int32_t place = 0; place < first.mesh.sharing_size(); ++place) {
    Coverage coverage(first);
    for (const Walker& w : walkers) {
      const Program& program = w.program();
      if (program.mesh.sharing_index(program.rank) != place) continue;
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
  follow(walkers);
  check_finished(walkers);
  for (const Walker& w : walkers) w.check_end();
  check_coverage(walkers);
  exchange.check_ended();
  check_post_validations(programs);
}

void verify(std::span<const Program> programs, Purpose purpose) {
  std::vector<const Program*> pointers;
  for (const Program& p : programs) pointers.push_back(&p);
  verify(std::span<const Program* const>(pointers), purpose);
}

}  // namespace gsel
