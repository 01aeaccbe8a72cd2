/* unit/test_cli.c: the gsel command as its users meet it: exit status, output, and what it leaves behind. Ranks are
 * shell scripts. Ranks and test meet over named pipes, never by waiting a while. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "support/command.h"

/* True when nothing holds the pipe; waits for that up to `timeout_ms`. */
static int nobody_left(int timeout_ms) {
  struct pollfd poll_fd = {alive, POLLIN, 0};
  char byte;
  return poll(&poll_fd, 1, timeout_ms) == 1 && read(alive, &byte, 1) == 0;
}

/* A named pipe by which ranks say that they are ready; reads n lines from it. */
static void make_pipe(const char* name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  unlink(path);
  assert_int_equal(mkfifo(path, 0600), 0);
}
static void await_lines(const char* name, int n) {
  char path[512], byte;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  const int fd = open(path, O_RDWR); /* also a writer, so that it does not end between two ranks */
  assert_true(fd >= 0);
  struct pollfd poll_fd = {fd, POLLIN, 0};
  while (n > 0 && poll(&poll_fd, 1, 30000) == 1 && read(fd, &byte, 1) == 1) n -= byte == '\n';
  close(fd);
  if (n > 0) fail_msg("%d ranks did not get ready", n);
}

/* ---- run: what the ranks get ---- */

static void each_rank_gets_the_promised_environment(void** state) {
  (void)state;
  check_gsel("run -n 2 -- sh -c '{ echo; env; } > env.$RANK'", 0);
  static char env[2][MAX_TEXT];
  for (int rank = 0; rank < 2; ++rank) {
    char name[16], line[64];
    snprintf(name, sizeof name, "env.%d", rank);
    read_back(name, env[rank]);
    snprintf(line, sizeof line, "\nRANK=%d\n", rank);
    check_part(env[rank], line);
    snprintf(line, sizeof line, "\nLOCAL_RANK=%d\n", rank);
    check_part(env[rank], line);
    check_part(env[rank], "\nWORLD_SIZE=2\n");
    check_part(env[rank], "\nLOCAL_WORLD_SIZE=2\n");
    check_part(env[rank], "\nGROUP_RANK=0\n");
    check_part(env[rank], "\nMASTER_ADDR=127.0.0.1\n");
    check_part(env[rank], "\nOMP_NUM_THREADS=1\n");
    check_part(env[rank], "\nOPENBLAS_NUM_THREADS=1\n");
    const char* port = strstr(env[rank], "\nMASTER_PORT=");
    assert_true(port && atoi(port + 13) > 1024 && atoi(port + 13) < 65536);
    assert_null(strstr(env[rank], "\nGSEL_CONFIG="));
    assert_null(strstr(env[rank], "\nCUDA_VISIBLE_DEVICES="));
  }
  const char* job[2] = {strstr(env[0], "\nGSEL_JOB="), strstr(env[1], "\nGSEL_JOB=")};
  assert_true(job[0] && job[1] && strspn(job[0] + 10, "0123456789abcdef") == 32 && job[0][42] == '\n');
  assert_memory_equal(job[0], job[1], 43);
}

static void thread_counts_are_left_alone_when_set_or_when_there_is_one_rank(void** state) {
  (void)state;
  setenv("OMP_NUM_THREADS", "5", 1);
  check_gsel("run -n 2 -- sh -c 'echo $OMP_NUM_THREADS$OPENBLAS_NUM_THREADS'", 0);
  assert_string_equal(out, "51\n51\n");
  unsetenv("OMP_NUM_THREADS");
  check_gsel("run -- sh -c 'echo $WORLD_SIZE:$OMP_NUM_THREADS$OPENBLAS_NUM_THREADS'", 0);
  assert_string_equal(out, "1:\n");
}

/* Where a rank may run is what it prints. */
#define WHERE " -- grep Cpus_allowed_list /proc/self/status"

static void each_rank_has_a_core_of_its_own_where_there_are_enough(void** state) {
  (void)state;
  char own[256] = "", first[256], second[256], many[96];
  assert_int_equal(finish(start("exec grep Cpus_allowed_list /proc/self/status >out 2>err")), 0);
  snprintf(own, sizeof own, "%.255s", out);
  cpu_set_t before, one;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  const int processors = CPU_COUNT(&before);
  if (processors > 1) {
    check_gsel("run -n 2 --verbose" WHERE, 0);
    assert_int_equal(sscanf(out, "%255[^\n]\n%255[^\n]", first, second), 2);
    assert_string_not_equal(first, second);
    check_part(err, "gsel: rank 0 on processor");
    check_part(err, "gsel: rank 1 on processor");
  }
  snprintf(many, sizeof many, "run -n %d --verbose" WHERE, processors + 1);
  const char* const anywhere[] = {"run --verbose" WHERE, "run -n 2 --pin none" WHERE, many};
  for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; ++i) {
    check_gsel(anywhere[i], 0);
    for (const char* line = out; *line; line += strlen(own)) assert_int_equal(strncmp(line, own, strlen(own)), 0);
  }
  check_part(err, "gsel: ranks run on any processor\n");

  CPU_ZERO(&one);
  for (int i = 0; CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  const int status = gsel("run -n 2 --verbose" WHERE);
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
  check_status(status, 0, "restricted to one processor", __LINE__);
  check_part(err, "gsel: ranks run on any processor\n");
}

