// unit/test_comm_places.cc: ranks that are told nothing but what a launcher tells, or the name of a file: they find
// where rank 0 listens, join, and leave nothing behind; what another job has left is named and never taken.
#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "comm/hosts/address_store.h"
#include "comm/launch/unique_id.h"
#include "fake/torchrun/store.h"
#include "support/beside.h"
#include "support/port.h"
#include "support/ranks.h"

namespace {

bool on_hosts = false;  // each rank on one of its own: where this build has a transport between them

// Variables of every rank; %r stands for its number.
struct Job {
  char variables[512];
  int32_t missing;      // a rank that does not come; -1: none
  gsel_status failure;  // of the others
  char part[160];       // of what they say
};

void set_environment(const Job& job, int32_t rank) {
  std::string text = job.variables;
  for (size_t at; (at = text.find("%r")) != text.npos;) text.replace(at, 2, std::to_string(rank));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size()), equals = text.find('=', at);
    setenv(text.substr(at, equals - at).c_str(), text.substr(equals + 1, end - equals - 1).c_str(), 1);
    at = end + 1;
  }
  if (on_hosts) setenv("GSEL_HOST_ID", ("host" + std::to_string(rank)).c_str(), 1);
}

gsel_status join(rank_run* run, gsel_comm** comm, gsel_error** err) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.join_timeout_s = run->join_timeout_s > 0 ? run->join_timeout_s : 20;
  return gsel_comm_init(&options, comm, err);
}

void joins(rank_run* run) {
  set_environment(*static_cast<Job*>(run->user), run->rank);
  for (int i = 0; i < 3; ++i) {
    gsel_error* err = nullptr;
    gsel_comm* comm = nullptr;
    rank_ok(run, join(run, &comm, &err), err);
    int32_t sum = run->rank;
    rank_ok(run, gsel_allreduce(comm, &sum, &sum, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, sum == run->world_size * (run->world_size - 1) / 2 && gsel_comm_rank(comm) == run->rank);
    gsel_comm_free(comm);
  }
}

void is_refused(rank_run* run) {
  auto* job = static_cast<Job*>(run->user);
  if (run->rank == job->missing) return;
  set_environment(*job, run->rank);
  run->join_timeout_s = 2;
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_fails(run, join(run, &comm, &err), err, job->failure, job->part, -1);
}

Job job_of(const std::string& variables) {
  Job job = {};
  job.missing = -1;
  snprintf(job.variables, sizeof job.variables, "%s", variables.c_str());
  return job;
}

void refused(Job job, int32_t ranks, int32_t missing, gsel_status failure, const std::string& part) {
  job.missing = missing, job.failure = failure;
  snprintf(job.part, sizeof job.part, "%s", part.c_str());
  as_processes(ranks, is_refused, &job);
}

// ---- torchrun ---------------------------------------------------------------------------------------------------

Job torchrun(uint16_t port) {
  return job_of(
      fmt::format("RANK=%r WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT={} "
                  "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=True",
                  port));
}

void test_ranks_meet_by_the_store_of_torchruns_agent(void**) {
  using Form = FakeTorchrunStore::Form;
  for (const Form form : {Form::before_2_1, Form::since_2_1, Form::since_2_4}) {
    FakeTorchrunStore store(form);
    store.set("/torch.rendezvous", "x");
    Job job = torchrun(store.port);
    as_processes(3, joins, &job);
    assert_int_equal(store.values().size(), 1);  // gsel's key is gone
  }
}

void test_a_store_without_rank_0_is_named(void**) {
  FakeTorchrunStore store(FakeTorchrunStore::Form::since_2_4);
  refused(torchrun(store.port), 3, 0, GSEL_ERR_TIMEOUT, "rank 0 has posted nothing there");
  refused(torchrun(store.port), 3, 1, GSEL_ERR_TIMEOUT,
          "rank 1 has not come to the store of torchrun's agent at 127.0.0.1:");
  assert_int_equal(store.values().size(), 0);
}

void test_a_store_that_is_none_is_named(void**) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  assert_int_equal(bind(listener, at, length), 0);
  assert_int_equal(getsockname(listener, at, &length), 0);
  const Job job = torchrun(ntohs(address.sin_port));
  refused(job, 2, -1, GSEL_ERR_TIMEOUT, "ECONNREFUSED");
  assert_int_equal(listen(listener, 64), 0);
  refused(job, 2, -1, GSEL_ERR_TIMEOUT, "does not answer like torchrun's store");
  close(listener);
}

