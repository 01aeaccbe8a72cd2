// unit/test_device_waits.cc: how the host waits for a device, with a device whose events come when the test says: a
// wait ends with its stream or with its observer's error, goes on while the device goes on, and what a device that does
// not answer may use is freed once it has answered, and not before.
#include <cstring>
#include <limits>
#include <map>

#include "base/os.h"
#include "device/host/table.h"
#include "support/check.h"
#include "train/execute/device_watch.h"

namespace {

using namespace gsel;
using execute::DeviceWatch;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kMs = 1'000'000;

// Handles are the addresses of places.
struct Script {
  std::vector<int64_t> after_ns;  // of each record, in order, when its event is reached; then at once
  size_t records = 0;
  std::map<gsel_event*, int64_t> due;  // of events
  int closed = 0, freed = 0, streams = 0, events = 0;
};
Script script;

gsel_status open_device(const gsel_host_v1*, const gsel_device_options*, void** out, gsel_error**) {
  *out = &script;
  return GSEL_OK;
}
void close_device(void*) {
  ++script.closed;
}
gsel_status describe(void*, gsel_device_description* out, gsel_error**) {
  out->flags = 0;
  return GSEL_OK;
}
gsel_status alloc(void*, int32_t, uint64_t bytes, void** out, gsel_error**) {
  *out = calloc(1, bytes);
  return GSEL_OK;
}
void free_memory(void*, void* memory) {
  ++script.freed;
  free(memory);
}
gsel_status stream_create(void*, uint32_t, gsel_stream** out, gsel_error**) {
  ++script.streams;
  *out = reinterpret_cast<gsel_stream*>(new int);
  return GSEL_OK;
}
void stream_free(void*, gsel_stream* stream) {
  --script.streams;
  delete reinterpret_cast<int*>(stream);
}
gsel_status event_create(void*, uint32_t, gsel_event** out, gsel_error**) {
  ++script.events;
  *out = reinterpret_cast<gsel_event*>(new int);
  return GSEL_OK;
}
void event_free(void*, gsel_event* event) {
  --script.events;
  script.due.erase(event);
  delete reinterpret_cast<int*>(event);
}
gsel_status event_record(void*, gsel_event* event, gsel_stream*, gsel_error**) {
  const size_t n = script.records++;
  const int64_t after = n < script.after_ns.size() ? script.after_ns[n] : 0;
  script.due[event] = after == kNever ? kNever : os::now_ns() + after;
  return GSEL_OK;
}
gsel_status event_done(void*, gsel_event* event, int32_t* done, gsel_error**) {
  *done = os::now_ns() >= script.due[event];
  return GSEL_OK;
}

const gsel_device_v1& scripted_table() {
  static const gsel_device_v1 the_table = [] {
    gsel_device_v1 table = host_device_table();
    table.open = open_device, table.close = close_device, table.describe = describe;
    table.alloc = alloc, table.free = free_memory;
    table.stream_create = stream_create, table.stream_free = stream_free;
    table.event_create = event_create, table.event_free = event_free;
    table.event_record = event_record, table.event_done = event_done;
    return table;
  }();
  return the_table;
}

// A device of which each record is reached as `after_ns` says, in order.
std::shared_ptr<DeviceContext> scripted(std::vector<int64_t> after_ns) {
  script = {};
  script.after_ns = std::move(after_ns);
  return std::make_shared<DeviceContext>(scripted_table(), 0);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

void a_wait_ends_with_its_stream(void**) {
  {
    const auto device = scripted({0, 5 * kMs});
    device->wait();
    device->wait();
    assert_int_equal(script.records, 2);
    assert_int_equal(script.events, 1);  // used again
  }
  assert_int_equal(script.events, 0);
  assert_int_equal(script.streams, 0);
  assert_int_equal(script.closed, 1);
}

void a_wait_ends_with_what_its_observer_throws(void**) {
  struct Observer : WaitObserver {
    void look(DeviceWait&) override {
      if (++looks == 3) throw Error(GSEL_ERR_PEER, "rank 1 is gone");
    }
    int looks = 0;
  };
  const auto device = scripted({kNever});
  const auto observer = std::make_shared<Observer>();
  const DeviceContext watched(*device, observer);
  assert_string_equal(message_of([&] { watched.wait(); }).c_str(), "rank 1 is gone");
}

void a_device_that_does_not_go_on_is_an_error_after_the_timeout(void**) {
  const auto device = scripted({kNever});
  const auto watch = std::make_shared<DeviceWatch>(device, "gpu:3", 7, 0.05);
  const auto watched = DeviceWatch::watched(watch);
  watch->begin_run("step 5", 4);
  const std::string text = message_of([&] { watched->wait(); });
  for (const char* part : {"rank 7 waited ", "for the end of step 5 on gpu:3", "has not gone on for "})
    if (text.find(part) == std::string::npos) fail_msg("expected \"%s\" in: %s", part, text.c_str());
}

// 20 marks, one each 30 ms, and a timeout of 250 ms.
void a_device_that_goes_on_may_take_longer_than_the_timeout(void**) {
  std::vector<int64_t> after;
  for (int64_t i = 1; i <= 20; ++i) after.push_back(i * 30 * kMs);
  after.push_back(610 * kMs);
  const auto device = scripted(after);
  const auto watch = std::make_shared<DeviceWatch>(device, "gpu:3", 7, 0.25);
  const auto watched = DeviceWatch::watched(watch);
  watch->begin_run("step 5", 20);
  for (size_t i = 0; i < 20; ++i) watch->pass(*watched, i);
  assert_int_equal(script.records, 20);
  assert_string_equal(message_of([&] { watched->wait(); }).c_str(), "");
  watch->detach();
}

void memory_of_a_silent_device_is_freed_once_it_has_answered(void**) {
  for (const bool answers_later : {false, true}) {
    auto device = scripted({kNever, kNever});
    auto watch = std::make_shared<DeviceWatch>(device, "gpu:3", 7, 0.05);
    auto watched = DeviceWatch::watched(watch);
    Memory first(watched, 64), second(watched, 64);
    gsel_stream* const streams[] = {watched->compute()};
    assert_false(watch->settle(*watched, streams, 0.05));
    { const Memory dropped = std::move(first); }
    assert_int_equal(script.freed, 0);
    if (answers_later)
      for (auto& [event, due] : script.due) due = 0;
    { const Memory dropped = std::move(second); }
    assert_int_equal(script.freed, answers_later);
    watch.reset();
    watched.reset();
    device.reset();
    assert_int_equal(script.closed, answers_later);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_wait_ends_with_its_stream),
      cmocka_unit_test(a_wait_ends_with_what_its_observer_throws),
      cmocka_unit_test(a_device_that_does_not_go_on_is_an_error_after_the_timeout),
      cmocka_unit_test(a_device_that_goes_on_may_take_longer_than_the_timeout),
      cmocka_unit_test(memory_of_a_silent_device_is_freed_once_it_has_answered),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