static void ranks_with_threads_of_their_own_run_anywhere_unless_told(void** state) {
  (void)state;
  setenv("OMP_NUM_THREADS", "5", 1);
  check_gsel("run -n 2 --verbose -- true", 0);
  check_part(err, "gsel: ranks run on any processor\n");
  unsetenv("OMP_NUM_THREADS");
  check_gsel("run -n 2 --pin socket -- true", 2);
  check_part(err, "gsel: --pin socket: core or none is needed");
}

static void arguments_pass_unchanged(void** state) {
  (void)state;
  check_gsel("run -- sh -c 'printf \"<%s>\" \"$@\"' zero -n 7 -- --json '' 'a b'", 0);
  assert_string_equal(out, "<-n><7><--><--json><><a b>");
  check_gsel("run -n 1 sh -c 'printf \"<%s>\" \"$@\"' zero --tag-output -- x", 0);
  assert_string_equal(out, "<--tag-output><--><x>");
}

static void standard_input_goes_to_rank_0(void** state) {
  (void)state;
  assert_int_equal(finish(start("echo hello | gsel run -n 3 -- sh -c 'cat > in.$RANK' >out 2>err")), 0);
  char text[64];
  for (int rank = 0; rank < 3; ++rank) {
    char path[512];
    snprintf(path, sizeof path, "%s/in.%d", dir, rank);
    FILE* file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, rank == 0 ? "hello\n" : "");
  }
}

static void each_rank_gets_its_device_and_the_job_is_refused_when_they_run_out(void** state) {
  (void)state;
  char library[1024];
  snprintf(library, sizeof library, "%s/tests/fixtures/fake_nvml.so", getenv("GSEL_TEST_BIN"));
  setenv("GSEL_NVML_LIBRARY", library, 1);
  check_gsel("run -n 2 --tag-output --devices index:1,0 -- sh -c 'echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER'", 0);
  check_part(out, "[0] GPU-22222222-0000-0000-0000-000000000000 PCI_BUS_ID\n");
  check_part(out, "[1] GPU-11111111-0000-0000-0000-000000000000 PCI_BUS_ID\n");
  check_gsel("run -n 3 --devices all -- touch started", 2);
  check_part(err, "gsel: local rank 2 has no device: 2 are selected");
  check_gsel("run -n 2 --devices count:3 -- touch started", 2);
  check_part(err, "gsel: devices=count:3: \"3\" at column 7");
  unsetenv("GSEL_NVML_LIBRARY");
  check_gsel("run -n 2 --devices cpu -- sh -c 'echo ${CUDA_VISIBLE_DEVICES-unset}'", 0);
  assert_string_equal(out, "\n\n");
  assert_string_equal(err, "");
  char path[512];
  snprintf(path, sizeof path, "%s/started", dir);
  assert_int_equal(access(path, F_OK), -1);
}

static void two_ranks_never_get_one_device_unless_told_to(void** state) {
  (void)state;
  const char* machine = "--inventory \"$GSEL_TEST_DATA/inventory/a100x8.json\"";
  char line[1024];
  snprintf(line, sizeof line, "run -n 2 %s --devices index:3 -- touch started", machine);
  check_gsel(line, 2);
  check_part(err, "gsel: 2 ranks would compute on one device, GPU-f26547dc-a3ff-c4fa-07dc-3220a912a8ce; select 2");
  snprintf(line, sizeof line, "run -n 2 %s --devices index:3 --share-devices -- sh -c 'echo $CUDA_VISIBLE_DEVICES'",
           machine);
  check_gsel(line, 0);
  assert_string_equal(out, "GPU-f26547dc-a3ff-c4fa-07dc-3220a912a8ce\nGPU-f26547dc-a3ff-c4fa-07dc-3220a912a8ce\n");
  snprintf(line, sizeof line, "run -n 2 %s --devices index:2,0 --tag-output -- sh -c 'echo $GSEL_DEVICE'", machine);
  check_gsel(line, 0);
  check_part(out, "[0] GPU-e06ef9fc-7497-0c8b-ce6c-fb2db8673096\n");
  check_part(out, "[1] GPU-c4f82fda-f11d-4492-a176-950eab898aad\n");
}

