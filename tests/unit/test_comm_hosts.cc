// unit/test_comm_hosts.cc: communicators whose ranks are told that they are on several hosts. What a call gives is
// compared, bit for bit, with what it gives to the same ranks on one host.
#include "support/hosts.h"

using namespace gsel::test;

namespace {

void reduces_alike(rank_run* run) {
  Both both;
  join_both(run, both);
  const auto n = static_cast<uint64_t>(run->world_size);
  for (const uint64_t count : {0, 1, 7, 300, 1023, 4501, 70001})
    for (const gsel_dtype dtype :
         {GSEL_F32, GSEL_BF16, GSEL_F16, GSEL_F8E4M3, GSEL_F8E5M2, GSEL_I32, GSEL_F64, GSEL_U8})
      for (const gsel_op op : {GSEL_SUM, GSEL_MAX, GSEL_AVG, GSEL_PROD, GSEL_SCALED_SUM})
        for (const gsel_collective_kind kind :
             {GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_REDUCE, GSEL_COLLECTIVE_REDUCE_SCATTER}) {
          const bool integer = dtype == GSEL_I32 || dtype == GSEL_U8;
          if (integer && op == GSEL_SCALED_SUM) continue;
          const bool whole = kind == GSEL_COLLECTIVE_ALLREDUCE && (dtype == GSEL_F32 || dtype == GSEL_BF16);
          if (count > 5000 && (dtype == GSEL_F64 || (op != GSEL_SUM && !whole))) continue;
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

// Pieces of several segments, and lanes of several chunks.
void reduces_much_alike(rank_run* run) {
  Both both;
  join_both(run, both);
  const auto n = static_cast<uint64_t>(run->world_size);
  const uint64_t count = 700001;
  for (const gsel_dtype dtype : {GSEL_F32, GSEL_BF16, GSEL_I32})
    for (const gsel_collective_kind kind :
         {GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_REDUCE, GSEL_COLLECTIVE_REDUCE_SCATTER}) {
      gsel_collective call = GSEL_COLLECTIVE_INIT;
      call.kind = kind;
      call.dtype = dtype;
      call.op = GSEL_SUM;
      call.root = run->world_size - 1;
      const bool is_scattered = kind == GSEL_COLLECTIVE_REDUCE_SCATTER;
      call.count = is_scattered ? count / n : count;
      const auto send = numbers(dtype, is_scattered ? call.count * n : count, static_cast<uint64_t>(run->rank));
      rank_same(run, both, call, send, call.count * gsel_dtype_bytes(dtype));
    }
}

// Between so many hosts ways are chosen by their cost.
void reduces_on_many_alike(rank_run* run) {
  Both both;
  join_both(run, both);
  const auto n = static_cast<uint64_t>(run->world_size);
  for (const uint64_t count : {1, 63, 3000, 90001, 1700001})
    for (const gsel_dtype dtype : {GSEL_F32, GSEL_F16, GSEL_U8})
      for (const gsel_op op : {GSEL_SUM, GSEL_MAX, GSEL_SCALED_SUM})
        for (const gsel_collective_kind kind :
             {GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_REDUCE, GSEL_COLLECTIVE_REDUCE_SCATTER}) {
          const bool is_scattered = kind == GSEL_COLLECTIVE_REDUCE_SCATTER;
          if ((dtype == GSEL_U8 && op == GSEL_SCALED_SUM) || (count > 90001 && (op != GSEL_SUM || is_scattered)))
            continue;
          gsel_collective call = GSEL_COLLECTIVE_INIT;
          call.kind = kind;
          call.dtype = dtype;
          call.op = op;
          call.root = kind == GSEL_COLLECTIVE_REDUCE ? static_cast<int32_t>(count % n) : 0;
          call.count = is_scattered ? (count + n - 1) / n : count;
          call.factor = 0.5 + run->rank;
          const uint64_t elements = is_scattered ? call.count * n : count;
          const auto send = numbers(dtype, elements, static_cast<uint64_t>(run->rank) + count);
          rank_same(run, both, call, send, call.count * gsel_dtype_bytes(dtype));
        }
}

// The ways of ranks in each of these places are those that the comparisons are to try.
void explains(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  const char* const hosts = static_cast<const Job*>(run->user)->hosts;
  const struct {
    const char* hosts;
    gsel_collective_kind kind;
    gsel_dtype dtype;
    uint64_t count;
    const char* way;
  } rows[] = {{"0111", GSEL_COLLECTIVE_ALLREDUCE, GSEL_F32, 70001, "chain"},
              {"0111", GSEL_COLLECTIVE_REDUCE, GSEL_I32, 70001, "two-level"},
              {"0111", GSEL_COLLECTIVE_ALLREDUCE, GSEL_F32, 30000, "chain"},
              {"0111", GSEL_COLLECTIVE_BROADCAST, GSEL_I32, 70001, "lanes"},
              {"0111", GSEL_COLLECTIVE_ALLTOALL, GSEL_I32, 70001, "slices"},
              {"0101", GSEL_COLLECTIVE_ALLREDUCE, GSEL_F32, 70001, "host-slices"},
              {"0101", GSEL_COLLECTIVE_ALLREDUCE, GSEL_F32, 30000, "direct"},
              {"0101", GSEL_COLLECTIVE_REDUCE_SCATTER, GSEL_U8, 700001, "two-level"},
              {"0101", GSEL_COLLECTIVE_ALLGATHER, GSEL_F32, 70001, "lanes"},
              {"000012345678", GSEL_COLLECTIVE_ALLREDUCE, GSEL_F32, 63, "at-first"},
              {"000012345678", GSEL_COLLECTIVE_ALLREDUCE, GSEL_F16, 3000, "at-first"},
              {"000012345678", GSEL_COLLECTIVE_REDUCE, GSEL_F32, 90001, "host-slices"},
              {"000012345678", GSEL_COLLECTIVE_ALLREDUCE, GSEL_F32, 1700001, "chain"}};
  for (const auto& row : rows) {
    if (strcmp(row.hosts, hosts) != 0) continue;
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
    call.kind = row.kind;
    call.dtype = row.dtype;
    call.op = GSEL_SUM;
    call.count = row.count;
    const std::vector<char> send(row.count * gsel_dtype_bytes(row.dtype) * static_cast<uint64_t>(run->world_size));
    std::vector<char> recv(send.size());
    call.send = send.data(), call.recv = recv.data();
    rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
    if (strcmp(how.protocol, row.way) != 0) {
      snprintf(run->failure, sizeof run->failure, "%s: kind %d of %d elements: expected %s, got %s", hosts, row.kind,
               static_cast<int>(row.count), row.way, how.protocol);
      return;
    }
    rank_check(run, strstr(how.reason, strcmp(row.way, "at-first") == 0 ? "first rank" : "each") != nullptr ||
                        strcmp(row.way, "lanes") == 0);
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

void test_ways_depend_on_places(void**) {
  for (const char* hosts : {"0111", "0101", "000012345678"}) on_hosts(hosts, explains);
}

void test_collectives_give_the_bits_of_one_host(void**) {
  for (const char* hosts : {"0011", "0101", "01", "0111", "0001", "012", "001112", "010021"}) {
    on_hosts(hosts, reduces_alike);
    on_hosts(hosts, copies_alike);
    on_hosts(hosts, varies_alike);
  }
  for (const char* hosts : {"aabbb", "aabb", "aaabbb", "aaaabbbb", "aabbccdd", "ab", "abab", "abca"})
    on_hosts(hosts, reduces_alike);
}

void test_large_reductions_give_the_bits_of_one_host(void**) {
  for (const char* hosts : {"0011", "0101", "0111", "00110"}) on_hosts(hosts, reduces_much_alike);
}

void test_reductions_on_many_hosts_give_the_bits_of_one_host(void**) {
  for (const char* hosts : {"000012345678", "0123456781", "abcdefghia"}) on_hosts(hosts, reduces_on_many_alike);
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

// Split and dup as requests, at their place among collectives that are under way.
void starts_making(rank_run* run) {
  Both both, made, again;
  join_both(run, both);
  const int32_t colour = run->rank % 2;
  int32_t before = 1, behind = 1;
  gsel_request *first = nullptr, *second = nullptr;
  rank_ok(run, gsel_comm_start_split(both.hosts, colour, -run->rank, &first, &err), err);
  rank_ok(run, gsel_allreduce(both.hosts, &before, &before, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_start_dup(both.hosts, &second, &err), err);
  rank_ok(run, gsel_allreduce(both.hosts, &behind, &behind, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, before == run->world_size && behind == run->world_size);
  rank_ok(run, gsel_request_wait(second, &err), err);
  rank_ok(run, gsel_request_take_comm(second, &again.hosts, &err), err);
  rank_ok(run, gsel_request_wait(first, &err), err);
  rank_ok(run, gsel_request_take_comm(first, &made.hosts, &err), err);
  gsel_request_free(first);
  gsel_request_free(second);
  rank_ok(run, gsel_comm_split(both.host, colour, -run->rank, &made.host, &err), err);
  rank_ok(run, gsel_comm_dup(both.host, &again.host, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.count = 5000;
  const auto send = numbers(GSEL_F32, 5000, static_cast<uint64_t>(run->rank));
  rank_check(run, gsel_comm_rank(made.hosts) == gsel_comm_rank(made.host));
  rank_same(run, made, call, send, 20000);
  rank_same(run, again, call, send, 20000);
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
  for (const char* hosts : {"0011", "0101", "0112"}) on_hosts(hosts, starts_making);
}

void test_calls_are_started(void**) {
  on_hosts("0011", starts);
  on_hosts("01", starts);
}

// ---- what one host knows of another
// ----------------------------------------------------------------------------------

int32_t fails_on_rank_1(void* sum, const void* next, size_t count, gsel_dtype, void* rank) {
  for (size_t i = 0; i < count; ++i) static_cast<float*>(sum)[i] += static_cast<const float*>(next)[i];
  return *static_cast<const int32_t*>(rank) == 1 ? 7 : 0;
}

// Rank 1 fails, and nobody takes it for one that has ended.
void hears_of_a_failing_operation(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  gsel_op op = 0;
  std::vector<float> x(50000, 1);
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_op_create(gsel_str_from("moody"), 1, fails_on_rank_1, &run->rank, nullptr, &op, &err), err);
  rank_fails(run, gsel_allreduce(comm, x.data(), x.data(), x.size(), GSEL_F32, op, &err), err, GSEL_ERR_CALLBACK,
             "rank 1 on ", 1);
  gsel_comm_free(comm);
  gsel_op_free(op);
}

// Rank 0 waits for a message of rank 1, which waits for the rest of a collective that rank 0 has merely started.
void passes_a_message_beside_a_collective(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  for (int32_t round = 0; round < 20; ++round) {
    int32_t x = 1, y = 0;
    if (run->rank == 0) {
      gsel_collective sum = GSEL_COLLECTIVE_INIT;
      gsel_request* request = nullptr;
      sum.kind = GSEL_COLLECTIVE_ALLREDUCE;
      sum.dtype = GSEL_I32;
      sum.op = GSEL_SUM;
      sum.send = sum.recv = &x;
      sum.count = 1;
      rank_ok(run, gsel_comm_start(comm, &sum, &request, &err), err);
      rank_ok(run, gsel_recv(comm, &y, 1, GSEL_I32, 1, &err), err);
      rank_ok(run, gsel_request_wait(request, &err), err);
      gsel_request_free(request);
      rank_check(run, y == round);
    } else {
      if (run->rank == 2) usleep(2000);  // so that the ranks of the other host wait
      rank_ok(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
      if (run->rank == 1) rank_ok(run, gsel_send(comm, &round, 1, GSEL_I32, 0, &err), err);
    }
    rank_check(run, x == run->world_size);
  }
  gsel_comm_free(comm);
}

void test_a_failing_operation_is_told_to_all_hosts(void**) {
  on_hosts("0011", hears_of_a_failing_operation);
  on_hosts("012", hears_of_a_failing_operation);
}

void test_a_message_passes_a_started_collective(void**) {
  on_hosts("0011", passes_a_message_beside_a_collective);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_ways_depend_on_places),
      cmocka_unit_test(test_collectives_give_the_bits_of_one_host),
      cmocka_unit_test(test_large_reductions_give_the_bits_of_one_host),
      cmocka_unit_test(test_reductions_on_many_hosts_give_the_bits_of_one_host),
      cmocka_unit_test(test_communicators_are_made_from_one),
      cmocka_unit_test(test_calls_are_started),
      cmocka_unit_test(test_a_failing_operation_is_told_to_all_hosts),
      cmocka_unit_test(test_a_message_passes_a_started_collective),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
