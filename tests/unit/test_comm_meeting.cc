// unit/test_comm_meeting.cc: ranks that meet at an address: they join, and whatever goes wrong is an error that names
// it on every rank that has come; strangers end nothing.
#include <arpa/inet.h>
#include <grp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/hosts/meeting.h"
#include "comm/hosts/place.h"
#include "comm/hosts/secret.h"
#include "comm/hosts/stream.h"
#include "comm/hosts/wire.h"
#include "support/beside.h"
#include "support/port.h"
#include "support/ranks.h"

using namespace gsel::hosts;

namespace {

// What the ranks of a test are told, and what the test does beside them.
struct Job {
  char place[64];
  char token[64];                  // a file; empty: the id
  int32_t missing, twice, bigger;  // a rank that does not come, comes as rank 1, joins a bigger world; -1: none
  int32_t stranger;                // a rank with another id
};

int socket_at(uint16_t port, bool listens, uint16_t* got) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  if (listens) {
    assert_int_equal(bind(fd, at, length), 0);
    assert_int_equal(listen(fd, 8), 0);
  } else if (port != 0) {
    for (int turn = 0; connect(fd, at, length) != 0 && turn < 5000; ++turn) usleep(1000);
  }
  if (got) {
    assert_int_equal(getsockname(fd, at, &length), 0);
    *got = ntohs(address.sin_port);
  }
  return fd;
}

gsel_status join(const rank_run* run, gsel_comm** comm, gsel_error** err) {
  const auto* job = static_cast<const Job*>(run->user);
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  gsel_unique_id other = run->id;
  other.bytes[100] ^= 1;
  options.rank = run->rank == job->twice ? 1 : run->rank;
  options.world_size = run->world_size + (run->rank == job->bigger);
  if (!job->token[0]) options.id = run->rank == job->stranger ? &other : &run->id;
  options.join_timeout_s = run->join_timeout_s > 0 ? run->join_timeout_s : 20;
  options.rendezvous = gsel_str_from(job->place);
  return gsel_comm_init(&options, comm, err);
}

Job job_at(uint16_t port) {
  Job job = {};
  snprintf(job.place, sizeof job.place, "tcp://127.0.0.1:%d", port);
  job.missing = job.twice = job.bigger = job.stranger = -1;
  return job;
}

void joins(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  int32_t sum = run->rank;
  rank_ok(run, gsel_allreduce(comm, &sum, &sum, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, sum == run->world_size * (run->world_size - 1) / 2 && gsel_comm_rank(comm) == run->rank);
  gsel_comm_free(comm);
}

void test_ranks_meet_and_join(void**) {
  for (const int32_t ranks : {1, 2, 5}) {
    Job job = job_at(free_port());
    as_threads(ranks, joins, &job);
    as_processes(ranks, joins, &job);
  }
  Job job = {};
  job.missing = job.twice = job.bigger = job.stranger = -1;
  snprintf(job.place, sizeof job.place, "tcp://localhost:%d", free_port());
  as_processes(3, joins, &job);
}

// ---- tokens -----------------------------------------------------------------------------------------------------

void write_token(const char* path, const char* text, mode_t mode) {
  FILE* file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  assert_int_equal(chmod(path, mode), 0);
  setenv("GSEL_TOKEN_FILE", path, 1);
}

void refused_token(gsel_status code, const char* part) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.world_size = 2;
  options.rendezvous = gsel_str_from("tcp://127.0.0.1:1");
  check_fails(gsel_comm_init(&options, &comm, &err), err, code, part);
}

void test_the_token_is_in_a_file_of_the_users_own(void**) {
  char path[] = "/tmp/gsel-token-XXXXXX";
  close(mkstemp(path));
  write_token(path, "0123456789abcdef0123456789abcdef", 0600);
  Job job = job_at(free_port());
  snprintf(job.token, sizeof job.token, "%s", path);
  as_processes(3, joins, &job);
  for (const mode_t mode : {0644, 0660, 0604}) {
    write_token(path, "0123456789abcdef0123456789abcdef", mode);
    refused_token(GSEL_ERR_PERMISSION, "chmod 600");
  }
  if (geteuid() == 0) {  // a Secret of Kubernetes; and the same of another group, and of another user
    const gid_t own[] = {4711}, other[] = {4712};
    write_token(path, "0123456789abcdef0123456789abcdef", 0440);
    assert_int_equal(chown(path, 0, 4711), 0);
    assert_int_equal(setgroups(1, own), 0);
    as_processes(3, joins, &job);
    assert_int_equal(setgroups(1, other), 0);
    refused_token(GSEL_ERR_PERMISSION, "has mode 440, and others may read the token of the job; chmod 600");
    assert_int_equal(setgroups(1, own), 0);
    assert_int_equal(chown(path, 65534, 4711), 0);
    refused_token(GSEL_ERR_PERMISSION, "has mode 440");
    assert_int_equal(chown(path, 0, 0), 0);
    assert_int_equal(setgroups(0, nullptr), 0);
  }
  write_token(path, "short", 0600);
  refused_token(GSEL_ERR_CONFIG, "has 5 bytes");
  setenv("GSEL_TOKEN_FILE", "/nonexistent", 1);
  refused_token(GSEL_ERR_IO, "/nonexistent");
  unsetenv("GSEL_TOKEN_FILE");
  refused_token(GSEL_ERR_CONFIG, "GSEL_TOKEN_FILE");
  unlink(path);
}

