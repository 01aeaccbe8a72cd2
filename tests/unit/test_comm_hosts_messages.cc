// unit/test_comm_hosts_messages.cc: messages between ranks that are told that they are on several hosts.
#include "support/counts.h"
#include "support/hosts.h"

using namespace gsel::test;

namespace {

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
  // whose halves, one of which may stay on this host, are counted as nothing else
  const gsel_comm_count in_one = comm_counts(both.hosts, GSEL_COLLECTIVE_SENDRECV);
  rank_check(run, in_one.calls == 50 && in_one.bytes_sent == 200);
  const auto to_others = static_cast<uint64_t>(kMessages * (run->world_size - 1));
  rank_check(run, comm_counts(both.hosts, GSEL_COLLECTIVE_SEND).calls == to_others);
  rank_check(run, comm_counts(both.hosts, GSEL_COLLECTIVE_RECV).calls == to_others);
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

// Each call of a group has its own bound, as on one host.
void is_not_sent_the_second(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->timeout_s = 60;
  rank_ok(run, join(run, &comm, &err), err);
  const char* const late = "waited 0.3 s in recv(count 1, i32, from rank 3";
  int32_t x[2] = {};
  gsel_collective calls[2] = {GSEL_COLLECTIVE_INIT, GSEL_COLLECTIVE_INIT};
  for (int i = 0; i < 2; ++i) {
    calls[i].kind = GSEL_COLLECTIVE_RECV;
    calls[i].dtype = GSEL_I32;
    calls[i].recv = &x[i];
    calls[i].count = 1;
    calls[i].root = 2 + i;
    calls[i].timeout_s = i == 0 ? 50 : 0.3;
  }
  gsel_comm* const comms[2] = {comm, comm};
  const gsel_collective* const both[2] = {&calls[0], &calls[1]};
  if (run->rank == 0)
    rank_fails(run, gsel_group_run(comms, both, 2, &err), err, GSEL_ERR_TIMEOUT, late, 3);
  else
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_TIMEOUT, late, 3);
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
    rank_fails(run, gsel_recv(comm, &x, 1, GSEL_I32, 2, &err), err, GSEL_ERR_MISMATCH, "send(count 1, f32, to rank 0)",
               2);
  else
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_MISMATCH, "send(count 1, f32, to rank 0)", 2);
  gsel_comm_free(comm);
}

// The others leave without having sent anything, or waited for it.
void is_alone(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  int32_t x = 0;
  if (run->rank == 0)
    rank_fails(run, gsel_recv_tag(comm, &x, 1, GSEL_I32, GSEL_ANY_RANK, 8, nullptr, &err), err, GSEL_ERR_PEER,
               "every other rank left while rank 0", 1);
  gsel_comm_free(comm);
}

void test_messages_pass_between_hosts(void**) {
  for (const char* hosts : {"0011", "0101", "012"}) on_hosts(hosts, sends_and_receives);
}

void test_messages_that_go_wrong_are_named(void**) {
  on_hosts("0011", is_not_sent_to);
  on_hosts("0011", is_not_sent_the_second);
  on_hosts("0011", is_sent_another_type);
  on_hosts("0011", is_alone);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_messages_pass_between_hosts),
      cmocka_unit_test(test_messages_that_go_wrong_are_named),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