// ---- files ------------------------------------------------------------------------------------------------------

class Folder {
 public:
  Folder() { assert_non_null(mkdtemp(path_)); }
  ~Folder() {
    for (const std::string& name : names()) unlink((std::string(path_) + "/" + name).c_str());
    rmdir(path_);
  }
  std::string path() const { return path_; }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    DIR* folder = opendir(path_);
    while (const dirent* entry = readdir(folder))
      if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
    closedir(folder);
    return out;
  }
  void write(const std::string& name, const std::string& text) const {
    FILE* file = fopen((path() + "/" + name).c_str(), "w");
    assert_non_null(file);
    fputs(text.c_str(), file);
    fclose(file);
  }

 private:
  char path_[32] = "/tmp/gsel-place-XXXXXX";
};

Job by_file(const Folder& folder) {
  return job_of(
      fmt::format("SLURM_PROCID=%r SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NUM_NODES=3 SLURM_JOB_ID=7 SLURM_STEP_ID=1 "
                  "GSEL_RENDEZVOUS=file://{}/run",
                  folder.path()));
}

// The name of rank 0's file, of a run in which nobody else comes: in all runs of the job it begins alike.
std::string name_of_file(const Folder& folder, const Job& job) {
  const pid_t child = fork();
  if (child == 0) {
    gsel_comm* comm = nullptr;
    rank_run run = {};
    run.join_timeout_s = 30;
    set_environment(job, 0);
    _exit(join(&run, &comm, nullptr) == GSEL_OK);
  }
  std::string name;
  for (int turn = 0; turn < 10000 && (name.empty() || name.ends_with(".new")); ++turn) {
    usleep(1000);
    for (const std::string& found : folder.names()) name = found;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  assert_int_equal(folder.names().size(), 1);
  return name;
}

void test_ranks_meet_by_a_file_that_is_gone_then(void**) {
  const Folder folder;
  Job job = by_file(folder);
  as_processes(3, joins, &job);
  assert_int_equal(folder.names().size(), 0);
  refused(job, 3, 2, GSEL_ERR_TIMEOUT, "rank 2 has not come to file://" + folder.path());
  assert_int_equal(folder.names().size(), 0);
  refused(job, 3, 0, GSEL_ERR_TIMEOUT, "rank 0 has written no file there");
}

void test_the_file_of_a_killed_rank_0_is_never_taken(void**) {
  const Folder folder;
  Job job = by_file(folder);
  const std::string name = name_of_file(folder, job);
  struct stat about = {};
  assert_int_equal(stat((folder.path() + "/" + name).c_str(), &about), 0);
  assert_int_equal(about.st_mode & 07777, 0600);
  refused(job, 3, 0, GSEL_ERR_TIMEOUT, "ECONNREFUSED");  // its time has not passed
  refused(job, 3, 0, GSEL_ERR_TIMEOUT,
          "says in " + folder.path() + "/" + name + " that it listens, which may be of a job that has ended");
  folder.write(name.substr(0, name.size() - 16) + "0123456789abcdef.new", "gsel1;node7;4711;1;");
  folder.write("other.new", "");
  as_processes(3, joins, &job);
  assert_int_equal(folder.names().size(), 1);  // which is of somebody else
  unlink((folder.path() + "/other.new").c_str());

  gsel::hosts::Endpoint old{"node7", 4711, 1, 1000, {"127.0.0.1"}, std::vector<uint8_t>(32, 1)};
  folder.write(name, gsel::hosts::endpoint_text(old));
  refused(job, 3, 0, GSEL_ERR_TIMEOUT, "is stale: rank 0 on node7 (pid 4711) waited until");
  as_processes(3, joins, &job);
  assert_int_equal(folder.names().size(), 0);
}

// Rank 0 has a token, and does not write it down.
void only_rank_0_has_a_token(rank_run* run) {
  auto* job = static_cast<Job*>(run->user);
  set_environment(*job, run->rank);
  if (run->rank == 0) setenv("GSEL_TOKEN_FILE", job->part, 1);
  run->join_timeout_s = 1;
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  if (run->rank == 0)
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "ranks 1 and 2 have not come to file://", 1);
  else
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_PERMISSION, "has a token of its own", 0);
}

