// conformance/test_transport.cc: what any control and its backend must do, asked through comm/interface/control.h and
// comm/interface/backend.h only: collectives on streams, failures that show at waits, with ranks as threads. Those of
// one host are the ones at hand.
#include <cstring>
#include <vector>

#include "comm/shm/endpoint.h"
#include "device/device.h"
#include "device/host/table.h"
#include "support/ranks.h"
#include "support/reference.h"

namespace {

const gsel_device_v1* device;
void* device_ctx;

int set_up(void**) {
  gsel_error* err = nullptr;
  gsel_device_options options{};
  options.struct_size = sizeof options;
  device = &gsel::host_device_table();
  return device->open(nullptr, &options, &device_ctx, &err);
}

int tear_down(void**) {
  device->close(device_ctx);
  return 0;
}

gsel_collective sum_call(const void* send, void* recv, uint64_t count) {
  gsel_collective call{};
  call.struct_size = sizeof call;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.root = -1;
  call.send = send;
  call.recv = recv;
  call.count = count;
  return call;
}

std::unique_ptr<gsel::Control> joined(const rank_run* run) {
  gsel::JoinOptions join{};
  join.rank = run->rank;
  join.world_size = run->world_size;
  join.id = run->id;
  join.timeout_s = join.join_timeout_s = 60;
  return gsel::shm::join(join);
}

// Sums on a stream behind other work; the mismatch at the end shows at the waits, and what came behind it is skipped.
void sums_on_a_stream(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_stream* stream = nullptr;
  gsel_event* event = nullptr;
  const auto control = joined(run);
  rank_ok(run, device->stream_create(device_ctx, 0, &stream, &err), err);
  rank_ok(run, device->event_create(device_ctx, GSEL_EVENT_TIMING, &event, &err), err);
  std::vector<float> x(70000, 1.0f);
  for (int i = 0; i < 4; ++i) {
    const gsel_collective call = sum_call(x.data(), x.data(), i % 2 ? 70000 : 3);
    rank_ok(run, device->scale(device_ctx, x.data(), GSEL_F32, 2, x.size(), stream, &err), err);
    control->host().run(call, stream);
  }
  rank_ok(run, device->stream_wait(device_ctx, stream, &err), err);
  const float n = static_cast<float>(run->world_size);
  rank_check(run, x[0] == 16 * n * n * n * n && x[69999] == 16 * n * n);
  rank_check(run, control->counts(GSEL_COLLECTIVE_ALLREDUCE).calls == 4);
  const gsel_collective bad = sum_call(x.data(), x.data(), run->rank == 0 ? 1 : 2);
  control->host().run(bad, stream);
  rank_ok(run, device->zero(device_ctx, x.data(), 280000, stream, &err), err);
  rank_ok(run, device->event_record(device_ctx, event, stream, &err), err);
  rank_fails(run, device->event_wait(device_ctx, event, &err), err, GSEL_ERR_MISMATCH,
             "rank 0 called allreduce(count 1", -1);
  rank_fails(run, device->stream_wait(device_ctx, stream, &err), err, GSEL_ERR_MISMATCH, "make the calls alike", -1);
  rank_check(run, x[69999] == 16 * n * n);
  device->event_free(device_ctx, event);
  device->stream_free(device_ctx, stream);
}

void test_collectives_run_on_streams_and_failures_show_at_waits(void**) {
  as_threads(2, sums_on_a_stream, nullptr);
  as_threads(4, sums_on_a_stream, nullptr);
}

void reduces_every_type(rank_run* run) {
  const auto control = joined(run);
  constexpr size_t kCount = 1003;
  std::vector<uint64_t> x(kCount), expected(kCount);
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_F8E5M2; ++dtype)
    for (gsel_op op = GSEL_SUM; op <= (dtype <= GSEL_U64 ? GSEL_BXOR : GSEL_AVG); ++op) {
      gsel_collective call = sum_call(x.data(), x.data(), kCount);
      call.dtype = dtype;
      call.op = op;
      reference_fill(dtype, run->rank, x.data(), 0, kCount);
      reference_reduce(dtype, op, run->world_size, expected.data(), kCount);
      control->host().run(call, nullptr);
      rank_check(run, std::memcmp(x.data(), expected.data(), kCount * gsel_dtype_bytes(dtype)) == 0);
    }
}

void test_every_type_and_operation_is_reduced_in_rank_order(void**) {
  as_threads(3, reduces_every_type, nullptr);
}

void aborts_a_stream(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_stream* stream = nullptr;
  const auto control = joined(run);
  float x = 1;
  rank_ok(run, device->stream_create(device_ctx, 0, &stream, &err), err);
  const gsel_collective call = sum_call(&x, &x, 1);
  if (run->rank == 1) control->abort("enough");
  control->host().run(call, stream);
  rank_fails(run, device->stream_wait(device_ctx, stream, &err), err, GSEL_ERR_ABORTED, "enough", 1);
  device->stream_free(device_ctx, stream);
}

void test_an_abort_ends_collectives_on_streams(void**) {
  as_threads(3, aborts_a_stream, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_collectives_run_on_streams_and_failures_show_at_waits),
      cmocka_unit_test(test_every_type_and_operation_is_reduced_in_rank_order),
      cmocka_unit_test(test_an_abort_ends_collectives_on_streams),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
