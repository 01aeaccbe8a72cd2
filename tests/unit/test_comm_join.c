/* unit/test_comm_join.c: joining: processes that disagree, are missing or claim the same rank; the environment's ways
 * of naming a rank, as children that are told through it. */
#include <fcntl.h>
#include <sys/resource.h>

#include "support/ranks.h"

static void joins(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm = NULL;
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_comm_free(comm);
}

/* What every rank must be told: user is a text the error has, join_timeout_s bounds the rest. */
struct refusal {
  gsel_status code;
  const char* part;
  int32_t about;
};

static void is_refused(rank_run* run) {
  const struct refusal* expected = run->user;
  gsel_error* err;
  gsel_comm* comm = (gsel_comm*)run;
  rank_fails(run, rank_join(run, &comm, &err), err, expected->code, expected->part, expected->about);
  rank_check(run, comm == NULL);
}

static void test_a_world_size_that_differs_is_told_to_both_sides(void** state) {
  (void)state;
  struct refusal expected = {GSEL_ERR_MISMATCH, "joins a world of 4 ranks, rank 0", 1};
  for (int processes = 0; processes < 2; ++processes) {
    rank_run* runs = ranks_prepare(2, &expected);
    runs[1].world_size = 4;
    if (processes)
      ranks_run_processes(runs, 2, is_refused);
    else
      ranks_run_threads(runs, 2, is_refused);
    ranks_verdict(runs, 2);
  }
}

static void test_a_rank_claimed_twice_is_told_to_both_sides(void** state) {
  (void)state;
  struct refusal expected = {GSEL_ERR_MISMATCH, "rank 1 is claimed twice, by pid", 1};
  rank_run* runs = ranks_prepare(3, &expected);
  runs[2].rank = 1;
  ranks_run_processes(runs, 3, is_refused);
  ranks_verdict(runs, 3);
}

static void test_rank_0_claimed_twice_is_told_to_both_sides(void** state) {
  (void)state;
  struct refusal expected = {GSEL_ERR_MISMATCH, "rank 0 is claimed twice, by pid", 0};
  for (int processes = 0; processes < 2; ++processes) {
    rank_run* runs = ranks_prepare(2, &expected);
    runs[1].rank = 0;
    if (processes)
      ranks_run_processes(runs, 2, is_refused);
    else
      ranks_run_threads(runs, 2, is_refused);
    ranks_verdict(runs, 2);
  }
}

/* user: the device of each rank. */
static gsel_status joins_on(const rank_run* run, const char* device, gsel_comm** comm, gsel_error** err) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.timeout_s = run->timeout_s;
  options.join_timeout_s = run->join_timeout_s;
  options.device = gsel_str_from(device);
  return gsel_comm_init(&options, comm, err);
}

