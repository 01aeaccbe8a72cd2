// unit/test_comm_hosts.cc: communicators whose ranks are told that they are on several hosts. What a call gives is
// compared, bit for bit, with what it gives to the same ranks on one host.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support/ranks.h"

namespace {

// Which ranks are on which host: "0011".
struct Job {
  char place[64];
  const char* hosts;
  const char* transport;  // NULL: any
};

uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  assert_int_equal(bind(fd, at, length), 0);
  assert_int_equal(getsockname(fd, at, &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

void on_hosts(const char* hosts, rank_body body, const char* transport = nullptr) {
  Job job = {};
  snprintf(job.place, sizeof job.place, "tcp://127.0.0.1:%d", free_port());
  job.hosts = hosts;
  job.transport = transport;
  as_processes(static_cast<int32_t>(strlen(hosts)), body, &job);
}

// The numbers of hosts are letters where reductions are to be in the order of a tree.
int32_t order_of(const Job* job) {
  return job->hosts[0] == 'a' ? GSEL_ORDER_TREE : GSEL_ORDER_RANKS;
}

gsel_status join(const rank_run* run, gsel_comm** comm, gsel_error** err) {
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
  return gsel_comm_init(&options, comm, err);
}

struct Both {
  gsel_comm *hosts = nullptr, *host = nullptr;
  ~Both() {
    gsel_comm_free(hosts);
    gsel_comm_free(host);
  }
};

gsel_status join_one_host(const rank_run* run, gsel_comm** comm, gsel_error** err) {
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.order = order_of(static_cast<const Job*>(run->user));
  return gsel_comm_init(&options, comm, err);
}

#define join_both(run, both)                         \
  gsel_error* err = nullptr;                         \
  rank_ok(run, join(run, &(both).hosts, &err), err); \
  rank_ok(run, join_one_host(run, &(both).host, &err), err)

// Numbers of a type, alike in no two places.
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

// The same call on both, from buffers of these bytes.
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

#define rank_same(run, both, call, send, recv_bytes)                                               \
  do {                                                                                             \
    std::string why;                                                                               \
    if (!gives_the_same(both, call, send, recv_bytes, why)) {                                      \
      snprintf((run)->failure, sizeof(run)->failure, "rank %d: %.900s", (run)->rank, why.c_str()); \
      return;                                                                                      \
    }                                                                                              \
  } while (0)

void reduces_alike(rank_run* run) {
  Both both;
  join_both(run, both);
  const auto n = static_cast<uint64_t>(run->world_size);
  for (const uint64_t count : {0, 1, 7, 300, 1023, 4501, 70001})
    for (const gsel_dtype dtype : {GSEL_F32, GSEL_BF16, GSEL_F8E4M3, GSEL_I32, GSEL_F64, GSEL_U8})
      for (const gsel_op op : {GSEL_SUM, GSEL_MAX, GSEL_AVG, GSEL_PROD, GSEL_SCALED_SUM})
        for (const gsel_collective_kind kind :
             {GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_REDUCE, GSEL_COLLECTIVE_REDUCE_SCATTER}) {
          const bool integer = dtype == GSEL_I32 || dtype == GSEL_U8;
          if (integer && op == GSEL_SCALED_SUM) continue;
          if (count > 5000 && (op != GSEL_SUM || dtype == GSEL_F64)) continue;
          gsel_collective call = GSEL_COLLECTIVE_INIT;
          call.kind = kind;
          call.dtype = dtype;
          call.op = op;
          call.root = kind == GSEL_COLLECTIVE_REDUCE ? static_cast<int32_t>(count % n) : 0;
          call.count = count;
          call.factor = 0.5 + run->rank;
          const uint64_t size = gsel_dtype_bytes(dtype);
          const auto send = numbers(dtype, count * n, static_cast<uint64_t>(run->rank) + count);
          rank_same(run, both, call, send, count * size);
        }
}

void copies_alike(rank_run* run) {
  Both both;
  join_both(run, both);
  const auto n = static_cast<uint64_t>(run->world_size);
  for (const uint64_t count : {0, 1, 5, 900, 4001})
    for (const gsel_collective_kind kind :
         {GSEL_COLLECTIVE_BARRIER, GSEL_COLLECTIVE_ALLGATHER, GSEL_COLLECTIVE_BROADCAST, GSEL_COLLECTIVE_GATHER,
          GSEL_COLLECTIVE_SCATTER, GSEL_COLLECTIVE_ALLTOALL})
      for (int32_t root = 0; root < run->world_size; root += 2) {
        gsel_collective call = GSEL_COLLECTIVE_INIT;
        call.kind = kind;
        call.dtype = GSEL_I32;
        call.root = root;
        call.count = count;
        const auto send = numbers(GSEL_I32, count * n, static_cast<uint64_t>(run->rank * 31 + root));
        rank_same(run, both, call, send, count * n * 4);
      }
}

void varies_alike(rank_run* run) {
  Both both;
  join_both(run, both);
  const auto n = static_cast<size_t>(run->world_size);
  for (const uint64_t unit : {1, 40, 3000}) {
    std::vector<uint64_t> counts(n), to(n), from(n), starts(n), gaps(n);
    uint64_t total = 0;
    for (size_t q = 0; q < n; ++q) {
      counts[q] = unit * (q % 3);
      starts[q] = total + 2 * q;
      total += counts[q];
    }
    for (size_t q = 0; q < n; ++q) {
      to[q] = unit * ((q + static_cast<size_t>(run->rank)) % 2 + 1);
      from[q] = to[q];
      gaps[q] = q * (2 * unit + 1);
    }
    const auto send = numbers(GSEL_F32, 3 * unit * n + 2 * n, static_cast<uint64_t>(run->rank));
    for (const gsel_collective_kind kind :
         {GSEL_COLLECTIVE_REDUCE_SCATTERV, GSEL_COLLECTIVE_ALLGATHERV, GSEL_COLLECTIVE_GATHERV,
          GSEL_COLLECTIVE_SCATTERV, GSEL_COLLECTIVE_ALLTOALLV}) {
      gsel_collective call = GSEL_COLLECTIVE_INIT;
      call.kind = kind;
      call.dtype = GSEL_F32;
      call.op = GSEL_SUM;
      call.root = run->world_size - 1;
      const bool all = kind == GSEL_COLLECTIVE_ALLTOALLV;
      call.send_counts = all ? to.data() : kind == GSEL_COLLECTIVE_SCATTERV ? counts.data() : nullptr;
      call.send_offsets = all ? gaps.data() : kind == GSEL_COLLECTIVE_SCATTERV ? starts.data() : nullptr;
      call.recv_counts = all ? from.data() : kind == GSEL_COLLECTIVE_SCATTERV ? nullptr : counts.data();
      call.recv_offsets = all                                                                     ? gaps.data()
                          : kind == GSEL_COLLECTIVE_ALLGATHERV || kind == GSEL_COLLECTIVE_GATHERV ? starts.data()
                                                                                                  : nullptr;
      rank_same(run, both, call, send, (3 * unit * n + 2 * n) * 4);
    }
  }
}

void test_collectives_give_the_bits_of_one_host(void**) {
  for (const char* hosts : {"0011", "0101", "01", "00111", "012", "001122"}) {
    on_hosts(hosts, reduces_alike);
    on_hosts(hosts, copies_alike);
    on_hosts(hosts, varies_alike);
  }
  on_hosts("aabbb", reduces_alike);
}

// ---- communicators from one -----------------------------------------------------------------------------------------

void splits(rank_run* run) {
  Both both;
  join_both(run, both);
  for (int32_t way = 0; way < 4; ++way) {  // inside hosts, across hosts, some in none, all and the other way round
    const int32_t colour = way == 0   ? run->rank / 2
                           : way == 1 ? run->rank % 2
                           : way == 2 ? (run->rank == 1 ? -1 : 0)
                                      : 0;
    const int32_t key = way == 3 ? -run->rank : run->rank;
    Both made;
    rank_ok(run, gsel_comm_split(both.hosts, colour, key, &made.hosts, &err), err);
    rank_ok(run, gsel_comm_split(both.host, colour, key, &made.host, &err), err);
    rank_check(run, !made.hosts == !made.host);
    if (!made.hosts) continue;
    rank_check(run, gsel_comm_rank(made.hosts) == gsel_comm_rank(made.host));
    rank_check(run, gsel_comm_world_size(made.hosts) == gsel_comm_world_size(made.host));
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    call.kind = GSEL_COLLECTIVE_ALLREDUCE;
    call.dtype = GSEL_F32;
    call.op = GSEL_SUM;
    call.count = 100;
    rank_same(run, made, call, numbers(GSEL_F32, 100, static_cast<uint64_t>(run->rank)), 400);
    gsel_comm* again = nullptr;
    rank_ok(run, gsel_comm_dup(made.hosts, &again, &err), err);
    int32_t sum = 1;
    rank_ok(run, gsel_allreduce(again, &sum, &sum, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, sum == gsel_comm_world_size(made.hosts));
    gsel_comm_free(again);
  }
}

void starts(rank_run* run) {
  Both both;
  join_both(run, both);
  gsel_request* requests[6];
  int32_t sums[6], given[6];
  for (int32_t i = 0; i < 6; ++i) {
    given[i] = run->rank + i;
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    call.kind = GSEL_COLLECTIVE_ALLREDUCE;
    call.dtype = GSEL_I32;
    call.op = GSEL_SUM;
    call.count = 1;
    call.send = &given[i];
    call.recv = &sums[i];
    rank_ok(run, gsel_comm_start(both.hosts, &call, &requests[i], &err), err);
  }
  int32_t late = run->rank;
  rank_ok(run, gsel_allreduce(both.hosts, &late, &late, 1, GSEL_I32, GSEL_MAX, &err), err);
  rank_check(run, late == run->world_size - 1);
  for (int32_t i = 5; i >= 0; --i) {
    rank_ok(run, gsel_request_wait(requests[i], &err), err);
    gsel_request_free(requests[i]);
    rank_check(run, sums[i] == run->world_size * (run->world_size - 1) / 2 + i * run->world_size);
  }
}

void test_communicators_are_made_from_one(void**) {
  on_hosts("0011", splits);
  on_hosts("0101", splits);
  on_hosts("0112", splits);
}

// ---- messages -----------------------------------------------------------------------------------------------------

// Between each pair: short and long ones, in an order other than they are sent in, to and from all at the same time.
void sends_and_receives(rank_run* run) {
  Both both;
  join_both(run, both);
  static constexpr uint64_t kLengths[] = {1, 1024, 1025, 70000, 0};
  constexpr int32_t kMessages = 5;
  std::vector<std::vector<char>> sent, got;
  std::vector<gsel_request*> requests;
  const auto bytes = [](int32_t from, int32_t to, int32_t m) {
    return numbers(GSEL_F32, kLengths[m], static_cast<uint64_t>(from * 100 + to * 10 + m));
  };
  for (int32_t q = 0; q < run->world_size; ++q)
    for (int32_t m = 0; m < kMessages; ++m) {
      if (q == run->rank) continue;
      sent.push_back(bytes(run->rank, q, m));
      gsel_collective call = GSEL_COLLECTIVE_INIT;
      call.kind = GSEL_COLLECTIVE_SEND;
      call.dtype = GSEL_F32;
      call.root = q;
      call.tag = m;
      call.count = kLengths[m];
      call.send = sent.back().data();
      requests.push_back(nullptr);
      rank_ok(run, gsel_comm_start(both.hosts, &call, &requests.back(), &err), err);
    }
  for (int32_t q = run->world_size - 1; q >= 0; --q)
    for (int32_t m = kMessages - 1; m >= 0; --m) {
      if (q == run->rank) continue;
      std::vector<char> in(kLengths[m] * 4 + 4);
      gsel_message received = GSEL_MESSAGE_INIT;
      rank_ok(run, gsel_recv_tag(both.hosts, in.data(), kLengths[m] + 1, GSEL_F32, q, m, &received, &err), err);
      in.resize(kLengths[m] * 4);
      rank_check(run, in == bytes(q, run->rank, m));
      rank_check(run, received.source == q && received.tag == m && received.count == kLengths[m]);
    }
  for (gsel_request* request : requests) {
    rank_ok(run, gsel_request_wait(request, &err), err);
    gsel_request_free(request);
  }
  // round and round, and from anybody
  const int32_t next = (run->rank + 1) % run->world_size, before = (run->rank + run->world_size - 1) % run->world_size;
  for (int32_t turn = 0; turn < 50; ++turn) {
    int32_t out = run->rank * 1000 + turn, in = -1;
    rank_ok(run, gsel_sendrecv(both.hosts, &out, 1, next, &in, 1, before, GSEL_I32, &err), err);
    rank_check(run, in == before * 1000 + turn);
  }
  if (run->rank > 0) {
    rank_ok(run, gsel_send_tag(both.hosts, &run->rank, 1, GSEL_I32, 0, 7 + run->rank, &err), err);
  } else {
    int32_t sum = 0;
    for (int32_t q = 1; q < run->world_size; ++q) {
      gsel_message message = GSEL_MESSAGE_INIT, probed = GSEL_MESSAGE_INIT;
      int32_t in = 0;
      rank_ok(run, gsel_probe(both.hosts, GSEL_ANY_RANK, GSEL_ANY_TAG, &probed, &err), err);
      rank_ok(run, gsel_recv_tag(both.hosts, &in, 1, GSEL_I32, GSEL_ANY_RANK, GSEL_ANY_TAG, &message, &err), err);
      rank_check(run, message.source == in && message.tag == 7 + in && probed.count == 1);
      sum += in;
    }
    rank_check(run, sum == run->world_size * (run->world_size - 1) / 2);
    int32_t found = 1;
    gsel_message none = GSEL_MESSAGE_INIT;
    rank_ok(run, gsel_iprobe(both.hosts, GSEL_ANY_RANK, GSEL_ANY_TAG, &found, &none, &err), err);
    rank_check(run, !found);
  }
}

void is_not_sent_to(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->timeout_s = 1;
  rank_ok(run, join(run, &comm, &err), err);
  int32_t x = 0;
  if (run->rank == 0) {
    rank_fails(run, gsel_recv(comm, &x, 1, GSEL_I32, 2, &err), err, GSEL_ERR_TIMEOUT, "rank 2", 2);
  } else {
    sleep(2);
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_TIMEOUT, "rank 2", 2);
  }
  gsel_comm_free(comm);
}

void is_sent_another_type(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  float x = 0;
  if (run->rank == 2 && gsel_send(comm, &x, 1, GSEL_F32, 0, &err) != GSEL_OK) {  // it may be told already
    gsel_error_free(err);
    err = nullptr;
  }
  if (run->rank == 0)
    rank_fails(run, gsel_recv(comm, &x, 1, GSEL_I32, 2, &err), err, GSEL_ERR_MISMATCH, "send(count 1, f32)", 2);
  else
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_MISMATCH, "send(count 1, f32)", 2);
  gsel_comm_free(comm);
}

void test_messages_pass_between_hosts(void**) {
  for (const char* hosts : {"0011", "0101", "012"}) on_hosts(hosts, sends_and_receives);
}

void test_messages_that_go_wrong_are_named(void**) {
  on_hosts("0011", is_not_sent_to);
  on_hosts("0011", is_sent_another_type);
}

void test_calls_are_started(void**) {
  on_hosts("0011", starts);
  on_hosts("01", starts);
}

// ---- what goes wrong ------------------------------------------------------------------------------------------------

void disagrees(rank_run* run) {
  Both both;
  join_both(run, both);
  int32_t x = 1;
  for (const int32_t odd : {3, 1, 0}) {
    const gsel_op op = run->rank == odd ? GSEL_MAX : GSEL_SUM;
    rank_fails(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, op, &err), err, GSEL_ERR_MISMATCH,
               "called allreduce(count 1, i32, max)", -1);
    x = 1;
    rank_ok(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);  // the communicator goes on
    rank_check(run, x == run->world_size);
    x = 1;
  }
}

void disagrees_on_parts(rank_run* run) {
  Both both;
  join_both(run, both);
  uint64_t one[] = {1, 1, 1, 1}, other[] = {1, 1, 1, 1};
  if (run->rank == 3) other[0] = 2;
  int32_t send[8] = {}, recv[8] = {};
  const gsel_status status = gsel_alltoallv(both.hosts, send, one, nullptr, recv, other, nullptr, GSEL_I32, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "alltoallv: rank 0 on ", 0);
}

void aborts(rank_run* run) {
  Both both;
  join_both(run, both);
  if (run->rank == 3) gsel_comm_abort(both.hosts, gsel_str_from("no more data"));
  int32_t x = 1;
  rank_fails(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_ABORTED,
             "rank 3 aborted the communicator: no more data", 3);
}

// The others are in the barrier, still, or in the call behind it.
template <int32_t who>
void dies(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  gsel_status status = gsel_barrier(comm, &err);
  if (run->rank == who) kill(getpid(), SIGKILL);
  int32_t x = 1;
  if (status == GSEL_OK) status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err);
  rank_fails(run, status, err, GSEL_ERR_PEER, "ended without", who);
  gsel_comm_free(comm);
}