void one_has_another(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 1;
  if (run->rank == 1)
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "has another token", 0);
  else
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "showed another token", 1);
}

void test_another_token_is_turned_away(void**) {
  Job job = job_at(free_port());
  job.stranger = 1;
  as_processes(3, one_has_another, &job);
}

// ---- other jobs -------------------------------------------------------------------------------------------------

// Jobs at one place, with one token: rank 1 is of another one than rank 0.
struct Jobs {
  Job job;
  const char* variable;  // that says so,
  const char* values[2];
  const char* parts[2];  // and what is said of it
};

const char* launcher[] = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};  // its variables of rank and world size

void set_launcher(const rank_run* run) {
  setenv(launcher[0], std::to_string(run->rank).c_str(), 1);
  setenv(launcher[1], std::to_string(run->world_size).c_str(), 1);
}

void finds_another_job(rank_run* run) {
  const auto* jobs = static_cast<const Jobs*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  set_launcher(run);
  if (jobs->values[run->rank]) setenv(jobs->variable, jobs->values[run->rank], 1);
  run->user = const_cast<Job*>(&jobs->job);
  run->join_timeout_s = run->rank == 0 ? 2 : 20;
  const gsel_status status = join(run, &comm, &err);
  char text[1000];
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  rank_check(run, status == (run->rank == 1 ? GSEL_ERR_MISMATCH : GSEL_ERR_TIMEOUT));
  for (const char* part : jobs->parts)
    if (!strstr(text, part)) snprintf(run->failure, sizeof run->failure, "no \"%s\" in \"%s\"", part, text);
}

void joins_of_two_launches(rank_run* run) {
  set_launcher(run);
  setenv("SLURM_JOB_ID", std::to_string(run->rank).c_str(), 1);
  joins(run);
}

// Rank 2 is of another job, and comes once more with the right one.
void joins_beside_another_job(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  if (run->rank == 2) {
    setenv("GSEL_JOB_NAME", "two", 1);
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_MISMATCH, "is of job", 2);
    setenv("GSEL_JOB_NAME", "one", 1);
  }
  joins(run);
}

void test_jobs_at_one_place_do_not_meet(void**) {
  char path[] = "/tmp/gsel-token-XXXXXX";
  close(mkstemp(path));
  write_token(path, "0123456789abcdef0123456789abcdef", 0600);
  Jobs jobs{job_at(free_port()),
            "GSEL_JOB_NAME",
            {"one", "two"},
            {"is of job \"two\"", "of job \"one\"; give each job another place"}};
  snprintf(jobs.job.token, sizeof jobs.job.token, "%s", path);
  as_processes(2, finds_another_job, &jobs);
  jobs.values[0] = nullptr;
  jobs.parts[1] = "of a job without a name; give each job another place";
  as_processes(2, finds_another_job, &jobs);
  jobs = {jobs.job,
          "SLURM_JOB_ID",
          {"7", "8"},
          {"is of job \"SLURM_JOB_ID=8\"", "of job \"SLURM_JOB_ID=7\"; give each job another place"}};
  as_processes(2, finds_another_job, &jobs);
  launcher[0] = "PMI_RANK", launcher[1] = "PMI_SIZE";
  jobs = {jobs.job,
          "PMI_JOBID",
          {"7.0", "8.0"},
          {"is of job \"PMI=8.0\"", "of job \"PMI=7.0\"; give each job another place"}};
  as_processes(2, finds_another_job, &jobs);
  launcher[0] = "RANK", launcher[1] = "WORLD_SIZE";  // torchrun's "none" is no name
  jobs = {jobs.job,
          "TORCHELASTIC_RUN_ID",
          {"none", "one"},
          {"is of job \"TORCHELASTIC_RUN_ID=one\"", "of a job without a name; give each job another place"}};
  as_processes(2, finds_another_job, &jobs);
  launcher[0] = "SLURM_PROCID", launcher[1] = "SLURM_STEP_NUM_TASKS";
  // A name wins over the launcher's, and a rank of another job does no harm to this one.
  setenv("GSEL_JOB_NAME", "one", 1);
  as_processes(2, joins_of_two_launches, &jobs.job);
  as_processes(3, joins_beside_another_job, &jobs.job);
  setenv("GSEL_JOB_NAME", "a name", 1);
  refused_token(GSEL_ERR_CONFIG, "GSEL_JOB_NAME is \"a name\"; expected at most 64");
  unsetenv("GSEL_JOB_NAME");
  unsetenv("GSEL_TOKEN_FILE");
  unlink(path);
}

