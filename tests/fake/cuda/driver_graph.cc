// fake/cuda/driver_graph.cc: captures and graphs of the double of libcuda.so.1; see captures.h.
#include <deque>
#include <thread>

#include "captures.h"
#include "driver.h"

using namespace fake_cuda;

namespace fake_cuda {
namespace {

// What a capture records, in order: work of a stream, and the records of and waits for events that order streams.
struct Item {
  enum Kind { kWork, kRecord, kWait } kind;
  size_t stream;  // number in the capture; 0: that on which it began
  Operation work;
  size_t event;  // number in the capture
};

struct Capture {
  int mode = kCaptureGlobal;
  std::thread::id thread;
  bool is_invalid = false, is_ended = false;
  std::string dropped;  // work that it cannot replay
  std::vector<Stream*> streams;
  std::vector<std::vector<size_t>> seen;  // by stream: items of each stream that come before its next
  std::vector<Item> items;
  struct Record {
    Event* event;
    std::vector<size_t> seen;
  };
  std::vector<Record> records;

  size_t number_of(const Stream& stream) const {
    return static_cast<size_t>(std::ranges::find(streams, &stream) - streams.begin());
  }
  void join(Stream& stream, int number) {
    stream.capture = number;
    streams.push_back(&stream);
    for (auto& each : seen) each.resize(streams.size());
    seen.emplace_back(streams.size());
  }
  void add(Item item) {
    ++seen[item.stream][item.stream];
    items.push_back(std::move(item));
  }
  // The fork that its first stream does not wait for; nullptr: there is none.
  const Stream* unjoined() const {
    for (size_t i = 1; i < streams.size(); ++i)
      if (seen[0][i] < seen[i][i]) return streams[i];
    return nullptr;
  }
};

// By number, from 1.
std::map<int, Capture>& captures() {
  static auto* const all = new std::map<int, Capture>;
  return *all;
}

struct Graph {
  std::vector<Item> items;
  size_t n_streams, n_events;
  uintptr_t context;
  std::string dropped;
  bool is_destroyed = false;
};

// Events are not moved, since work refers to them.
struct Executable {
  Graph graph;
  std::vector<Stream*> streams;  // those but the first
  std::deque<Event> events;      // of the capture; then one for each of `streams`
  Event begun, ended;
  bool is_destroyed = false;
};

// Kept, so that a use of what was destroyed is found.
std::deque<Graph>& graphs() {
  static auto* const all = new std::deque<Graph>;
  return *all;
}
std::deque<Executable>& executables() {
  static auto* const all = new std::deque<Executable>;
  return *all;
}
int n_launches;

template <class T>
T* alive(std::deque<T>& all, Any handle, const char* what) {
  for (T& one : all)
    if (&one == handle) {
      if (!one.is_destroyed) return &one;
      Machine::get().violation(std::string("a call on ") + what + " that was destroyed");
    }
  return nullptr;
}

}  // namespace

bool breaks_capture() {
  const int mode = thread_state().capture_mode;
  bool found = false;
  for (auto& [number, capture] : captures()) {
    const bool is_own = capture.thread == std::this_thread::get_id();
    const bool forbids = capture.mode == kCaptureGlobal   ? mode == kCaptureGlobal || (mode == kCaptureThread && is_own)
                         : capture.mode == kCaptureThread ? mode != kCaptureRelaxed && is_own
                                                          : false;
    if (capture.is_ended || !forbids) continue;
    capture.is_invalid = found = true;
  }
  return found;
}

bool breaks_capture_of_blocking(const Stream& given) {
  if (!Machine::get().is_default(given)) return false;
  bool found = false;
  for (auto& [number, capture] : captures())
    for (const Stream* stream : capture.streams)
      if (!capture.is_ended && stream->blocks && stream->context == given.context) capture.is_invalid = found = true;
  return found;
}

int break_capture(int number, int error) {
  if (const auto found = captures().find(number); found != captures().end() && !found->second.is_ended)
    found->second.is_invalid = true;
  return error;
}

int capture_work(Stream& stream, Operation operation) {
  Capture& capture = captures()[stream.capture];
  if (capture.is_invalid) return kCaptureInvalidated;
  operation.name += " in a graph";
  capture.add({Item::kWork, capture.number_of(stream), std::move(operation), 0});
  return kOk;
}

void capture_drop(Stream& stream, const std::string& name) {
  captures()[stream.capture].dropped = name;
}

int capture_record(Stream& stream, Event& event) {
  Capture& capture = captures()[stream.capture];
  if (capture.is_invalid) return kCaptureInvalidated;
  const size_t number = capture.number_of(stream);
  event.capture = stream.capture;
  capture.add({Item::kRecord, number, {}, capture.records.size()});
  capture.records.push_back({&event, capture.seen[number]});
  return kOk;
}

// A merge invalidates both. Of a capture that has ended nothing can be waited for.
int capture_wait(Stream& stream, Event& event, bool is_legacy) {
  if (!event.capture) return break_capture(stream.capture, kCaptureIsolation);
  Capture& capture = captures()[event.capture];
  if (capture.is_ended) return break_capture(stream.capture, kCapturedEvent);
  if (capture.is_invalid) return kCaptureInvalidated;
  if (is_legacy) return break_capture(event.capture, kCaptureImplicit);
  if (stream.capture && stream.capture != event.capture) {
    break_capture(stream.capture, kOk);
    return break_capture(event.capture, kCaptureMerge);
  }
  if (!stream.capture) capture.join(stream, event.capture);
  const size_t number = capture.number_of(stream);
  const auto record =
      std::ranges::find(capture.records.rbegin(), capture.records.rend(), &event, &Capture::Record::event);
  for (size_t i = 0; i < record->seen.size(); ++i)
    capture.seen[number][i] = std::max(capture.seen[number][i], record->seen[i]);
  capture.add({Item::kWait, number, {}, static_cast<size_t>(capture.records.rend() - record) - 1});
  return kOk;
}

namespace {

// Each launch comes after the one before.
void launch(Machine& machine, Executable& e, Stream& first) {
  const auto stream_of = [&](const Item& item) -> Stream& {
    return item.stream == 0 ? first : *e.streams[item.stream - 1];
  };
  machine.await(first, e.ended);
  machine.record(first, e.begun);
  for (Stream* stream : e.streams) machine.await(*stream, e.begun);
  for (const Item& item : e.graph.items) {
    Stream& stream = stream_of(item);
    if (item.kind == Item::kRecord) machine.record(stream, e.events[item.event]);
    if (item.kind == Item::kWait) machine.await(stream, e.events[item.event]);
    if (item.kind != Item::kWork) continue;
    Operation work = item.work;
    if (work.is_kernel) count_launch(machine, work);
    machine.enqueue(stream, std::move(work));
  }
  for (size_t i = 0; i < e.streams.size(); ++i) {
    Event& end = e.events[e.graph.n_events + i];
    machine.record(*e.streams[i], end);
    machine.await(first, end);
  }
  machine.record(first, e.ended);
}

}  // namespace
}  // namespace fake_cuda

