// fake/cuda/test_double.cc: what the double reports, and what the plugin `cuda` makes of a driver that is old, lacks
// names, runs out of memory or fails: each in a process of its own, since a driver is loaded once.
#include <cstring>
#include <string>
#include <vector>

#include "base/foreign.h"
#include "fake/cuda/children.h"
#include "support/fake_cuda.h"

namespace {

void say(gsel_error* err) {
  fprintf(stderr, "%s\n", err ? gsel_error_message(err).data : "no error");
}

struct Opened {
  FakeCuda cuda;
  const gsel_device_v1& d = *cuda.table;
  void* ctx = nullptr;
  gsel_error* err = nullptr;
  gsel_stream *first = nullptr, *second = nullptr;
  void* memory = nullptr;

  Opened() {
    gsel_device_options options{};
    options.struct_size = sizeof options;
    if (d.open(&gsel::host_services(), &options, &ctx, &err)) {
      say(err);
      _exit(0);
    }
    d.stream_create(ctx, 0, &first, &err);
    d.stream_create(ctx, 0, &second, &err);
    d.alloc(ctx, GSEL_MEMORY_DEVICE, 4096, &memory, &err);
  }
  float* floats() const { return static_cast<float*>(memory); }
};

// ---- what the double reports
// --------------------------------------------------------------------------------------------

void test_two_streams_without_an_event_are_reported(void**) {
  expect({}, "no event orders a fill of 4096 bytes", [] {
    Opened o;
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1024, o.second, &o.err);
    say(o.err);
  });
  expect({}, "no error", [] {  // other bytes
    Opened o;
    o.d.zero(o.ctx, o.memory, 2048, o.first, &o.err);
    o.d.scale(o.ctx, o.floats() + 512, GSEL_F32, 2, 512, o.second, &o.err);
    say(o.err);
  });
  expect({}, "no error", [] {  // an event between them
    Opened o;
    gsel_event* event = nullptr;
    o.d.event_create(o.ctx, 0, &event, &o.err);
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    o.d.event_record(o.ctx, event, o.first, &o.err);
    o.d.stream_wait_event(o.ctx, o.second, event, &o.err);
    o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1024, o.second, &o.err);
    say(o.err);
  });
  expect({}, "no error", [] {  // the host between them
    Opened o;
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    o.d.stream_wait(o.ctx, o.first, &o.err);
    o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1024, o.second, &o.err);
    say(o.err);
  });
}

// Recorded before the work that it was to stand behind.
void test_an_event_that_was_recorded_too_early_orders_nothing(void**) {
  expect({}, "no event orders", [] {
    Opened o;
    gsel_event* event = nullptr;
    o.d.event_create(o.ctx, 0, &event, &o.err);
    o.d.event_record(o.ctx, event, o.first, &o.err);
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    o.d.stream_wait_event(o.ctx, o.second, event, &o.err);
    o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1024, o.second, &o.err);
    say(o.err);
  });
}

void test_the_host_cannot_touch_device_memory(void**) {
  const Ended ended = in_child({}, [] {
    Opened o;
    volatile float x = o.floats()[3];
    (void)x;
  });
  assert_false(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 0);
  assert_non_null(strstr(ended.text.c_str(), "the host touched device memory"));
}

void test_nothing_has_run_before_somebody_waits(void**) {
  expect({}, "before 7, after 0", [] {
    Opened o;
    int x = 7;
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    o.d.copy(o.ctx, &x, o.memory, sizeof x, GSEL_COPY_TO_HOST, o.first, &o.err);
    const int before = x;
    o.d.stream_wait(o.ctx, o.first, &o.err);
    fprintf(stderr, "before %d, after %d\n", before, x);
  });
}

void test_memory_is_used_within_its_bounds_and_its_life(void**) {
  expect({}, "goes 4 bytes past the end of allocation", [] {
    Opened o;
    o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1025, o.first, &o.err);
    say(o.err);
  });
  expect({}, "is freed while a fill of 4096 bytes", [] {
    Opened o;
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    o.d.free(o.ctx, o.memory);
    say(o.err);
  });
  expect({}, "touches freed memory", [] {
    Opened o;
    o.d.free(o.ctx, o.memory);
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    say(o.err);
  });
}