// Rank 1 has another token, rank 2 is of another job. Neither decides how the others' meeting ends: these hear of both.
struct Strangers {
  Job job;
  char token[64], other_token[64];
};

void hears_of_strangers(rank_run* run) {
  const auto* strangers = static_cast<const Strangers*>(run->user);
  setenv("GSEL_TOKEN_FILE", run->rank == 1 ? strangers->other_token : strangers->token, 1);
  setenv("GSEL_JOB_NAME", run->rank == 2 ? "two" : "one", 1);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->user = const_cast<Job*>(&strangers->job);
  run->join_timeout_s = 5;
  if (run->rank == 2) rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_MISMATCH, "is of job \"two\"", 2);
  if (run->rank == 2) return;
  const gsel_status status = join(run, &comm, &err);
  char text[1000];
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  if (run->rank == 1) {  // gives up, unless its time is up before
    rank_check(run, status == GSEL_ERR_PERMISSION || status == GSEL_ERR_TIMEOUT);
    rank_check(run, strstr(text, "has another token"));
    return;
  }
  rank_check(run, status == GSEL_ERR_TIMEOUT);
  for (const char* part :
       {"ranks 1 and 2 have not come to",
        "; a process at 127.0.0.1 showed another token; turned away: ", "is of job \"two\", and rank 0 on "})
    if (!strstr(text, part)) snprintf(run->failure, sizeof run->failure, "no \"%s\" in \"%s\"", part, text);
}

void test_who_was_refused_is_named_on_every_rank(void**) {
  Strangers strangers{job_at(free_port()), "/tmp/gsel-token-XXXXXX", "/tmp/gsel-token-XXXXXX"};
  close(mkstemp(strangers.token));
  close(mkstemp(strangers.other_token));
  write_token(strangers.other_token, "fedcba9876543210fedcba9876543210", 0600);
  write_token(strangers.token, "0123456789abcdef0123456789abcdef", 0600);
  snprintf(strangers.job.token, sizeof strangers.job.token, "%s", strangers.token);
  as_processes(4, hears_of_strangers, &strangers);
  unsetenv("GSEL_TOKEN_FILE");
  unlink(strangers.token);
  unlink(strangers.other_token);
}

// Whoever listens knows the protocol, and not the secret: neither a welcome nor a failure is believed.
struct Impostor {
  int listener;
  Word word;
  std::string banner = {};  // said instead of anything else
  std::mutex mutex = {};    // of both
  std::atomic<bool> is_over{false};

  void say(const Word& what) {
    const std::lock_guard lock(mutex);
    word = what;
  }
  void say(const char* what) {
    const std::lock_guard lock(mutex);
    banner = what;
  }
};

void* be_impostor(void* user) {
  auto* impostor = static_cast<Impostor*>(user);
  while (!impostor->is_over) {
    pollfd item{impostor->listener, POLLIN, 0};
    if (poll(&item, 1, 20) <= 0) continue;
    const int fd = accept(impostor->listener, nullptr, nullptr);
    const Challenge challenge;
    SignedGreeting said;
    std::unique_lock lock(impostor->mutex);
    const std::string banner = impostor->banner;
    const Word word = impostor->word;
    lock.unlock();
    if (!banner.empty())
      send(fd, banner.data(), banner.size(), MSG_NOSIGNAL);
    else if (send(fd, &challenge, sizeof challenge, MSG_NOSIGNAL) == sizeof challenge &&
             recv(fd, &said, sizeof said, MSG_WAITALL) == sizeof said)
      send(fd, &word, sizeof word, MSG_NOSIGNAL);
    close(fd);
  }
  return nullptr;
}