// ---- captures -------------------------------------------------------------------------------------------------------

EXPORT int cuStreamBeginCapture_v2(Any handle, int mode) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    if (is_default(handle)) return kCaptureUnsupported;
    if (stream.capture) return kInvalidValue;
    const int number = static_cast<int>(captures().size()) + 1;
    Capture& capture = captures()[number];
    capture.mode = mode;
    capture.thread = std::this_thread::get_id();
    capture.join(stream, number);
    return kOk;
  });
}

EXPORT int cuStreamEndCapture(Any handle, Any* out) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    *out = nullptr;
    if (!stream.capture) return static_cast<int>(kInvalidValue);
    Capture& capture = captures()[stream.capture];
    if (capture.streams.front() != &stream) return break_capture(stream.capture, kCaptureUnmatched);
    if (capture.mode != kCaptureRelaxed && capture.thread != std::this_thread::get_id())
      return static_cast<int>(kCaptureWrongThread);
    capture.is_ended = true;
    for (Stream* each : capture.streams) each->capture = 0;
    if (capture.is_invalid) return static_cast<int>(kCaptureInvalidated);
    if (capture.unjoined()) return static_cast<int>(kCaptureUnjoined);
    *out = &graphs().emplace_back(Graph{std::move(capture.items), capture.streams.size(), capture.records.size(),
                                        stream.context, capture.dropped});
    return static_cast<int>(kOk);
  });
}