static void a_job_can_reserve_its_devices(void** state) {
  (void)state;
  char folder[512], line[1024];
  snprintf(folder, sizeof folder, "%s/locks", dir);
  setenv("GSEL_RESERVE_FOLDER", folder, 1);
  const char* machine = "--inventory \"$GSEL_TEST_DATA/inventory/a100x8.json\"";
  /* The inner job runs while the outer one holds its device. */
  snprintf(line, sizeof line,
           "run -n 1 %s --devices count:1 --reserve -- sh -c 'env -u CUDA_VISIBLE_DEVICES \"$0\" run -n 1 %s "
           "--devices count:1 --reserve -- sh -c \"echo \\$CUDA_VISIBLE_DEVICES\"; echo $CUDA_VISIBLE_DEVICES' "
           "\"$GSEL_TEST_BIN/bin/gsel\"",
           machine, machine);
  check_gsel(line, 0);
  assert_string_equal(out, "GPU-cedc8ef5-2012-4e98-be22-5cdcb615ef10\nGPU-c4f82fda-f11d-4492-a176-950eab898aad\n");
  snprintf(line, sizeof line,
           "run -n 1 %s --devices index:0 --reserve -- sh -c 'env -u CUDA_VISIBLE_DEVICES \"$0\" run -n 1 %s "
           "--devices index:0 --reserve -- true' \"$GSEL_TEST_BIN/bin/gsel\"",
           machine, machine);
  check_gsel(line, 2);
  check_part(err, "device 0 (GPU-c4f82fda-f11d-4492-a176-950eab898aad) is reserved by process ");
  char library[1024];
  snprintf(library, sizeof library, "%s/tests/fixtures/fake_nvml.so", getenv("GSEL_TEST_BIN"));
  setenv("GSEL_NVML_LIBRARY", library, 1);
  check_gsel("run -n 1 --devices count:1 --reserve -- sh -c '\"$0\" devices' \"$GSEL_TEST_BIN/bin/gsel\"", 0);
  check_part(out, "reserved by ");
  check_gsel("devices --json", 0);
  assert_null(strstr(out, "reserved"));
  unsetenv("GSEL_NVML_LIBRARY");
  unsetenv("GSEL_RESERVE_FOLDER");
  snprintf(line, sizeof line, "%s/.all", folder);
  unlink(line);
  assert_int_equal(rmdir(folder), 0);
}

/* ---- run: how it ends ---- */

static void the_status_of_a_failing_rank_is_passed_on_and_the_others_are_ended(void** state) {
  (void)state;
  /* With such a grace only the asking can have ended rank 0 and 2 before the test's own limit. */
  check_gsel("run -n 3 --grace 1000 -- sh -c '[ $RANK = 1 ] && exit 7; exec sleep 1000'", 7);
  check_part(err, "gsel: rank 1 (pid ");
  check_part(err, "exited with status 7; ending the other 2 ranks in 1 s\n");
  assert_true(nobody_left(0));
}

static void a_rank_killed_by_a_signal_gives_128_and_its_number(void** state) {
  (void)state;
  check_gsel("run -n 2 --wait 0 --grace 1000 -- sh -c '[ $RANK = 1 ] && kill -9 $$; exec sleep 1000'", 137);
  check_part(err, "was killed by signal 9 (SIGKILL); ending the other rank\n");
  assert_true(nobody_left(0));
}

/* Waits until the process has this state, or does not; it stands behind the last ')' of its stat. */
static void await_state(int pid, char wanted, int there) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  for (int turn = 0; turn < 30000; ++turn) {
    FILE* file = fopen(path, "r");
    if (!file) fail_msg("process %d is gone", pid);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char* end = strrchr(text, ')');
    if (end && (end[2] == wanted) == there) return;
    poll(NULL, 0, 1);
  }
  fail_msg("process %d %s in state %c", pid, there ? "was never" : "was still", wanted);
}

/* The pids that ranks 0 and 1 wrote to pid.0 and pid.1. */
static void read_pids(int* pids) {
  for (int rank = 0; rank < 2; ++rank) {
    char name[16];
    snprintf(name, sizeof name, "pid.%d", rank);
    read_back(name, out);
    pids[rank] = atoi(out);
    assert_true(pids[rank] > 0);
  }
}

static void a_rank_killed_by_a_signal_comes_before_those_that_failed_for_it(void** state) {
  (void)state;
  make_pipe("ready");
  int pids[2];
  const pid_t pid = start(
      "exec gsel run -n 2 -- sh -c 'echo $$ > pid.$RANK; echo > ready; until [ -e open ]; do :; done;"
      " [ $RANK = 1 ] && kill -9 $$; exit 9' >out 2>err");
  await_lines("ready", 2);
  read_pids(pids);
  kill(pid, SIGSTOP); /* so that it meets both ends at once */
  await_state(pid, 'T', 1);
  write_file("open", "");
  for (int rank = 0; rank < 2; ++rank) await_state(pids[rank], 'Z', 1);
  kill(pid, SIGCONT);
  check_status(finish(pid), 137, "run", __LINE__);
  check_part(err, "gsel: rank 1 (pid ");
  check_part(err, "was killed by signal 9 (SIGKILL)\n");
}