void meets_an_impostor(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 1;
  if (run->rank == 1) rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "has another token", 0);
  if (run->rank == 0) rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_IO, "a rank 0 waits there already", 0);
}
void gives_up(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 600;
  if (run->rank == 1) rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_PERMISSION, " of 3 gives up: at", 0);
  if (run->rank == 2) rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_PERMISSION, "has another token", 0);
}
void gives_up_a_port(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 600;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_IO,
             run->rank == 0 ? "the port is in use" : "is no rank of gsel, as", 0);
}

void test_an_impostor_decides_nothing(void**) {
  uint16_t port = 0;
  Impostor impostor{.listener = socket_at(0, true, &port), .word = {}};
  Job job = job_at(port);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, nullptr, be_impostor, &impostor), 0);
  Word failed;
  failed.kind = WordKind::failed, failed.code = GSEL_ERR_VERSION;
  write_text(failed.text, "made up");
  Word welcome;
  welcome.kind = WordKind::welcome;
  for (const Word& word : {failed, welcome}) {
    impostor.say(word);
    as_processes(2, meets_an_impostor, &job);
  }
  as_processes(3, gives_up, &job);
  impostor.say("SSH-2.0-some\r\n");
  as_processes(2, gives_up_a_port, &job);
  impostor.is_over = true;
  pthread_join(thread, nullptr);
  close(impostor.listener);
}

// RFC 4231, test cases 1, 2 and 6.
void test_signatures_are_hmac_sha256(void**) {
  const auto bytes = [](const std::string& text) { return std::vector<uint8_t>(text.begin(), text.end()); };
  const auto hex = [](const Bytes32& b) {
    std::string text;
    for (const uint8_t byte : b) text += fmt::format("{:02x}", byte);
    return text;
  };
  const auto signed_text = [&](std::vector<uint8_t> key, const std::string& first, const std::string& second) {
    return hex(Secret(std::move(key)).sign({bytes(first), bytes(second)}));
  };
  assert_string_equal(signed_text(std::vector<uint8_t>(20, 0x0b), "Hi ", "There").c_str(),
                      "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  assert_string_equal(signed_text(bytes("Jefe"), "what do ya want ", "for nothing?").c_str(),
                      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  assert_string_equal(
      signed_text(std::vector<uint8_t>(131, 0xaa), "Test Using Larger Than Block-Size Key", " - Hash Key First")
          .c_str(),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  const Secret secret(bytes("0123456789abcdef"));
  const std::vector<uint8_t> said = bytes("said");
  Bytes32 signature = secret.sign({said});
  assert_true(secret.is_signed({said}, signature));
  signature[31] ^= 1;
  assert_false(secret.is_signed({said}, signature));
}

// ---- what ends a job --------------------------------------------------------------------------------------------

void one_does_not_come(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 1;
  if (run->rank == 2) return;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "rank 2 has not come to tcp://127.0.0.1:", 2);
}
// Rank 0 knows who is missing, whoever's time is up first.
template <int32_t hasty, bool on_one_host>
void one_does_not_come_in_time(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  setenv("GSEL_HOST_ID", on_one_host ? "one" : std::to_string(run->rank).c_str(), 1);
  run->join_timeout_s = run->rank == hasty ? 2 : 60;
  if (run->rank == 2) return;
  const std::string part =
      hasty == 0 ? "within 2 s; here are" : fmt::format("within 2 s, the join timeout of rank {} on ", hasty);
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, part.c_str(), 2);
}
void rank_0_comes_later(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 4;
  if (run->rank == 2) return;
  if (run->rank == 0) usleep(1'500'000);
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "rank 2 has not come to tcp://127.0.0.1:", 2);
}
void rank_0_does_not_come(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 1;
  if (run->rank == 0) return;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "for rank 0 to listen at tcp://127.0.0.1:", 0);
}
void one_comes_twice(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_MISMATCH, "rank 1 is given twice", 1);
}
void one_has_a_bigger_world(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_MISMATCH, "world of 4 ranks, rank 0 one of 3", 2);
}
// Rank 0 has heard all of its own world when rank 1 has come: rank 2 comes after that, and is told the same.
struct SmallerRoot {
  Job job;
  int pipe[2];
};
void has_a_bigger_world_than_rank_0(rank_run* run) {
  auto* smaller = static_cast<SmallerRoot*>(run->user);
  char byte = 0;
  if (run->rank == 2) rank_check(run, read(smaller->pipe[0], &byte, 1) == 1);
  run->user = &smaller->job;
  run->world_size = run->rank == 0 ? 2 : 3;
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  const gsel_status status = join(run, &comm, &err);
  if (run->rank == 1) rank_check(run, write(smaller->pipe[1], &byte, 1) == 1);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, " joins a world of 3 ranks, rank 0 one of 2", 1);
}
void are_on_one_host(rank_run* run) {
  setenv("GSEL_HOST_ID", "one", 1);
  joins(run);
}

