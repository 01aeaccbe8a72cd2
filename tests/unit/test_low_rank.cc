// unit/test_low_rank.cc: reductions in low rank over ranks as threads: what is summed, that all ranks get the same
// bits, and that nothing is lost in the long run.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "device/formulas/low_rank.h"
#include "device/host/kernels.h"
#include "program/traffic.h"
#include "support/compression.h"

namespace {

using namespace gsel;
using namespace gsel::test;

// The sum over ranks of matrices of rank `inner`; each rank's own has that rank with the same row space.
void fill_low_rank(std::vector<float>& out, int64_t rows, int64_t cols, int64_t inner, int32_t rank, uint64_t key) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k)
        sum += static_cast<double>(noise(key + 1, 100, static_cast<size_t>(i * inner + k))) *
               noise(key + 2, rank, static_cast<size_t>(j * inner + k));
      out[static_cast<size_t>(i * cols + j)] = static_cast<float>(sum);
    }
}

void low_rank_matrix_body(rank_run* run) {
  guarded(run, [&] {
    for (const int32_t rank : {1, 2, 4}) {
      Worker worker(run, program_of({{"w", 48, 40}}, GSEL_COMPRESS_LOW_RANK, rank));
      for (int64_t step = 0; step < 4; ++step) {
        fill_low_rank(worker.gradients, 48, 40, rank, run->rank, 10);
        const std::vector<double> expected = worker.sum(worker.gradients);
        worker.reduce(step);
        rank_check(run, worker.same_everywhere());
        rank_check(run, distance(worker.gradients, expected) < 1e-5);
      }
    }
  });
}

void a_sum_of_rank_r_survives_rank_r(void**) {
  for (const int32_t n : {1, 2, 3}) as_threads(n, low_rank_matrix_body, nullptr);
}

void full_rank_body(rank_run* run) {
  guarded(run, [&] {
    // 8 factors of 12 + 8 elements would be more than 96.
    Worker worker(run, program_of({{"w", 12, 8}, {"b", 12, 1}}, GSEL_COMPRESS_LOW_RANK, 8));
    for (size_t i = 0; i < worker.gradients.size(); ++i) worker.gradients[i] = noise(3, run->rank, i);
    std::vector<float> expected(worker.gradients.size());
    for (size_t i = 0; i < expected.size(); ++i)
      for (int32_t r = 0; r < run->world_size; ++r) expected[i] += noise(3, r, i);
    worker.reduce(0);
    rank_check(run, worker.gradients == expected);
    rank_check(run, worker.ledger.peak_total() == 0);
    rank_check(run, worker.comm.counts(GSEL_COLLECTIVE_ALLREDUCE).calls == 1);
  });
}

void factors_that_would_be_larger_are_not_made(void**) {
  as_threads(2, full_rank_body, nullptr);
}

void mixed_body(rank_run* run) {
  guarded(run, [&] {
    const Program program = program_of({{"bias", 7, 1}, {"w", 20, 30}, {"norm", 1, 9}, {"small", 2, 2}, {"v", 30, 20}},
                                       GSEL_COMPRESS_LOW_RANK, 2);
    const LowRankLayout parts = low_rank_layout(program, 0);
    rank_check(run, parts.matrices.size() == 2 && parts.plain.size() == 2 && parts.plain_elems == 20);
    rank_check(run, parts.left_elems == 2 * 50 && parts.right_elems == 2 * 50 && parts.matrix_elems == 1200);
    Worker worker(run, program);
    for (size_t i = 0; i < worker.gradients.size(); ++i) worker.gradients[i] = noise(4, run->rank, i);
    worker.reduce(0);
    rank_check(run, worker.same_everywhere());
    for (const gsel_range& range : parts.plain)
      for (int64_t i = range.begin; i < range.end; ++i) {
        float sum = 0;
        for (int32_t r = 0; r < run->world_size; ++r) sum += noise(4, r, static_cast<size_t>(i));
        rank_check(run, worker.gradients[static_cast<size_t>(i)] == sum);
      }
    const uint64_t kept = worker.ledger.peak()[static_cast<size_t>(MemoryPart::compression)];
    rank_check(run, kept == total_bytes(Compressor::bytes(worker.program, 0)) && kept >= 4 * (1200 + 120 + 100));
    // What was sent is what arrays_of_reduce says.
    const std::vector<SentArray> sent = arrays_of_reduce(program, 0, true);
    rank_check(run, sent.size() == 2 && worker.comm.counts(GSEL_COLLECTIVE_ALLREDUCE).calls == 2);
    const uint64_t before = worker.comm.counts(GSEL_COLLECTIVE_ALLREDUCE).bytes_sent;
    std::vector<float> same(1200);
    for (const SentArray& array : sent)
      worker.comm.collective(make_collective(GSEL_COLLECTIVE_ALLREDUCE, same.data(), same.data(),
                                             static_cast<uint64_t>(array.elems), array.dtype, GSEL_SUM));
    rank_check(run, worker.comm.counts(GSEL_COLLECTIVE_ALLREDUCE).bytes_sent == 2 * before);
  });
}