EXPORT int cuStreamIsCapturing(Any handle, int* status) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    *status = !stream.capture ? 0 : captures()[stream.capture].is_invalid ? 2 : 1;
    return kOk;
  });
}

// Of a capture, its state and number alone.
EXPORT int cuStreamGetCaptureInfo_v2(Any handle, int* status, unsigned long long* number, Any*, const Any**, size_t*) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    *status = !stream.capture ? 0 : captures()[stream.capture].is_invalid ? 2 : 1;
    if (stream.capture && number) *number = static_cast<unsigned long long>(stream.capture);
    return kOk;
  });
}

EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(thread_state().capture_mode, *mode);
  return kOk;
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

EXPORT int cuGraphDestroy(Any handle) {
  return call([&](Machine&) {
    Graph* graph = alive(graphs(), handle, "a graph");
    if (!graph) return kInvalidValue;
    graph->is_destroyed = true;
    graph->items.clear();
    return kOk;
  });
}

EXPORT int cuGraphInstantiateWithFlags(Any* out, Any handle, unsigned long long flags) {
  return call([&](Machine& machine) {
    *out = nullptr;
    const Graph* graph = alive(graphs(), handle, "a graph");
    if (!graph || flags) return kInvalidValue;
    if (breaks_capture()) return kCaptureUnsupported;
    Executable& made = executables().emplace_back();
    made.graph = *graph;
    for (size_t i = 1; i < graph->n_streams; ++i) made.streams.push_back(machine.make_stream(graph->context));
    made.events.resize(graph->n_events + made.streams.size());
    for (Event& event : made.events) event.context = graph->context;
    made.begun.context = made.ended.context = graph->context;
    *out = &made;
    return kOk;
  });
}

EXPORT int cuGraphLaunch(Any handle, Any stream_handle) {
  return on_stream(stream_handle, [&](Machine& machine, Stream& stream) {
    Executable* e = alive(executables(), handle, "an executable graph");
    if (!e || e->graph.context != stream.context) return static_cast<int>(kInvalidValue);
    if (stream.capture) return break_capture(stream.capture, kCaptureUnsupported);
    if (breaks_capture_of_blocking(stream)) return static_cast<int>(kCaptureImplicit);
    if (!e->graph.dropped.empty()) {
      machine.violation("a graph with " + e->graph.dropped + " is launched, which this double has not recorded");
      return static_cast<int>(kUnknown);
    }
    ++n_launches;
    launch(machine, *e, stream);
    return static_cast<int>(kOk);
  });
}

// One that is under way ends.
EXPORT int cuGraphExecDestroy(Any handle) {
  return call([&](Machine& machine) {
    Executable* e = alive(executables(), handle, "an executable graph");
    if (!e) return kInvalidValue;
    e->is_destroyed = true;
    for (Stream* stream : e->streams) machine.destroy_stream(*stream);
    return kOk;
  });
}

// ---- what tests ask -------------------------------------------------------------------------------------------------

// How often a graph was launched.
EXPORT int fake_cuda_graph_launches() {
  const std::lock_guard lock(Machine::get().mutex());
  return n_launches;
}
// Graphs, executable or not, that are not destroyed.
EXPORT int fake_cuda_graphs() {
  const std::lock_guard lock(Machine::get().mutex());
  return static_cast<int>(std::ranges::count(graphs(), false, &Graph::is_destroyed) +
                          std::ranges::count(executables(), false, &Executable::is_destroyed));
}