void test_what_ends_a_job_is_named_on_every_rank(void**) {
  Job job = job_at(free_port());
  as_processes(4, one_does_not_come, &job);
  as_threads(4, one_does_not_come, &job);
  as_processes(3, rank_0_does_not_come, &job);
  job.twice = 2;
  as_processes(3, one_comes_twice, &job);
  job.twice = -1, job.bigger = 2;
  as_processes(3, one_has_a_bigger_world, &job);
  job.bigger = -1;
  SmallerRoot smaller{job, {-1, -1}};
  assert_int_equal(pipe(smaller.pipe), 0);
  as_processes(3, has_a_bigger_world_than_rank_0, &smaller);
  for (const int fd : smaller.pipe) close(fd);
  as_processes(3, are_on_one_host, &job);
}

// Ranks 0 and 2 are both called rank 0. Which one listens first is open; it and rank 1 name the other one.
void has_two_rank_0(rank_run* run) {
  const auto* job = static_cast<const Job*>(run->user);
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.rank = run->rank == 1 ? 1 : 0;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.join_timeout_s = 4;
  options.rendezvous = gsel_str_from(job->place);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  const gsel_status status = gsel_comm_init(&options, &comm, &err);
  const char* part = "; a second rank 0 on ";
  if (run->rank != 1 && status == GSEL_ERR_IO)
    part = "a rank 0 waits there already; rank 0 is given twice: to a process on ";
  rank_fails(run, status, err, status == GSEL_ERR_IO && run->rank != 1 ? GSEL_ERR_IO : GSEL_ERR_TIMEOUT, part,
             status == GSEL_ERR_IO ? 0 : 2);
}

void test_a_second_rank_0_is_named_on_every_rank(void**) {
  Job job = job_at(free_port());
  as_processes(3, has_two_rank_0, &job);
}

void test_the_missing_rank_is_named_whoevers_time_is_up_first(void**) {
  Job job = job_at(free_port());
  as_processes(4, one_does_not_come_in_time<0, false>, &job);
  as_processes(4, one_does_not_come_in_time<1, false>, &job);
  as_processes(4, one_does_not_come_in_time<1, true>, &job);
  as_processes(4, one_does_not_come_in_time<3, true>, &job);
  as_processes(4, rank_0_comes_later, &job);
}

// Rank 0 ends when all have met, before the hosts have connected. Ranks 1 and 2 are on one host.
template <uint16_t fanout>
void rank_0_ends_after_the_meeting(rank_run* run) {
  const auto* job = static_cast<const Job*>(run->user);
  setenv("GSEL_HOST_ID", run->rank == 2 ? "host1" : ("host" + std::to_string(run->rank)).c_str(), 1);
  if (run->rank == 0) {
    const Listener listener = Listener::at_any_port();
    const Secret secret({std::begin(run->id.bytes), std::end(run->id.bytes)});
    Meeting meeting{
        0, run->world_size, parse_meeting_place(job->place, "it"), secret, {}, 20, gsel::os::now_ns() + 20'000'000'000};
    meeting.port = listener.port();
    meeting.fanout = fanout;
    meeting.silence_ns = 5'000'000'000;
    static_cast<void>(meet(meeting));
    return;
  }
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 600;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_PEER, "ended or gave up while the hosts connected", -1);
}

void test_who_ends_between_the_meeting_and_the_connections_is_named(void**) {
  Job job = job_at(free_port());
  as_processes(4, rank_0_ends_after_the_meeting<64>, &job);
  as_processes(4, rank_0_ends_after_the_meeting<1>, &job);
}

void finds_a_stranger_there(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 1;
  if (run->rank == 0)
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_IO, "the port is in use", 0);
  else
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "the listener there says nothing", 0);
}

void test_a_port_that_is_taken_is_named(void**) {
  uint16_t port = 0;
  const int listener = socket_at(0, true, &port);
  Job job = job_at(port);
  as_processes(2, finds_a_stranger_there, &job);
  close(listener);
}

void knows_no_such_host(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 1;
  rank_fails(run, join(run, &comm, &err), err, run->rank == 0 ? GSEL_ERR_IO : GSEL_ERR_TIMEOUT, "no-such-host.invalid",
             0);
}

