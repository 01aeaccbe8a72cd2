// See hosts.h.
#include "support/hosts.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

namespace gsel::test {

namespace {

// Where a launcher of MPI has started this process (tests/unit/hosts_mpi.sh), it is one of the ranks, and all of them
// run the same tests over that MPI. GSEL_TEST_LAUNCHED is a folder of theirs.
struct Launched {
  const char* folder = secure_getenv("GSEL_TEST_LAUNCHED");
  rank_run run = {};
  Job job = {};
  int jobs = 0;
  Launched() {
    const auto number = [](const char* one, const char* other) {
      const char* text = secure_getenv(one) ? secure_getenv(one) : secure_getenv(other);
      return text ? static_cast<int32_t>(strtol(text, nullptr, 10)) : 0;
    };
    run.rank = number("OMPI_COMM_WORLD_RANK", "PMI_RANK");
    run.world_size = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
  }
  // Each body has a place of its own to meet at, and an id that follows from it.
  void begin(const char* hosts) {
    snprintf(job.place, sizeof job.place, "file://%.40s/%d", folder, ++jobs);
    job.hosts = hosts;
    job.transport = "mpi";
    run.user = &job;
    run.timeout_s = 0;
    run.failure[0] = '\0';
    for (size_t i = 0; i < sizeof run.id.bytes; ++i)
      run.id.bytes[i] = static_cast<uint8_t>(job.place[i % strlen(job.place)] * 7 + jobs + static_cast<int>(i));
  }
};

Launched& launched() {
  static Launched one;
  return one;
}

// Worlds of another size than the number of started ranks are skipped.
void on_launched(const char* hosts, rank_body body) {
  Launched& here = launched();
  if (static_cast<size_t>(here.run.world_size) != strlen(hosts)) return;
  here.begin(hosts);
  body(&here.run);
  if (!here.run.failure[0]) return;
  print_error("on %s: %s\n", hosts, here.run.failure);
  fflush(nullptr);
  _exit(1);  // the launcher ends the others, who would wait for this rank in the next test
}

// A launcher that does not end all ranks with one is told so by tests/unit/hosts_mpi_death.sh, which names in
// GSEL_TEST_DEAD the ranks that die. Nothing can follow in these processes: those that live say so by a file, and end
// without MPI_Finalize, which may wait for the dead.
void on_launched_but(const char* hosts, rank_body body, const std::vector<int32_t>& dead) {
  const char* chosen = secure_getenv("GSEL_TEST_DEAD");
  std::string who;
  for (const int32_t rank : dead) who += (who.empty() ? "" : ",") + std::to_string(rank);
  const Launched& here = launched();
  if (!chosen || who != chosen || static_cast<size_t>(here.run.world_size) != strlen(hosts)) return;
  on_launched(hosts, body);
  const std::string passed = std::string(here.folder) + "/passed" + std::to_string(here.run.rank);
  const int fd = open(passed.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  _exit(fd >= 0 ? 0 : 1);
}

}  // namespace

void on_hosts(const char* hosts, rank_body body, const char* transport) {
  if (launched().folder) return on_launched(hosts, body);
  Job job = {};
  snprintf(job.place, sizeof job.place, "tcp://127.0.0.1:%d", free_port());
  job.hosts = hosts;
  job.transport = transport;
  as_processes(static_cast<int32_t>(strlen(hosts)), body, &job);
}

// The numbers of hosts are letters where reductions are to be in the order of a tree.
static int32_t order_of(const Job* job) {
  return job->hosts[0] == 'a' ? GSEL_ORDER_TREE : GSEL_ORDER_RANKS;
}

gsel_comm_options options_of(const rank_run* run) {
  const auto* job = static_cast<const Job*>(run->user);
  const char host[] = {'h', job->hosts[run->rank], '\0'};
  setenv("GSEL_HOST_ID", host, 1);
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.timeout_s = run->timeout_s;
  options.join_timeout_s = 20;
  options.order = order_of(job);
  if (job->transport) options.transport = gsel_str_from(job->transport);
  options.rendezvous = gsel_str_from(job->place);
  return options;
}

gsel_status join(const rank_run* run, gsel_comm** comm, gsel_error** err) {
  const gsel_comm_options options = options_of(run);
  return gsel_comm_init(&options, comm, err);
}

gsel_status join_one_host(const rank_run* run, gsel_comm** comm, gsel_error** err) {
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.order = order_of(static_cast<const Job*>(run->user));
  return gsel_comm_init(&options, comm, err);
}

std::vector<char> numbers(gsel_dtype dtype, uint64_t count, uint64_t seed) {
  std::vector<char> out(count * gsel_dtype_bytes(dtype));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double number = static_cast<double>(static_cast<int32_t>(state >> 33)) / (1 << 24) - 64;
    char* at = out.data() + i * gsel_dtype_bytes(dtype);
    const auto as = [at](auto value) { memcpy(at, &value, sizeof value); };
    if (dtype == GSEL_F32)
      as(static_cast<float>(number));
    else if (dtype == GSEL_F64)
      as(number);
    else if (dtype == GSEL_BF16 || dtype == GSEL_F16)
      as(static_cast<uint16_t>((state >> 40 & 0x8fff) | 0x3000));  // of either sign, not too large
    else
      memcpy(at, &state, gsel_dtype_bytes(dtype));
  }
  return out;
}

bool gives_the_same(const Both& both, const gsel_collective& call, const std::vector<char>& send, uint64_t recv_bytes,
                    std::string& why) {
  std::vector<char> got[2];
  gsel_comm* const comms[] = {both.host, both.hosts};
  for (int i = 0; i < 2; ++i) {
    got[i].assign(recv_bytes + 8, static_cast<char>(0xa5));
    gsel_collective one = call;
    one.send = send.data();
    one.recv = got[i].data();
    gsel_error* err = nullptr;
    if (gsel_comm_run(comms[i], &one, &err) != GSEL_OK) {
      why = gsel_error_message(err).data;
      gsel_error_free(err);
      return false;
    }
  }
  if (got[0] == got[1]) return true;
  const auto at = std::mismatch(got[0].begin(), got[0].end(), got[1].begin()).first - got[0].begin();
  why = "kind " + std::to_string(call.kind) + " dtype " + std::to_string(call.dtype) + " op " +
        std::to_string(call.op) + " count " + std::to_string(call.count) + " differs at byte " + std::to_string(at);
  return false;
}

void works(rank_run* run, const Both& both) {
  gsel_error* err = nullptr;
  const auto n = static_cast<uint64_t>(gsel_comm_world_size(both.hosts));
  const int32_t rank = gsel_comm_rank(both.hosts);
  rank_check(run, n == static_cast<uint64_t>(gsel_comm_world_size(both.host)) && rank == gsel_comm_rank(both.host));
  for (const uint64_t count : {1, 300, 70001})
    for (const gsel_collective_kind kind :
         {GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_ALLGATHER, GSEL_COLLECTIVE_BROADCAST, GSEL_COLLECTIVE_ALLTOALL}) {
      gsel_collective call = GSEL_COLLECTIVE_INIT;
      call.kind = kind;
      call.dtype = GSEL_F32;
      call.op = GSEL_SUM;
      call.count = count;
      rank_same(run, both, call, numbers(GSEL_F32, count * n, static_cast<uint64_t>(rank) + count), count * n * 4);
    }
  if (n == 1) return;
  const int32_t size = static_cast<int32_t>(n), next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (const size_t count : {size_t{1}, size_t{50000}}) {
    std::vector<int32_t> out(count, rank), in(count, -1);
    const gsel_status status =
        gsel_sendrecv(both.hosts, out.data(), count, next, in.data(), count, before, GSEL_I32, &err);
    rank_ok(run, status, err);
    rank_check(run, in == std::vector<int32_t>(count, before));
  }
  rank_ok(run, gsel_barrier(both.host, &err), err);  // nobody breaks the other one before
}

void on_hosts_but(const char* hosts, rank_body body, const std::vector<int32_t>& dead) {
  if (launched().folder) return on_launched_but(hosts, body, dead);
  Job job = {};
  snprintf(job.place, sizeof job.place, "tcp://127.0.0.1:%d", free_port());
  job.hosts = hosts;
  const auto n = static_cast<int32_t>(strlen(hosts));
  rank_run* runs = ranks_prepare(n, &job);
  std::vector<pid_t> pids;
  for (int32_t r = 0; r < n; ++r) pids.push_back(rank_fork(&runs[r], body));
  for (int32_t r = 0; r < n; ++r) {
    int status = 0;
    waitpid(pids[static_cast<size_t>(r)], &status, 0);
    assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                     std::find(dead.begin(), dead.end(), r) != dead.end() ? SIGKILL : 0);
  }
  ranks_verdict(runs, n);
}