// ---- what the plugin makes of a driver
// ----------------------------------------------------------------------------------

void test_a_driver_that_is_too_old_is_named(void**) {
  for (const char* name : {"cuStreamGetCtx", "cuMemcpy2DAsync", "cuInit"})
    expect({{"GSEL_FAKE_CUDA_LACKS", name}},
           (std::string("libcuda.so.1 has no ") + name + "; expected a driver of version 525").c_str(), [] {
             const FakeCuda cuda;
             char reason[256] = "";
             if (cuda.plugin->probe(&gsel::host_services(), reason, sizeof reason) == 0)
               fprintf(stderr, "%s\n", reason);
           });
  expect({{"GSEL_FAKE_CUDA_DRIVER", "11000"}}, "libcuda.so.1 has no cuDeviceGetUuid; expected a driver of version 525",
         [] { Opened o; });
  expect({{"GSEL_FAKE_CUDA_DRIVER", "12020"}}, "opened", [] {
    Opened o;
    fprintf(stderr, "opened\n");
  });
}

void test_no_memory_is_an_error_and_no_more(void**) {
  expect({{"GSEL_FAKE_CUDA_OOM", "2"}}, "100 bytes of device memory on device 0: CUDA_ERROR_OUT_OF_MEMORY", [] {
    Opened o;
    void* more = nullptr;
    const gsel_status status = o.d.alloc(o.ctx, GSEL_MEMORY_DEVICE, 100, &more, &o.err);
    if (status == GSEL_ERR_NOMEM && !more) say(o.err);
    if (o.d.alloc(o.ctx, GSEL_MEMORY_DEVICE, 100, &more, nullptr) != GSEL_OK) _exit(1);
  });
}

// What comes after a failure that ends CUDA names that failure, and nothing hangs.
void test_a_failure_that_ends_cuda_is_remembered(void**) {
  expect({{"GSEL_FAKE_CUDA_STICKY", "2"}}, "an earlier call failed: waiting for a stream on device 0", [] {
    Opened o;
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1024, o.first, &o.err);
    o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1024, o.first, &o.err);
    if (o.d.stream_wait(o.ctx, o.first, &o.err) != GSEL_ERR_DEVICE) _exit(1);
    say(o.err);
    gsel_error* later = nullptr;
    if (o.d.zero(o.ctx, o.memory, 4096, o.first, &later) != GSEL_ERR_STATE) _exit(2);
    say(later);
    o.d.free(o.ctx, o.memory);
    o.d.stream_free(o.ctx, o.first);
    o.d.close(o.ctx);
  });
}

void test_each_failure_that_ends_cuda_is_known_as_such(void**) {
  for (const char* error : {"214", "220", "226", "700", "702", "709", "710", "714", "719", "721"})
    expect({{"GSEL_FAKE_CUDA_STICKY", std::string("1:") + error}}, "only a new process can use the device", [] {
      Opened o;
      o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1024, o.first, &o.err);
      if (o.d.stream_wait(o.ctx, o.first, &o.err) != GSEL_ERR_DEVICE) _exit(1);
      say(o.err);
      gsel_error* later = nullptr;
      if (o.d.zero(o.ctx, o.memory, 4096, o.first, &later) != GSEL_ERR_STATE) _exit(2);
    });
}

// Memory and streams need no kernels, and neither do calls of NCCL.
void test_a_device_opens_without_kernels_for_it(void**) {
  for (const char* error : {"209", "222"})
    expect({{"GSEL_FAKE_CUDA_IMAGE", error}, {"GSEL_FAKE_CUDA_DRIVER", "12040"}},
           "kernel gsel_scale_f32 on device 0: loading kernels", [] {
             Opened o;
             int x = 7;
             if (o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err)) _exit(1);
             if (o.d.copy(o.ctx, &x, o.memory, sizeof x, GSEL_COPY_TO_HOST, o.first, &o.err)) _exit(2);
             if (o.d.stream_wait(o.ctx, o.first, &o.err) || x != 0) _exit(3);
             if (o.d.scale(o.ctx, o.memory, GSEL_F32, 2, 1024, o.first, &o.err) != GSEL_ERR_UNSUPPORTED) _exit(4);
             say(o.err);
             if (!strstr(gsel_error_message(o.err).data,
                         "the driver is one for CUDA 12.4, the kernels were built with CUDA "))
               _exit(5);
           });
}