void test_a_name_that_nobody_knows_is_named(void**) {
  Job job = job_at(1);
  snprintf(job.place, sizeof job.place, "tcp://no-such-host.invalid:29500");
  as_processes(2, knows_no_such_host, &job);
}

// In a network of its own whose resolver takes questions and answers none: 150 s pass before the C library gives up.
struct Resolver {
  Job job;
  char folder[32];
  const char* answer = "the resolver does not answer";
};

bool has_silent_resolver(const char* folder) {
  ifreq loopback = {};
  strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(53);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string at = folder;
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount((at + "/resolv.conf").c_str(), "/etc/resolv.conf", nullptr, MS_BIND, nullptr) != 0 ||
      mount((at + "/nsswitch.conf").c_str(), "/etc/nsswitch.conf", nullptr, MS_BIND, nullptr) != 0)
    return false;
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  return ioctl(fd, SIOCSIFFLAGS, &loopback) == 0 &&
         bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

void gets_no_address(rank_run* run) {
  const auto* resolver = static_cast<const Resolver*>(run->user);
  if (!has_silent_resolver(resolver->folder)) return;
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->user = const_cast<Job*>(&resolver->job);
  run->join_timeout_s = 1;
  rank_fails(run, join(run, &comm, &err), err, run->rank == 0 ? GSEL_ERR_IO : GSEL_ERR_TIMEOUT,
             (std::string("node0.example is not known: ") + resolver->answer).c_str(), 0);
}