void vectors_are_sent_beside_the_factors(void**) {
  as_threads(2, mixed_body, nullptr);
  as_threads(3, mixed_body, nullptr);
}

// A constant gradient of full rank: after n steps the mean of what was applied differs from the truth by what is still
// in the error, divided by n.
void feedback_body(rank_run* run) {
  guarded(run, [&] {
    Worker worker(run, program_of({{"w", 24, 24}}, GSEL_COMPRESS_LOW_RANK, 2));
    std::vector<float> own(worker.gradients.size());
    for (size_t i = 0; i < own.size(); ++i) own[i] = noise(5, run->rank, i);
    const std::vector<double> expected = worker.sum(own);
    std::vector<float> mean(own.size());
    std::vector<double> applied(own.size());
    double first = 0, last = 0;
    for (int64_t step = 0; step < 200; ++step) {
      worker.gradients = own;
      worker.reduce(step);
      rank_check(run, worker.same_everywhere());
      for (size_t i = 0; i < own.size(); ++i) {
        applied[i] += worker.gradients[i];
        mean[i] = static_cast<float>(applied[i] / static_cast<double>(step + 1));
      }
      last = distance(mean, expected);
      if (step == 0) first = last;
    }
    rank_check(run, first > 0.5);  // two of 24 directions: most of it is missing at first
    rank_check(run, last < 0.1);
  });
}

void what_is_left_out_is_made_up_for_later(void**) {
  for (const int32_t n : {1, 2, 3}) as_threads(n, feedback_body, nullptr);
}

// The loss scale doubles: what was kept must not count half.
void scale_body(rank_run* run) {
  guarded(run, [&] {
    Worker scaled(run, program_of({{"w", 16, 12}}, GSEL_COMPRESS_LOW_RANK, 1));
    std::vector<std::vector<float>> results;
    for (const double second : {1.0, 1024.0}) {
      std::unique_ptr<Compressor> fresh = make_compressor(scaled.device, scaled.ledger, scaled.program, 0, 42);
      scaled.compressor.swap(fresh);
      for (const double scale : {1.0, second}) {
        for (size_t i = 0; i < scaled.gradients.size(); ++i)
          scaled.gradients[i] = static_cast<float>(noise(6, run->rank, i) * scale);
        scaled.reduce(0, scale);
      }
      for (float& g : scaled.gradients) g = static_cast<float>(g / second);
      results.push_back(scaled.gradients);
    }
    rank_check(run, results[0] == results[1]);  // scaled by a power of two, so exactly
  });
}

void the_error_follows_the_loss_scale(void**) {
  as_threads(2, scale_body, nullptr);
}

void not_finite_body(rank_run* run) {
  guarded(run, [&] {
    Worker worker(run, program_of({{"w", 16, 12}}, GSEL_COMPRESS_LOW_RANK, 2));
    Worker untouched(run, program_of({{"w", 16, 12}}, GSEL_COMPRESS_LOW_RANK, 2));
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::fill(worker.gradients.begin(), worker.gradients.end(), 1.0f);
      if (run->rank == 1) std::fill(worker.gradients.begin() + 5, worker.gradients.begin() + 60, bad);
      worker.reduce(0);
      size_t finite = 0;
      for (const float g : worker.gradients) finite += std::isfinite(g);
      rank_check(run, finite == 0);
    }
    for (Worker* w : {&worker, &untouched}) {
      for (size_t i = 0; i < w->gradients.size(); ++i) w->gradients[i] = noise(7, run->rank, i);
      w->reduce(1);
    }
    rank_check(run, worker.gradients == untouched.gradients);
  });
}

void a_gradient_that_is_not_finite_stays_so_and_leaves_nothing_behind(void**) {
  as_threads(2, not_finite_body, nullptr);
}