static void a_rank_that_ignores_being_asked_is_killed_after_the_grace(void** state) {
  (void)state;
  make_pipe("ready");
  check_gsel(
      "run -n 2 --wait 0 --grace 0.1 -- sh -c '[ $RANK = 1 ] && { read line < ready; exit 4; }; trap \"\" TERM;"
      " echo > ready; exec sleep 1000'",
      4);
  check_part(err, "rank 0 did not end within 0.1 s: killed");
  assert_true(nobody_left(0));
}

static void a_stopped_rank_does_not_hold_up_the_end(void** state) {
  (void)state;
  make_pipe("ready");
  check_gsel(
      "run -n 2 --wait 0 --grace 1000 -- sh -c '[ $RANK = 1 ] && { read pid < ready;"
      " until grep -q \"State:.T\" /proc/$pid/status; do :; done; exit 4; }; echo $$ > ready; kill -STOP $$'",
      4);
  assert_true(nobody_left(0));
}

static void signals_are_forwarded_to_every_rank(void** state) {
  (void)state;
  static const struct {
    int number;
    const char* name;
  } signals[] = {{SIGTERM, "TERM"}, {SIGINT, "INT"},   {SIGHUP, "HUP"},     {SIGQUIT, "QUIT"}, {SIGUSR1, "USR1"},
                 {SIGUSR2, "USR2"}, {SIGALRM, "ALRM"}, {SIGWINCH, "WINCH"}, {SIGCONT, "CONT"}};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) {
    make_pipe("ready");
    char line[1024];
    snprintf(line, sizeof line,
             "exec gsel run -n 2 --tag-output -- sh -c 'trap : TERM; trap \"echo got %s; exit 3\" %s; echo > ready;"
             " sleep 1000 & while :; do wait; done' >out 2>err",
             signals[i].name, signals[i].name);
    const pid_t pid = start(line);
    await_lines("ready", 2);
    kill(pid, signals[i].number);
    check_status(finish(pid), 3, line, __LINE__);
    char part[32];
    for (int rank = 0; rank < 2; ++rank) {
      snprintf(part, sizeof part, "[%d] got %s\n", rank, signals[i].name);
      check_part(out, part);
    }
    assert_true(nobody_left(0));
  }
}

/* The first SIGINT is the ranks' own business, the second asks them to end, the third kills them. */
static void a_repeated_ctrl_c_ends_what_ignores_it(void** state) {
  (void)state;
  for (int ignores_term = 0; ignores_term < 2; ++ignores_term) {
    char command[512], path[512];
    make_pipe("ready");
    snprintf(path, sizeof path, "%s/ready", dir);
    const int held = open(path, O_RDWR); /* so that no rank waits for a reader */
    assert_true(held >= 0);
    snprintf(command, sizeof command,
             "exec gsel run -n 2 --grace 1000 -- sh -c 'trap \"echo > ready\" INT; trap \"%s\" TERM; echo > ready;"
             " sleep 1000 & while :; do wait; done' >out 2>err",
             ignores_term ? "echo > ready" : "exit 5");
    const pid_t pid = start(command);
    await_lines("ready", 2);
    kill(pid, SIGINT);
    await_lines("ready", 2);
    kill(pid, SIGINT);
    if (ignores_term) {
      await_lines("ready", 2);
      kill(pid, SIGINT);
    }
    check_status(finish(pid), 128 + SIGINT, command, __LINE__);
    check_part(err, "gsel: interrupted again; ending 2 ranks, killing what is left after 1000 s\n");
    if (ignores_term) check_part(err, "gsel: interrupted 3 times; killing ranks 0, 1\n");
    assert_true(nobody_left(0));
    close(held);
  }
}

static void a_job_is_stopped_and_continued_as_a_whole(void** state) {
  (void)state;
  make_pipe("ready");
  const pid_t pid =
      start("exec gsel run -n 2 -- sh -c 'echo $$ > pid.$RANK; echo > ready; exec sleep 1000' >out 2>err");
  await_lines("ready", 2);
  int ranks[2], status = 0;
  read_pids(ranks);
  kill(pid, SIGTSTP);
  assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
  assert_true(WIFSTOPPED(status));
  for (int rank = 0; rank < 2; ++rank) await_state(ranks[rank], 'T', 1);
  kill(pid, SIGCONT);
  for (int rank = 0; rank < 2; ++rank) await_state(ranks[rank], 'T', 0);
  kill(pid, SIGTERM);
  check_status(finish(pid), 128 + SIGTERM, "run", __LINE__);
  assert_true(nobody_left(0));
}

static void an_option_is_no_file(void** state) {
  (void)state;
  check_gsel("run --json -n 1 -- true", 2);
  check_part(err, "--json of run takes a FILE");
  assert_int_equal(access("-n", F_OK), -1);
}

static void nothing_that_ranks_started_is_left(void** state) {
  (void)state;
  /* Each rank leaves a session of its own that cannot be asked to end, with children in turn. */
  check_gsel(
      "run -n 2 -- sh -c 'mkfifo left.$RANK; setsid sh -c \"trap \\\"\\\" TERM HUP; (sleep 1000 & sleep 1000) &"
      " echo > left.$RANK; exec sleep 1000\" & read line < left.$RANK'",
      0);
  check_part(err, " processes that the ranks left behind");
  assert_true(nobody_left(0));
}

