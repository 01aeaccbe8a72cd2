// fake/cuda/test_nccl.cc: what the double of NCCL does: results, their order, and when a call is where.
#include <cmath>
#include <tuple>

#include "fake/cuda/nccl_ranks.h"

namespace {

void test_ranks_are_processes(void**) {
  expect_ranks({}, 3, 2, "result 0; 33 36 0 violations", [](Shared& all, int r) {
    Rank rank(all, r, 3);
    float* at = rank.memory({10.F + static_cast<float>(r), 11.F + static_cast<float>(r)});
    rank.allreduce(at, 2);
    say(rank.settle());
    say(rank.values(at, 2));
    fprintf(stderr, " %d violations", rank.d.violations());
    ++all.step;
    while (all.step < 3) usleep(1000);
  });
}

// A rank that has enqueued its part need not wait for the stream for the others to go on.
void test_a_rank_that_does_something_else_goes_on(void**) {
  expect_ranks({}, 2, 0, "result 0; 3", [](Shared& all, int r) {
    Rank rank(all, r, 2);
    float* at = rank.memory({1.F + static_cast<float>(r)});
    rank.allreduce(at, 1);
    say(rank.settle());
    if (r == 0) say(rank.values(at, 1)), all.step = 1;
    while (all.step == 0) usleep(1000);
  });
}

// 2^-24 is lost beside 1 and kept beside itself; rank 1 comes first in the first block of a ring.
void test_sums_have_an_order_of_nccl(void**) {
  expect_ranks({}, 3, 0, "result 0; in its order", [](Shared& all, int r) {
    Rank rank(all, r, 3);
    const float small = std::ldexp(1.F, -24);
    float* at = rank.memory({r == 0 ? 1.F : small});
    rank.allreduce(at, 1);
    say(rank.settle());
    const float got = rank.values(at, 1)[0];
    fprintf(stderr, "%s", got == 1.F + 2 * small ? " in its order" : got == 1.F ? " in the host's" : " wrong");
    ++all.step;
    while (all.step < 3) usleep(1000);
  });
}

void test_halves_are_added_and_rounded(void**) {
  for (const auto& [type, one, two] : {std::tuple{int{kFloat16}, 0x3c00, 0x4000}, {int{kBfloat16}, 0x3f80, 0x4000}}) {
    const int given = type, from = one;
    expect_ranks({}, 2, 1, ("sum " + std::to_string(two)).c_str(), [=](Shared& all, int r) {
      Rank rank(all, r, 2);
      const uint32_t bits = static_cast<uint32_t>(from) | static_cast<uint32_t>(from) << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      float* at = rank.memory({value});
      rank.d.ncclAllReduce(at, at, 2, given, kSum, rank.comm, rank.stream);
      rank.settle();
      value = rank.values(at, 1)[0];
      uint16_t half;
      memcpy(&half, &value, sizeof half);
      fprintf(stderr, "sum %d", half);
      ++all.step;
      while (all.step < 2) usleep(1000);
    });
  }
}

void test_a_finalize_waits_for_the_work(void**) {
  expect_ranks({}, 2, 0, "result 7;result 0;result 0;", [](Shared& all, int r) {
    Rank rank(all, r, 2);
    float* at = rank.memory({1});
    rank.allreduce(at, 1);
    rank.settle();
    rank.wait();
    ++all.step;
    while (all.step < 2) usleep(1000);
    if (r == 1)
      while (all.step < 3) usleep(1000);
    rank.allreduce(at, 1);  // connected: in progress for some polls only
    rank.settle();
    rank.d.ncclCommFinalize(rank.comm);
    if (r == 0) say(rank.settle(0.05)), all.step = 3;
    say(rank.settle());
    say(rank.d.ncclCommDestroy(rank.comm));
  });
}

// PyTorch's kind: the call itself waits, and an abort from another thread ends it.
void test_blocking_communicators_wait_in_the_call(void**) {
  expect_ranks({}, 2, 0, "result 0; 3", [](Shared& all, int r) {
    Rank rank(all, r, 2, 1);
    float* at = rank.memory({1.F + static_cast<float>(r)});
    say(rank.allreduce(at, 1));
    say(rank.values(at, 1));
    ++all.step;
    while (all.step < 2) usleep(1000);
  });
  expect_ranks({}, 2, 0, "result 3;", [](Shared& all, int r) {
    Rank rank(all, r, 2, 1);
    if (r == 0) {
      std::thread other([&] { usleep(50000), rank.d.ncclCommAbort(rank.comm); });
      say(rank.allreduce(rank.memory({1}), 1));
      other.join();
    }
    ++all.step;
    while (all.step < 2) usleep(1000);
  });
}

// An event that is recorded while the call is in progress does not stand behind the work.
void test_work_is_enqueued_after_the_call_returned(void**) {
  expect_ranks({}, 2, 0, "before 1 after 3", [](Shared& all, int r) {
    Rank rank(all, r, 2);
    float* at = rank.memory({1.F + static_cast<float>(r)});
    rank.allreduce(at, 1);
    const float before = rank.values(at, 1)[0];
    rank.settle();
    fprintf(stderr, "before %g after %g", static_cast<double>(before), static_cast<double>(rank.values(at, 1)[0]));
    ++all.step;
    while (all.step < 2) usleep(1000);
  });
}

void test_a_first_call_waits_for_the_hosts_of_the_others(void**) {
  expect_ranks({}, 2, 0, "result 7;result 0;", [](Shared& all, int r) {
    Rank rank(all, r, 2);
    float* at = rank.memory({1});
    if (r == 1)
      while (all.step == 0) usleep(1000);
    rank.allreduce(at, 1);
    if (r == 0) say(rank.settle(0.05)), all.step = 1;
    say(rank.settle());
    ++all.step;
    while (all.step < 3) usleep(1000);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_ranks_are_processes),
      cmocka_unit_test(test_a_rank_that_does_something_else_goes_on),
      cmocka_unit_test(test_sums_have_an_order_of_nccl),
      cmocka_unit_test(test_halves_are_added_and_rounded),
      cmocka_unit_test(test_a_finalize_waits_for_the_work),
      cmocka_unit_test(test_blocking_communicators_wait_in_the_call),
      cmocka_unit_test(test_work_is_enqueued_after_the_call_returned),
      cmocka_unit_test(test_a_first_call_waits_for_the_hosts_of_the_others),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