void test_kernels_are_loaded_once_for_a_device(void**) {
  expect({}, "1 loaded", [] {
    Opened o;
    Opened again;
    const auto loads = reinterpret_cast<int (*)()>(dlsym(o.cuda.driver, "fake_cuda_loads"));
    o.d.close(o.ctx);
    if (again.d.scale(again.ctx, again.memory, GSEL_F32, 2, 1024, again.first, &again.err)) _exit(1);
    fprintf(stderr, "%d loaded", loads());
  });
}

void test_a_stream_of_another_device_is_refused(void**) {
  expect({}, "belongs to another device than device 0", [] {
    Opened o;
    gsel_device_options options{};
    options.struct_size = sizeof options;
    options.ordinal = 1;
    void* other = nullptr;
    gsel_stream *theirs = nullptr, *imported = nullptr;
    if (o.d.open(&gsel::host_services(), &options, &other, &o.err)) _exit(1);
    if (o.d.stream_create(other, 0, &theirs, &o.err)) _exit(2);
    void* native = o.d.stream_native(other, theirs);
    if (o.d.stream_import(other, native, &imported, &o.err)) _exit(3);  // its own device takes it
    if (o.d.stream_import(o.ctx, native, &imported, &o.err) != GSEL_ERR_ARG) _exit(4);
    say(o.err);
  });
}

// Also by calls that fail: a program's own context is current again behind each.
void test_what_was_current_is_current_again(void**) {
  expect({}, "0 0 0", [] {
    Opened o;
    const int opened = o.cuda.current();
    o.d.zero(o.ctx, o.memory, 4096, o.first, &o.err);
    o.d.stream_wait(o.ctx, o.first, &o.err);
    const int worked = o.cuda.current();
    gsel_error* err = nullptr;
    if (o.d.cast(o.ctx, o.memory, GSEL_I8, o.memory, GSEL_F32, 1, nullptr, &err) == GSEL_OK) _exit(1);
    fprintf(stderr, "%d %d %d\n", opened, worked, o.cuda.current());
  });
}

void test_a_uuid_is_compared(void**) {
  expect({}, "is GPU-11111111-1111-1111-1111-111111111111: compare CUDA_VISIBLE_DEVICES", [] {
    const FakeCuda cuda;
    gsel_device_options options{};
    options.struct_size = sizeof options;
    options.uuid = GSEL_STR("GPU-22222222-1111-1111-1111-111111111111");
    void* ctx = nullptr;
    gsel_error* err = nullptr;
    if (cuda.table->open(&gsel::host_services(), &options, &ctx, &err) != GSEL_ERR_NO_DEVICES) _exit(1);
    say(err);
    options.uuid = GSEL_STR("MIG-11111111-1111-1111-1111-111111111111");
    if (cuda.table->open(&gsel::host_services(), &options, &ctx, &err) != GSEL_OK) _exit(2);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_two_streams_without_an_event_are_reported),
      cmocka_unit_test(test_an_event_that_was_recorded_too_early_orders_nothing),
      cmocka_unit_test(test_the_host_cannot_touch_device_memory),
      cmocka_unit_test(test_nothing_has_run_before_somebody_waits),
      cmocka_unit_test(test_memory_is_used_within_its_bounds_and_its_life),
      cmocka_unit_test(test_a_driver_that_is_too_old_is_named),
      cmocka_unit_test(test_no_memory_is_an_error_and_no_more),
      cmocka_unit_test(test_a_failure_that_ends_cuda_is_remembered),
      cmocka_unit_test(test_each_failure_that_ends_cuda_is_known_as_such),
      cmocka_unit_test(test_a_device_opens_without_kernels_for_it),
      cmocka_unit_test(test_kernels_are_loaded_once_for_a_device),
      cmocka_unit_test(test_a_stream_of_another_device_is_refused),
      cmocka_unit_test(test_what_was_current_is_current_again),
      cmocka_unit_test(test_a_uuid_is_compared),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