/* The names in a folder, sorted, one per line. */
static void list_folder(const char* path, char* text, size_t bytes) {
  struct dirent** entries = NULL;
  const int count = scandir(path, &entries, NULL, alphasort);
  assert_true(count >= 0);
  size_t used = 0;
  for (int i = 0; i < count; ++i) {
    used += (size_t)snprintf(text + used, bytes - used, "%s\n", entries[i]->d_name);
    assert_true(used < bytes);
    free(entries[i]);
  }
  free(entries);
}

static void no_child_is_left(void) {
  char text[256] = "";
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
  FILE* file = fopen("/proc/thread-self/children", "r"); /* not in every kernel */
  if (!file) return;
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  assert_string_equal(text, "");
}

static void a_launcher_that_is_killed_leaves_no_rank_and_no_file(void** state) {
  (void)state;
  static char before[MAX_TEXT], after[MAX_TEXT];
  char scratch[512], *outer = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
  snprintf(scratch, sizeof scratch, "%s/tmp", dir);
  assert_int_equal(mkdir(scratch, 0700), 0);
  setenv("TMPDIR", scratch, 1);
  list_folder("/dev/shm", before, sizeof before);
  make_pipe("ready");
  const pid_t pid = start("exec gsel run -n 2 -- sh -c 'trap \"\" TERM HUP; echo > ready; exec sleep 1000' >out 2>err");
  await_lines("ready", 2);
  assert_false(nobody_left(0));
  kill(pid, SIGKILL);
  assert_int_equal(finish(pid), 1000 + SIGKILL);
  assert_true(nobody_left(10000));
  no_child_is_left();
  list_folder("/dev/shm", after, sizeof after);
  assert_string_equal(after, before);
  list_folder(scratch, after, sizeof after);
  assert_string_equal(after, ".\n..\n");
  if (outer)
    setenv("TMPDIR", outer, 1);
  else
    unsetenv("TMPDIR");
  free(outer);
}

static void children_from_before_are_spared(void** state) {
  (void)state;
  /* The shell starts a process and becomes gsel: it is gsel's child, but no rank's doing. */
  const pid_t pid = start(
      "sh -c 'echo $$ > older; exec sleep 1000' & exec gsel run -- sh -c '"
      "until [ -s older ]; do :; done' >out 2>err");
  check_status(finish(pid), 0, "run", __LINE__);
  read_back("older", out);
  assert_int_equal(kill(atoi(out), 0), 0);
  assert_int_equal(kill(atoi(out), SIGKILL), 0);
  assert_true(nobody_left(10000));
}

static void a_job_that_takes_too_long_is_ended_with_124(void** state) {
  (void)state;
  check_gsel("run -n 2 --grace 1000 --timeout-kill 0.1 -- sleep 1000", 124);
  check_part(err, "gsel: not finished after 0.1 s; ending 2 ranks");
  assert_true(nobody_left(0));
}

static void what_cannot_be_started_is_named(void** state) {
  (void)state;
  check_gsel("run -n 2 -- ./nosuch", 127);
  check_part(err, "gsel: rank 0: cannot start ./nosuch: No such file or directory");
  write_file("plain", "text");
  check_gsel("run -n 2 -- ./plain", 126);
  check_part(err, "gsel: rank 0: cannot start ./plain: Permission denied");
  write_file("script", "#!/nonexistent/sh\n");
  char path[512];
  snprintf(path, sizeof path, "%s/script", dir);
  chmod(path, 0700);
  check_gsel("run -- ./script", 127);
  check_part(err, "interpreter");
}

