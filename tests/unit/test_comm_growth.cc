// unit/test_comm_growth.cc: how much ranks on many hosts say to each other while they meet, connect and make calls, as
// their number doubles: messages, bytes and connections of all ranks together, counted, grow no faster than n log n.
#include <cmath>
#include <iterator>

#include "support/hosts.h"
#include "support/simulated_job.h"

using namespace gsel::test;

namespace {

constexpr int32_t kRanksAHost = 2;

struct Total {
  int32_t ranks;
  double bytes, messages, connections;
};

Total total_of(int32_t ranks, const PhaseTraffic& phase) {
  const auto sum = [](const std::atomic<uint64_t>& a, const std::atomic<uint64_t>& b) {
    return static_cast<double>(a.load() + b.load());
  };
  return {ranks, sum(phase.tcp.bytes, phase.local.bytes), sum(phase.tcp.messages, phase.local.messages),
          sum(phase.tcp.connections, phase.local.connections)};
}

void check_growth(const char* what, double before, double after, int32_t ranks) {
  constexpr double kTries = 1.05;  // ranks that come before rank 0 listens try again
  const double allowed = before * 2 * std::log2(2.0 * ranks) / std::log2(ranks) * kTries;
  if (after > allowed)
    fail_msg("%s: %.0f for %d ranks, %.0f for %d: n log n allows %.0f", what, before, ranks, after, 2 * ranks, allowed);
}

void check_totals(const char* phase, const std::vector<Total>& totals) {
  for (size_t i = 1; i < totals.size(); ++i) {
    char what[64];
    const Total &before = totals[i - 1], &after = totals[i];
    const auto check = [&](const char* name, double one, double other) {
      snprintf(what, sizeof what, "%s of %s", name, phase);
      check_growth(what, one, other, before.ranks);
    };
    check("bytes", before.bytes, after.bytes);
    check("messages", before.messages, after.messages);
    check("connections", before.connections, after.connections);
  }
}

void test_nothing_grows_faster_than_n_log_n(void**) {
  constexpr const char* kNames[] = {"the rendezvous", "the lines", "the calls"};
  std::vector<Total> totals[std::size(kNames)];
  for (const int32_t hosts : {16, 32, 64, 128}) {
    const SimulatedJob job{hosts, kRanksAHost, 10, 4, free_port()};
    const Simulated done = simulate(job);
    assert_true(done.ok);
    for (size_t i = 0; i < std::size(kNames); ++i) totals[i].push_back(total_of(kRanksAHost * hosts, done.traffic[i]));
    assert_true(done.most_connections <= 2u * (job.fanout + 1));
  }
  for (size_t i = 0; i < std::size(kNames); ++i) check_totals(kNames[i], totals[i]);
}

// ---- a call of real communicators ---------------------------------------------------------------------------------

constexpr int32_t kCalls100 = 100;

template <int32_t calls>
void makes_calls(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  setenv("GSEL_HOST_TIMEOUT", "86400", 1);  // no beats
  rank_ok(run, join(run, &comm, &err), err);
  for (int32_t i = 0; i < calls; ++i) rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

// What twice as many calls say more.
void of_100_calls(const char* hosts, uint64_t* messages, uint64_t* bytes) {
  PhaseTraffic& phase = counted().phases[0];
  uint64_t said[2] = {}, with[2] = {};
  for (const int turn : {0, 1}) {
    memset(static_cast<void*>(&counted()), 0, sizeof(Counted));
    on_hosts(hosts, turn == 0 ? makes_calls<kCalls100> : makes_calls<2 * kCalls100>);
    said[turn] = phase.tcp.messages;
    with[turn] = phase.tcp.bytes;
  }
  *messages = said[1] - said[0];
  *bytes = with[1] - with[0];
}

// Ranks of one host say it in their memory, and one of them says it for all.
void test_a_call_says_one_thing_up_and_one_down_between_hosts(void**) {
  setenv("GSEL_HOST_FANOUT", "2", 1);
  double bytes_a_host = 0;
  for (const char* hosts : {"0011", "00112233", "0123", "01234567"}) {
    uint64_t messages = 0, bytes = 0;
    of_100_calls(hosts, &messages, &bytes);
    const auto others = static_cast<double>(hosts[strlen(hosts) - 1] - '0');
    const double a_call = static_cast<double>(messages) / kCalls100;
    if (std::fabs(a_call - 2 * others) > 0.2)
      fail_msg("%s: %.2f messages a call, expected %.0f", hosts, a_call, 2 * others);
    const double a_host = static_cast<double>(bytes) / kCalls100 / others;
    if (bytes_a_host > 0 && std::fabs(a_host - bytes_a_host) > 0.01 * bytes_a_host)
      fail_msg("%s: %.0f bytes a call and host, %.0f with others", hosts, a_host, bytes_a_host);
    bytes_a_host = a_host;
  }
  unsetenv("GSEL_HOST_FANOUT");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_nothing_grows_faster_than_n_log_n),
      cmocka_unit_test(test_a_call_says_one_thing_up_and_one_down_between_hosts),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
