// unit/test_comm_call_matcher.cc: what is found in the announcements of ranks on several hosts, in whatever order they
// come.
#include <string>
#include <vector>

#include "comm/hosts/call_matcher.h"
#include "support/check.h"

namespace {

using namespace gsel;
using namespace gsel::hosts;

constexpr int64_t kSecond = 1'000'000'000;

Roster roster() {
  HostTable table;
  table.host_of = {0, 0, 1, 1};
  table.names = {"a", "b"};
  table.addresses = {"10.0.0.1", "10.0.0.2"};
  return Roster(table, 0);
}

// A matcher, and what it is told.
struct Told {
  Roster ranks = roster();
  CallMatcher matcher{ranks};
  uint64_t numbers[4] = {};
  std::vector<std::string> found;
  int32_t about = -1;

  void note(const std::optional<Error>& error) {
    if (!error) return;
    found.emplace_back(error->message());
    about = error->rank();
  }
  Announcement call(int32_t rank, gsel_collective_kind kind, uint64_t count, uint64_t fingerprint) {
    Announcement a;
    a.rank = rank;
    a.head.kind = kind;
    a.head.dtype = GSEL_F32;
    a.head.op = kind == GSEL_COLLECTIVE_ALLREDUCE ? GSEL_SUM : 0;
    a.head.count = count;
    a.head.fingerprint = fingerprint;
    a.number = ++numbers[rank];
    a.timeout_s = 1;
    return a;
  }
  void sums(int32_t rank, uint64_t count, int64_t now = 0, uint32_t registered = 0, double timeout_s = 1) {
    Announcement a = call(rank, GSEL_COLLECTIVE_ALLREDUCE, count, 100 * count + registered);
    a.registered = registered;
    a.timeout_s = timeout_s;
    note(matcher.take(a, {}, now));
  }
  void sends(int32_t rank, int32_t to, uint64_t count) {
    Announcement a = call(rank, GSEL_COLLECTIVE_SEND, count, 0);
    a.head.root = to;
    note(matcher.take(a, {}, 0));
  }
  void receives(int32_t rank, int32_t from, uint64_t count) {
    Announcement a = call(rank, GSEL_COLLECTIVE_RECV, count, 0);
    a.head.root = from;
    note(matcher.take(a, {}, 0));
  }
  void passes(int32_t rank, int32_t to, uint64_t count, int32_t from, uint64_t received) {
    Announcement a = call(rank, GSEL_COLLECTIVE_SENDRECV, count, 0);
    a.head.root = to;
    a.source = from;
    a.recv_count = received;
    note(matcher.take(a, {}, 0));
  }
  void all_to_all(int32_t rank, std::vector<uint64_t> counts) {
    Announcement a = call(rank, GSEL_COLLECTIVE_ALLTOALLV, 0, 7);
    a.counts = static_cast<uint32_t>(counts.size());
    note(matcher.take(a, counts, 0));
  }
  void leaves(int32_t rank) {
    Announcement a;
    a.what = Announcement::What::leaves;
    a.rank = rank;
    note(matcher.take(a, {}, 0));
  }
  void look(int64_t now) { note(matcher.find_late(now)); }
};

void expect(const Told& told, const char* text, int32_t about) {
  if (told.found.size() != 1 || told.found[0] != text || told.about != about)
    fail_msg("expected about rank %d: %s\ngot %zu, about rank %d: %s", about, text, told.found.size(), told.about,
             told.found.empty() ? "nothing" : told.found[0].c_str());
}

void test_calls_that_agree_in_any_order_are_no_matter(void**) {
  Told told;
  for (const int32_t rank : {3, 0, 2, 1})  // each far ahead of the next
    for (uint64_t n = 1; n <= 100; ++n) told.sums(rank, n);
  told.look(100 * kSecond);
  for (int32_t rank = 0; rank < 4; ++rank) told.leaves(rank);
  assert_true(told.found.empty());
}

void test_the_last_to_come_is_compared(void**) {
  Told told;
  told.sums(3, 4);
  told.sums(0, 4);
  told.sums(1, 5);
  expect(told,
         "rank 1 on a called allreduce(count 5, f32, sum) on a stream, rank 3 on b called allreduce(count 4, f32, sum) "
         "on a stream; make the calls alike on every rank",
         1);
}

void test_registered_memory_must_agree(void**) {
  Told told;
  told.sums(0, 4, 0, 1);
  told.sums(2, 4);
  expect(told,
         "rank 0 on a called allreduce(count 4, f32, sum) on a stream in registered memory, rank 2 on b called "
         "allreduce(count 4, f32, sum) on a stream; make the calls alike on every rank",
         2);
}

void test_a_late_rank_is_named_with_who_waits_the_shortest(void**) {
  Told told;
  for (int32_t q = 0; q < 4; ++q) told.sums(q, 1);
  told.sums(0, 2, 5 * kSecond);
  told.sums(1, 2, 5 * kSecond, 0, 0.5);
  told.sums(3, 2, 5 * kSecond);
  told.look(5 * kSecond + kSecond / 2);
  assert_true(told.found.empty());
  told.look(5 * kSecond + kSecond / 2 + 1);
  expect(
      told,
      "timed out: rank 2 on b is late: rank 1 on a waited for it in allreduce(count 2, f32, sum) on a stream (call 2), "
      "rank 2 last called allreduce(count 1, f32, sum) on a stream (call 1)",
      2);
}

void test_who_has_left_is_named_where_it_is_missed(void**) {
  Told told;
  for (int32_t q = 0; q < 4; ++q) told.sums(q, 1);
  told.leaves(2);
  told.look(100 * kSecond);
  assert_true(told.found.empty());
  told.sums(0, 2);
  told.look(0);
  expect(
      told,
      "rank 2 on b left while rank 0 on a waited for it in allreduce(count 2, f32, sum) on a stream (call 2), rank 2 "
      "last called allreduce(count 1, f32, sum) on a stream (call 1)",
      2);
}

void test_messages_of_a_pair_are_compared_in_order(void**) {
  Told told;
  for (const uint64_t n : {1, 2, 3}) told.sends(0, 3, n);
  told.receives(3, 1, 9);  // of another pair
  for (const uint64_t n : {1, 2, 3}) told.receives(3, 0, n);
  told.sends(1, 3, 9);
  told.passes(0, 1, 5, 1, 6);
  told.passes(1, 0, 6, 0, 5);
  assert_true(told.found.empty());
  told.receives(2, 3, 8);
  told.sends(3, 2, 7);
  expect(
      told,
      "rank 3 on b called send(count 7, f32, to rank 2) on a stream with 7 of f32 for rank 2 on b, rank 2 on b called "
      "recv(count 8, f32, from rank 3) on a stream with 8 of f32 for it; give a message and its receive one type and "
      "one count, which a transport of devices needs",
      2);
}

void test_a_message_to_who_has_left_is_named(void**) {
  Told told;
  told.sends(0, 3, 1);
  told.look(100 * kSecond);  // its time runs on the stream
  assert_true(told.found.empty());
  told.leaves(3);
  expect(
      told,
      "rank 3 on b left while rank 0 on a waited for it in send(count 1, f32, to rank 3) on a stream (call 1), rank 3 "
      "has called nothing on a stream",
      3);
}

void test_parts_of_an_all_to_all_are_compared(void**) {
  Told told;
  const std::vector<uint64_t> ones(8, 1);
  std::vector<uint64_t> more = ones;
  more[2] = 2;  // for rank 2
  told.all_to_all(2, ones);
  told.all_to_all(1, ones);
  assert_true(told.found.empty());
  told.all_to_all(0, more);
  expect(
      told,
      "rank 0 on a called alltoallv(f32) on a stream with 2 of f32 for rank 2 on b, rank 2 on b called alltoallv(f32) "
      "on a stream with 1 of f32 for it; give a message and its receive one type and one count, which a transport of "
      "devices needs",
      2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_calls_that_agree_in_any_order_are_no_matter),
      cmocka_unit_test(test_the_last_to_come_is_compared),
      cmocka_unit_test(test_registered_memory_must_agree),
      cmocka_unit_test(test_a_late_rank_is_named_with_who_waits_the_shortest),
      cmocka_unit_test(test_who_has_left_is_named_where_it_is_missed),
      cmocka_unit_test(test_messages_of_a_pair_are_compared_in_order),
      cmocka_unit_test(test_a_message_to_who_has_left_is_named),
      cmocka_unit_test(test_parts_of_an_all_to_all_are_compared),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
