// faults/test_comm_no_memory.cc: a message for which memory runs out on one rank while the other may read its buffer in
// place. The sender's call has failed and the buffer is its own again, so nobody may be told that what he reads there
// is the message.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "support/ranks.h"

namespace {

thread_local int allowed = -1;  // allocations until memory runs out; -1: it does not

void* allocated(size_t bytes) {
  void* memory = allowed == 0 ? nullptr : std::malloc(bytes);
  if (allowed > 0) --allowed;
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Those of the library, too.
void* operator new(size_t bytes) {
  return allocated(bytes);
}
void* operator new[](size_t bytes) {
  return allocated(bytes);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allowed == 0 ? nullptr : std::malloc(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace {

constexpr size_t kElems = 1 << 20;  // read in place by a rank of the same process
constexpr int kRounds = 12;         // memory runs out at the first allocation of the call, at the second, ...

struct Meeting {
  std::atomic<int> failed{0}, over{0};  // rounds in which rank 0's call has ended, and rank 1's
};

void exchange(rank_run* run, gsel_comm* comm, Meeting& meeting, int round) {
  gsel_error* err = nullptr;
  std::vector<float> x(kElems, static_cast<float>(run->rank));
  while (run->rank == 1 && meeting.failed <= round) sched_yield();
  if (run->rank == 0) allowed = round;
  const gsel_status status = run->rank == 0 ? gsel_send(comm, x.data(), kElems, GSEL_F32, 1, &err)
                                            : gsel_recv(comm, x.data(), kElems, GSEL_F32, 0, &err);
  allowed = -1;
  gsel_error_free(err);
  const bool right = std::ranges::count(x, 0.0F) == static_cast<ptrdiff_t>(kElems);
  std::ranges::fill(x, 77.0F);
  (run->rank == 0 ? meeting.failed : meeting.over) = round + 1;
  while (run->rank == 0 && meeting.over <= round) sched_yield();  // who leaves takes all offers back
  rank_check(run, status != GSEL_OK || right);
}

void rank_0_has_no_memory_for_its_message(rank_run* run) {
  auto& meeting = *static_cast<Meeting*>(run->user);
  for (int round = 0; round < kRounds; ++round) {
    gsel_error* err = nullptr;
    gsel_comm *world = nullptr, *comm = nullptr;
    rank_ok(run, rank_join(run, &world, &err), err);
    rank_ok(run, gsel_comm_dup(world, &comm, &err), err);
    rank_ok(run, gsel_comm_set_timeout(comm, 0.2, &err), err);
    exchange(run, comm, meeting, round);
    gsel_comm_free(comm);
    rank_ok(run, gsel_barrier(world, &err), err);
    gsel_comm_free(world);
  }
}

void what_a_failed_sender_took_back_is_no_message(void**) {
  Meeting meeting;
  as_threads(2, rank_0_has_no_memory_for_its_message, &meeting);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(what_a_failed_sender_took_back_is_no_message)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