static void impossible_jobs_are_refused(void** state) {
  (void)state;
  static const struct {
    const char *arguments, *message;
  } rows[] = {{"run -n 0 -- true", "-n 0: at least 1 rank"},
              {"run -n -1 -- true", "-n -1: at least 1 rank"},
              {"run -n 257 -- true", "-n 257: ranks of one host join through shared memory, at most 256"},
              {"run -n many -- true", "-n many: a whole number is needed"},
              {"run -n 2x -- true", "-n 2x: a whole number is needed"},
              {"run -n 99999999999999999999 -- true", "-n 99999999999999999999: ranks of one host"},
              {"run -n -99999999999999999999 -- true", "-n -99999999999999999999: at least 1 rank"},
              {"run -n", "--ranks: a value is needed"},
              {"run -n 2", "no program to run"},
              {"run -n 2 --", "no program to run"},
              {"run --grace -1 -- true", "--grace -1: seconds from 0 to"},
              {"run --wait long -- true", "--wait long: seconds from 0 to"},
              {"run --on-failure stop -- true", "--on-failure stop: end or continue is needed"},
              {"run --timeout-kill soon -- true", "--timeout-kill soon: seconds from 0.001"},
              {"run --nonsense -- true", "--nonsense"},
              {"run --config /nonexistent/gsel.toml -- true", "/nonexistent/gsel.toml"},
              {"run --devices 2 -- true", "write count:N or index:N"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    check_status(gsel(rows[i].arguments), 2, rows[i].arguments, __LINE__);
    assert_int_equal(strncmp(err, "gsel: ", 6), 0);
    check_part(err, rows[i].message);
    assert_string_equal(out, "");
  }
  assert_int_equal(finish(start("ulimit -n 20; exec gsel run -n 8 --tag-output -- true >out 2>err")), 2);
  check_part(err, "raise it with ulimit -n");
}

static void the_config_gives_the_number_of_ranks_and_its_path(void** state) {
  (void)state;
  write_file("gsel.toml", "[mesh]\ntensor = 1\ndata = 2\npipeline = 2\n");
  check_gsel("run --config gsel.toml -- sh -c 'echo $WORLD_SIZE $GSEL_CONFIG'", 0);
  char line[512];
  snprintf(line, sizeof line, "4 %s/gsel.toml\n", dir);
  check_part(out, line);
  /* each axis that the library has counts; the size that is "auto" counts as 1 */
  for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis) {
    snprintf(line, sizeof line, "[mesh]\n%s = 3\n", gsel_axis_name(axis));
    write_file("gsel.toml", line);
    check_gsel("run --config gsel.toml -- sh -c 'test $RANK != 2 || echo $WORLD_SIZE'", 0);
    if (strcmp(out, "3\n") != 0) fail_msg("%s = 3: expected 3 ranks, got: %s", gsel_axis_name(axis), out);
  }
  write_file("gsel.toml", "[mesh]\n");
  check_gsel("run --config gsel.toml -- sh -c 'echo $WORLD_SIZE'", 0);
  assert_string_equal(out, "1\n");
  write_file("gsel.toml", "[mesh]\ntensor = 9223372036854775807\npipeline = 9223372036854775807\n");
  check_gsel("run --config gsel.toml -- true", 2);
  check_part(err, "the sizes of [mesh] in the config: ranks of one host join through shared memory, at most 256 ranks");
  write_file("gsel.toml", "[select]\ndevices = \"cpu\"\n");
  check_gsel("run --config gsel.toml -- sh -c 'echo ${CUDA_VISIBLE_DEVICES-unset}'", 0);
  assert_string_equal(out, "\n");
  write_file("gsel.toml", "[meshes]\n");
  check_gsel("run --config gsel.toml -- true", 2);
  check_part(err, "meshes");
}

/* ---- run: output ---- */

static void tagged_lines_are_whole_and_in_order(void** state) {
  (void)state;
  check_gsel("run -n 3 --tag-output -- sh -c 'seq 1 20000; printf tail; printf \"bad\\n\" >&2'", 0);
  int next[3] = {1, 1, 1}, tails = 0;
  for (char* line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
    int rank = -1, number = 0;
    if (sscanf(line, "[%d] %d", &rank, &number) == 2 && rank >= 0 && rank < 3) {
      assert_int_equal(number, next[rank]++);
    } else {
      assert_int_equal(sscanf(line, "[%d] tail", &rank), 1);
      ++tails;
    }
  }
  for (int rank = 0; rank < 3; ++rank) assert_int_equal(next[rank], 20001);
  assert_int_equal(tails, 3);
  for (int rank = 0; rank < 3; ++rank) {
    char part[16];
    snprintf(part, sizeof part, "[%d] bad\n", rank);
    check_part(err, part);
  }
}

static void a_reader_that_leaves_ends_the_writers(void** state) {
  (void)state;
  assert_int_equal(finish(start("{ gsel run -n 2 --tag-output -- yes 2>err; echo $? > status; } | head -n 1 >out")), 0);
  check_part(out, "] y\n");
  assert_true(nobody_left(10000));
  read_back("status", out);
  assert_string_equal(out, "141\n");
}

static void closed_standard_descriptors_are_not_taken_by_others(void** state) {
  (void)state;
  assert_int_equal(
      finish(start("exec gsel run -n 2 --tag-output -- sh -c 'echo hi; echo $RANK > ran.$RANK' <&- >&- 2>err")), 0);
  assert_string_equal(err, "");
  read_back("ran.1", out);
  assert_string_equal(out, "1\n");
  assert_int_equal(finish(start("exec gsel run -n 2 --tag-output -- sh -c 'echo hi >&2' >out 2>&-")), 0);
  assert_string_equal(out, "");
}

/* ---- other commands ---- */

static const char* inventory(const char* name) {
  static char path[1024];
  snprintf(path, sizeof path, "--inventory %s/inventory/%s.json", getenv("GSEL_TEST_DATA"), name);
  return path;
}
static int gsel_on(const char* machine, const char* command, const char* arguments) {
  char line[3072];
  snprintf(line, sizeof line, "%s %s %s", command, inventory(machine), arguments);
  return gsel(line);
}