void test_a_resolver_that_does_not_answer_holds_nobody_up(void**) {
  Resolver resolver{job_at(1), "/tmp/gsel-resolver-XXXXXX"};
  snprintf(resolver.job.place, sizeof resolver.job.place, "tcp://node0.example:29500");
  assert_non_null(mkdtemp(resolver.folder));
  const auto write_file = [&](const char* name, const char* text) {
    FILE* file = fopen((resolver.folder + std::string(name)).c_str(), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
  };
  write_file("/resolv.conf", "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n");
  write_file("/nsswitch.conf", "hosts: files dns\n");
  const pid_t child = fork();
  if (child == 0) _exit(has_silent_resolver(resolver.folder) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  if (status == 0) as_processes(2, gets_no_address, &resolver);
  // One that answers at once, each time but the last, which the deadline cuts.
  write_file("/nsswitch.conf", "hosts: files\n");
  resolver.answer = "Name or service not known";
  if (status == 0) as_processes(2, gets_no_address, &resolver);
  for (const char* name : {"/resolv.conf", "/nsswitch.conf"}) unlink((resolver.folder + std::string(name)).c_str());
  rmdir(resolver.folder);
  if (status == 0) return;
  print_message("left out: another resolver, since only root can give processes one, and not everywhere\n");
  skip();  // only root can mount another /etc/resolv.conf
}

// ---- other kinds of gsel ----------------------------------------------------------------------------------------

// What a rank says that knows the token, and is of another kind: rank 1 of 3 on a host called "far".
enum class Kind { byte_order, protocol, version, network };

uint32_t swapped(uint32_t n) {
  return __builtin_bswap32(n);
}

SignedGreeting greeting_of(Kind kind, const rank_run* run, const Challenge& challenge) {
  SignedGreeting out;
  Greeting& g = out.greeting;
  g.rank = 1, g.world_size = 3, g.pid = 4711;
  write_text(g.host, "far");
  write_text(g.version, kind == Kind::version ? "7.8.9" : version_text());
  if (kind == Kind::protocol) g.protocol = 77;
  if (kind == Kind::network) g.identity = key_of(std::string("one"));
  if (kind == Kind::byte_order) {
    g.magic = __builtin_bswap64(kMagic), g.protocol = swapped(kMeetingProtocol);
    g.rank = static_cast<int32_t>(swapped(1)), g.world_size = static_cast<int32_t>(swapped(3));
    g.pid = static_cast<int32_t>(swapped(4711));
  }
  const Secret secret({std::begin(run->id.bytes), std::end(run->id.bytes)});
  out.signature = secret.sign({kByJoiner, bytes_of(challenge.nonce), bytes_of(g)});
  return out;
}

struct OtherKind {
  Job job;
  Kind kind;
  uint16_t port;
  const char* of_guest;  // as rank 0 and the others say it
  gsel_status code = GSEL_ERR_VERSION;
};

void meets_another_kind(rank_run* run) {
  const auto* other = static_cast<const OtherKind*>(run->user);
  if (run->rank == 1) {
    const int fd = socket_at(other->port, false, nullptr);
    Challenge challenge;
    rank_check(run, recv(fd, &challenge, sizeof challenge, MSG_WAITALL) == sizeof challenge);
    const SignedGreeting said = greeting_of(other->kind, run, challenge);
    rank_check(run, send(fd, &said, sizeof said, MSG_NOSIGNAL) == sizeof said);
    Word word;
    while (recv(fd, &word, sizeof word, MSG_WAITALL) > 0) continue;
    close(fd);
    return;
  }
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  if (other->kind == Kind::network) setenv("GSEL_HOST_ID", "one", 1);
  rank_fails(run, join(run, &comm, &err), err, other->code, other->of_guest, 1);
}

void test_a_rank_of_another_kind_is_named_on_every_rank(void**) {
  const struct {
    Kind kind;
    const char* text;
  } kinds[] = {{Kind::byte_order, "rank 1 on far (pid 4711) has another byte order than rank 0"},
               {Kind::protocol, "rank 1 on far (pid 4711) meets by protocol 77, rank 0 by"},
               {Kind::version, "rank 1 on far (pid 4711) has gsel 7.8.9, rank 0 gsel"}};
  for (const auto& [kind, text] : kinds) {
    const uint16_t port = free_port();
    OtherKind other{job_at(port), kind, port, text};
    as_processes(3, meets_another_kind, &other);
  }
}

// Two network namespaces, say, that are told that they are one host: names of the kernel's are not the same there.
void test_ranks_of_one_host_id_that_cannot_meet_are_named(void**) {
  const uint16_t port = free_port();
  OtherKind other{job_at(port), Kind::network, port,
                  "and rank 1 on far (pid 4711) say by GSEL_HOST_ID that they are on one host, and share no abstract "
                  "sockets",
                  GSEL_ERR_MISMATCH};
  as_processes(3, meets_another_kind, &other);
}

// The other side: rank 0 is of another kind. What its joiner then says is signed, so that it can be told there.
void meets_another_root(rank_run* run) {
  const auto* other = static_cast<const OtherKind*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  if (run->rank == 1) rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_VERSION, other->of_guest, 0);
}

void test_a_rank_0_of_another_kind_is_named_and_told(void**) {
  for (const bool is_swapped : {false, true}) {
    uint16_t port = 0;
    const int listener = socket_at(0, true, &port);
    OtherKind other{job_at(port), Kind::protocol, port,
                    is_swapped ? "has another byte order than rank 1" : "meets by protocol 77, rank 1 by"};
    rank_run* runs = ranks_prepare(2, &other);
    pthread_t joiner;
    rank_thread thread = {meets_another_root, &runs[1]};
    assert_int_equal(pthread_create(&joiner, nullptr, rank_thread_main, &thread), 0);
    const int fd = accept(listener, nullptr, nullptr);
    Challenge challenge;
    challenge.protocol = is_swapped ? swapped(kMeetingProtocol) : 77;
    if (is_swapped) challenge.magic = __builtin_bswap64(kMagic);
    assert_int_equal(send(fd, &challenge, sizeof challenge, 0), sizeof challenge);
    SignedGreeting said;
    assert_int_equal(recv(fd, &said, sizeof said, MSG_WAITALL), sizeof said);
    const Secret secret({std::begin(runs[1].id.bytes), std::end(runs[1].id.bytes)});
    assert_true(secret.is_signed({kByJoiner, bytes_of(challenge.nonce), bytes_of(said.greeting)}, said.signature));
    assert_int_equal(said.greeting.rank, 1);
    pthread_join(joiner, nullptr);
    close(fd);
    close(listener);
    ranks_verdict(runs, 2);
  }
}

// ---- strangers --------------------------------------------------------------------------------------------------

void test_strangers_end_nothing(void**) {
  const uint16_t port = free_port();
  Job job = job_at(port);
  rank_run* runs = ranks_prepare(3, &job);
  pthread_t ranks[3];
  rank_thread threads[3];
  for (int r = 0; r < 2; ++r) {
    threads[r] = {joins, &runs[r]};
    assert_int_equal(pthread_create(&ranks[r], nullptr, rank_thread_main, &threads[r]), 0);
  }
  std::vector<int> strangers;
  for (int i = 0; i < 40; ++i) {
    const int fd = socket_at(port, false, nullptr);
    const std::string said(static_cast<size_t>(i) * 97, static_cast<char>('A' + i));  // up to 4 KB
    if (i % 4 == 1) send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
    if (i % 4 == 2) send(fd, said.data(), said.size(), MSG_NOSIGNAL);
    if (i % 4 == 3)
      close(fd);
    else
      strangers.push_back(fd);
  }
  SignedGreeting forged;  // of a rank that has come, and of one that has not; without a signature
  for (const int32_t rank : {1, 2, -1, 1 << 30}) {
    const int fd = socket_at(port, false, nullptr);
    forged.greeting.rank = rank, forged.greeting.world_size = 7;
    send(fd, &forged, sizeof forged, MSG_NOSIGNAL);
    strangers.push_back(fd);
  }
  threads[2] = {joins, &runs[2]};
  assert_int_equal(pthread_create(&ranks[2], nullptr, rank_thread_main, &threads[2]), 0);
  for (const pthread_t rank : ranks) pthread_join(rank, nullptr);
  for (const int fd : strangers) close(fd);
  ranks_verdict(runs, 3);
}

// ---- places -----------------------------------------------------------------------------------------------------

void test_places_are_read(void**) {
  const MeetingPlace four = parse_meeting_place("tcp://10.0.0.1:29500", "it");
  assert_string_equal(four.host.c_str(), "10.0.0.1");
  assert_string_equal(four.port.c_str(), "29500");
  const MeetingPlace six = parse_meeting_place("tcp://[fd00::1]:1", "it");
  assert_string_equal(six.host.c_str(), "fd00::1");
  assert_string_equal(six.port.c_str(), "1");
  const MeetingPlace file = parse_meeting_place("file:///shared/run:7", "it");
  assert_true(file.kind == MeetingPlace::Kind::file && file.path == "/shared/run:7");
  assert_true(parse_meeting_place("pmi://3", "it", true).fd == 3);
  const struct {
    const char* text;
    int32_t column;
  } wrong[] = {{"file://a", 8},
               {"file:///a/", 11},
               {"file://", 8},
               {"file:/a", 1},
               {"", 1},
               {"10.0.0.1:29500", 1},
               {"udp://a:1", 1},
               {"tcp://a", 8},
               {"tcp://:29500", 7},
               {"tcp://a:", 9},
               {"tcp://a:0", 9},
               {"tcp://a:65536", 9},
               {"tcp://a:29 ", 9},
               {"tcp://[fd00::1:1", 7},
               {"tcp://[]:1", 8},
               {"pmix://a", 1},
               {"pmi://3", 1},
               {"torchrun://a:1", 1},
               {"tcp://[::1]", 12},
               {"tcp://[::1]x:1", 12},
               {"tcp://a:+1", 9}};
  for (const auto& [text, column] : wrong) try {
      static_cast<void>(parse_meeting_place(text, "GSEL_RENDEZVOUS"));
      fail_msg("%s was taken", text);
    } catch (const gsel::Error& e) {
      if (e.code() != GSEL_ERR_CONFIG || e.place().column != column || e.place().token != "GSEL_RENDEZVOUS")
        fail_msg("%s: column %d, expected %d: %s", text, e.place().column, column, e.what());
    }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_ranks_meet_and_join),
      cmocka_unit_test(test_the_token_is_in_a_file_of_the_users_own),
      cmocka_unit_test(test_another_token_is_turned_away),
      cmocka_unit_test(test_jobs_at_one_place_do_not_meet),
      cmocka_unit_test(test_who_was_refused_is_named_on_every_rank),
      cmocka_unit_test(test_an_impostor_decides_nothing),
      cmocka_unit_test(test_signatures_are_hmac_sha256),
      cmocka_unit_test(test_what_ends_a_job_is_named_on_every_rank),
      cmocka_unit_test(test_the_missing_rank_is_named_whoevers_time_is_up_first),
      cmocka_unit_test(test_who_ends_between_the_meeting_and_the_connections_is_named),
      cmocka_unit_test(test_a_second_rank_0_is_named_on_every_rank),
      cmocka_unit_test(test_a_port_that_is_taken_is_named),
      cmocka_unit_test(test_a_name_that_nobody_knows_is_named),
      cmocka_unit_test(test_a_resolver_that_does_not_answer_holds_nobody_up),
      cmocka_unit_test(test_a_rank_of_another_kind_is_named_on_every_rank),
      cmocka_unit_test(test_ranks_of_one_host_id_that_cannot_meet_are_named),
      cmocka_unit_test(test_a_rank_0_of_another_kind_is_named_and_told),
      cmocka_unit_test(test_strangers_end_nothing),
      cmocka_unit_test(test_places_are_read),
  };
  return run_tests_beside(tests, std::size(tests));
}