// A step that is not taken leaves every bit as it was: what comes after is as if it had never been.
void skipped_body(rank_run* run) {
  guarded(run, [&] {
    Program program = program_of({{"w", 16, 12}, {"v", 12, 20}, {"b", 5, 1}}, GSEL_COMPRESS_LOW_RANK, 2);
    gsel_instr overflow{};
    overflow.kind = GSEL_INSTR_OVERFLOW;
    program.step.push_back(overflow);
    Worker skips(run, program), never(run, program);
    rank_check(run, skips.ledger.peak_total() == total_bytes(Compressor::bytes(program, 0)));
    auto step = [&](Worker& worker, uint64_t key, bool taken) {
      for (size_t i = 0; i < worker.gradients.size(); ++i) worker.gradients[i] = noise(key, run->rank, i);
      if (!taken && key % 2) worker.gradients[3] = std::numeric_limits<float>::infinity();
      worker.reduce(0);
      worker.compressor->end_step(taken);
    };
    for (uint64_t key = 100; key < 108; ++key) {
      step(skips, key + 1000, false);
      if (key % 3 == 0) step(skips, key + 2000, false);
      step(skips, key, true);
      step(never, key, true);
      rank_check(run, std::memcmp(skips.gradients.data(), never.gradients.data(), sizeof(float) * 437) == 0);
    }
    rank_check(run, skips.gradients.size() == 437);
  });
}

void a_step_that_is_not_taken_leaves_the_error_as_it_was(void**) {
  for (const int32_t n : {1, 2, 3}) as_threads(n, skipped_body, nullptr);
}

void zero_body(rank_run* run) {
  guarded(run, [&] {
    Worker worker(run, program_of({{"w", 16, 12}}, GSEL_COMPRESS_LOW_RANK, 2));
    for (int64_t step = 0; step < 2; ++step) {
      std::fill(worker.gradients.begin(), worker.gradients.end(), 0.0f);
      worker.reduce(step);
      for (const float g : worker.gradients) rank_check(run, g == 0);
    }
    fill_low_rank(worker.gradients, 16, 12, 2, run->rank, 70);
    for (float& g : worker.gradients) g *= 1e-25f;
    std::vector<double> expected = worker.sum(worker.gradients);
    worker.reduce(2);
    rank_check(run, distance(worker.gradients, expected) < 1e-5);
  });
}

void zero_and_tiny_gradients_do_not_stop_what_comes_after(void**) {
  as_threads(2, zero_body, nullptr);
}

// Kernels of devices draw their numbers as the library does.
void random_columns_are_those_of_the_library(void**) {
  for (uint64_t key : {uint64_t{0}, uint64_t{42}, ~uint64_t{0}})
    for (int64_t index : {0, 1, 77})
      for (int64_t i : {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{1} << 40})
        assert_true(random_element(key, index, i) ==
                    2 * random_uniform(derive_key(key, static_cast<uint64_t>(index)), static_cast<uint64_t>(i)) - 1);
}

void columns_become_orthonormal_whatever_they_are(void**) {
  constexpr int64_t kRows = 50, kColumns = 5;
  for (int kind = 0; kind < 4; ++kind) {
    std::vector<float> columns(kRows * kColumns);
    for (int64_t k = 0; k < kColumns; ++k)
      for (int64_t i = 0; i < kRows; ++i) {
        const float any = random_normal(static_cast<uint64_t>(k), static_cast<uint64_t>(i));
        const float same = random_normal(0, static_cast<uint64_t>(i));
        columns[static_cast<size_t>(k * kRows + i)] = kind == 0   ? any
                                                      : kind == 1 ? 1e-30f * same
                                                      : kind == 2 ? same + 1e-4f * any
                                                                  : 0.0f;
      }
    gsel::host::make_orthonormal(columns.data(), kRows, kColumns, 3);
    for (int64_t a = 0; a < kColumns; ++a)
      for (int64_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (int64_t i = 0; i < kRows; ++i)
          dot += static_cast<double>(columns[static_cast<size_t>(a * kRows + i)]) *
                 columns[static_cast<size_t>(b * kRows + i)];
        assert_true(std::fabs(dot - (a == b)) < 1e-5);
      }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_sum_of_rank_r_survives_rank_r),
      cmocka_unit_test(factors_that_would_be_larger_are_not_made),
      cmocka_unit_test(vectors_are_sent_beside_the_factors),
      cmocka_unit_test(what_is_left_out_is_made_up_for_later),
      cmocka_unit_test(the_error_follows_the_loss_scale),
      cmocka_unit_test(a_gradient_that_is_not_finite_stays_so_and_leaves_nothing_behind),
      cmocka_unit_test(a_step_that_is_not_taken_leaves_the_error_as_it_was),
      cmocka_unit_test(zero_and_tiny_gradients_do_not_stop_what_comes_after),
      cmocka_unit_test(random_columns_are_those_of_the_library),
      cmocka_unit_test(columns_become_orthonormal_whatever_they_are),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