void test_a_token_that_only_rank_0_has_is_named(void**) {
  const Folder folder;
  Job job = by_file(folder);
  folder.write("token", "0123456789abcdef");
  snprintf(job.part, sizeof job.part, "%s/token", folder.path().c_str());
  chmod(job.part, 0600);
  as_processes(3, only_rank_0_has_a_token, &job);
}

void test_two_jobs_at_one_file_are_refused(void**) {
  const Folder folder;
  const Job job = by_file(folder);
  const std::string name = name_of_file(folder, job);
  FakeTorchrunStore other(FakeTorchrunStore::Form::since_2_4);  // somebody who listens
  gsel::hosts::Endpoint live{"node7", 4711, other.port, int64_t{1} << 40, {"127.0.0.1"}, std::vector<uint8_t>(32, 1)};
  folder.write(name, gsel::hosts::endpoint_text(live));
  refused(job, 1, -1, GSEL_ERR_MISMATCH, "rank 0 of another job, on node7 (pid 4711), waits at");
  assert_int_equal(folder.names().size(), 1);
  Job next = job_of(job.variables + std::string(" SLURM_RESTART_COUNT=1"));  // another job
  as_processes(3, joins, &next);
  assert_int_equal(folder.names().size(), 1);
}

// Ranks 0 and 2 are both called rank 0; rank 2 comes when the other one has posted its address.
void has_two_rank_0_at_a_file(rank_run* run) {
  auto* job = static_cast<Job*>(run->user);
  set_environment(*job, run->rank == 2 ? 0 : run->rank);
  const std::string folder = job->part;
  const auto is_posted = [&] {
    DIR* open = opendir(folder.c_str());
    bool found = false;
    while (const dirent* entry = readdir(open))
      found = found || (entry->d_name[0] != '.' && !std::string_view(entry->d_name).ends_with(".new"));
    closedir(open);
    return found;
  };
  while (run->rank == 2 && !is_posted()) usleep(1000);
  run->join_timeout_s = 5;
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  if (run->rank == 2)
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_MISMATCH, "waits at file://", 0);
  else
    rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "; a second rank 0 on ", 2);
}

void test_a_second_rank_0_at_a_file_is_named_on_every_rank(void**) {
  const Folder folder;
  Job job = by_file(folder);
  snprintf(job.part, sizeof job.part, "%s", folder.path().c_str());
  as_processes(3, has_two_rank_0_at_a_file, &job);
  assert_int_equal(folder.names().size(), 0);
}

void test_a_file_of_another_user_is_not_read(void**) {
  if (geteuid() != 0) skip();  // only root can give a file away
  const Folder folder;
  const Job job = by_file(folder);
  const std::string name = name_of_file(folder, job);
  assert_int_equal(chown((folder.path() + "/" + name).c_str(), 65534, 65534), 0);
  refused(job, 3, 0, GSEL_ERR_TIMEOUT, "rank 0 has written no file there");
}

void test_a_folder_that_is_not_there_is_named(void**) {
  refused(job_of("RANK=%r WORLD_SIZE=2 GSEL_RENDEZVOUS=file:///no/such/run"), 2, -1, GSEL_ERR_IO,
          "/no/such/ cannot be read");
  refused(job_of("RANK=%r WORLD_SIZE=2 GSEL_RENDEZVOUS=file://run"), 2, -1, GSEL_ERR_CONFIG, "an absolute path");
}

