// fake/cuda/test_plugins.cc: the plugins `cuda` and `nccl` before anything is opened, and `cuda` as it is built where
// there is no toolkit. Each in a process of its own, since a double is loaded once.
#include <gsel/transport.h>

#include <cstring>
#include <string>

#include "base/foreign.h"
#include "fake/cuda/children.h"
#include "support/fake_cuda.h"

namespace {

void* open_first(const gsel_device_v1& table) {
  void* ctx = nullptr;
  gsel_error* err = nullptr;
  gsel_device_options options{};
  options.struct_size = sizeof options;
  if (table.open(&gsel::host_services(), &options, &ctx, &err) == GSEL_OK) return ctx;
  fprintf(stderr, "%s\n", gsel_error_message(err).data);
  _exit(1);
}

// Whether a plugin can be used here is asked for in programs that never use it, and fork afterwards.
void test_a_probe_does_not_start_the_driver(void**) {
  expect({}, "score 100, 0 calls, then some", [] {
    const FakeCuda cuda;
    char reason[256] = "";
    const int score = cuda.plugin->probe(&gsel::host_services(), reason, sizeof reason);
    const auto calls = reinterpret_cast<int (*)()>(dlsym(cuda.driver, "fake_cuda_calls"));
    fprintf(stderr, "score %d, %d calls, ", score, calls());
    open_first(*cuda.table);
    fprintf(stderr, "then %s", calls() > 0 ? "some" : "none");
  });
}

// A transport is described before a communicator has a device.
void test_a_transport_is_probed_without_nccl_and_described_without_a_device(void**) {
  expect({}, "score 100, 0 calls, then 22809 and 0 of the driver", [] {
    void* driver = open_module("/tests/fixtures/fake_libcuda.so", RTLD_GLOBAL);
    void* nccl = open_module("/tests/fixtures/fake_libnccl.so", RTLD_GLOBAL);
    const auto of_driver = reinterpret_cast<int (*)()>(dlsym(driver, "fake_cuda_calls"));
    const auto of_nccl = reinterpret_cast<int (*)()>(dlsym(nccl, "fake_nccl_calls"));
    const auto* plugin = static_cast<const gsel_plugin_v1*>(
        dlsym(open_module("/lib/gsel/plugins-1/nccl.so", RTLD_LOCAL), "gsel_plugin_v1"));
    const auto& table = *static_cast<const gsel_transport_v2*>(plugin->table);
    char reason[256] = "";
    const int score = plugin->probe(&gsel::host_services(), reason, sizeof reason);
    fprintf(stderr, "score %d, %d calls, ", score, of_nccl());
    void* ctx = nullptr;
    gsel_error* err = nullptr;
    gsel_transport_description found{};
    found.struct_size = sizeof found;
    if (table.open(&gsel::host_services(), &ctx, &err) || table.describe(ctx, &found, &err)) _exit(1);
    fprintf(stderr, "then %d and %d of the driver", found.version, of_driver());
    table.close(ctx);
  });
}

// What `gsel plugins` says of the library at hand.
void test_newer_functions_are_found_one_by_one(void**) {
  const struct {
    const char *file, *version, *note;
  } all[] = {{"early", "22602",
              "NCCL 2.26.2: uses none of its newer functions; lacks symmetric windows (2.27), shrink (2.27), "
              "grow (2.29), suspend (2.29.7), put (2.29)\n"},
             {"", "22809",
              "NCCL 2.28.9: uses symmetric windows; has shrink, which gsel does not use; lacks grow (2.29), "
              "suspend (2.29.7), put (2.29)\n"},
             {"new", "22907",
              "NCCL 2.29.7: uses symmetric windows; has shrink, grow, suspend, put, which gsel does not use\n"}};
  for (const auto& one : all)
    expect({{"GSEL_FAKE_NCCL_VERSION", one.version}}, one.note, [&one] {
      const std::string file = one.file;
      open_module("/tests/fixtures/fake_libcuda.so", RTLD_GLOBAL);
      open_module(("/tests/fixtures/fake_" + file + (file.empty() ? "" : "_") + "libnccl.so").c_str(), RTLD_GLOBAL);
      const auto* plugin = static_cast<const gsel_plugin_v1*>(
          dlsym(open_module("/lib/gsel/plugins-1/nccl.so", RTLD_LOCAL), "gsel_plugin_v1"));
      fprintf(stderr, "%s\n", static_cast<const gsel_transport_v2*>(plugin->table)->library_note());
    });
}

gsel_status exchange_alone(void*, const void* mine, void* all, uint64_t bytes, gsel_error**) {
  memcpy(all, mine, bytes);
  return GSEL_OK;
}

// A rank by itself, joined through the table alone.
void test_a_link_gives_the_communicator_of_nccl(void**) {
  expect({}, "state 0, then left", [] {
    const FakeCuda cuda;
    void* nccl = open_module("/tests/fixtures/fake_libnccl.so", RTLD_GLOBAL);
    const auto* plugin = static_cast<const gsel_plugin_v1*>(
        dlsym(open_module("/lib/gsel/plugins-1/nccl.so", RTLD_LOCAL), "gsel_plugin_v1"));
    const auto& table = *static_cast<const gsel_transport_v2*>(plugin->table);
    gsel_control_v1 control{};
    control.struct_size = sizeof control;
    control.exchange = exchange_alone;
    control.look = [](void*, gsel_error**) { return gsel_status{GSEL_OK}; };
    gsel_join join{};
    join.struct_size = sizeof join;
    join.world_size = 1;
    join.timeout_s = join.join_timeout_s = 20;
    join.device_table = cuda.table;
    join.device_ctx = open_first(*cuda.table);
    join.control = &control;
    void* ctx = nullptr;
    gsel_link* link = nullptr;
    gsel_error* err = nullptr;
    if (table.open(&gsel::host_services(), &ctx, &err) || table.link_join(ctx, &join, &link, &err)) _exit(1);
    const auto state_of = reinterpret_cast<int (*)(void*, int*)>(dlsym(nccl, "ncclCommGetAsyncError"));
    int state = 7;
    if (state_of(table.link_native(link), &state)) _exit(2);
    fprintf(stderr, "state %d, ", state);
    table.link_leave(link);
    fprintf(stderr, "then left");
  });
}

// Communicators need memory and streams; a kernel says what is missing.
void test_cuda_without_a_toolkit_has_all_but_kernels(void**) {
  expect({}, "kernel gsel_scale_f32 on device 0: gsel was built without a CUDA toolkit", [] {
    open_module("/tests/fixtures/fake_libcuda.so", RTLD_GLOBAL);
    const auto* plugin = static_cast<const gsel_plugin_v1*>(
        dlsym(open_module("/tests/fixtures/without_kernels/cuda.so", RTLD_LOCAL), "gsel_plugin_v1"));
    const auto& d = *static_cast<const gsel_device_v1*>(plugin->table);
    void *ctx = open_first(d), *memory = nullptr;
    gsel_stream* stream = nullptr;
    gsel_error* err = nullptr;
    int x = 7;
    if (d.stream_create(ctx, 0, &stream, &err) || d.alloc(ctx, GSEL_MEMORY_DEVICE, sizeof x, &memory, &err)) _exit(1);
    if (d.zero(ctx, memory, sizeof x, stream, &err)) _exit(2);
    if (d.copy(ctx, &x, memory, sizeof x, GSEL_COPY_TO_HOST, stream, &err)) _exit(3);
    if (d.stream_wait(ctx, stream, &err) || x != 0) _exit(4);
    if (d.scale(ctx, memory, GSEL_F32, 2, 1, stream, &err) != GSEL_ERR_UNSUPPORTED) _exit(5);
    fprintf(stderr, "%s\n", gsel_error_message(err).data);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_probe_does_not_start_the_driver),
      cmocka_unit_test(test_a_transport_is_probed_without_nccl_and_described_without_a_device),
      cmocka_unit_test(test_newer_functions_are_found_one_by_one),
      cmocka_unit_test(test_a_link_gives_the_communicator_of_nccl),
      cmocka_unit_test(test_cuda_without_a_toolkit_has_all_but_kernels),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