static void joins_on_its_device(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm = NULL;
  rank_ok(run, joins_on(run, ((const char* const*)run->user)[run->rank], &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void is_refused_on_its_device(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm = NULL;
  rank_fails(run, joins_on(run, ((const char* const*)run->user)[run->rank], &comm, &err), err, GSEL_ERR_DUPLICATE,
             "compute on one device, GPU-11", -1);
  rank_check(run, comm == NULL);
}

static void test_two_ranks_on_one_device_are_told_so_before_they_communicate(void** state) {
  (void)state;
  static const char* const twice[] = {"GPU-11", "GPU-22", "GPU-11"};
  static const char* const twice_without_rank_0[] = {"GPU-1", "GPU-11", "GPU-11"};
  static const char* const apart[] = {"GPU-11", "GPU-1", "GPU-111"};
  static const char* const untold[] = {"", NULL, ""};
  rank_run* runs = ranks_prepare(3, (void*)twice);
  ranks_run_threads(runs, 3, is_refused_on_its_device);
  ranks_verdict(runs, 3);
  runs = ranks_prepare(3, (void*)twice_without_rank_0);
  ranks_run_processes(runs, 3, is_refused_on_its_device);
  ranks_verdict(runs, 3);
  runs = ranks_prepare(3, (void*)apart);
  ranks_run_processes(runs, 3, joins_on_its_device);
  ranks_verdict(runs, 3);
  runs = ranks_prepare(3, (void*)untold);
  ranks_run_threads(runs, 3, joins_on_its_device);
  ranks_verdict(runs, 3);
}

static void test_a_device_name_has_a_bound(void** state) {
  (void)state;
  char name[97];
  memset(name, 'x', 96);
  name[96] = '\0';
  rank_run run = {.rank = 0, .world_size = 2, .timeout_s = 1, .join_timeout_s = 1};
  gsel_comm* comm = NULL;
  gsel_error* err;
  check_fails(joins_on(&run, name, &comm, &err), err, GSEL_ERR_ARG, "device has 96 bytes");
}

static void test_missing_ranks_are_named_by_rank_0(void** state) {
  (void)state;
  struct refusal expected = {GSEL_ERR_TIMEOUT, "rank 0 waited for ranks 1, 3", 1};
  rank_run* runs = ranks_prepare(2, &expected);
  runs[0].world_size = runs[1].world_size = 4;
  runs[0].join_timeout_s = 0.2; /* the other hears it from rank 0 */
  runs[1].rank = 2;
  ranks_run_threads(runs, 2, is_refused);
  ranks_verdict(runs, 2);
}

static void test_without_rank_0_the_others_say_what_they_waited_for(void** state) {
  (void)state;
  struct refusal expected = {
      GSEL_ERR_TIMEOUT,
      "waited 0.3 s for rank 0 to appear; start all ranks within the join timeout, with one id, on one host and in one "
      "network namespace; where ranks are on several, name a place to meet in gsel_comm_options.rendezvous, or in "
      "GSEL_RENDEZVOUS",
      0};
  rank_run* runs = ranks_prepare(1, &expected);
  runs[0].world_size = 2;
  runs[0].rank = 1;
  runs[0].join_timeout_s = 0.3;
  ranks_run_threads(runs, 1, is_refused);
  ranks_verdict(runs, 1);
}

/* Rank 0 knows who is missing, whoever's time is up first. */
static void test_the_missing_rank_is_named_where_another_runs_out_of_time_before_rank_0(void** state) {
  (void)state;
  struct refusal expected = {GSEL_ERR_TIMEOUT, "after 0.3 s 2 of 3 ranks had joined: rank 1 waited for rank 2;", 2};
  rank_run* runs = ranks_prepare(2, &expected);
  runs[0].world_size = runs[1].world_size = 3;
  runs[1].join_timeout_s = 0.3;
  ranks_run_threads(runs, 2, is_refused);
  ranks_verdict(runs, 2);
}

/* No driver is opened for that. */
static void names_an_accelerator_alone(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  if (run->rank == 1) options.accelerator = gsel_str_from("cuda");
  rank_fails(run, gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_MISMATCH,
             "joins with an accelerator, rank 0 without an accelerator; give every rank", 1);
}

static void test_an_accelerator_of_one_rank_alone_is_a_mismatch(void** state) {
  (void)state;
  as_threads(3, names_an_accelerator_alone, NULL);
}

/* A process that ends while it joins. */
/* One rank has so many descriptors left. Whatever fails for want of one, all hear of that rank, and it hears why. */
struct scarce {
  int32_t rank;
  int left;
  volatile int32_t joined;
};

static void has_few_descriptors(rank_run* run) {
  struct scarce* s = run->user;
  gsel_error* err = NULL;
  gsel_comm* comm;
  char text[400] = "";
  if (run->rank == s->rank) {
    const struct rlimit limit = {64, 64};
    rank_check(run, setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int fd = open("/dev/null", O_RDONLY), last = fd;
    rank_check(run, fd >= 0);
    while ((fd = dup(0)) >= 0) last = fd;
    for (int i = 0; i < s->left; ++i) close(last - i);
  }
  const gsel_status status = rank_join(run, &comm, &err);
  gsel_error_format(err, text, sizeof text);
  if (status == GSEL_OK) {
    __atomic_add_fetch(&s->joined, 1, __ATOMIC_SEQ_CST);
    rank_ok(run, gsel_barrier(comm, &err), err);
    gsel_comm_free(comm);
  } else if (gsel_error_rank(err) != s->rank || (run->rank == s->rank && !strstr(text, "ulimit -n"))) {
    snprintf(run->failure, sizeof run->failure, "rank %d, %d descriptors left on rank %d: %s", (int)run->rank, s->left,
             (int)s->rank, text);
  }
  gsel_error_free(err);
}

static void test_a_rank_without_descriptors_is_named_to_all(void** state) {
  (void)state;
  for (int32_t rank = 0; rank < 2; ++rank) {
    struct scarce* s = shared_memory(sizeof *s);
    for (s->left = rank == 0 ? 4 : 2; s->left < 20 && s->joined == 0; ++s->left) {
      s->rank = rank;
      as_processes(3, has_few_descriptors, s);
    }
    assert_int_equal(s->joined, 3);
    munmap(s, sizeof *s);
  }
}

static void test_a_rank_that_ends_while_it_joins_is_named(void** state) {
  (void)state;
  struct refusal expected = {GSEL_ERR_PEER, "rank 1 (pid ", 1};
  rank_run* runs = ranks_prepare(2, &expected);
  runs[0].world_size = runs[1].world_size = 3;
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    gsel_comm* comm;
    alarm(1);
    rank_join(&runs[1], &comm, NULL);
    _exit(0);
  }
  ranks_run_threads(runs, 1, is_refused);
  waitpid(pid, NULL, 0);
  ranks_verdict(runs, 2);
}

static void joins_often(rank_run* run) {
  for (int i = 0; i < 30 && !run->failure[0]; ++i) joins(run);
}

static void test_one_id_serves_several_communicators_in_a_row(void** state) {
  (void)state;
  as_threads(4, joins_often, NULL);
  as_processes(3, joins_often, NULL);
}

static const char* const known[] = {"RANK",
                                    "WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "GSEL_JOB",
                                    "LOCAL_WORLD_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_RESTART_COUNT",
                                    "JOB_COMPLETION_INDEX",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "PMIX_NAMESPACE",
                                    "MPI_LOCALNRANKS",
                                    "PMI_LOCAL_SIZE",
                                    "SLURM_NNODES",
                                    "SLURM_STEP_NUM_NODES",
                                    "PMI_FD",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "OMPI_MCA_ess_base_jobid",
                                    "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_RESTART_COUNT",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "GSEL_RENDEZVOUS",
                                    "GSEL_TOKEN_FILE"};

/* "A=1 B=2": the environment's only launcher variables from now on; %r stands for the rank. */
static void set_environment(const char* variables, int32_t rank) {
  for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) unsetenv(known[i]);
  char text[512], *rest = NULL;
  snprintf(text, sizeof text, "%s", variables);
  for (char* item = strtok_r(text, " ", &rest); item; item = strtok_r(NULL, " ", &rest)) {
    char* value = strchr(item, '=');
    char number[16];
    *value++ = '\0';
    snprintf(number, sizeof number, "%d", (int)rank);
    setenv(item, strcmp(value, "%r") == 0 ? number : value, 1);
  }
}

static void joins_by_environment(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  set_environment(run->user, run->rank);
  for (int i = 0; i < 3; ++i) {
    int32_t x = run->rank;
    rank_ok(run, gsel_comm_init(NULL, &comm, &err), err);
    rank_check(run, gsel_comm_rank(comm) == run->rank && gsel_comm_world_size(comm) == run->world_size);
    rank_ok(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, x == run->world_size * (run->world_size - 1) / 2);
    gsel_comm_free(comm);
  }
}

static void test_each_launchers_variables_join_its_ranks(void** state) {
  (void)state;
  char* sets[] = {
      "RANK=%r WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511",
      "RANK=%r WORLD_SIZE=3 GSEL_JOB=00112233445566778899aabbccddeeff LOCAL_WORLD_SIZE=3",
      "OMPI_COMM_WORLD_RANK=%r OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=test.1",
      "OMPI_COMM_WORLD_RANK=%r OMPI_COMM_WORLD_SIZE=3 OMPI_MCA_ess_base_jobid=417",
      "PMI_RANK=%r PMI_SIZE=3",
      "SLURM_PROCID=%r SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=3 SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NNODES=2 "
      "SLURM_STEP_NUM_NODES=1",
      "GSEL_RENDEZVOUS=env:// RANK=%r WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511",
      "RANK=9 WORLD_SIZE=12 PMI_RANK=%r PMI_SIZE=3", /* the first set is incomplete, the second counts */
  };
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; ++i) as_processes(3, joins_by_environment, sets[i]);
}

static void test_an_empty_environment_is_a_world_of_one(void** state) {
  (void)state;
  char* sets[] = {"",
                  "RANK=0 WORLD_SIZE=1",
                  "WORLD_SIZE=1",
                  "WORLD_SIZE=1 GSEL_RENDEZVOUS=tcp://127.0.0.1:1",
                  "RANK=0 WORLD_SIZE=1 GSEL_RENDEZVOUS=tcp://127.0.0.1:1",
                  "SLURM_NTASKS=1",
                  "SLURM_PROCID=0 SLURM_NTASKS=1", /* the shell of a batch script */
                  "JOB_COMPLETION_INDEX=3" /* tasks that know nothing of each other */};
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; ++i) as_processes(1, joins_by_environment, sets[i]);
}

