// unit/test_compile_growth.cc: what it takes to resolve a mesh and to compile a rank's program, as the number of ranks
// doubles: instructions of the program and bytes that were allocated on the way, counted, for all ranks together grow
// no faster than n log n.
#include <cmath>
#include <cstdlib>
#include <new>

#include "support/made_model.h"
#include "support/ranks.h"

namespace {

uint64_t allocated = 0;

}  // namespace

// Not inlined, so that the compiler does not compare malloc with delete.
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocated += bytes;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocated += bytes;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace {

using namespace gsel;

struct Work {
  int32_t ranks;
  double instructions, bytes;  // of one rank
};

Work work_of(const Model& model, const std::string& axes, const std::string& strategies, int32_t ranks) {
  const Config config = made::config("[mesh]\n" + axes + "\n[train]\nbatch = 32768\nmicrobatches = 8\n" + strategies);
  const uint64_t before = allocated;
  const Mesh mesh{resolve_mesh(config, ranks)};
  const Compiler compiler(model, config, mesh);
  const Program program = compiler.compile(ranks / 2).program;
  for (int axis = 0; axis < static_cast<int>(kAxes); ++axis)
    assert_true(mesh.coordinate(ranks / 2, static_cast<gsel_axis>(axis)) < mesh.size[static_cast<size_t>(axis)]);
  return {ranks, static_cast<double>(program.setup.size() + program.step.size()),
          static_cast<double>(allocated - before)};
}

void check_growth(const std::string& what, double before, double after, int32_t ranks) {
  const double allowed = before * std::log2(2.0 * ranks) / std::log2(ranks);  // of one rank
  if (after > allowed)
    fail_msg("%s: %.0f a rank of %d, %.0f of %d: n log n in all allows %.0f", what.c_str(), before, ranks, after,
             2 * ranks, allowed);
}

void test_a_program_grows_no_faster_than_n_log_n(void**) {
  const auto model = made::chain({64, 8, 8, 64, 8, 8, 64, 8}, 8);
  const struct {
    const char *name, *axes, *strategies;
  } jobs[] = {
      {"ddp", "data = \"auto\"", "[strategy.data]\nplugin = \"ddp\"\n"},
      {"zero 1", "data = \"auto\"", "[strategy.data]\nplugin = \"zero\"\nstage = 1\n"},
      {"zero 3", "data = \"auto\"", "[strategy.data]\nplugin = \"zero\"\nstage = 3\n"},
      {"pp and ddp", "pipeline = 4\ndata = \"auto\"",
       "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"1f1b\"\n[strategy.data]\nplugin = "
       "\"ddp\"\n"},
  };
  for (const auto& job : jobs) {
    Work before = work_of(*model, job.axes, job.strategies, 64);
    for (int32_t ranks = 128; ranks <= 4096; ranks *= 2) {
      const Work after = work_of(*model, job.axes, job.strategies, ranks);
      printf("%s: %d ranks, %.0f instructions and %.0f bytes a rank\n", job.name, ranks, after.instructions,
             after.bytes);
      check_growth(std::string(job.name) + ", instructions", before.instructions, after.instructions, before.ranks);
      check_growth(std::string(job.name) + ", bytes", before.bytes, after.bytes, before.ranks);
      before = after;
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_a_program_grows_no_faster_than_n_log_n)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