static void devices_are_listed_and_saved(void** state) {
  (void)state;
  check_status(gsel_on("mixed4", "devices", "--json -o saved.json"), 0, "devices", __LINE__);
  assert_string_equal(out, "");
  check_gsel("devices --json --inventory saved.json", 0);
  static char saved[MAX_TEXT];
  read_back("saved.json", saved);
  assert_string_equal(out, saved);
  check_gsel("devices --inventory saved.json", 0);
  check_part(out, "NVIDIA RTX A6000");
  check_gsel("devices", 0);
  check_part(out, "cpu");
  check_gsel("devices --output /nonexistent/x", 2);
  check_part(err, "gsel: /nonexistent/x: cannot be written");
}

static void resolve_prints_a_selection_or_a_refusal(void** state) {
  (void)state;
  check_status(gsel_on("a100x8", "resolve", "--devices count:2 --env CUDA_VISIBLE_DEVICES=3,1,7"), 0, "", __LINE__);
  check_part(out, "position 0 of count:2\n");
  check_part(out, "env: CUDA_DEVICE_ORDER=PCI_BUS_ID\n");
  check_status(gsel_on("a100x8", "resolve", "--compat lightning --devices '\"1, 3\"' --no-env --json"), 0, "",
               __LINE__);
  check_part(out, "\"compat\": \"lightning\"");
  check_part(out, "\"index\": 1");
  check_status(gsel_on("a100x8", "resolve", "--compat lightning --devices '[0, 0]' --no-env --json"), 2, "", __LINE__);
  check_part(out, "\"kind\": \"DUPLICATE\"");
  check_status(gsel_on("two_hosts", "resolve", "--devices all --order fastest --include worker-1:1 --no-env"), 0, "",
               __LINE__);
  check_part(out, "worker-1/1");
  check_status(gsel_on("two_hosts", "resolve", "--hostfile /no/such/file --no-env"), 2, "", __LINE__);
  check_part(err, "/no/such/file");
  check_status(gsel_on("a100x8", "resolve", "--devices index:9 --no-env --json"), 2, "", __LINE__);
  check_part(out, "\"status\": \"error\"");
  check_part(out, "\"kind\": \"OUT_OF_RANGE\"");
  check_part(out, "\"token\": \"9\"");
  check_part(out, "\"column\": 7");
  check_status(gsel_on("a100x8", "resolve", "--env CUDA_VISIBLE_DEVICES=0 --env CUDA_VISIBLE_DEVICES=1"), 2, "",
               __LINE__);
  check_part(err, "twice");
  check_status(gsel_on("a100x8", "resolve", "--env NOTHING"), 2, "", __LINE__);
  check_part(err, "NAME=VALUE");
  check_status(gsel_on("a100x8", "resolve", "--env CUDA_VISIBLE_DEVICES= --json"), 2, "", __LINE__);
  check_part(out, "\"kind\": \"NO_DEVICES\"");
  check_status(gsel_on("a100x8", "resolve", "--env CUDA_VISIBLE_DEVICES= --devices 'cuda|cpu' --json"), 0, "",
               __LINE__);
  check_part(out, "\"vendor\": \"cpu\"");
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  check_status(gsel_on("a100x8", "resolve", "--json"), 0, "", __LINE__);
  check_part(out, "hidden by CUDA_VISIBLE_DEVICES=0");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

static void plugins_are_listed_with_reasons(void** state) {
  (void)state;
  setenv("GSEL_PLUGIN_PATH", "relative", 1);
  check_gsel("plugins", 0);
  check_part(out, "refused");
  check_part(out, "relative");
  check_gsel("plugins --json", 0);
  check_part(out, "\"usable\": false");
  check_part(out, "\"note\": \"\"");
  unsetenv("GSEL_PLUGIN_PATH");
}

static void programs_that_cannot_be_read_are_named(void** state) {
  (void)state;
  check_gsel("program --verify ./nosuch", 2);
  check_part(err, "gsel: ./nosuch: cannot be opened");
  make_pipe("pipe");
  check_gsel("program --print ./pipe", 2); /* waits for nobody */
  check_part(err, "gsel: ./pipe: is not a regular file; expected a readable file");
  check_gsel("program --print .", 2);
  check_part(err, "gsel: .: is not a regular file");
  write_file("garbage", "\x01 no program\n");
  check_gsel("program --print garbage", 2);
  check_part(err, "garbage");
  check_gsel("program --traffic garbage", 2);
  check_part(err, "garbage");
  check_gsel("program", 2);
  check_gsel("program --print a --verify b", 2);
}

static void what_a_program_sends_is_a_table(void** state) {
  (void)state;
  write_file("sends",
             "gsel-program 1\nrank 0\nmesh data=3\nparam w 8\nvalue t input\nvalue l scalar\nvalue n scalar\n"
             "layer loss reads=t writes=l,n params=w loss backward_weight\nmicrobatch 0 1\nbucket params=w\nsetup\n"
             "broadcast bucket=0 axis=data root=0\nwait bucket=0\nstep\ninput value=t mb=0\nforward layer=loss mb=0\n"
             "backward layer=loss mb=0\nallreduce bucket=0 axis=data\nloss_allreduce axis=data\nwait bucket=0\n"
             "step bucket=0\nend\n");
  check_gsel("program --traffic sends", 0);
  assert_string_equal(out,
                      "when   axis      instruction           calls     bytes sent\n"
                      "setup  data      broadcast                 1             64\n"
                      "step   data      allreduce                 1             44\n" /* 32 and its slice of 12 */
                      "step   data      loss_allreduce            1             24\n"
                      "step   all                                               68\n");
}

static void usage_is_helpful(void** state) {
  (void)state;
  check_gsel("--version", 0);
  check_part(out, "gsel 0.");
  check_part(out, "(libgsel 0.");
  check_gsel("--help", 0);
  static const char* const commands[] = {"devices", "resolve", "plugins", "program",    "run",   "trace",
                                         "bench",   "tune",    "mesh",    "completion", "manual"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; ++i) check_part(out, commands[i]);
  check_gsel("", 2);
  check_part(err,
             "gsel: a subcommand is needed: devices, resolve, plugins, program, run, trace, bench, tune, mesh, "
             "plan, checkpoint, completion or manual");
  check_gsel("bogus", 2);
  check_part(err, "gsel: bogus is no command; there are devices");
  check_gsel("devices extra", 2);
  check_part(err, "gsel: extra: not expected here; see gsel devices --help");
  check_gsel("run --help", 0);
  check_part(out, "--tag-output");
}

static int set_up(void** state) {
  (void)state;
  static const char* const ours[] = {"OMP_NUM_THREADS",  "OPENBLAS_NUM_THREADS", "GSEL_CONFIG",
                                     "GSEL_PLUGIN_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
                                     "GSEL_NVML_LIBRARY"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; ++i) unsetenv(ours[i]);
  return command_set_up("cli");
}

static int tear_down(void** state) {
  (void)state;
  return command_tear_down();
}

int main(void) {
  /* They are ignored in what a shell starts in the background, and could not be trapped. */
  for (const int* s = (const int[]){SIGINT, SIGQUIT, SIGHUP, 0}; *s; ++s) signal(*s, SIG_DFL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_rank_gets_the_promised_environment),
      cmocka_unit_test(thread_counts_are_left_alone_when_set_or_when_there_is_one_rank),
      cmocka_unit_test(each_rank_has_a_core_of_its_own_where_there_are_enough),
      cmocka_unit_test(ranks_with_threads_of_their_own_run_anywhere_unless_told),
      cmocka_unit_test(arguments_pass_unchanged),
      cmocka_unit_test(standard_input_goes_to_rank_0),
      cmocka_unit_test(two_ranks_never_get_one_device_unless_told_to),
      cmocka_unit_test(a_job_can_reserve_its_devices),
      cmocka_unit_test(each_rank_gets_its_device_and_the_job_is_refused_when_they_run_out),
      cmocka_unit_test(the_status_of_a_failing_rank_is_passed_on_and_the_others_are_ended),
      cmocka_unit_test(a_rank_killed_by_a_signal_gives_128_and_its_number),
      cmocka_unit_test(a_rank_killed_by_a_signal_comes_before_those_that_failed_for_it),
      cmocka_unit_test(a_rank_that_ignores_being_asked_is_killed_after_the_grace),
      cmocka_unit_test(a_stopped_rank_does_not_hold_up_the_end),
      cmocka_unit_test(signals_are_forwarded_to_every_rank),
      cmocka_unit_test(a_repeated_ctrl_c_ends_what_ignores_it),
      cmocka_unit_test(a_job_is_stopped_and_continued_as_a_whole),
      cmocka_unit_test(an_option_is_no_file),
      cmocka_unit_test(nothing_that_ranks_started_is_left),
      cmocka_unit_test(a_launcher_that_is_killed_leaves_no_rank_and_no_file),
      cmocka_unit_test(children_from_before_are_spared),
      cmocka_unit_test(a_job_that_takes_too_long_is_ended_with_124),
      cmocka_unit_test(what_cannot_be_started_is_named),
      cmocka_unit_test(impossible_jobs_are_refused),
      cmocka_unit_test(the_config_gives_the_number_of_ranks_and_its_path),
      cmocka_unit_test(tagged_lines_are_whole_and_in_order),
      cmocka_unit_test(a_reader_that_leaves_ends_the_writers),
      cmocka_unit_test(closed_standard_descriptors_are_not_taken_by_others),
      cmocka_unit_test(devices_are_listed_and_saved),
      cmocka_unit_test(resolve_prints_a_selection_or_a_refusal),
      cmocka_unit_test(plugins_are_listed_with_reasons),
      cmocka_unit_test(programs_that_cannot_be_read_are_named),
      cmocka_unit_test(what_a_program_sends_is_a_table),
      cmocka_unit_test(usage_is_helpful),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
