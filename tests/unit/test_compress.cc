// unit/test_compress.cc: compressed reductions over ranks as threads: sums in 16 bits, steps before compression starts,
// and which compressor there is where. Low rank has a file of its own.
#include <cmath>

#include "device/formulas/floats.h"
#include "device/host/table.h"
#include "support/compression.h"

namespace {

using namespace gsel;
using namespace gsel::test;

template <class Half>
void rounded_sums(rank_run* run, int32_t compression) {
  Worker worker(run, program_of({{"w", 37, 11}, {"b", 5, 1}}, compression));
  for (size_t i = 0; i < worker.gradients.size(); ++i) worker.gradients[i] = noise(1, run->rank, i);
  worker.gradients[3] = 0;
  worker.reduce(0);
  for (size_t i = 0; i < worker.gradients.size(); ++i) {
    float sum = 0;  // of what was rounded, in f32, in the order of ranks
    for (int32_t r = 0; r < run->world_size; ++r) sum += Half::narrow(i == 3 ? 0 : noise(1, r, i)).widen();
    rank_check(run, worker.gradients[i] == Half::narrow(sum).widen());
  }
  rank_check(run, worker.same_everywhere());
  const uint64_t kept = worker.ledger.peak()[static_cast<size_t>(MemoryPart::compression)];
  rank_check(run, kept == 2 * worker.gradients.size() && kept == total_bytes(Compressor::bytes(worker.program, 0)));
  const gsel_comm_count counted = worker.comm.counts(GSEL_COLLECTIVE_ALLREDUCE);
  rank_check(run, counted.calls == 1 && counted.bytes_sent <= kept * 2);
}

void f16_body(rank_run* run) {
  guarded(run, [&] { rounded_sums<F16>(run, GSEL_COMPRESS_F16); });
}
void bf16_body(rank_run* run) {
  guarded(run, [&] { rounded_sums<BF16>(run, GSEL_COMPRESS_BF16); });
}

void sums_in_16_bits_are_the_rounded_sums_of_rounded_numbers(void**) {
  for (const int32_t n : {1, 2, 3}) {
    as_threads(n, f16_body, nullptr);
    as_threads(n, bf16_body, nullptr);
  }
}

void f16_overflow_body(rank_run* run) {
  guarded(run, [&] {
    Worker worker(run, program_of({{"b", 2, 1}}, GSEL_COMPRESS_F16));
    worker.gradients = {60000, 1};
    worker.reduce(0);
    rank_check(run, std::isinf(worker.gradients[0]) && worker.gradients[1] == 2);
  });
}

void a_sum_too_large_for_f16_is_infinite_so_that_it_is_noticed(void**) {
  as_threads(2, f16_overflow_body, nullptr);
}

void warm_up_body(rank_run* run) {
  guarded(run, [&] {
    for (const int32_t compression : {GSEL_COMPRESS_F16, GSEL_COMPRESS_BF16, GSEL_COMPRESS_LOW_RANK}) {
      Worker worker(run, program_of({{"w", 16, 16}}, compression, 1, 2));
      for (int64_t step = 0; step < 3; ++step) {
        for (size_t i = 0; i < worker.gradients.size(); ++i) worker.gradients[i] = noise(9, run->rank, i);
        worker.reduce(step);
        bool exact = true;
        for (size_t i = 0; i < worker.gradients.size(); ++i) {
          float sum = 0;
          for (int32_t r = 0; r < run->world_size; ++r) sum += noise(9, r, i);
          exact &= worker.gradients[i] == sum;
        }
        rank_check(run, exact == (step < 2));
      }
    }
  });
}

void steps_before_the_start_send_everything(void**) {
  as_threads(2, warm_up_body, nullptr);
}

// A device whose plugin is older.
const gsel_device_v1& device_table() {
  static const gsel_device_v1 table = [] {
    gsel_device_v1 made = host_device_table();
    made.low_rank_step = nullptr;
    return made;
  }();
  return table;
}

void low_rank_needs_kernels_of_the_device(void**) {
  const auto device = std::make_shared<DeviceContext>(device_table(), 0);
  Ledger ledger(0);
  try {
    make_compressor(device, ledger, program_of({{"w", 8, 8}}, GSEL_COMPRESS_LOW_RANK, 1), 0, 1);
    fail();
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what(), "has no kernels for that"));
  }
  assert_non_null(make_compressor(device, ledger, program_of({{"w", 8, 8}}, GSEL_COMPRESS_BF16), 0, 1).get());
  assert_null(make_compressor(device, ledger, program_of({{"w", 8, 8}}, GSEL_COMPRESS_NONE), 0, 1).get());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sums_in_16_bits_are_the_rounded_sums_of_rounded_numbers),
      cmocka_unit_test(a_sum_too_large_for_f16_is_infinite_so_that_it_is_noticed),
      cmocka_unit_test(steps_before_the_start_send_everything),
      cmocka_unit_test(low_rank_needs_kernels_of_the_device),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
