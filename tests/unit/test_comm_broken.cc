// unit/test_comm_broken.cc: a communicator that breaks at the worst moment, from inside: a rank has looked for what it
// waits for and not found it; before it looks whether the communicator is broken, the other rank posts what was waited
// for, is through with it, and breaks the communicator. The call has all that it needs and ends well.
//
// That moment is a few nanoseconds long. It is met by taking from this process the page that says whether the
// communicator is broken: the look at it is a fault, which another rank's part is played in.
#include <sys/mman.h>

#include <csignal>
#include <functional>
#include <vector>

#include "comm/shm/engine/engine.h"
#include "support/check.h"

using namespace gsel;
using namespace gsel::shm;

namespace {

constexpr int32_t kRanks = 3, kWaits = 1, kPosts = 2;
constexpr int64_t kTimeoutNs = 20'000'000'000;

// What an endpoint is made of, in its order.
struct Rank {
  explicit Rank(const MemberPlace& place)
      : members(place),
        recorder(members),
        breaking(members, recorder),
        signals(members, recorder, breaking, place.timeout_ns),
        memory(members, recorder, breaking),
        collectives(members, recorder, breaking, signals, memory, faults),
        mailbox(members, recorder, breaking, signals, memory, faults),
        engine(members, signals, collectives, mailbox, false) {
    signals.attach(engine);
  }
  Membership members;
  FlightRecorder recorder;
  Breaking breaking;
  Signals signals;
  PeerMemory memory;
  Faults faults;
  Collectives collectives;
  Mailbox mailbox;
  Engine engine;
};

struct Ranks {
  Ranks() {
    const os::Fd fd = SharedMemory::create(layout.reserved_bytes(), layout.total_bytes, kRanks);
    shared = SharedMemory::map(fd.get(), layout.total_bytes);
    ArenaHeader facts{};
    facts.cores = 1;
    std::vector<Seat> seats;
    for (int32_t r = 0; r < kRanks; ++r) seats.push_back({1, r, r});
    Arena::create(shared->control(), layout, facts, seats, "worst");
    waits = made(kWaits);
    posts = made(kPosts);
  }
  std::unique_ptr<Rank> made(int32_t rank) const {
    auto family = std::make_shared<Family>(shared, std::vector<Member>(kRanks), rank, os::Life());
    auto arena = Arena::at(shared->control(), layout, shared);
    return std::make_unique<Rank>(MemberPlace{std::move(family), std::move(arena), rank, kTimeoutNs});
  }
  const Layout layout{kRanks};
  std::shared_ptr<SharedMemory> shared;
  std::unique_ptr<Rank> waits, posts;
};

std::function<void()> the_other_part;
char* the_page = nullptr;

void play_the_other_part(int) {
  mprotect(the_page, kPage, PROT_READ | PROT_WRITE);
  the_other_part();
}

// Runs `what`; at its first look whether the communicator is broken, `other`.
void run_against(Ranks& ranks, const std::function<void()>& what, const std::function<void()>& other) {
  assert_true(reinterpret_cast<char*>(&ranks.waits->members.mine()) >= ranks.shared->control() + kPage);
  the_other_part = other;
  the_page = ranks.shared->control();
  struct sigaction own = {}, before = {};
  own.sa_handler = play_the_other_part;
  own.sa_flags = SA_NODEFER;
  assert_int_equal(sigaction(SIGSEGV, &own, &before), 0);
  assert_int_equal(mprotect(the_page, kPage, PROT_NONE), 0);
  what();
  sigaction(SIGSEGV, &before, nullptr);
  assert_true(ranks.waits->members.is_broken());  // or it was never met
}

void test_a_flag_that_was_posted_first_ends_the_wait(void**) {
  Ranks ranks;
  Rank &waits = *ranks.waits, &posts = *ranks.posts;
  Call call{};
  call.timeout_ns = kTimeoutNs;
  waits.signals.begin(call, 1);
  std::atomic<uint64_t>& flag = posts.members.mine().line[1].sequence;
  run_against(
      ranks, [&] { waits.signals.wait(kPosts, flag, 1); },
      [&] {
        posts.signals.post(flag, 1);
        posts.breaking.abort("behind it", -1);
      });
  try {
    waits.signals.wait(kPosts, flag, 2);
    fail_msg("a wait for what was never posted has ended");
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_ABORTED);
  }
}

void test_a_message_that_was_sent_first_is_received(void**) {
  Ranks ranks;
  Rank &waits = *ranks.waits, &posts = *ranks.posts;
  const auto message = [](gsel_collective_kind kind, int32_t peer) {
    gsel_collective call{};
    call.struct_size = sizeof call;
    call.kind = kind;
    call.dtype = GSEL_I32;
    call.count = 1;
    call.root = peer;
    call.source = -1;
    return call;
  };
  const int32_t sent = 42;
  int32_t received = 0;
  gsel_collective send = message(GSEL_COLLECTIVE_SEND, kWaits), recv = message(GSEL_COLLECTIVE_RECV, kPosts);
  send.send = &sent;
  recv.recv = &received;
  Transfer transfer;
  waits.mailbox.begin(transfer, recv);
  waits.mailbox.room_for_one();
  waits.mailbox.adopt(transfer);
  run_against(
      ranks,
      [&] {
        Idle idle;
        while (!waits.mailbox.is_empty()) {
          if (waits.mailbox.progress()) continue;
          assert_false(waits.mailbox.polled_long(idle, kTimeoutNs));
        }
      },
      [&] {
        posts.mailbox.run(send);
        posts.breaking.abort("behind it", -1);
      });
  assert_int_equal(received, 42);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_flag_that_was_posted_first_ends_the_wait),
      cmocka_unit_test(test_a_message_that_was_sent_first_is_received),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