struct bad_set {
  const char* variables;
  const char* part;
  const char* token;
};

static void is_refused_by_environment(rank_run* run) {
  const struct bad_set* bad = run->user;
  gsel_error* err;
  gsel_comm* comm = NULL;
  set_environment(bad->variables, 0);
  rank_check(run, gsel_comm_init(NULL, &comm, &err) == GSEL_ERR_CONFIG && !comm);
  if (!strstr(gsel_error_message(err).data, bad->part) || strcmp(gsel_error_token(err).data, bad->token) != 0)
    snprintf(run->failure, sizeof run->failure, "%s: expected \"%s\" about %s, got \"%s\" about %s", bad->variables,
             bad->part, bad->token, gsel_error_message(err).data, gsel_error_token(err).data);
  gsel_error_free(err);
}

static void test_incomplete_and_garbled_environments_are_refused_by_name(void** state) {
  (void)state;
  struct bad_set sets[] = {
      {"RANK=1", "RANK=1 is in the environment but WORLD_SIZE is not", "WORLD_SIZE"},
      {"WORLD_SIZE=2", "WORLD_SIZE=2 is in the environment but RANK is not", "RANK"},
      {"SLURM_NTASKS=4", "the shell of sbatch or salloc is no rank", "SLURM_STEP_NUM_TASKS"},
      {"SLURM_PROCID=0 SLURM_NTASKS=4", "the shell of sbatch or salloc is no rank", "SLURM_STEP_NUM_TASKS"},
      {"SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=4", "SLURM_PROCID is not", "SLURM_PROCID"},
      {"RANK=0 WORLD_SIZE=2 MASTER_PORT=1", "MASTER_ADDR is not", "MASTER_ADDR"},
      {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "MASTER_PORT is not", "MASTER_PORT"},
      {"RANK=x WORLD_SIZE=1", "RANK is \"x\"", "RANK"},
      {"RANK=0 WORLD_SIZE=2x MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE is \"2x\"", "WORLD_SIZE"},
      {"RANK=-1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "RANK is \"-1\"", "RANK"},
      {"PMI_RANK=0 PMI_SIZE=0", "PMI_SIZE is \"0\"", "PMI_SIZE"},
      {"PMI_RANK=2 PMI_SIZE=2", "PMI_RANK=2 and PMI_SIZE=2", "PMI_RANK"},
      {"PMI_RANK=99999999999 PMI_SIZE=2", "PMI_RANK is \"99999999999\"", "PMI_RANK"},
      {"RANK=0 WORLD_SIZE=2 GSEL_JOB=12", "GSEL_JOB is \"12\"", "GSEL_JOB"},
      {"RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "meet at tcp://a:1 and have no token",
       "GSEL_TOKEN_FILE"},
      {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[007-9,12],m",
       "meet at tcp://n007:", "GSEL_TOKEN_FILE"},
      {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=r[1-2]n[4,5]-ib",
       "meet at tcp://r1n4-ib:", "GSEL_TOKEN_FILE"},
      {"JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 MASTER_ADDR=job-0.svc", "meet at tcp://job-0.svc:29500", "GSEL_TOKEN_FILE"},
      {"JOB_COMPLETION_INDEX=1 WORLD_SIZE=2", "does not end with that index", "MASTER_ADDR"},
      {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
       "OMPI_COMM_WORLD_LOCAL_SIZE=2 of OMPI_COMM_WORLD_SIZE=4 ranks are on this host, and the launcher does not tell",
       "GSEL_RENDEZVOUS"},
      {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2", "MPI_LOCALNRANKS=2 of PMI_SIZE=4 ranks", "GSEL_RENDEZVOUS"},
      {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2 PMI_FD=0", "is not the socket of a process manager", ""},
      {"GSEL_RENDEZVOUS=env://", "no variable of a launcher", "GSEL_RENDEZVOUS"},
      {"GSEL_RENDEZVOUS=tcp://127.0.0.1:1",
       "GSEL_RENDEZVOUS is \"tcp://127.0.0.1:1\", where ranks meet, and neither a rank nor a world size is given",
       "GSEL_RENDEZVOUS"},
      {"GSEL_RENDEZVOUS=file:///tmp/run JOB_COMPLETION_INDEX=3",
       "JOB_COMPLETION_INDEX=3 is in the environment but WORLD_SIZE is not", "GSEL_RENDEZVOUS"},
      {"GSEL_RENDEZVOUS=env:/ RANK=0 WORLD_SIZE=2", "expected \"tcp://\", \"file://\" or \"env://\"",
       "GSEL_RENDEZVOUS"},
      {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4",
       "the MPI does not understand the launcher, which started 4 ranks", "OMPI_COMM_WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMI_RANK=1 PMI_SIZE=3",
       "the MPI does not understand the launcher, which started 3 ranks", "OMPI_COMM_WORLD_SIZE"},
  };
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; ++i) as_processes(1, is_refused_by_environment, &sets[i]);
}

static void no_id(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  set_environment("", 0);
  options.world_size = 2;
  rank_fails(run, gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_CONFIG, "pass one id", -1);
  options.world_size = 0;
  options.rank = 1;
  rank_fails(run, gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "world_size 0", -1);
}

static void test_a_given_world_needs_an_id_or_a_launcher(void** state) {
  (void)state;
  as_processes(1, no_id, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_world_size_that_differs_is_told_to_both_sides),
      cmocka_unit_test(test_a_rank_claimed_twice_is_told_to_both_sides),
      cmocka_unit_test(test_rank_0_claimed_twice_is_told_to_both_sides),
      cmocka_unit_test(test_two_ranks_on_one_device_are_told_so_before_they_communicate),
      cmocka_unit_test(test_a_device_name_has_a_bound),
      cmocka_unit_test(test_missing_ranks_are_named_by_rank_0),
      cmocka_unit_test(test_an_accelerator_of_one_rank_alone_is_a_mismatch),
      cmocka_unit_test(test_without_rank_0_the_others_say_what_they_waited_for),
      cmocka_unit_test(test_the_missing_rank_is_named_where_another_runs_out_of_time_before_rank_0),
      cmocka_unit_test(test_a_rank_without_descriptors_is_named_to_all),
      cmocka_unit_test(test_a_rank_that_ends_while_it_joins_is_named),
      cmocka_unit_test(test_one_id_serves_several_communicators_in_a_row),
      cmocka_unit_test(test_each_launchers_variables_join_its_ranks),
      cmocka_unit_test(test_an_empty_environment_is_a_world_of_one),
      cmocka_unit_test(test_incomplete_and_garbled_environments_are_refused_by_name),
      cmocka_unit_test(test_a_given_world_needs_an_id_or_a_launcher),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
