// fake/cuda/test_rocm.cc: the plugins `rocm` and `rccl` on the double of AMD's libraries: what is not as with NVIDIA's.
// Each in a process of its own, since a double is loaded once.
#include <gsel/transport.h>

#include <cstring>

#include "base/foreign.h"
#include "fake/cuda/children.h"
#include "support/fake_cuda.h"

namespace {

void* open_device(const gsel_device_v1& table, int32_t ordinal, const char* uuid = nullptr) {
  void* ctx = nullptr;
  gsel_error* err = nullptr;
  gsel_device_options options{};
  options.struct_size = sizeof options;
  options.ordinal = ordinal;
  if (uuid) options.uuid = {uuid, GSEL_NUL};
  if (table.open(&gsel::host_services(), &options, &ctx, &err) == GSEL_OK) return ctx;
  fprintf(stderr, "%s\n", gsel_error_message(err).data);
  return nullptr;
}

gsel_device_description described(const gsel_device_v1& table, void* ctx) {
  gsel_device_description device{};
  device.struct_size = sizeof device;
  gsel_error* err = nullptr;
  if (table.describe(ctx, &device, &err)) _exit(1);
  return device;
}

// The name of gsel's inventory, in which ranks are given their devices.
void test_a_device_has_the_uuid_of_the_inventory(void**) {
  expect({}, "type 10, GPU-2222222222222222, device 1", [] {
    const FakeHip hip;
    const gsel_device_v1& table = *hip.rocm.table;
    const gsel_device_description one = described(table, open_device(table, 1));
    fprintf(stderr, "type %d, %s, ", one.dlpack_type, one.uuid.data);
    void* same = open_device(table, GSEL_DEVICE_BY_UUID, "GPU-2222222222222222");
    fprintf(stderr, "device %d", described(table, same).ordinal);
  });
}

void test_an_unknown_uuid_names_the_masks_of_amd(void**) {
  expect({}, "this process sees GPU-1111111111111111", [] {
    const FakeHip hip;
    open_device(*hip.rocm.table, GSEL_DEVICE_BY_UUID, "GPU-4711471147114711");
  });
  expect({}, "compare ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES with what gsel resolve chose", [] {
    const FakeHip hip;
    open_device(*hip.rocm.table, GSEL_DEVICE_BY_UUID, "GPU-4711471147114711");
  });
}

// The program's current device is what it was, also after calls that fail, and hipGetLastError has the program's
// errors.
void test_calls_leave_the_thread_as_it_was(void**) {
  expect({}, "current 2, error 0, not done; current 2, error 0, failed", [] {
    const FakeHip hip;
    const gsel_device_v1& table = *hip.rocm.table;
    const auto current = hip.function<int()>("fake_hip_current");
    const auto error = hip.function<int()>("hipPeekAtLastError");
    void* ctx = open_device(table, 1);
    hip.function<int(int)>("hipSetDevice")(2);
    gsel_stream* stream = nullptr;
    gsel_event* event = nullptr;
    gsel_error* err = nullptr;
    void* memory = nullptr;
    if (table.stream_create(ctx, 0, &stream, &err) || table.event_create(ctx, 0, &event, &err)) _exit(1);
    if (table.alloc(ctx, GSEL_MEMORY_DEVICE, 64, &memory, &err) || table.zero(ctx, memory, 64, stream, &err)) _exit(2);
    if (table.event_record(ctx, event, stream, &err)) _exit(3);
    int32_t done = 0;
    if (table.event_done(ctx, event, &done, &err)) _exit(4);
    fprintf(stderr, "current %d, error %d, %s; ", current(), error(), done ? "done" : "not done");
    const gsel_status status = table.alloc(ctx, GSEL_MEMORY_DEVICE, uint64_t{1} << 62, &memory, &err);
    fprintf(stderr, "current %d, error %d, %s", current(), error(), status == GSEL_ERR_NOMEM ? "failed" : "?");
  });
}

void test_errors_have_the_names_of_hip(void**) {
  expect({}, "of device memory on device 0: hipErrorOutOfMemory (2)", [] {
    const FakeHip hip;
    void *ctx = open_device(*hip.rocm.table, 0), *memory = nullptr;
    gsel_error* err = nullptr;
    if (hip.rocm.table->alloc(ctx, GSEL_MEMORY_DEVICE, uint64_t{1} << 62, &memory, &err) != GSEL_ERR_NOMEM) _exit(1);
    fprintf(stderr, "%s", gsel_error_message(err).data);
  });
}

// HIP tells 32 bits of the size with the other attributes.
void test_page_locked_memory_has_its_whole_range(void**) {
  expect({}, "kind 2, the range", [] {
    const FakeHip hip;
    const gsel_device_v1& table = *hip.rocm.table;
    void *ctx = open_device(table, 0), *memory = nullptr;
    gsel_error* err = nullptr;
    gsel_memory_info info{};
    info.struct_size = sizeof info;
    const uint64_t bytes = (uint64_t{1} << 32) + 4096;
    if (table.alloc(ctx, GSEL_MEMORY_PINNED, bytes, &memory, &err)) _exit(1);
    if (table.memory_of(ctx, static_cast<char*>(memory) + 100, &info, &err)) _exit(2);
    fprintf(stderr, "kind %d, %s", info.kind, info.base == memory && info.bytes >= bytes ? "the range" : "another");
  });
}

// A stream of another device is refused; the default stream is NULL.
void test_streams_are_told_apart_by_device(void**) {
  expect({}, "own taken, default NULL; an imported stream belongs to another device than device 1", [] {
    const FakeHip hip;
    const gsel_device_v1& table = *hip.rocm.table;
    void *zero = open_device(table, 0), *one = open_device(table, 1);
    gsel_stream *of_one = nullptr, *imported = nullptr, *of_default = nullptr;
    gsel_error* err = nullptr;
    if (table.stream_create(one, 0, &of_one, &err)) _exit(1);
    void* native = table.stream_native(one, of_one);
    if (table.stream_import(one, native, &imported, &err)) _exit(2);
    if (table.stream_import(one, nullptr, &of_default, &err)) _exit(3);
    fprintf(stderr, "own taken, default %s; ", table.stream_native(one, of_default) ? "?" : "NULL");
    gsel_stream* other = nullptr;
    if (table.stream_create(zero, 0, &other, &err)) _exit(4);
    if (table.stream_import(one, table.stream_native(zero, other), &imported, &err) != GSEL_ERR_ARG) _exit(5);
    fprintf(stderr, "%s", gsel_error_message(err).data);
  });
}

// HIP says of a stream that it does not know what CUDA says when it has ended.
void test_an_unknown_stream_ends_nothing(void**) {
  expect({}, "an argument: the context of an imported stream on device 0: hipErrorInvalidHandle (400)", [] {
    const FakeHip hip;
    const gsel_device_v1& table = *hip.rocm.table;
    void* ctx = open_device(table, 0);
    gsel_stream* stream = nullptr;
    gsel_error* err = nullptr;
    int unknown = 0;
    if (table.stream_import(ctx, &unknown, &stream, &err) == GSEL_ERR_ARG) fprintf(stderr, "an argument: ");
    fprintf(stderr, "%s", gsel_error_message(err).data);
    if (table.stream_create(ctx, 0, &stream, &err)) _exit(1);
  });
}

void rccl_describes_itself() {
  open_module("/tests/fixtures/fake_libcuda.so", RTLD_GLOBAL);
  open_module("/tests/fixtures/fake_librccl.so", RTLD_GLOBAL);
  const auto* plugin = static_cast<const gsel_plugin_v1*>(
      dlsym(open_module("/lib/gsel/plugins-1/rccl.so", RTLD_LOCAL), "gsel_plugin_v1"));
  const auto& table = *static_cast<const gsel_transport_v2*>(plugin->table);
  char reason[256] = "";
  fprintf(stderr, "score %d, ", plugin->probe(&gsel::host_services(), reason, sizeof reason));
  void* ctx = nullptr;
  gsel_error* err = nullptr;
  gsel_transport_description found{};
  found.struct_size = sizeof found;
  if (table.open(&gsel::host_services(), &ctx, &err) || table.describe(ctx, &found, &err)) _exit(1);
  fprintf(stderr, "types %#llx, %s, %s", static_cast<unsigned long long>(found.dlpack_types),
          found.flags & GSEL_TRANSPORT_CAPTURE ? "captures" : "no capture",
          found.flags & GSEL_TRANSPORT_LAUNCH_ORDER ? "an order" : "no order");
  fprintf(stderr, "\n%s", table.library_note());
  table.close(ctx);
}

// RCCL's record: no captures, no order of launches and no windows, whatever the program asks NCCL for.
void test_rccl_says_what_it_does_not_promise(void**) {
  expect({{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}}, "score 100, types 0x400, no capture, no order", rccl_describes_itself);
  expect({}, "RCCL 2.28.9: uses none of its newer functions; has symmetric windows, shrink, which gsel does not use; ",
         rccl_describes_itself);
}

void test_without_libraries_the_reasons_name_them(void**) {
  expect({}, "no HIP driver: libamdhip64.so.7", [] {
    const CudaPlugin rocm("/lib/gsel/plugins-1/rocm.so");
    char reason[512] = "";
    if (rocm.plugin->probe(&gsel::host_services(), reason, sizeof reason) == 0) fprintf(stderr, "%s", reason);
  });
  expect({}, "no RCCL: librccl.so.1", [] {
    const auto* plugin = static_cast<const gsel_plugin_v1*>(
        dlsym(open_module("/lib/gsel/plugins-1/rccl.so", RTLD_LOCAL), "gsel_plugin_v1"));
    char reason[512] = "";
    if (plugin->probe(&gsel::host_services(), reason, sizeof reason) == 0) fprintf(stderr, "%s", reason);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_device_has_the_uuid_of_the_inventory),
      cmocka_unit_test(test_an_unknown_uuid_names_the_masks_of_amd),
      cmocka_unit_test(test_calls_leave_the_thread_as_it_was),
      cmocka_unit_test(test_errors_have_the_names_of_hip),
      cmocka_unit_test(test_page_locked_memory_has_its_whole_range),
      cmocka_unit_test(test_streams_are_told_apart_by_device),
      cmocka_unit_test(test_an_unknown_stream_ends_nothing),
      cmocka_unit_test(test_rccl_says_what_it_does_not_promise),
      cmocka_unit_test(test_without_libraries_the_reasons_name_them),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