// Whether a plugin moves bytes between hosts.
static bool has_transport() {
  gsel_plugin_list* list = nullptr;
  assert_int_equal(gsel_plugin_list_create(&list, nullptr), GSEL_OK);
  bool found = false;
  for (int32_t i = 0; i < gsel_plugin_list_count(list); ++i) {
    gsel_plugin_info info = GSEL_PLUGIN_INFO_INIT;
    assert_int_equal(gsel_plugin_list_get(list, i, &info, nullptr), GSEL_OK);
    found = found || strcmp(info.name.data, "gloo") == 0;
  }
  gsel_plugin_list_free(list);
  return found;
}

// Where it is permitted this program has a network of its own, so that tests beside it have other ports.
static void leave_the_network() {
  if (unshare(CLONE_NEWNET) != 0) return;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback = {};
  strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &loopback), 0);
  close(fd);
}

int run_tests_on_hosts(const CMUnitTest* tests, size_t n, int (*run)(const CMUnitTest*, size_t)) {
  if (launched().folder) {
    cmocka_set_test_filter(secure_getenv("GSEL_TEST_FILTER"));
    return _cmocka_run_group_tests("tests", tests, n, nullptr, nullptr);
  }
  if (!has_transport()) {
    printf("left out: ranks on several hosts, since this build has no transport between them (libgloo-dev)\n");
    return 77;
  }
  leave_the_network();
  return run ? run(tests, n) : _cmocka_run_group_tests("tests", tests, n, nullptr, nullptr);
}

}  // namespace gsel::test
