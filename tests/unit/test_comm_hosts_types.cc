// unit/test_comm_hosts_types.cc: every type with every operation it has, operations of the caller's, groups and
// persistent requests, over several hosts: bit for bit what they give on one.
#include "support/hosts.h"

using namespace gsel::test;

namespace {

bool is_integer(gsel_dtype dtype) {
  return dtype <= GSEL_U64;
}

std::vector<gsel_op> operations_of(gsel_dtype dtype) {
  std::vector<gsel_op> ops = {GSEL_SUM, GSEL_PROD, GSEL_MIN, GSEL_MAX};
  if (is_integer(dtype) || dtype == GSEL_BOOL)
    ops.insert(ops.end(), {GSEL_BAND, GSEL_BOR, GSEL_BXOR});
  else
    ops.push_back(GSEL_SCALED_SUM);
  if (dtype != GSEL_BOOL) ops.push_back(GSEL_AVG);
  return ops;
}

gsel_collective allreduce_of(gsel_dtype dtype, gsel_op op, uint64_t count) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = dtype;
  call.op = op;
  call.count = count;
  return call;
}

void reduces_every_type(rank_run* run) {
  Both both;
  join_both(run, both);
  std::vector<gsel_dtype> dtypes = {GSEL_BOOL};
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_F8E5M2; ++dtype) dtypes.push_back(dtype);
  for (const gsel_dtype dtype : dtypes)
    for (const gsel_op op : operations_of(dtype))
      for (const uint64_t count : {uint64_t{3}, uint64_t{40001}}) {  // with the call, and behind it
        auto send = numbers(dtype, count, static_cast<uint64_t>(run->rank) + count);
        if (dtype == GSEL_BOOL)
          for (char& c : send) c &= 1;
        gsel_collective call = allreduce_of(dtype, op, count);
        call.factor = 0.5 + run->rank;
        rank_same(run, both, call, send, send.size());
      }
}

// Neither order of its inputs nor of its elements is free.
int32_t chains(void* out, const void* in, size_t count, gsel_dtype, void*) {
  auto* to = static_cast<uint32_t*>(out);
  const auto* from = static_cast<const uint32_t*>(in);
  for (size_t i = 0; i < count; ++i) to[i] = to[i] * 31 + (from[i] ^ to[i / 2 * 2]);
  return 0;
}

void reduces_by_the_caller(rank_run* run) {
  Both both;
  join_both(run, both);
  gsel_op op = 0;
  rank_ok(run, gsel_op_create(gsel_str_from("test.chains"), 2, chains, nullptr, nullptr, &op, &err), err);
  const auto n = static_cast<uint64_t>(run->world_size);
  for (const uint64_t count : {2, 900, 60000})
    for (const gsel_collective_kind kind :
         {GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_REDUCE, GSEL_COLLECTIVE_REDUCE_SCATTER}) {
      gsel_collective call = allreduce_of(GSEL_U32, op, count);
      call.kind = kind;
      rank_same(run, both, call, numbers(GSEL_U32, count * n, static_cast<uint64_t>(run->rank) + 3), count * 4);
    }
  gsel_op_free(op);
}

// Messages round a ring and collectives of both lengths, together; and a request that is started again and again.
void groups_calls(rank_run* run) {
  Both both;
  join_both(run, both);
  const int32_t n = run->world_size;
  const auto count = static_cast<uint64_t>(20000);
  std::vector<int32_t> out(count, run->rank), in(count, -1), sum(count), one = {run->rank}, most = {-1};
  gsel_collective sends = GSEL_COLLECTIVE_INIT, receives = GSEL_COLLECTIVE_INIT;
  sends.kind = GSEL_COLLECTIVE_SEND, receives.kind = GSEL_COLLECTIVE_RECV;
  sends.dtype = receives.dtype = GSEL_I32;
  sends.count = receives.count = count;
  sends.root = (run->rank + 1) % n, receives.root = (run->rank + n - 1) % n;
  sends.send = out.data(), receives.recv = in.data();
  gsel_collective adds = allreduce_of(GSEL_I32, GSEL_SUM, count), finds = allreduce_of(GSEL_I32, GSEL_MAX, 1);
  adds.send = out.data(), adds.recv = sum.data();
  finds.send = one.data(), finds.recv = most.data();
  gsel_comm* const comms[] = {both.hosts, both.hosts, both.hosts, both.hosts};
  const gsel_collective* const calls[] = {&receives, &adds, &sends, &finds};
  for (int32_t turn = 0; turn < 4; ++turn) {
    std::fill(in.begin(), in.end(), -1);
    most = {-1};
    if (turn % 2 == 0) {
      rank_ok(run, gsel_group_run(comms, calls, 4, &err), err);
    } else {
      gsel_request* request = nullptr;
      rank_ok(run, gsel_group_start(both.hosts, calls, 4, &request, &err), err);
      rank_ok(run, gsel_request_wait(request, &err), err);
      gsel_request_free(request);
    }
    rank_check(run, in == std::vector<int32_t>(count, receives.root));
    rank_check(run, sum == std::vector<int32_t>(count, n * (n - 1) / 2) && most[0] == n - 1);
  }
  gsel_request* again = nullptr;
  rank_ok(run, gsel_request_create(both.hosts, &adds, &again, &err), err);
  for (int32_t turn = 0; turn < 5; ++turn) {
    std::fill(out.begin(), out.end(), turn + run->rank);
    rank_ok(run, gsel_request_start(again, &err), err);
    rank_ok(run, gsel_request_wait(again, &err), err);
    rank_check(run, sum[count - 1] == n * (n - 1) / 2 + n * turn);
  }
  gsel_request_free(again);
}

void test_every_type_and_operation_gives_the_bits_of_one_host(void**) {
  for (const char* hosts : {"0011", "01", "aabb", "0111", "0101"}) on_hosts(hosts, reduces_every_type);
}
void test_operations_of_the_caller_give_the_bits_of_one_host(void**) {
  for (const char* hosts : {"0011", "01", "aabb", "0101", "0111", "abbb"}) on_hosts(hosts, reduces_by_the_caller);
}
void test_groups_and_requests_pass_between_hosts(void**) {
  for (const char* hosts : {"0011", "01", "0100"}) on_hosts(hosts, groups_calls);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_every_type_and_operation_gives_the_bits_of_one_host),
      cmocka_unit_test(test_operations_of_the_caller_give_the_bits_of_one_host),
      cmocka_unit_test(test_groups_and_requests_pass_between_hosts),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
