// fake/cuda/test_driver.cc: what the double of the driver refuses and reports, asked through its own interface:
// contexts, threads, events, mappings, addresses, captures, errors, and barriers of kernels.
#include <cstdlib>
#include <functional>
#include <thread>

#include "fake/cuda/children.h"
#include "fake/cuda/driver_trial.h"
#include "fake/cuda/shim.h"

namespace {

using namespace fake_cuda;

// ---- contexts, threads, events --------------------------------------------------------------------------------------

void test_the_stream_s_own_context_must_be_current(void**) {
  expect({}, "a call on stream 1 of device 1 while device 0 is current", [] {
    Driver d;
    say(d.cuStreamSynchronize(d.streams[1]));
  });
  expect({}, "400 0 ", [] {
    Driver d;
    say(d.cuStreamSynchronize(d.streams[1]));
    d.cuCtxPushCurrent(d.contexts[1]);
    d.cuStreamSynchronize(d.streams[1]);  // tells of the violation
    say(d.cuStreamSynchronize(d.streams[1]));
  });
}

// Another thread's wait orders nothing for this one.
void test_each_thread_has_a_clock(void**) {
  for (const bool one : {false, true})
    expect({{"GSEL_FAKE_CUDA_CLOCKS", one ? "one" : ""}}, one ? "0 0 done" : "no event orders a fill", [] {
      Driver d;
      Any second = nullptr;
      d.cuStreamCreateWithPriority(&second, 1, 0);
      const Pointer at = d.alloc(64);
      say(d.fill(at, 64));
      std::thread other([&] { d.cuCtxPushCurrent(d.contexts[0]), d.cuStreamSynchronize(d.streams[0]); });
      other.join();
      say(d.cuMemsetD8Async(at, 2, 64, second));
      fprintf(stderr, "done");
    });
}

void test_contexts_end_with_their_last_release(void**) {
  expect({}, "0 709 400 ", [] {
    Driver d;
    const Any stream = d.streams[0];
    say(d.cuDevicePrimaryCtxRelease(0));
    say(d.cuStreamSynchronize(stream));
    d.cuDevicePrimaryCtxRetain(&d.contexts[0], 0);
    d.cuCtxPushCurrent(d.contexts[0]);
    say(d.cuStreamSynchronize(stream));
  });
}

void test_events_belong_to_a_context_and_die_once(void**) {
  expect({}, "0 400 0 fake cuda: a call on an event that was destroyed\n400 ", [] {
    Driver d;
    Any event = nullptr;
    d.cuEventCreate(&event, 2);
    say(d.cuEventRecord(event, d.streams[0]));
    d.cuCtxPushCurrent(d.contexts[1]);
    say(d.cuEventRecord(event, d.streams[1]));
    say(d.cuEventDestroy(event));
    say(d.cuEventQuery(event));
  });
}

// ---- memory ---------------------------------------------------------------------------------------------------------

void test_freeing_waits_for_the_device(void**) {
  expect({}, "0 600 0 0 ", [] {
    Driver d;
    Any event = nullptr;
    const Pointer at = d.alloc(64), other = d.alloc(64);
    d.cuEventCreate(&event, 2);
    d.fill(at, 64);
    d.fill(at, 64);
    d.cuEventRecord(event, d.streams[0]);
    say(0);
    say(d.cuEventQuery(event));
    say(d.cuMemFree(other));
    say(d.cuEventQuery(event));
  });
}

void test_addresses_come_back_when_asked_for(void**) {
  for (const bool again : {true, false})
    expect({{"GSEL_FAKE_CUDA_REUSE", again ? "1" : ""}}, again ? "the same" : "another", [] {
      Driver d;
      const Pointer at = d.alloc(4096);
      d.cuMemFree(at);
      fprintf(stderr, d.alloc(4096) == at ? "the same" : "another");
    });
}

void test_page_locked_memory_is_known_and_gone_when_freed(void**) {
  expect({}, "type 1 size 4096 0 fake cuda: a fill of 64 bytes on stream 2 touches freed memory", [] {
    Driver d;
    void* at = nullptr;
    d.cuMemHostAlloc(&at, 4096, 0);
    int type = 0, names[] = {kAttributeType, kAttributeSize};
    size_t bytes = 0;
    void* values[] = {&type, &bytes};
    d.cuPointerGetAttributes(2, names, values, reinterpret_cast<Pointer>(at) + 5);
    fprintf(stderr, "type %d size %zu ", type, bytes);
    say(d.cuMemFreeHost(at));
    d.fill(reinterpret_cast<Pointer>(at), 64);
  });
  expect_end({}, "", [] {
    Driver d;
    void* at = nullptr;
    d.cuMemHostAlloc(&at, 4096, 0);
    d.cuMemFreeHost(at);
    *static_cast<volatile char*>(at) = 1;
  });
}

// Two segments of a range are one buffer, and cuMemGetAddressRange tells of one.
void test_a_mapping_has_several_segments(void**) {
  expect({}, "0 segment 2 of 8 MiB 0 0 past the end", [] {
    Driver d;
    const Pointer at = d.reserve(8 * kMiB);
    d.map(at, 2 * kMiB, 1);
    d.map(at + 2 * kMiB, 2 * kMiB, 1);
    say(d.fill(at, 4 * kMiB));
    Pointer base = 0;
    size_t bytes = 0, all = 0;
    d.cuMemGetAddressRange(&base, &bytes, at + 3 * kMiB);
    int name = kAttributeSize;
    void* value = &all;
    d.cuPointerGetAttributes(1, &name, &value, at);
    fprintf(stderr, "segment %zu of %zu MiB ", bytes / kMiB, all / kMiB);
    char got = 0;
    d.cuMemcpyAsync(reinterpret_cast<Pointer>(&got), at + 3 * kMiB, 1, d.streams[0]);
    say(d.cuStreamSynchronize(d.streams[0]));
    say(got != 1);
    const Ended ended = in_child({}, [&] { d.fill(at, 4 * kMiB + 1); });
    fprintf(stderr, "%s", ended.text.find("goes 1 bytes past the end") == std::string::npos ? "" : "past the end");
  });
}

void test_a_mapping_is_for_the_devices_that_were_named(void**) {
  expect({}, "which device 1 may not access", [] {
    Driver d;
    const Pointer at = d.reserve(2 * kMiB);
    d.map(at, 2 * kMiB, 1);
    d.fill(at, 64);
    d.cuStreamSynchronize(d.streams[0]);
    d.cuCtxPushCurrent(d.contexts[1]);
    d.fill(at, 64, 1);
  });
  expect({}, "0 0 flags 3 then 0", [] {
    Driver d;
    const Pointer at = d.reserve(2 * kMiB);
    const unsigned long long physical = d.map(at, 2 * kMiB, 2);
    d.fill(at, 64);
    d.cuStreamSynchronize(d.streams[0]);
    d.cuCtxPushCurrent(d.contexts[1]);
    say(d.fill(at, 64, 1));
    say(d.cuStreamSynchronize(d.streams[1]));
    unsigned long long flags = 0, after = 9;
    const Location here{kLocationDevice, 1};
    d.cuMemGetAccess(&flags, &here, at);
    d.cuMemUnmap(at, 2 * kMiB);
    d.cuMemRelease(physical);
    after = d.cuMemGetAccess(&after, &here, at) ? 0 : after;
    fprintf(stderr, "flags %llu then %llu", flags, after);
  });
}

// ---- captures -------------------------------------------------------------------------------------------------------

void test_captures_take_work_and_forbid_waits(void**) {
  expect({}, "0 1 900 2 901 ", [] {
    Driver d;
    int status = 0;
    Any graph = nullptr;
    say(d.cuStreamBeginCapture(d.streams[0], kCaptureGlobal));
    d.cuStreamIsCapturing(d.streams[0], &status);
    say(status);
    say(d.cuStreamSynchronize(d.streams[0]));
    d.cuStreamIsCapturing(d.streams[0], &status);
    say(status);
    say(d.cuStreamEndCapture(d.streams[0], &graph));
  });
  // Work outside a capture comes into it by nothing but its first stream; a try invalidates it.
  expect({}, "0 901 none 905 907 ", [] {
    Driver d;
    Any graph = nullptr, second = nullptr, inside = nullptr, outside = nullptr;
    d.cuStreamCreateWithPriority(&second, 1, 0);
    d.cuEventCreate(&inside, 2);
    d.cuEventCreate(&outside, 2);
    d.cuEventRecord(outside, second);
    const Pointer at = d.alloc(64);
    d.cuStreamBeginCapture(d.streams[0], kCaptureThread);
    say(d.fill(at, 64));
    d.cuEventRecord(inside, d.streams[0]);
    const int isolated = d.cuStreamWaitEvent(d.streams[0], outside, 0), captured = d.cuEventQuery(inside);
    say(d.cuStreamEndCapture(d.streams[0], &graph));
    fprintf(stderr, graph ? "a graph " : "none ");
    say(isolated);
    say(captured);
  });
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

// With the arguments of the recording, as often as it is launched.
void test_a_graph_runs_when_it_is_launched(void**) {
  expect({}, "7 1 7 ", [] {
    Driver d;
    const Pointer at = d.alloc(64);
    d.cuMemsetD8Async(at, 7, 64, d.streams[0]);
    const Any graph = recorded(d, [&] { d.fill(at, 64); });
    say(byte_at(d, at));
    d.cuGraphLaunch(graph, d.streams[0]);
    say(byte_at(d, at));
    d.cuMemsetD8Async(at, 7, 64, d.streams[0]);
    d.cuGraphLaunch(graph, d.streams[0]);
    d.cuMemsetD8Async(at, 7, 64, d.streams[0]);
    say(byte_at(d, at));
    d.cuGraphExecDestroy(graph);
  });
}

// A graph reads pageable memory at each launch.
void test_a_graph_copies_what_is_there_when_it_runs(void**) {
  expect({}, "3 4 ", [] {
    Driver d;
    const Pointer at = d.alloc(64);
    static unsigned char from = 1;
    const Any graph = recorded(d, [&] { d.cuMemcpyAsync(at, reinterpret_cast<Pointer>(&from), 1, d.streams[0]); });
    for (const int byte : {3, 4}) {
      from = static_cast<unsigned char>(byte);
      d.cuGraphLaunch(graph, d.streams[0]);
      say(byte_at(d, at));
    }
  });
}

// A second stream that works between two kernels of the first; without the second wait nothing orders them.
void test_captures_go_over_streams(void**) {
  for (const char* order : {"least", "random", "others", "newest"})
    for (const int joins : {2, 1, 0})
      expect({{"GSEL_FAKE_CUDA_ORDER", order}},
             joins == 2   ? "2 2 "
             : joins == 1 ? "904 "
                          : "no event orders",
             [=] {
               Driver d;
               Any second = nullptr, forked = nullptr, joined = nullptr;
               d.cuStreamCreateWithPriority(&second, 1, 0);
               d.cuEventCreate(&forked, 2);
               d.cuEventCreate(&joined, 2);
               const Pointer at = d.alloc(64);
               const Any graph = recorded(d, [&] {
                 d.fill(at, 64);
                 d.cuEventRecord(forked, d.streams[0]);
                 d.cuStreamWaitEvent(second, forked, 0);
                 d.cuMemsetD8Async(at, 2, 64, second);
                 d.cuEventRecord(joined, second);
                 if (joins == 0) d.fill(at, 64);
                 if (joins != 1) d.cuStreamWaitEvent(d.streams[0], joined, 0);
               });
               for (int i = 0; graph && i < 2; ++i) {
                 d.cuGraphLaunch(graph, d.streams[0]);
                 say(byte_at(d, at));
               }
             });
}

// Each ends the capture without a graph: waits, looks, allocations, another capture's event, the legacy stream.
void test_calls_that_a_capture_forbids(void**) {
  const struct {
    const char* results;
    std::function<int(Driver&, Any inside, Any outside)> call;
  } all[] = {
      {"900 901 ", [](Driver& d, Any, Any) { return d.cuStreamSynchronize(d.streams[0]); }},
      {"907 901 ", [](Driver& d, Any inside, Any) { return d.cuEventQuery(inside); }},
      {"907 901 ", [](Driver& d, Any inside, Any) { return d.cuEventSynchronize(inside); }},
      {"905 901 ", [](Driver& d, Any, Any outside) { return d.cuStreamWaitEvent(d.streams[0], outside, 0); }},
      {"900 901 ", [](Driver& d, Any, Any) { return d.cuStreamDestroy(d.streams[0]); }},
      {"900 901 ",
       [](Driver& d, Any, Any) {
         Pointer at = 0;
         return d.cuMemAlloc(&at, 64);
       }},
      {"906 901 ", [](Driver& d, Any inside, Any) { return d.cuStreamWaitEvent(nullptr, inside, 0); }},
  };
  for (const auto& each : all) {
    expect({}, each.results, [&each] {
      Driver d;
      Any graph = nullptr, inside = nullptr, outside = nullptr;
      d.cuEventCreate(&inside, 2);
      d.cuEventCreate(&outside, 2);
      d.cuEventRecord(outside, d.streams[0]);
      d.cuStreamSynchronize(d.streams[0]);
      d.cuStreamBeginCapture(d.streams[0], kCaptureThread);
      d.cuEventRecord(inside, d.streams[0]);
      say(each.call(d, inside, outside));
      say(d.cuStreamEndCapture(d.streams[0], &graph));
      if (graph) say(-1);
    });
  }
}

// A stream that blocks with the legacy stream is captured: nothing may go to the legacy one.
void test_the_legacy_stream_breaks_captures_of_streams_that_block(void**) {
  for (const unsigned flags : {0u, 1u})
    expect({}, flags ? "0 0 " : "906 901 ", [=] {
      Driver d;
      Any stream = nullptr, graph = nullptr;
      d.cuStreamCreateWithPriority(&stream, flags, 0);
      const Pointer at = d.alloc(64);
      d.cuStreamBeginCapture(stream, kCaptureThread);
      say(d.cuMemsetD8Async(at, 1, 64, nullptr));
      say(d.cuStreamEndCapture(stream, &graph));
      d.cuStreamSynchronize(nullptr);
    });
}

// By the thread that began it, on its first stream.
void test_a_capture_ends_where_it_began(void**) {
  expect({}, "908 903 901 ", [] {
    Driver d;
    Any second = nullptr, event = nullptr, graph = nullptr;
    d.cuStreamCreateWithPriority(&second, 1, 0);
    d.cuEventCreate(&event, 2);
    d.cuStreamBeginCapture(d.streams[0], kCaptureThread);
    d.cuEventRecord(event, d.streams[0]);
    d.cuStreamWaitEvent(second, event, 0);
    std::thread other([&] {
      d.cuCtxPushCurrent(d.contexts[0]);
      say(d.cuStreamEndCapture(d.streams[0], &graph));
    });
    other.join();
    say(d.cuStreamEndCapture(second, &graph));
    say(d.cuStreamEndCapture(d.streams[0], &graph));
  });
}

// Two captures stay apart.
void test_captures_do_not_merge(void**) {
  expect({}, "902 901 901 ", [] {
    Driver d;
    Any second = nullptr, event = nullptr, graph = nullptr;
    d.cuStreamCreateWithPriority(&second, 1, 0);
    d.cuEventCreate(&event, 2);
    d.cuStreamBeginCapture(d.streams[0], kCaptureThread);
    d.cuStreamBeginCapture(second, kCaptureThread);
    d.cuEventRecord(event, d.streams[0]);
    say(d.cuStreamWaitEvent(second, event, 0));
    say(d.cuStreamEndCapture(d.streams[0], &graph));
    say(d.cuStreamEndCapture(second, &graph));
  });
}

void test_a_graph_that_was_destroyed_is_not_launched(void**) {
  expect({}, "a call on an executable graph that was destroyed", [] {
    Driver d;
    const Pointer at = d.alloc(64);
    const Any graph = recorded(d, [&] { d.fill(at, 64); });
    d.cuGraphExecDestroy(graph);
    say(d.cuGraphLaunch(graph, d.streams[0]));
  });
}

// A thread that looks at events ends a capture of another, unless it says that it is apart.
void test_a_watching_thread_breaks_a_global_capture(void**) {
  for (const bool apart : {false, true})
    expect({}, apart ? "600 0 " : "900 901 ", [=] {
      Driver d;
      Any event = nullptr, graph = nullptr, second = nullptr;
      d.cuStreamCreateWithPriority(&second, 1, 0);
      d.cuEventCreate(&event, 2);
      const Pointer at = d.alloc(64);
      d.cuMemsetD8Async(at, 1, 64, second);
      d.cuMemsetD8Async(at, 1, 64, second);
      d.cuEventRecord(event, second);
      d.cuStreamBeginCapture(d.streams[0], kCaptureGlobal);
      std::thread watcher([&] {
        int mode = kCaptureThread;
        if (apart) d.cuThreadExchangeStreamCaptureMode(&mode);
        d.cuCtxPushCurrent(d.contexts[0]);
        say(d.cuEventQuery(event));
      });
      watcher.join();
      say(d.cuStreamEndCapture(d.streams[0], &graph));
    });
}

// ---- errors and kernels ---------------------------------------------------------------------------------------------

void test_images_that_do_not_load(void**) {
  for (const char* error : {"209", "222"})
    expect({{"GSEL_FAKE_CUDA_IMAGE", error}}, error, [] {
      Driver d;
      Any module = nullptr;
      say(d.cuModuleLoadData(&module, "image"));
    });
}

void test_errors_that_end_cuda_stay(void**) {
  for (const char* error : {"214", "220", "226", "700", "702", "709", "710", "714", "719", "721"})
    expect({{"GSEL_FAKE_CUDA_STICKY", std::string("1:") + error}}, (std::string("0 ") + error + " " + error).c_str(),
           [] {
             Driver d;
             Any function = nullptr;
             uint64_t n = 16;
             double factor = 1;
             Pointer at = d.alloc(64);
             d.cuModuleGetFunction(&function, nullptr, "gsel_scale_f32");
             void* parameters[] = {&at, &factor, &n};
             say(d.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, d.streams[0], parameters, nullptr));
             say(d.cuStreamSynchronize(d.streams[0]));
             say(d.cuStreamSynchronize(d.streams[0]));
           });
}

// Each thread writes its own place and reads that of the thread across.
int turned_round(bool has_barrier) {
  constexpr unsigned kThreads = 8;
  int shared[kThreads] = {}, wrong = 0;
  Block::run(kThreads, [&] {
    const unsigned own = threadIdx.x;
    shared[own] = static_cast<int>(own) + 1;
    if (has_barrier) __syncthreads();
    wrong += shared[kThreads - 1 - own] != static_cast<int>(kThreads - own);
  });
  return wrong;
}

// The same of a neighbour, whom one of two directions has behind it already.
int neighbours(int step, bool has_barrier) {
  constexpr unsigned kThreads = 8;
  int shared[kThreads + 2] = {}, wrong = 0;
  Block::run(kThreads, [&] {
    const auto own = static_cast<int>(threadIdx.x) + 1;
    shared[own] = own;
    if (has_barrier) __syncthreads();
    const int other = own + step;
    wrong += other > 0 && other <= static_cast<int>(kThreads) && shared[other] != other;
  });
  return wrong;
}

void test_a_missing_barrier_shows(void**) {
  assert_int_equal(turned_round(true), 0);
  assert_int_equal(turned_round(false), 4);
  for (const int step : {-1, 1}) {
    assert_int_equal(neighbours(step, true) + neighbours(step, true), 0);
    assert_int_equal(neighbours(step, false) + neighbours(step, false), 7);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_the_stream_s_own_context_must_be_current),
      cmocka_unit_test(test_each_thread_has_a_clock),
      cmocka_unit_test(test_contexts_end_with_their_last_release),
      cmocka_unit_test(test_events_belong_to_a_context_and_die_once),
      cmocka_unit_test(test_freeing_waits_for_the_device),
      cmocka_unit_test(test_addresses_come_back_when_asked_for),
      cmocka_unit_test(test_page_locked_memory_is_known_and_gone_when_freed),
      cmocka_unit_test(test_a_mapping_has_several_segments),
      cmocka_unit_test(test_a_mapping_is_for_the_devices_that_were_named),
      cmocka_unit_test(test_captures_take_work_and_forbid_waits),
      cmocka_unit_test(test_a_graph_runs_when_it_is_launched),
      cmocka_unit_test(test_a_graph_copies_what_is_there_when_it_runs),
      cmocka_unit_test(test_captures_go_over_streams),
      cmocka_unit_test(test_calls_that_a_capture_forbids),
      cmocka_unit_test(test_the_legacy_stream_breaks_captures_of_streams_that_block),
      cmocka_unit_test(test_a_capture_ends_where_it_began),
      cmocka_unit_test(test_captures_do_not_merge),
      cmocka_unit_test(test_a_graph_that_was_destroyed_is_not_launched),
      cmocka_unit_test(test_a_watching_thread_breaks_a_global_capture),
      cmocka_unit_test(test_images_that_do_not_load),
      cmocka_unit_test(test_errors_that_end_cuda_stay),
      cmocka_unit_test(test_a_missing_barrier_shows),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
