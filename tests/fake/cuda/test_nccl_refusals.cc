// fake/cuda/test_nccl_refusals.cc: what the double of NCCL refuses, reports, or waits for without an end, as NCCL does.
#include "fake/cuda/nccl_ranks.h"

namespace {

void test_a_call_in_progress_refuses_the_next(void**) {
  expect_ranks({}, 2, 0, "result 7;result 4;result 0;", [](Shared& all, int r) {
    Rank rank(all, r, 2);
    float* at = rank.memory({1});
    say(rank.allreduce(at, 1));
    say(rank.allreduce(at, 1));
    say(rank.settle());
    ++all.step;
    while (all.step < 2) usleep(1000);
  });
}

void test_two_threads_that_poll_end_the_process(void**) {
  expect_end({{"GSEL_FAKE_NCCL_POLL_US", "20000"}}, "while another thread is in a call on the same communicator", [] {
    Shared all{};
    Rank rank(all, 0, 1);
    rank.allreduce(rank.memory({1}), 1);
    std::thread other([&] { rank.settle(); });
    rank.settle();
    other.join();
  });
}

void test_two_ranks_of_one_device_are_refused(void**) {
  expect_ranks({}, 2, 1, "result 5; Duplicate GPU detected", [](Shared& all, int r) {
    Rank rank(all, r, 2, 0, 0);
    say(rank.joined);
    fprintf(stderr, " %s", rank.d.ncclGetLastError(rank.comm));
    ++all.step;
    while (all.step < 2) usleep(1000);
  });
}

void test_calls_that_do_not_match_wait_until_an_abort(void**) {
  expect_ranks({}, 2, 0, "stuck, then free", [](Shared& all, int r) {
    Rank rank(all, r, 2);
    float* at = rank.memory({1, 2, 3});
    rank.allreduce(at, r == 0 ? 2 : 3);
    rank.settle();
    fprintf(stderr, is_stuck(rank) ? "stuck, " : "passed, ");
    rank.d.ncclCommAbort(rank.comm);
    fprintf(stderr, is_stuck(rank) ? "then stuck" : "then free");
    ++all.step;
    while (all.step < 2) usleep(1000);
  });
}

void test_a_message_without_its_other_side_waits(void**) {
  expect_ranks({}, 2, 0, "result 7;", [](Shared& all, int r) {  // not even connected
    Rank rank(all, r, 2);
    float* at = rank.memory({1, 2});
    if (r == 0) {
      rank.d.ncclSend(at, 2, kFloat32, 1, rank.comm, rank.stream);
      say(rank.settle(0.05));
      all.step = 1;
    }
    while (all.step == 0) usleep(1000);
    rank.d.ncclCommAbort(rank.comm);
  });
  expect_ranks({}, 2, 1, "result 0;stuck", [](Shared& all, int r) {  // of another length
    Rank rank(all, r, 2);
    float* at = rank.memory({1, 2});
    r == 0 ? rank.d.ncclSend(at, 1, kFloat32, 1, rank.comm, rank.stream)
           : rank.d.ncclRecv(at, 2, kFloat32, 0, rank.comm, rank.stream);
    say(rank.settle());
    fprintf(stderr, is_stuck(rank) ? "stuck" : "passed");
    ++all.step;
    while (all.step < 2) usleep(1000);
    rank.d.ncclCommAbort(rank.comm);
  });
}

// Both ranks send before they receive. A send waits for its receive, and a stream for its head; in a group both go on.
void test_ranks_that_both_send_first_wait_for_each_other(void**) {
  for (const bool in_group : {false, true})
    expect_ranks({}, 2, 0, in_group ? "passed" : "stuck", [=](Shared& all, int r) {
      Rank rank(all, r, 2);
      float *from = rank.memory({1}), *to = rank.memory({0});
      const auto send = [&] { rank.d.ncclSend(from, 1, kFloat32, 1 - r, rank.comm, rank.stream); };
      const auto receive = [&] { rank.d.ncclRecv(to, 1, kFloat32, 1 - r, rank.comm, rank.stream); };
      rank.d.ncclGroupStart();  // connects them
      send(), receive();
      rank.d.ncclGroupEnd();
      rank.settle();
      rank.wait();
      if (in_group) rank.d.ncclGroupStart();
      send();
      if (!in_group) rank.settle();
      receive();
      if (in_group) rank.d.ncclGroupEnd();
      rank.settle();
      fprintf(stderr, is_stuck(rank) ? "stuck" : "passed");
      ++all.step;
      while (all.step < 2) usleep(1000);
    });
}

// Two communicators of the same ranks, each on a stream of its own. The order of launches is kept where it is asked
// for, and NCCL has it.
void test_two_communicators_in_opposite_order_wait_for_each_other(void**) {
  struct {
    bool alike;
    Settings settings;
    const char* expected;
  } const rows[] = {
      {true, {}, "passed"},
      {false, {}, "stuck"},
      {true, {{"GSEL_FAKE_NCCL_ORDER", "none"}}, "stuck"},
      {true, {{"GSEL_FAKE_NCCL_ORDER", "asked"}}, "stuck"},
      {true, {{"GSEL_FAKE_NCCL_ORDER", "asked"}, {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}}, "passed"},
      {true,
       {{"GSEL_FAKE_NCCL_ORDER", "asked"}, {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}, {"GSEL_FAKE_NCCL_VERSION", "22506"}},
       "stuck"},
  };
  for (const auto& row : rows)
    expect_ranks(row.settings, 2, 0, row.expected, [&row](Shared& all, int r) {
      Rank first(all, r, 2);
      Shared* more = &all + 1;
      Rank second(*more, r, 2);
      float *at = first.memory({1}), *other = second.memory({1});
      for (Rank* rank : {&first, &second}) {  // connects
        rank->allreduce(rank == &first ? at : other, 1);
        rank->settle();
        rank->wait();
      }
      ++all.step;  // until nobody waits for a rank any more: streams go on meanwhile
      while (all.step < 2) usleep(1000);
      usleep(50000);
      const bool swaps = !row.alike && r == 1;
      for (const bool is_second : {swaps, !swaps}) {
        Rank& rank = is_second ? second : first;
        rank.allreduce(is_second ? other : at, 1);
        rank.settle();
      }
      ++all.step;
      while (all.step < 4) usleep(1000);
      fprintf(stderr, is_stuck(first) ? "stuck" : "passed");
      ++all.step;
      while (all.step < 6) usleep(1000);
    });
}

void test_memory_is_registered_everywhere_or_nowhere(void**) {
  for (const bool alike : {true, false})
    expect_ranks({}, 2, 1, alike ? "0 violations" : "on memory that is registered on some ranks",
                 [=](Shared& all, int r) {
                   Rank rank(all, r, 2);
                   void *handle = nullptr, *at = nullptr;
                   rank.d.ncclMemAlloc(&at, 4096);
                   if (alike || r == 0) rank.d.ncclCommRegister(rank.comm, at, 4096, &handle);
                   rank.allreduce(static_cast<float*>(at), 1);
                   rank.settle();
                   rank.wait();
                   fprintf(stderr, "%d violations", rank.d.violations());
                   ++all.step;
                   while (all.step < 2) usleep(1000);
                 });
}

// Each of two ranks makes a window of 4096 bytes and sums in it.
void sum_in_window(Shared& all, int r, size_t allocated, size_t from, const char* windows) {
  setenv("GSEL_FAKE_NCCL_WINDOWS", windows, 1);
  Rank rank(all, r, 2);
  void *window = nullptr, *at = nullptr;
  rank.d.ncclMemAlloc(&at, allocated);
  const int began = rank.d.ncclCommWindowRegister(rank.comm, at, 4096, &window, kSymmetric);
  if (began != kInProgress || rank.settle() != kSuccess) fprintf(stderr, "result %d, ", began);
  rank.allreduce(static_cast<float*>(at) + from, 1);
  rank.settle();
  rank.wait();
  if (*windows == 0) rank.d.ncclCommWindowDeregister(rank.comm, window);
  fprintf(stderr, "%s, %d violations", window ? "a window" : "none", rank.d.violations());
  ++all.step;
  while (all.step < 2) usleep(1000);
}

void test_windows_lie_alike_and_all_ranks_call_in_them(void**) {
  const auto expect_at_1 = [](const char* part, size_t allocated, size_t from, const char* windows) {
    expect_ranks({}, 2, 1, part, [=](Shared& all, int r) {
      r == 0 ? sum_in_window(all, r, 4096, 0, "") : sum_in_window(all, r, allocated, from, windows);
    });
  };
  expect_at_1("a window, 0 violations", 4096, 0, "");
  expect_at_1("allreduce of buffers that are in windows on some ranks only", 4096, 0, "plain");
  expect_at_1("allreduce of buffers that lie at other offsets of a window", 4096, 4, "");
  expect_at_1("windows of rank 1 and rank 0 that do not lie alike", 8192, 0, "");
  expect_at_1("none, ", 4096, 0, "null");
}

void test_windows_are_of_memory_of_nccl_and_let_go_after_use(void**) {
  expect_ranks({}, 1, 0,
               "result 1;result 4;result 4;result 7;fake cuda: ncclCommWindowRegister of memory that is in a window",
               [](Shared& all, int r) {
                 Rank rank(all, r, 1);
                 void *window = nullptr, *at = nullptr;
                 rank.d.ncclMemAlloc(&at, 8192);
                 say(rank.d.ncclCommWindowRegister(rank.comm, rank.memory({1}), 4, &window, kSymmetric));
                 say(rank.d.ncclCommWindowRegister(rank.comm, static_cast<char*>(at) + 256, 4, &window, kSymmetric));
                 say(rank.d.ncclCommWindowRegister(rank.comm, at, 4, &window, 0));
                 say(rank.d.ncclCommWindowRegister(rank.comm, at, 4, &window, kSymmetric));
                 rank.settle();
                 rank.d.ncclCommWindowRegister(rank.comm, at, 8192, &window, kSymmetric);
               });
  expect_ranks({}, 1, 0, "ncclCommWindowDeregister of memory that allreduce still uses", [](Shared& all, int r) {
    Rank rank(all, r, 1);
    void *window = nullptr, *at = nullptr;
    rank.d.ncclMemAlloc(&at, 4096);
    rank.d.ncclCommWindowRegister(rank.comm, at, 4096, &window, kSymmetric);
    rank.settle();
    rank.allreduce(static_cast<float*>(at), 1);
    rank.settle();
    rank.d.ncclCommWindowDeregister(rank.comm, window);
  });
}

// Two ranks of one process, and memory that only the device of each may touch.
void test_memory_is_reached_by_the_devices_of_the_process(void**) {
  expect({}, "reaches memory of rank 0 from device 1, which has no access to it", [] {
    static Shared all;
    const auto be = [](int r) {
      Rank rank(all, r, 2);
      constexpr size_t kBytes = size_t{2} << 20;
      struct {
        int type, handle_types, location[2];
        void* win32;
        unsigned char flags[8];
      } what{1, 0, {1, r}, nullptr, {}};
      const int right[3] = {1, r, 3};
      unsigned long long at = 0, physical = 0;
      using U = unsigned long long;
      rank.d.cuda<int(U*, size_t, size_t, U, U)>("cuMemAddressReserve")(&at, kBytes, 0, 0, 0);
      rank.d.cuda<int(U*, size_t, const void*, U)>("cuMemCreate")(&physical, kBytes, &what, 0);
      rank.d.cuda<int(U, size_t, size_t, U, U)>("cuMemMap")(at, kBytes, 0, physical, 0);
      rank.d.cuda<int(U, size_t, const void*, size_t)>("cuMemSetAccess")(at, kBytes, right, 1);
      rank.allreduce(reinterpret_cast<float*>(at), 4);
      rank.settle();
      rank.wait();
    };
    std::thread other(be, 1);
    be(0);
    other.join();
  });
}

void test_memory_in_use_stays_registered_and_allocated(void**) {
  expect_ranks({}, 1, 0, "ncclCommDeregister of memory that allreduce still uses", [](Shared& all, int r) {
    Rank rank(all, r, 1);
    void *handle = nullptr, *at = nullptr;
    rank.d.ncclMemAlloc(&at, 4096);
    rank.d.ncclCommRegister(rank.comm, at, 4096, &handle);
    rank.allreduce(static_cast<float*>(at), 1);
    rank.settle();
    rank.d.ncclCommDeregister(rank.comm, handle);
  });
  expect_ranks({}, 1, 0, "ncclMemFree of memory that the communicator of rank 0 has registered",
               [](Shared& all, int r) {
                 Rank rank(all, r, 1);
                 void *handle = nullptr, *at = nullptr;
                 rank.d.ncclMemAlloc(&at, 4096);
                 rank.d.ncclCommRegister(rank.comm, at, 4096, &handle);
                 rank.d.ncclMemFree(at);
               });
}

void test_a_death_is_told_only_over_a_network(void**) {
  for (const bool told : {true, false}) {
    const Settings settings{{"GSEL_FAKE_NCCL_DEATHS", told ? "told" : ""}};
    expect_ranks(settings, 2, 0, told ? "state 6" : "state 0", [](Shared& all, int r) {
      Rank rank(all, r, 2);
      ++all.step;
      while (all.step < 2) usleep(1000);
      if (r == 1) _exit(0);
      usleep(50000);
      fprintf(stderr, "state %d", rank.settle());
    });
  }
}

void test_an_abort_takes_as_long_as_it_was_told(void**) {
  expect({{"GSEL_FAKE_NCCL_ABORT_MS", "hang"}}, "hangs", [] {
    Shared all{};
    static Rank rank(all, 0, 1);
    static std::atomic<bool> is_back{false};
    std::thread([] { rank.d.ncclCommAbort(rank.comm), is_back = true; }).detach();
    usleep(50000);
    fprintf(stderr, is_back ? "came back" : "hangs");
  });
  expect_end({}, "ncclCommGetAsyncError on a communicator that has been freed", [] {
    Shared all{};
    Rank rank(all, 0, 1);
    rank.d.ncclCommAbort(rank.comm);
    rank.settle();
  });
}

void test_no_memory_is_told_as_cuda_tells_it(void**) {
  expect({{"GSEL_FAKE_CUDA_OOM", "1"}}, "result 1; Cuda failure 2 'out of memory'", [] {
    Shared all{};
    Rank rank(all, 0, 1);
    void* at = nullptr;
    say(rank.d.ncclMemAlloc(&at, 64));
    fprintf(stderr, " %s", rank.d.ncclGetLastError(nullptr));
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_call_in_progress_refuses_the_next),
      cmocka_unit_test(test_two_threads_that_poll_end_the_process),
      cmocka_unit_test(test_two_ranks_of_one_device_are_refused),
      cmocka_unit_test(test_calls_that_do_not_match_wait_until_an_abort),
      cmocka_unit_test(test_a_message_without_its_other_side_waits),
      cmocka_unit_test(test_ranks_that_both_send_first_wait_for_each_other),
      cmocka_unit_test(test_two_communicators_in_opposite_order_wait_for_each_other),
      cmocka_unit_test(test_memory_is_registered_everywhere_or_nowhere),
      cmocka_unit_test(test_windows_lie_alike_and_all_ranks_call_in_them),
      cmocka_unit_test(test_windows_are_of_memory_of_nccl_and_let_go_after_use),
      cmocka_unit_test(test_memory_is_reached_by_the_devices_of_the_process),
      cmocka_unit_test(test_memory_in_use_stays_registered_and_allocated),
      cmocka_unit_test(test_a_death_is_told_only_over_a_network),
      cmocka_unit_test(test_an_abort_takes_as_long_as_it_was_told),
      cmocka_unit_test(test_no_memory_is_told_as_cuda_tells_it),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