template <int32_t who>
void leaves(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank != who) {
    int32_t x = 1;
    rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_PEER, " left", who);
  }
  gsel_comm_free(comm);
}

void is_late(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->timeout_s = 1;
  rank_ok(run, join(run, &comm, &err), err);
  int32_t x = 1;
  if (run->rank == 3) usleep(2'500'000);
  rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_TIMEOUT, "rank 3", 3);
  gsel_comm_free(comm);
}

void test_ranks_that_disagree_are_told_and_go_on(void**) {
  on_hosts("0011", disagrees);
  on_hosts("0011", disagrees_on_parts);
}
void test_an_abort_is_told_on_all_hosts(void**) {
  on_hosts("0011", aborts);
}

// One of the ranks kills itself.
void on_hosts_but(const char* hosts, rank_body body, int32_t dead) {
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
    assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, r == dead ? SIGKILL : 0);
  }
  ranks_verdict(runs, n);
}

void test_a_death_is_told_on_all_hosts(void**) {
  on_hosts_but("0011", dies<3>, 3);
  on_hosts_but("0011", dies<2>, 2);  // the first rank of its host
  on_hosts_but("0011", dies<0>, 0);
}

void test_who_has_left_is_told_on_all_hosts(void**) {
  on_hosts("0011", leaves<3>);
  on_hosts("0011", leaves<2>);
  on_hosts("0011", leaves<0>);
}

