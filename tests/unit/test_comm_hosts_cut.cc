// unit/test_comm_hosts_cut.cc: two hosts with a cable of their own: one that is cut, while ranks live on either side:
// one side goes on, the other is told that it is a minority; and one beside a network that leads nowhere. Three hosts,
// of which two do not hear each other, or one hears nobody: a third one is asked. The hosts are network namespaces,
// which need privileges.
#include <fcntl.h>
#include <sched.h>

#include "support/beside.h"
#include "support/hosts.h"

using namespace gsel::test;

namespace {

struct Cut {
  Job job;  // what join looks at
  char names[2][32];
  const char* goes_on;  // the number of the host
  volatile int32_t come, over;
};

// false: it could not be done.
bool command(const char* format, const char* one, const char* other) {
  char text[256];
  snprintf(text, sizeof text, format, one, other);
  return system(text) == 0;
}

void enter_host(const char* name) {
  char path[64];
  snprintf(path, sizeof path, "/run/netns/%s", name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) _exit(3);
  close(fd);
}

void is_cut_off(rank_run* run) {
  auto* cut = static_cast<Cut*>(run->user);
  const char host = cut->job.hosts[run->rank];
  enter_host(cut->names[host - '0']);
  setenv("GSEL_HOST_TIMEOUT", "1", 1);
  run->timeout_s = 5;
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *left = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  __atomic_add_fetch(&cut->come, 1, __ATOMIC_SEQ_CST);
  gsel_status status = GSEL_OK;
  int32_t x = 1;
  while (status == GSEL_OK) status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_MAX, &err);
  const auto* other = strchr(cut->job.hosts, host == '0' ? '1' : '0');
  const auto first = static_cast<int32_t>(other - cut->job.hosts);
  rank_fails(run, status, err, GSEL_ERR_PEER, "is silent for 1 s", first);
  if (host == cut->goes_on[0]) {
    rank_ok(run, gsel_comm_shrink(comm, &left, &err), err);
    const auto n = static_cast<int32_t>(std::count(cut->job.hosts, cut->job.hosts + run->world_size, host));
    rank_check(run, gsel_comm_world_size(left) == n);
    x = 1;
    rank_ok(run, gsel_allreduce(left, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, x == n);
  } else {
    rank_fails(run, gsel_comm_shrink(comm, &left, &err), err, GSEL_ERR_PEER, "a minority", -1);
  }
  __atomic_add_fetch(&cut->over, 1, __ATOMIC_SEQ_CST);
  await_step(&cut->over, run->world_size);
  gsel_comm_free(left);
  gsel_comm_free(comm);
}

void clean(const Cut* cut) {
  command("ip netns delete %s; ip netns delete %s", cut->names[0], cut->names[1]);
}

// Before the cable, so that it comes first wherever interfaces are listed.
bool add_dead_ends(const char* a, const char* b) {
  return command("ip link add dead0 netns %s type veth peer name dead1 netns %s", a, a) &&
         command("ip link add dead0 netns %s type veth peer name dead1 netns %s", b, b) &&
         command("ip -n %s address add 10.99.1.1/24 dev dead0 && ip -n %s address add 10.99.1.2/24 dev dead0", a, b) &&
         command("ip -n %s link set dead0 up && ip -n %s link set dead0 up", a, b) &&
         command("ip -n %s link set dead1 up && ip -n %s link set dead1 up", a, b);
}

bool make_hosts(Cut* cut, bool with_dead_ends = false) {
  snprintf(cut->names[0], sizeof cut->names[0], "gsel-c-%d", getpid());
  snprintf(cut->names[1], sizeof cut->names[1], "gsel-d-%d", getpid());
  const char *a = cut->names[0], *b = cut->names[1];
  return geteuid() == 0 && command("ip netns add %s 2> /dev/null && ip netns add %s", a, b) &&
         (!with_dead_ends || add_dead_ends(a, b)) &&
         command("ip link add eth0 netns %s type veth peer name eth0 netns %s", a, b) &&
         command("ip -n %s address add 10.77.1.1/24 dev eth0 && ip -n %s address add 10.77.1.2/24 dev eth0", a, b) &&
         command("ip -n %s link set eth0 up && ip -n %s link set eth0 up", a, b) &&
         command("ip -n %s link set lo up && ip -n %s link set lo up", a, b);
}

void cut_between(const char* hosts, const char* goes_on) {
  auto* cut = static_cast<Cut*>(shared_memory(sizeof(Cut)));
  if (!make_hosts(cut)) {
    printf("left out: a cable that is cut, since network namespaces are not to be had here\n");
    munmap(cut, sizeof *cut);
    return;
  }
  snprintf(cut->job.place, sizeof cut->job.place, "tcp://10.77.1.1:29500");
  cut->job.hosts = hosts;
  cut->goes_on = goes_on;
  const auto n = static_cast<int32_t>(strlen(hosts));
  rank_run* runs = ranks_prepare(n, cut);
  std::vector<pid_t> pids;
  for (int32_t r = 0; r < n; ++r) pids.push_back(rank_fork(&runs[r], is_cut_off));
  await_step(&cut->come, n);
  const bool is_down = command("ip -n %s link set eth0 down%s", cut->names[1], "");
  int problems = 0;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    problems += status != 0;
  }
  clean(cut);
  munmap(cut, sizeof *cut);
  ranks_verdict(runs, n);
  assert_true(is_down);
  assert_int_equal(problems, 0);
}

