/* fake/cuda/test_comm_hosts_network.c: what nccl is told of the network and of hosts: GSEL_INTERFACE and GSEL_HOST_ID,
 * beside what the user has said to NCCL itself. */
#include "fake/cuda/hosts.h"

static const char* environment(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

static void one_call(rank_run* run, const joined* j) {
  gsel_error* err = NULL;
  rank_ok(run, gsel_allreduce(j->comm, j->memory, j->memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(j->comm, &err), err);
}

static void nccl_takes_the_interface(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  setenv("GSEL_INTERFACE", "lo", 1);
  rank_ok(run, join_hosts(run, &j, &err), err);
  one_call(run, &j);
  rank_check(run, !strcmp(environment("NCCL_SOCKET_IFNAME"), "=lo"));
  rank_check(run, !strcmp(((const char* (*)(void))dlsym(RTLD_DEFAULT, "fake_nccl_interface"))(), "lo"));
  gsel_comm_free(j.comm);
}

/* A list that names it among others, as NCCL reads it. */
static void nccl_keeps_what_the_user_says(rank_run* run) {
  static const char* const said[] = {"eth,lo:5000", "=lo", "^docker,eth"};
  const char* own = said[run->rank % 3];
  gsel_error* err = NULL;
  joined j;
  setenv("GSEL_INTERFACE", "lo", 1);
  setenv("NCCL_SOCKET_IFNAME", own, 1);
  setenv("NCCL_HOSTID", run->rank ? "one" : "two", 1);
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_check(run, !strcmp(environment("NCCL_SOCKET_IFNAME"), own));
  rank_check(run, !strcmp(environment("NCCL_HOSTID"), run->rank ? "one" : "two"));
  gsel_comm_free(j.comm);
}

static void test_nccl_uses_the_interface_unless_the_user_says_otherwise(void** state) {
  (void)state;
  on_hosts("001", nccl_takes_the_interface, "nccl", 20);
  on_hosts("001", nccl_keeps_what_the_user_says, "nccl", 20);
}

static void refused(rank_run* run, const char* interface, const char* nccl, const char* part) {
  gsel_error* err = NULL;
  joined j;
  if (run->rank == 1) setenv("GSEL_INTERFACE", interface, 1);
  if (run->rank == 1 && nccl) setenv("NCCL_SOCKET_IFNAME", nccl, 1);
  rank_fails(run, join_hosts(run, &j, &err), err, GSEL_ERR_ARG, part, -1);
}
static void no_interface(rank_run* run) {
  refused(run, "none7", NULL, " cannot join: rank 1: GSEL_INTERFACE=none7 ");
}
static void no_interface_of_one_host(rank_run* run) {
  refused(run, "none7", NULL,
          "nccl cannot join: rank 1: GSEL_INTERFACE=none7 is no interface of this host, which has ");
}
static void left_out(rank_run* run) {
  refused(run, "lo", "^lo",
          "nccl cannot join: rank 1: GSEL_INTERFACE=lo and NCCL_SOCKET_IFNAME=^lo, by which NCCL takes ");
}
static void another_one(rank_run* run) {
  refused(run, "lo", "=l", "GSEL_INTERFACE=lo and NCCL_SOCKET_IFNAME==l, by which NCCL takes none");
}

static void test_interfaces_that_contradict_are_named_on_every_rank(void** state) {
  (void)state;
  on_hosts("001", no_interface, "nccl", 20); /* gloo may find it first */
  on_hosts("000", no_interface_of_one_host, "nccl", 20);
  on_hosts("001", left_out, "nccl", 20);
  on_hosts("011", another_one, "nccl", 20);
}

/* Each host has a device of number 0; the kernel says that both are one host. */
static void first_device_of_each(rank_run* run) {
  const job* where = (const job*)run->user;
  const char number[] = {where->hosts[run->rank], '\0'};
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  setenv("GSEL_FAKE_CUDA_HOST", number, 1);
  load_doubles("fake_libnccl.so");
  rank_ok(run, join_hosts_on(run, 0, &comm, &err), err);
  rank_check(run, environment("NCCL_HOSTID")[0] == 'h' && environment("NCCL_HOSTID")[1] == number[0]);
  rank_ok(run, gsel_barrier(comm, &err), err);
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  gsel_comm_free(comm);
}

/* What NCCL makes of two hosts that it takes for one. */
static void taken_for_one(rank_run* run) {
  const job* where = (const job*)run->user;
  const char number[] = {where->hosts[run->rank], '\0'};
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  setenv("GSEL_FAKE_CUDA_HOST", number, 1);
  setenv("NCCL_HOSTID", "one", 1);
  load_doubles("fake_libnccl.so");
  const gsel_status status = join_hosts_on(run, 0, &comm, &err);
  char text[600] = "";
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  rank_check(run, status != GSEL_OK && strstr(text, "Duplicate GPU detected"));
}

static void test_hosts_that_the_kernel_takes_for_one_are_two_for_nccl(void** state) {
  (void)state;
  on_hosts("01", first_device_of_each, "nccl", 20);
  on_hosts("01", taken_for_one, "nccl", 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nccl_uses_the_interface_unless_the_user_says_otherwise),
      cmocka_unit_test(test_interfaces_that_contradict_are_named_on_every_rank),
      cmocka_unit_test(test_hosts_that_the_kernel_takes_for_one_are_two_for_nccl),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