void test_a_late_rank_is_named_on_all_hosts(void**) {
  on_hosts("0011", is_late);
}

// Whether a plugin moves bytes between hosts.
bool has_transport() {
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

void has_none(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_UNSUPPORTED, "has no transport between hosts", 0);
}

void test_ranks_without_a_transport_are_refused(void**) {
  on_hosts("001", has_none, "nccl");
  on_hosts("001", has_none, "no_such_plugin");
}

}  // namespace

int main() {
  if (!has_transport()) {
    printf("left out: ranks on several hosts, since this build has no transport between them (libgloo-dev)\n");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_collectives_give_the_bits_of_one_host),
      cmocka_unit_test(test_communicators_are_made_from_one),
      cmocka_unit_test(test_calls_are_started),
      cmocka_unit_test(test_messages_pass_between_hosts),
      cmocka_unit_test(test_messages_that_go_wrong_are_named),
      cmocka_unit_test(test_ranks_that_disagree_are_told_and_go_on),
      cmocka_unit_test(test_an_abort_is_told_on_all_hosts),
      cmocka_unit_test(test_a_death_is_told_on_all_hosts),
      cmocka_unit_test(test_who_has_left_is_told_on_all_hosts),
      cmocka_unit_test(test_a_late_rank_is_named_on_all_hosts),
      cmocka_unit_test(test_ranks_without_a_transport_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