// ---- three hosts at a bridge --------------------------------------------------------------------------------------

struct Bridged {
  Job job;  // what join looks at
  char bridge[32], names[3][32];
  bool is_link;  // only what is between hosts 0 and 1 is cut; else host 2 hears nobody
  volatile int32_t come, over;
};

bool shell(const std::string& text) {
  return system(text.c_str()) == 0;
}

std::string at_bridge(const Bridged& at, int host, const std::string& what) {
  return std::string("ip -n ") + at.bridge + " link set p" + std::to_string(host) + " " + what;
}

bool make_bridge(Bridged* at) {
  snprintf(at->bridge, sizeof at->bridge, "gsel-e-%d", getpid());
  const std::string bridge = at->bridge, in_bridge = "ip -n " + bridge + " ";
  if (geteuid() != 0 || !shell("ip netns add " + bridge + " 2> /dev/null") ||
      !shell(in_bridge + "link add br0 type bridge && " + in_bridge + "link set br0 up"))
    return false;
  for (int h = 0; h < 3; ++h) {
    snprintf(at->names[h], sizeof at->names[h], "gsel-f-%d-%d", getpid(), h);
    const std::string name = at->names[h], in_host = "ip -n " + name + " ", port = "p" + std::to_string(h);
    if (!shell("ip netns add " + name + " && " + in_host + "link set lo up") ||
        !shell("ip link add " + port + " netns " + bridge + " type veth peer name eth0 netns " + name) ||
        !shell(at_bridge(*at, h, "master br0 up")) ||
        !shell(in_host + "address add 10.77.2." + std::to_string(h + 1) + "/24 dev eth0") ||
        !shell(in_host + "link set eth0 up"))
      return false;
  }
  return true;
}

// What each hears of whom, and what it gets of a shrink then.
void has_a_third_host(rank_run* run) {
  auto* at = static_cast<Bridged*>(run->user);
  enter_host(at->names[run->rank]);
  setenv("GSEL_HOST_TIMEOUT", "3", 1);  // a host that is heard must not seem silent where others have the processor
  run->timeout_s = 10;
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *left = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  __atomic_add_fetch(&at->come, 1, __ATOMIC_SEQ_CST);
  gsel_status status = GSEL_OK;
  int32_t x = 1;
  while (status == GSEL_OK) status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_MAX, &err);
  const int32_t lost = at->is_link ? 1 : 2;  // with host 0
  const char* text = at->is_link         ? ", and answers rank 2 on "
                     : run->rank == lost ? ", and other hosts that were asked about it do not answer either"
                                         : "is silent for 3 s, to rank 1 on ";
  rank_fails(run, status, err, GSEL_ERR_PEER, text, run->rank == lost ? 0 : lost);
  if (run->rank == lost) {
    rank_fails(run, gsel_comm_shrink(comm, &left, &err), err, GSEL_ERR_PEER, "a minority", -1);
  } else {
    rank_ok(run, gsel_comm_shrink(comm, &left, &err), err);
    rank_check(run, gsel_comm_world_size(left) == 2);
    x = 1;
    rank_ok(run, gsel_allreduce(left, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, x == 2);
  }
  __atomic_add_fetch(&at->over, 1, __ATOMIC_SEQ_CST);
  await_step(&at->over, run->world_size);
  gsel_comm_free(left);
  gsel_comm_free(comm);
}

