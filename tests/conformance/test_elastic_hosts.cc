// Copies of the state on other hosts (train.redundancy): which rank keeps whose, and training that goes on after all
// ranks of a host are lost at once.
#include "base/error.h"
#include "support/draw.h"
#include "support/elastic_trial.h"
#include "support/hosts.h"
#include "train/query/mirror.h"

using namespace gsel::test;

namespace {

// Each keeps one other's, on another host unless one host has more than half of the ranks.
void test_copies_go_to_other_hosts(void**) {
  Draw draw(7);
  for (int turn = 0; turn < 3000; ++turn) {
    std::vector<uint64_t> hosts(static_cast<size_t>(draw.from(2, 12)));
    const int32_t n_hosts = draw.from(1, 5);
    for (uint64_t& host : hosts) host = static_cast<uint64_t>(draw.from(1, n_hosts)) * 1000003;
    const std::vector<size_t> keeper = gsel::keepers(hosts);
    std::vector<int> kept(hosts.size());
    int64_t most = 0, other = 0;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      most = std::max<int64_t>(most, std::count(hosts.begin(), hosts.end(), hosts[rank]));
      assert_true(keeper[rank] < hosts.size() && keeper[rank] != rank);
      ++kept[keeper[rank]];
      other += hosts[keeper[rank]] != hosts[rank];
    }
    assert_true(kept == std::vector<int>(hosts.size(), 1));
    const auto n = static_cast<int64_t>(hosts.size());
    assert_int_equal(other, 2 * most <= n ? n : 2 * (n - most));
  }
  const std::vector<size_t> next = {1, 2, 0};
  assert_true(gsel::keepers({5, 5, 5}) == next);
}

void at_some_callbacks(struct change* world, int i) {
  world->at = 2 * i;
}

void test_a_host_is_lost(void**) {
  struct {
    const char* hosts;
    int victims[2];
  } const jobs[] = {{"0011", {2, 3}}, {"0101", {1, 3}}};
  outcome* expected = trained_alone();
  for (const auto& job : jobs) {
    struct change c = change_of(ZERO("3", ALL_SHARDED) LION "redundancy = 1\n", expected);
    c.hosts = job.hosts;
    c.n_victims = 2;
    std::copy(std::begin(job.victims), std::end(job.victims), c.victims);
    c.lost = 1;
    const struct losses losses = lose_ranks_in_turn(&c, 4, at_some_callbacks);
    print_message("  %s: %d worlds; from ranks %d times\n", job.hosts, losses.worlds, losses.from_ranks);
    assert_int_equal(losses.from_checkpoint, 0);
  }
  free_outcomes(expected);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_copies_go_to_other_hosts),
      cmocka_unit_test(test_a_host_is_lost),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