void test_places_that_only_launchers_give_are_refused_of_others(void**) {
  for (const char* place : {"pmix://foo", "pmi://3", "torchrun://127.0.0.1:1"})
    refused(job_of(fmt::format("RANK=%r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 GSEL_RENDEZVOUS={}", place)),
            2, -1, GSEL_ERR_CONFIG, fmt::format("GSEL_RENDEZVOUS is \"{}\"; column 1: expected \"tcp://\"", place));
}

// ---- ids that tell where rank 0 listens -------------------------------------------------------------------------

// In memory of all ranks: the id of rank 0, and how far they are.
struct SharedId {
  gsel_unique_id id;
  std::atomic<int> step;
  std::atomic<int> pid;  // of rank 1
};

gsel_status join_by(const gsel_unique_id& id, const rank_run* run, gsel_comm** comm, gsel_error** err) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &id;
  options.join_timeout_s = run->join_timeout_s > 0 ? run->join_timeout_s : 20;
  return gsel_comm_init(&options, comm, err);
}

void meets_by_id(rank_run* run) {
  auto* shared = static_cast<SharedId*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  if (run->rank == 0) {
    rank_ok(run, gsel_unique_id_listen(&shared->id, &err), err);
    shared->step = 1;
    usleep(100'000);  // others may connect before rank 0 joins
  }
  while (shared->step != 1) usleep(1000);
  const gsel_unique_id id = shared->id;
  rank_ok(run, join_by(id, run, &comm, &err), err);
  int32_t sum = run->rank;
  rank_ok(run, gsel_allreduce(comm, &sum, &sum, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, sum == run->world_size * (run->world_size - 1) / 2 && gsel_comm_rank(comm) == run->rank);
  gsel_comm_free(comm);
  if (run->rank == 0)  // an id is of one communicator
    rank_fails(run, join_by(id, run, &comm, &err), err, GSEL_ERR_ARG, "gsel_unique_id_listen is called by rank 0", 0);
}

void meets_by_id_on_hosts(rank_run* run) {
  setenv("GSEL_HOST_ID", std::to_string(run->rank / 2).c_str(), 1);
  meets_by_id(run);
}

SharedId* shared_id() {
  return new (shared_memory(sizeof(SharedId))) SharedId{};
}

void test_ranks_meet_by_an_id_alone(void**) {
  for (const auto& [ranks, body] : {std::pair<int32_t, rank_body>(3, meets_by_id), {4, meets_by_id_on_hosts}}) {
    if (body == meets_by_id_on_hosts && !on_hosts) continue;
    SharedId* shared = shared_id();
    as_processes(ranks, body, shared);
    munmap(shared, sizeof *shared);
  }
  SharedId* shared = shared_id();
  as_threads(3, meets_by_id, shared);
  munmap(shared, sizeof *shared);
}

// Ranks 0 and 1 in network namespaces of their own, with a cable between.
void meets_by_id_from_afar(rank_run* run) {
  auto* shared = static_cast<SharedId*>(run->user);
  const auto sh = [](const std::string& command) { return system(command.c_str()) == 0; };
  rank_check(run, unshare(CLONE_NEWNET) == 0);
  if (run->rank == 1) {
    shared->pid = getpid();
    while (shared->step != 2) usleep(1000);
    rank_check(run, sh("ip address add 10.9.0.2/24 dev eth1 && ip link set eth1 up && ip link set lo up"));
    shared->step = 3;
  } else {
    while (shared->pid == 0) usleep(1000);
    rank_check(run, sh(fmt::format("ip link add eth0 type veth peer name eth1 netns {} && ip link set lo up && "
                                   "ip address add 10.9.0.1/24 dev eth0 && ip link set eth0 up",
                                   shared->pid.load())));
    shared->step = 2;
    while (shared->step != 3) usleep(1000);
  }
  meets_by_id(run);
}

void test_ranks_of_two_networks_meet_by_an_id_alone(void**) {
  const pid_t child = fork();  // whether this may be had here
  if (child == 0)
    _exit(unshare(CLONE_NEWNET) != 0 || system("ip link add test0 type veth peer name test1 2> /dev/null") != 0);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0 || !on_hosts) {
    print_message("left out: two networks, which cannot be made here, or no transport between them\n");
    skip();  // an interface needs a network namespace, which only root can make
  }
  SharedId* shared = shared_id();
  as_processes(2, meets_by_id_from_afar, shared);
  munmap(shared, sizeof *shared);
}

// The process that made the id does not join; a child of it is no rank 0.
void has_an_id_of_its_parent(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 1;
  const auto* id = static_cast<const gsel_unique_id*>(run->user);
  if (run->rank == 0)
    rank_fails(run, join_by(*id, run, &comm, &err), err, GSEL_ERR_ARG,
               fmt::format("with an id by which process {} on the host of ", getppid()).c_str(), 0);
  else
    rank_fails(run, join_by(*id, run, &comm, &err), err, GSEL_ERR_TIMEOUT, "for rank 0 to listen at the port ", 0);
}

void makes_no_id(rank_run* run) {
  setenv("GSEL_INTERFACE", "nosuch0", 1);
  gsel_error* err = nullptr;
  gsel_unique_id id;
  rank_fails(run, gsel_unique_id_listen(&id, &err), err, GSEL_ERR_CONFIG, "GSEL_INTERFACE is \"nosuch0\"", -1);
}

void test_an_id_is_of_the_process_that_made_it(void**) {
  gsel_unique_id id;
  assert_int_equal(gsel_unique_id_listen(&id, nullptr), GSEL_OK);
  as_processes(2, has_an_id_of_its_parent, &id);
  as_processes(1, makes_no_id, nullptr);
  assert_int_equal(gsel_unique_id_listen(nullptr, nullptr), GSEL_ERR_ARG);
}

void test_an_address_is_read_from_an_id_as_it_was_written(void**) {
  const gsel::AddressInId written{4711, 77, {"10.0.0.1", "fd00::1", "192.168.7.9"}};
  const auto read = gsel::address_of(gsel::id_with(written));
  assert_true(read && read->port == 4711 && read->pid == 77 && read->addresses == written.addresses);
  const gsel::AddressInId many{1, 1, std::vector<std::string>(20, "fd00:1:2:3:4:5:6:7")};
  const auto some = gsel::address_of(gsel::id_with(many));
  assert_true(some && !some->addresses.empty() && some->addresses.size() < 20);
  gsel_unique_id id = gsel::id_with(written), other = gsel::id_with(written);
  assert_true(memcmp(id.bytes, other.bytes, sizeof id.bytes) != 0);
  id.bytes[14] = 255;  // more addresses than there is room for
  assert_false(gsel::address_of(id).has_value());
  assert_int_equal(gsel_unique_id_create(&id, nullptr), GSEL_OK);
  assert_false(gsel::address_of(id).has_value());
}
// ---- schedulers -------------------------------------------------------------------------------------------------

void test_ranks_meet_at_the_first_host_of_a_scheduler(void**) {
  char token[] = "/tmp/gsel-token-XXXXXX";
  const int fd = mkstemp(token);
  assert_int_equal(write(fd, "0123456789abcdef", 16), 16);
  close(fd);
  setenv("GSEL_TOKEN_FILE", token, 1);
  Job slurm =
      job_of(fmt::format("SLURM_PROCID=%r SLURM_STEP_NUM_TASKS=3 SLURM_NTASKS=9 SLURM_STEP_NUM_NODES=3 "
                         "SLURM_STEP_NODELIST=localhost,node[1-2] SLURM_STEP_ID=1 SLURM_JOB_ID={}",
                         getpid()));
  as_processes(3, joins, &slurm);
  const int port = free_port();
  Job pods = job_of(fmt::format("JOB_COMPLETION_INDEX=%r WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT={}", port));
  as_processes(3, joins, &pods);
  // torchrun, whose agents keep their store for themselves.
  Job alone =
      job_of(fmt::format("RANK=%r WORLD_SIZE=3 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT={} "
                         "TORCHELASTIC_USE_AGENT_STORE=False",
                         port));
  as_processes(3, joins, &alone);
  unsetenv("GSEL_TOKEN_FILE");
  unlink(token);
}

bool can_unshare(int what) {
  const pid_t child = fork();
  if (child == 0) _exit(geteuid() != 0 || unshare(what) != 0);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

// A pod of an indexed Job: a name of its own, and all names of the headless service.
void joins_as_pod(rank_run* run) {
  const auto* job = static_cast<const Job*>(run->user);
  const std::string name = "train-" + std::to_string(run->rank);
  rank_check(run, unshare(CLONE_NEWNS | CLONE_NEWUTS) == 0 && sethostname(name.c_str(), name.size()) == 0);
  rank_check(run, mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
  rank_check(run, mount(job->part, "/etc/hosts", nullptr, MS_BIND, nullptr) == 0);
  joins(run);
}

void test_pods_find_the_one_of_index_0_by_their_own_names(void**) {
  if (!can_unshare(CLONE_NEWNS | CLONE_NEWUTS)) {
    print_message("left out: pods, since only root can give processes names of their own, and not everywhere\n");
    skip();  // a pod needs a host name of its own, which only root can give
  }
  const Folder folder;
  folder.write("token", "0123456789abcdef");
  const std::string token = folder.path() + "/token";
  chmod(token.c_str(), 0600);
  std::string hosts;
  for (const char* rank : {"0", "1", "2"})
    hosts += fmt::format("127.0.0.1 train-{}.workers.default.svc.cluster.local train-{}\n", rank, rank);
  folder.write("hosts", hosts);
  Job job = job_of("JOB_COMPLETION_INDEX=%r WORLD_SIZE=3 GSEL_TOKEN_FILE=" + token);
  snprintf(job.part, sizeof job.part, "%s/hosts", folder.path().c_str());
  as_processes(3, joins_as_pod, &job);
}

// Debian's /etc/hosts: rank 0's host knows its own name as a loopback's, and the others another address.
void joins_where_it_is_called_so(rank_run* run) {
  const auto* job = static_cast<const Job*>(run->user);
  const std::string hosts = job->part + std::string(run->rank == 0 ? "/hosts0" : "/hosts");
  rank_check(run, unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
  rank_check(run, mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0);
  joins(run);
}

void test_a_host_that_knows_its_name_as_a_loopback_is_reached(void**) {
  if (!can_unshare(CLONE_NEWNS)) {
    print_message("left out: another /etc/hosts, since only root can give processes one, and not everywhere\n");
    skip();  // only root can mount another /etc/hosts
  }
  const Folder folder;
  folder.write("token", "0123456789abcdef");
  folder.write("hosts0", "127.0.1.1 node0\n");
  folder.write("hosts", "127.0.0.1 node0\n");
  const std::string token = folder.path() + "/token";
  chmod(token.c_str(), 0600);
  Job job =
      job_of(fmt::format("RANK=%r WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 GSEL_RENDEZVOUS=tcp://node0:{} "
                         "GSEL_TOKEN_FILE={}",
                         free_port(), token));
  snprintf(job.part, sizeof job.part, "%s", folder.path().c_str());
  as_processes(2, joins_where_it_is_called_so, &job);
}

// ---- addresses --------------------------------------------------------------------------------------------------

void test_an_interface_that_does_not_exist_is_named(void**) {
  const Folder folder;
  Job job = by_file(folder);
  snprintf(job.variables + strlen(job.variables), 64, " GSEL_INTERFACE=nosuch0");
  refused(job, 1, -1, GSEL_ERR_CONFIG, "GSEL_INTERFACE is \"nosuch0\"");
  refused(job, 1, -1, GSEL_ERR_CONFIG, "it has lo");
  snprintf(job.variables + strlen(job.variables) - 7, 64, "lo");
  as_processes(3, joins, &job);
}

// All are told, where rank 0 cannot even listen; by nobody else, and nothing stays there.
void has_no_such_interface_on_rank_0(rank_run* run) {
  auto* job = static_cast<Job*>(run->user);
  set_environment(*job, run->rank);
  if (run->rank == 0) setenv("GSEL_INTERFACE", "nosuch0", 1);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->join_timeout_s = 60;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_CONFIG, "GSEL_INTERFACE is \"nosuch0\"", 0);
}

void joins_behind_rank_0(rank_run* run) {
  const auto* job = static_cast<const Job*>(run->user);
  while (run->rank != 0 && access(job->part, F_OK) == 0) usleep(1000);
  joins(run);
}

void test_why_rank_0_does_not_listen_is_told_where_it_would_post(void**) {
  const Folder folder;
  Job job = by_file(folder);
  as_processes(3, has_no_such_interface_on_rank_0, &job);
  assert_int_equal(folder.names().size(), 0);
  FakeTorchrunStore store(FakeTorchrunStore::Form::since_2_4);
  Job by_store = torchrun(store.port);
  as_processes(3, has_no_such_interface_on_rank_0, &by_store);
  assert_int_equal(store.values().size(), 0);

  const Folder secrets;
  const std::string text = "0123456789abcdef", token = secrets.path() + "/token";
  secrets.write("token", text);
  chmod(token.c_str(), 0600);
  setenv("GSEL_TOKEN_FILE", token.c_str(), 1);
  as_processes(3, has_no_such_interface_on_rank_0, &job);
  const std::string name = name_of_file(folder, job);
  gsel::hosts::Endpoint failed{"node7", 4711, 0, int64_t{1} << 40, {}, {}};
  failed.refuse(GSEL_ERR_CONFIG, "made up", gsel::hosts::Secret(std::vector<uint8_t>(16, 1)));
  folder.write(name, gsel::hosts::endpoint_text(failed));
  refused(job, 3, 0, GSEL_ERR_TIMEOUT, "rank 0 has written no file there");
  failed.refuse(GSEL_ERR_CONFIG, "not made up", gsel::hosts::Secret({text.begin(), text.end()}));
  folder.write(name, gsel::hosts::endpoint_text(failed));
  refused(job, 3, 0, GSEL_ERR_CONFIG, "not made up");
  snprintf(job.part, sizeof job.part, "%s/%s", folder.path().c_str(), name.c_str());
  as_processes(3, joins_behind_rank_0, &job);  // what was left is removed
  assert_int_equal(folder.names().size(), 0);
  unsetenv("GSEL_TOKEN_FILE");
}

// In a network of its own: interfaces with these addresses.
void has_these_addresses(rank_run* run) {
  const struct {
    const char *interface, *address;
    std::vector<std::string> posted;
  } turns[] = {{"docker9", "10.9.0.1/24", {"10.9.0.1"}},  // nothing else is there
               {"wire9", "169.254.7.1/16", {"10.9.0.1"}},
               {"br-9", "10.9.1.1/24", {"10.9.0.1", "10.9.1.1"}},
               {"eth9", "10.9.2.1/24", {"10.9.2.1"}}};
  rank_check(run, unshare(CLONE_NEWNET) == 0);
  for (const auto& [interface, address, posted] : turns) {
    rank_check(run,
               system(fmt::format("ip link add {0} type bridge && ip address add {1} dev {0} && ip link set {0} up",
                                  interface, address)
                          .c_str()) == 0);
    rank_check(run, gsel::hosts::own_addresses() == posted);
  }
  setenv("GSEL_INTERFACE", "br-9", 1);
  rank_check(run, gsel::hosts::own_addresses() == std::vector<std::string>{"10.9.1.1"});
}

void test_addresses_that_lead_to_other_hosts_are_posted(void**) {
  const pid_t child = fork();  // whether this may be had here
  if (child == 0) _exit(unshare(CLONE_NEWNET) != 0 || system("ip link add test0 type bridge 2> /dev/null") != 0);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) {
    print_message("left out: interfaces, which cannot be made here\n");
    skip();  // an interface needs a network namespace, which only root can make
  }
  as_processes(1, has_these_addresses, nullptr);
}

void test_endpoints_are_read_as_they_were_written(void**) {
  using namespace gsel::hosts;
  const Endpoint written{"a host;", -7, 65535, 1700000000, {"10.0.0.1", "fd00::1"}, {0, 255, 16}};
  const auto read = parse_endpoint(endpoint_text(written) + "\n");
  assert_true(read && read->host == "a?host?" && read->pid == -7 && read->port == 65535);
  assert_true(read->until_s == 1700000000 && read->addresses == written.addresses && read->token == written.token);
  Endpoint failed{"a", 1, 0, 1, {}, {0}};
  failed.refuse(GSEL_ERR_IO, std::string(900, ';'), Secret({1}));
  assert_true(endpoint_text(failed).size() < 1000);
  const auto refusal = parse_endpoint(endpoint_text(failed));
  assert_true(refusal && refusal->failure == GSEL_ERR_IO && refusal->why == failed.why);
  assert_true(refusal->is_refusal(Secret({1})) && !refusal->is_refusal(Secret({2})));
  for (const char* wrong : {"gsel1;a;1;0;1;;;-1;61;00", "gsel1;a;1;0;1;;;1;61;00", "", "gsel1",
                            "gsel2;a;1;1;1;;10.0.0.1", "gsel1;a;1;0;1;;10.0.0.1", "gsel1;a;1;1;1;0;10.0.0.1",
                            "gsel1;a;1;1;1;0x;10.0.0.1", "gsel1;a;1;1;1;;", "gsel1;a;1;70000;1;;10.0.0.1"})
    if (parse_endpoint(wrong)) fail_msg("\"%s\" was taken", wrong);
}

}  // namespace

int main() {
  gsel_plugin_list* plugins = nullptr;
  if (gsel_plugin_list_create(&plugins, nullptr) != GSEL_OK) return 1;
  for (int32_t i = 0; i < gsel_plugin_list_count(plugins); ++i) {
    gsel_plugin_info info = GSEL_PLUGIN_INFO_INIT;
    on_hosts =
        on_hosts || (gsel_plugin_list_get(plugins, i, &info, nullptr) == GSEL_OK && !strcmp(info.name.data, "gloo"));
  }
  gsel_plugin_list_free(plugins);
  if (!on_hosts) printf("left out: ranks on several hosts, which meet on one: there is no libgloo-dev in this build\n");
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_ranks_meet_by_the_store_of_torchruns_agent),
      cmocka_unit_test(test_a_store_without_rank_0_is_named),
      cmocka_unit_test(test_a_store_that_is_none_is_named),
      cmocka_unit_test(test_ranks_meet_by_a_file_that_is_gone_then),
      cmocka_unit_test(test_the_file_of_a_killed_rank_0_is_never_taken),
      cmocka_unit_test(test_a_token_that_only_rank_0_has_is_named),
      cmocka_unit_test(test_two_jobs_at_one_file_are_refused),
      cmocka_unit_test(test_a_second_rank_0_at_a_file_is_named_on_every_rank),
      cmocka_unit_test(test_a_file_of_another_user_is_not_read),
      cmocka_unit_test(test_a_folder_that_is_not_there_is_named),
      cmocka_unit_test(test_places_that_only_launchers_give_are_refused_of_others),
      cmocka_unit_test(test_ranks_meet_by_an_id_alone),
      cmocka_unit_test(test_ranks_of_two_networks_meet_by_an_id_alone),
      cmocka_unit_test(test_an_id_is_of_the_process_that_made_it),
      cmocka_unit_test(test_an_address_is_read_from_an_id_as_it_was_written),
      cmocka_unit_test(test_ranks_meet_at_the_first_host_of_a_scheduler),
      cmocka_unit_test(test_pods_find_the_one_of_index_0_by_their_own_names),
      cmocka_unit_test(test_a_host_that_knows_its_name_as_a_loopback_is_reached),
      cmocka_unit_test(test_an_interface_that_does_not_exist_is_named),
      cmocka_unit_test(test_why_rank_0_does_not_listen_is_told_where_it_would_post),
      cmocka_unit_test(test_addresses_that_lead_to_other_hosts_are_posted),
      cmocka_unit_test(test_endpoints_are_read_as_they_were_written),
  };
  return run_tests_beside(tests, std::size(tests));
}