void cut_of_three(bool is_link) {
  auto* at = static_cast<Bridged*>(shared_memory(sizeof(Bridged)));
  bool is_cut = make_bridge(at);
  if (!is_cut) {
    printf("left out: hosts at a bridge, since network namespaces are not to be had here\n");
  } else {
    snprintf(at->job.place, sizeof at->job.place, "tcp://10.77.2.1:29500");
    at->job.hosts = "012";
    at->is_link = is_link;
    rank_run* runs = ranks_prepare(3, at);
    pid_t pids[3];
    for (int32_t r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], has_a_third_host);
    await_step(&at->come, 3);
    if (is_link)  // ports that are isolated reach those that are not
      is_cut = shell(at_bridge(*at, 0, "type bridge_slave isolated on")) &&
               shell(at_bridge(*at, 1, "type bridge_slave isolated on"));
    else
      is_cut = shell(at_bridge(*at, 2, "down"));
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
    for (const char* name : {at->names[0], at->names[1], at->names[2], at->bridge})
      shell(std::string("ip netns delete ") + name);
    ranks_verdict(runs, 3);
    assert_true(is_cut);
  }
  munmap(at, sizeof *at);
}

// Host 2 may have been told of the cut by one side, and shrink, while the other side asks it.
void test_a_host_that_another_one_hears_is_not_said_to_be_dead(void**) {
  cut_of_three(true);
}

void test_a_host_that_nobody_hears_is(void**) {
  cut_of_three(false);
}

void test_the_side_of_rank_0_goes_on_where_both_are_alike(void**) {
  cut_between("0011", "0");
}

void test_the_larger_side_goes_on(void**) {
  cut_between("011", "1");
}

// Nobody answers at 10.99.1.2 of the other host, and nothing is said of GSEL_INTERFACE.
void has_a_dead_end(rank_run* run) {
  auto* cut = static_cast<Cut*>(run->user);
  enter_host(cut->names[cut->job.hosts[run->rank] - '0']);
  run->timeout_s = 5;
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  std::vector<int32_t> x(100000, 1);
  rank_ok(run, gsel_allreduce(comm, x.data(), x.data(), x.size(), GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, x == std::vector<int32_t>(x.size(), run->world_size));
  gsel_comm_free(comm);
}

void test_bytes_go_where_the_hosts_have_met(void**) {
  auto* cut = static_cast<Cut*>(shared_memory(sizeof(Cut)));
  if (!make_hosts(cut, true)) {
    printf("left out: a network that leads nowhere, since network namespaces are not to be had here\n");
    munmap(cut, sizeof *cut);
    return;
  }
  snprintf(cut->job.place, sizeof cut->job.place, "tcp://10.77.1.1:29500");
  cut->job.hosts = "0011";
  rank_run* runs = ranks_prepare(4, cut);
  ranks_run_processes(runs, 4, has_a_dead_end);
  clean(cut);
  munmap(cut, sizeof *cut);
  ranks_verdict(runs, 4);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_the_side_of_rank_0_goes_on_where_both_are_alike),
      cmocka_unit_test(test_the_larger_side_goes_on),
      cmocka_unit_test(test_bytes_go_where_the_hosts_have_met),
      cmocka_unit_test(test_a_host_that_another_one_hears_is_not_said_to_be_dead),
      cmocka_unit_test(test_a_host_that_nobody_hears_is),
  };
  return run_tests_on_hosts(tests, std::size(tests), run_tests_beside);
}
