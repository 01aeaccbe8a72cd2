// fake/cuda/test_driver_words.cc: words of memory that streams of the double of the driver write and wait for: what
// meets a wait, what it orders, and that graphs have both.
#include <sched.h>
#include <sys/mman.h>

#include <thread>

#include "fake/cuda/driver_trial.h"

namespace {

void test_the_host_releases_a_stream_that_waits(void**) {
  for (uint32_t* (*word_of)(Driver&) : {host_allocated, host_registered})
    expect({}, "600 600 255 0 0 1 ", [=] {
      Driver d;
      uint32_t* word = word_of(d);
      Any event = nullptr;
      static unsigned char got = 255;
      const Pointer at = d.alloc(64);
      d.cuEventCreate(&event, 2);
      d.cuStreamWaitValue32(d.streams[0], pointer_to(word), 3, kWaitAtLeast);
      d.fill(at, 64);
      d.cuMemcpyAsync(pointer_to(&got), at, 1, d.streams[0]);
      d.cuEventRecord(event, d.streams[0]);
      int result = kNotReady;
      for (const uint32_t value : {0u, 1u, 2u, 0x80000003u}) {
        host_word(word) = value;
        for (int look = 0; look < 20; ++look)
          if (const int looked = d.cuStreamQuery(d.streams[0]); looked != kNotReady) result = looked;
      }
      say(result);
      say(d.cuEventQuery(event));
      say(got);
      std::thread other([=] { host_word(word) = 3; });
      say(d.cuEventSynchronize(event));
      other.join();
      say(d.cuStreamQuery(d.streams[0]));
      say(got);
    });
}

void test_waits_have_conditions(void**) {
  const struct {
    int condition;
    uint32_t value, misses, meets;
  } all[] = {
      {kWaitAtLeast, 5, 4, 6},
      {kWaitAtLeast, 2, 0xfffffffe, 2},
      {kWaitAtLeast, 0xfffffffe, 0xfffffffd, 2},  // it goes round
      {kWaitEqual, 5, 6, 5},
      {kWaitAnd, 6, 9, 10},
  };
  for (const auto& each : all)
    expect({}, "600 0 ", [each] {
      Driver d;
      uint32_t* word = host_allocated(d);
      host_word(word) = each.misses;
      d.cuStreamWaitValue32(d.streams[0], pointer_to(word), each.value, static_cast<unsigned>(each.condition));
      say(d.cuStreamQuery(d.streams[0]));
      host_word(word) = each.meets;
      say(d.cuStreamQuery(d.streams[0]));
    });
}

// As a program that waits for it has no other means to make it run.
void test_a_write_comes_without_a_call(void**) {
  expect({}, "0 5 ", [] {
    Driver d;
    uint32_t* word = host_allocated(d);
    say(d.cuStreamWriteValue32(d.streams[0], pointer_to(word), 5, 0));
    while (host_word(word) == 0) sched_yield();
    say(static_cast<int>(host_word(word)));
  });
}

enum class Between { kWordBefore, kWordAfter, kWordByEvent, kWordOfHost, kNothing, kPast };

// A fill on one stream and one on another.
void fill_on_two_streams(Between between) {
  Driver d;
  uint32_t* word = host_registered(d);
  const Any second = stream_of(d), third = stream_of(d);
  Any event = nullptr;
  d.cuEventCreate(&event, 2);
  const Pointer at = d.alloc(64);
  const auto first_part = [&] {
    if (between != Between::kPast) d.fill(at, 64);
    if (between != Between::kNothing && between != Between::kWordOfHost)
      d.cuStreamWriteValue32(d.streams[0], pointer_to(word), 1, 0);
    if (between == Between::kPast) d.fill(at, 64);
  };
  if (between == Between::kWordBefore) first_part();
  if (between != Between::kNothing) d.cuStreamWaitValue32(second, pointer_to(word), 1, kWaitAtLeast);
  Any last = second;
  if (between == Between::kWordByEvent) {
    d.cuEventRecord(event, second);
    d.cuStreamWaitEvent(third, event, 0);
    last = third;
  }
  d.cuMemsetD8Async(at, 9, 64, last);
  if (between != Between::kWordBefore) first_part();
  if (between == Between::kWordOfHost) host_word(word) = 1;
  d.cuStreamSynchronize(last);
  d.cuStreamSynchronize(d.streams[0]);
  fprintf(stderr, "byte %d done", byte_at(d, at));
}

// Also where the write is enqueued after what it orders. The host's orders nothing, nor does one before the fill.
void test_a_word_orders_streams(void**) {
  for (const char* order : kOrders) {
    for (const Between between : {Between::kWordBefore, Between::kWordAfter, Between::kWordByEvent}) {
      const Ended ended = in_child({{"GSEL_FAKE_CUDA_ORDER", order}}, [=] { fill_on_two_streams(between); });
      assert_int_equal(ended.status, 0);
      assert_string_equal(ended.text.c_str(), "byte 9 done");
    }
    for (const Between between : {Between::kWordOfHost, Between::kNothing, Between::kPast})
      expect({{"GSEL_FAKE_CUDA_ORDER", order}}, "no event orders", [=] { fill_on_two_streams(between); });
  }
}

// One file, mapped twice: what is written at one address is awaited at the other.
void test_a_word_is_the_same_through_two_mappings(void**) {
  expect({}, "0 600 0 done", [] {
    Driver d;
    const int file = memfd_create("words", 0);
    if (ftruncate(file, kPage * 2) != 0) abort();
    void* whole = mmap(nullptr, kPage * 2, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void* half = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, kPage);
    d.cuMemHostRegister(whole, kPage * 2, 0);
    say(d.cuMemHostRegister(half, kPage, 0));
    const Any second = stream_of(d);
    const Pointer at = d.alloc(64);
    d.cuStreamWaitValue32(second, pointer_to(half) + 8, 1, kWaitEqual);
    d.cuMemsetD8Async(at, 9, 64, second);
    say(d.cuStreamQuery(second));
    d.fill(at, 64);
    d.cuStreamWriteValue32(d.streams[0], pointer_to(whole) + kPage + 8, 1, 0);
    say(d.cuStreamSynchronize(second));
    fprintf(stderr, "done");
  });
}

// The second write is ordered with no wait, nor the two writes of the other word.
void test_words_do_not_race_with_each_other(void**) {
  expect({}, "0 0 0 0 done", [] {
    Driver d;
    uint32_t* words = host_registered(d);
    const Any second = stream_of(d);
    d.cuStreamWaitValue32(second, pointer_to(words), 1, kWaitAtLeast);
    d.cuStreamWriteValue32(d.streams[0], pointer_to(words), 1, 0);
    say(d.cuStreamSynchronize(second));
    std::thread other([&] {  // which has not waited for that stream
      d.cuCtxPushCurrent(d.contexts[0]);
      say(d.cuStreamWriteValue32(d.streams[0], pointer_to(words), 2, 0));
    });
    other.join();
    d.cuStreamWriteValue32(second, pointer_to(words + 1), 1, 0);
    say(d.cuStreamWriteValue32(d.streams[0], pointer_to(words + 1), 2, 0));
    say(d.cuStreamSynchronize(d.streams[0]));
    fprintf(stderr, "done");
  });
}

// A copy into a word is not what its waits allow for.
void test_words_race_with_other_work(void**) {
  expect({}, "no event orders a fill of 4 bytes on stream 2 (writes) and a write of a word", [] {
    Driver d;
    const Pointer at = d.alloc(64);
    d.fill(at, 4);
    d.cuStreamWriteValue32(stream_of(d), at, 1, 0);
  });
}

void test_a_graph_waits_and_writes_at_each_launch(void**) {
  for (const char* order : kOrders)
    expect({{"GSEL_FAKE_CUDA_ORDER", order}}, "0 0 7 600 0 1 4 600 0 1 4 ", [] {
      Driver d;
      uint32_t* words = host_registered(d);
      const Pointer at = d.alloc(64);
      Any event = nullptr;
      d.cuEventCreate(&event, 2);
      d.cuMemsetD8Async(at, 7, 64, d.streams[0]);
      d.cuStreamSynchronize(d.streams[0]);
      const Any graph = recorded(d, [&] {
        say(d.cuStreamWaitValue32(d.streams[0], pointer_to(words), 3, kWaitAtLeast));
        d.fill(at, 64);
        say(d.cuStreamWriteValue32(d.streams[0], pointer_to(words + 1), 4, 0));
      });
      say(byte_at(d, at));
      for (int launch = 0; launch < 2; ++launch) {
        host_word(words) = host_word(words + 1) = 0;
        d.cuGraphLaunch(graph, d.streams[0]);
        d.cuEventRecord(event, d.streams[0]);
        say(d.cuEventQuery(event));
        host_word(words) = 3;
        say(d.cuEventSynchronize(event));
        say(byte_at(d, at));
        say(static_cast<int>(host_word(words + 1)));
        d.cuMemsetD8Async(at, 7, 64, d.streams[0]);
      }
      d.cuGraphExecDestroy(graph);
    });
}

void test_what_is_no_word_is_refused(void**) {
  expect({}, "1 1 1 1 1 801 801 1 900 ", [] {
    Driver d;
    alignas(4) static uint32_t pageable;
    const Pointer word = pointer_to(host_allocated(d));
    say(d.cuStreamWaitValue32(d.streams[0], pointer_to(&pageable), 1, 0));
    say(d.cuStreamWriteValue32(d.streams[0], pointer_to(&pageable), 1, 0));
    say(d.cuStreamWriteValue32(d.streams[0], word + 2, 1, 0));
    say(d.cuStreamWriteValue32(d.streams[0], word + kPage, 1, 0));
    say(d.cuStreamWriteValue32(d.streams[0], word, 1, 1));
    say(d.cuStreamWaitValue32(d.streams[0], word, 1, kWaitNor));
    say(d.cuStreamWaitValue32(d.streams[0], word, 1, kWaitFlush));
    say(d.cuStreamWaitValue32(d.streams[0], word, 1, 4));
    d.cuStreamBeginCapture(d.streams[0], kCaptureThread);
    say(d.cuStreamQuery(d.streams[0]));
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_the_host_releases_a_stream_that_waits),
      cmocka_unit_test(test_waits_have_conditions),
      cmocka_unit_test(test_a_write_comes_without_a_call),
      cmocka_unit_test(test_a_word_orders_streams),
      cmocka_unit_test(test_a_word_is_the_same_through_two_mappings),
      cmocka_unit_test(test_words_do_not_race_with_each_other),
      cmocka_unit_test(test_words_race_with_other_work),
      cmocka_unit_test(test_a_graph_waits_and_writes_at_each_launch),
      cmocka_unit_test(test_what_is_no_word_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
