// program/verify/verify.cc: follows the programs of a job together; when no rank can go on and some have not ended,
// that is a deadlock.
#include "program/verify/verify.h"

#include <deque>

#include "program/verify/coverage.h"
#include "program/verify/outline.h"
#include "program/verify/post_validation.h"
#include "program/verify/walker.h"

namespace gsel {
namespace {

// Every sample by every layer, for each coordinate on the sharing axis: ranks along it share the samples.
void check_coverage(const Job& job, const std::deque<Walker>& walkers) {
  const Program& first = walkers.front().program();
  for (int32_t coordinate = 0; coordinate < first.mesh.sharing_size(); ++coordinate) {
    Coverage coverage(first);
    for (const Walker& w : walkers) {
      const Program& program = w.program();
      if (program.mesh.sharing_index(program.rank) != coordinate) continue;
      coverage.add_program(program, job.replicas(program));
      w.each_forward([&](int32_t layer, int32_t mb) { coverage.add_forward(layer, mb); });
    }
    coverage.check();
  }
}

}  // namespace

void verify(const Job& job, Purpose purpose) {
  check_outlines(job);
  Exchange exchange(job);
  std::deque<Walker> walkers;
  for (const Program* p : job.programs) walkers.emplace_back(*p, exchange, purpose);
  follow(walkers);
  check_finished(walkers);
  for (const Walker& w : walkers) w.check_end();
  check_coverage(job, walkers);
  exchange.check_ended();
  check_post_validations(job);
}

void verify(std::span<const Program* const> programs, Purpose purpose) {
  verify(whole_job(programs), purpose);
}

void verify(std::span<const Program> programs, Purpose purpose) {
  verify(whole_job(programs), purpose);
}

}  // namespace gsel
