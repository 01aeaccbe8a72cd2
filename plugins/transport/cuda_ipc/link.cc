// plugins/transport/cuda_ipc/link.cc: how a link begins and ends; see link.h.
#include "link.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <system_error>

namespace gsel_ipc {
namespace {

using namespace gsel_between;

constexpr useconds_t kPollUs = 200;
constexpr double kEndSeconds = 5;       // for work that was released, before the link is left as it is
constexpr double kTogetherSeconds = 5;  // until all ranks that live end their work
constexpr double kTrialSeconds = 1, kBlockedSeconds = 0.002;

bool has_reduce(const gsel_device_v1& device) {
  return device.struct_size >= offsetof(gsel_device_v1, reduce) + sizeof device.reduce && device.reduce;
}

// A stream of the device, for the length of a trial.
class Trial {
 public:
  explicit Trial(const gsel_link& link) : link_(link) {
    must([&](gsel_error** err) { return link_.device->stream_create(link_.device_ctx, 0, &stream_, err); });
  }
  ~Trial() {
    if (!is_stuck_) link_.device->stream_free(link_.device_ctx, stream_);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Whether the stream waits until the host writes, and then writes itself.
  bool passes() {
    const LineAt own = link_.arena->line(Kind::slot, 0, link_.rank, link_.rank);
    const Stream native = link_.device->stream_native(link_.device_ctx, stream_);
    const auto word = std::atomic_ref(own.host->word);
    if (link_.driver->wait_value(native, own.device, kUntilFull, kAtLeast) != kSuccess) return false;
    record();
    const bool waits = !ends(after(kBlockedSeconds));
    word.store(kFull);
    if (!ends(after(kTrialSeconds))) {
      is_stuck_ = true;
      return false;
    }
    const bool writes = link_.driver->write_value(native, own.device, kEmpty, 0) == kSuccess;
    record();
    is_stuck_ = !ends(after(kTrialSeconds));
    const bool has_written = word.load() == kEmpty;
    word.store(kEmpty);
    return waits && writes && !is_stuck_ && has_written;
  }
  bool is_stuck() const { return is_stuck_; }

 private:
  void record() const {
    must([&](gsel_error** err) { return link_.device->event_record(link_.device_ctx, link_.spare, stream_, err); });
  }
  bool ends(Clock::time_point deadline) const {
    for (int32_t done = 0;; usleep(kPollUs)) {
      must([&](gsel_error** err) { return link_.device->event_done(link_.device_ctx, link_.spare, &done, err); });
      if (done || Clock::now() > deadline) return done != 0;
    }
  }

  bool is_stuck_ = false;
  const gsel_link& link_;
  gsel_stream* stream_ = nullptr;
};

// Why this rank's streams cannot wait for a word; empty: they can.
std::string why_not_by_streams(gsel_link& link) {
  if (!link.driver->wait_value || !link.driver->write_value) return "the driver has no cuStreamWaitValue32";
  Trial trial(link);
  if (trial.passes()) return "";
  link.is_lost = trial.is_stuck();
  return "a trial of it failed";
}

struct Ways {
  int32_t by_streams;
  int32_t pid;
  uint64_t number;  // drawn by the process
};

uint64_t number_of_process() {
  static const uint64_t drawn = [] {
    uint64_t number = 0;
    return getrandom(&number, sizeof number, 0) == sizeof number ? number : 0;
  }();
  return drawn;
}

void agree_on_order(gsel_link& link, const gsel_join& join) {
  Report report;
  std::string why;
  attempt(report, [&] { why = why_not_by_streams(link); });
  agree(join, report, "cuda_ipc");
  const Ways own{why.empty(), getpid(), number_of_process()};
  const std::vector<Ways> all = exchanged(join, own);
  link.by_streams = std::ranges::all_of(all, [](const Ways& other) { return other.by_streams != 0; });
  link.shares_process = std::ranges::count_if(all, [&](const Ways& other) {
                          return other.pid == own.pid && other.number == own.number;
                        }) > 1;
  if (link.by_streams)
    link.note = "streams wait for each other by words of the host's memory";
  else
    link.note = "the host waits in each call, since on some rank no stream can wait for a word" +
                (why.empty() ? "" : ": " + why);
}

// A descriptor of a process that becomes readable when it ends.
int descriptor_of(int32_t pid) {
  return pid > 0 && pid != getpid() ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1;
}

std::unique_ptr<gsel_link> made(const gsel_host_v1* host, const gsel_join& join) {
  std::string why;
  const Driver* found = driver(&why);
  Report report;
  if (!found)
    report.say(GSEL_ERR_NOT_FOUND, why);
  else if (!has_reduce(*join.device_table))
    report.say(GSEL_ERR_UNSUPPORTED, "the plugin of its device cannot reduce; use one of this version of gsel");
  agree(join, report, "cuda_ipc");
  std::unique_ptr<gsel_link> link(
      new gsel_link{host, found, join.device_table, join.device_ctx, join.control, join.rank, join.world_size});
  link->timeout_s = join.timeout_s;
  link->box_to.resize(static_cast<size_t>(join.world_size));
  link->box_from.resize(static_cast<size_t>(join.world_size));
  return link;
}

bool is_idle(gsel_link& link) {
  if (!link.has_call) return true;
  int32_t done = 0;
  must([&](gsel_error** err) { return link.device->event_done(link.device_ctx, link.last, &done, err); });
  return done != 0;
}

void free_all(gsel_link* link) noexcept {
  const gsel_device_v1& device = *link->device;
  std::vector<gsel_event*> events{link->last, link->spare, link->paces[0], link->paces[1]};
  events.insert(events.end(), link->heads.begin(), link->heads.end());
  for (const auto& [direction, lane] : link->lanes) {
    if (lane.stream) device.stream_free(link->device_ctx, lane.stream);
    events.push_back(lane.event);
  }
  for (gsel_event* event : events)
    if (event) device.event_free(link->device_ctx, event);
  for (const int neighbour : link->neighbours)
    if (neighbour >= 0) close(neighbour);
  try {
    const Current current(link->device, link->device_ctx);
    link->arena.reset();
  } catch (...) {  // the device has failed, and its memory with it
    static_cast<void>(link->arena.release());
  }
  delete link;
}

// ---- aborts ---------------------------------------------------------------------------------------------------------

std::atomic_ref<uint32_t> word_of(Line& line) {
  return std::atomic_ref(line.word);
}

bool has_ended(const gsel_link& link, int32_t rank) {
  if (word_of(link.arena->ending(rank)).load() != 0) return true;
  pollfd process{link.neighbours[static_cast<size_t>(rank)], POLLIN, 0};
  return process.fd >= 0 && poll(&process, 1, 0) > 0;
}

// What this rank's streams go on to write could pass for data. So all ranks that live end their work together.
void await_endings(gsel_link& link) {
  const auto end = after(kTogetherSeconds);
  word_of(link.arena->ending(link.rank)).store(1);
  for (int32_t q = 0; q < link.world_size; ++q)
    while (!link.leaving && Clock::now() < end && !has_ended(link, q)) usleep(kPollUs);
}

// Others see no more of it than this rank's own waits need.
void release_once(gsel_link& link) {
  for (int32_t q = 0; q < link.world_size; ++q)
    for (const Kind kind : {Kind::slot, Kind::box})
      for (int which = 0; which < kSlots; ++which) {
        word_of(*link.arena->line(kind, which, q, link.rank).host).store(kFull);
        word_of(*link.arena->line(kind, which, link.rank, q).host).store(kEmpty);
      }
}

// Streams wait again and again, as long as they have calls.
void release_waits(gsel_link& link) {
  await_endings(link);
  for (; !link.leaving; usleep(kPollUs)) release_once(link);
}

// Waits until the work is done; throws when the communicator is broken.
void finish(gsel_link& link) {
  const auto end = after(link.timeout_s);
  while (!is_idle(link)) {
    if (Clock::now() > end) fail(GSEL_ERR_TIMEOUT, "cuda_ipc: a call has not ended");
    must([&](gsel_error** err) { return link.control->look(link.control->ctx, err); });
    usleep(kPollUs);
  }
}

bool ends_after_abort(gsel_link& link) noexcept {
  const auto end = after(kEndSeconds);
  try {
    while (!is_idle(link)) {
      if (Clock::now() > end) return false;
      if (!link.releasing.joinable() && link.by_streams) release_once(link);
      usleep(kPollUs);
    }
  } catch (...) {  // the device has failed, and runs nothing
  }
  return true;
}

}  // namespace

gsel_link* join(const gsel_host_v1* host, const gsel_join& join) {
  std::unique_ptr<gsel_link> link = made(host, join);
  const Current current(link->device, link->device_ctx);
  link->arena = std::make_unique<Arena>(*link->driver, join);
  try {
    Report report;
    for (gsel_event** event : {&link->last, &link->spare, &link->paces[0], &link->paces[1]})
      attempt(report, [&] {
        must([&](gsel_error** err) { return link->device->event_create(link->device_ctx, 0, event, err); });
      });
    attempt(report, [&] {
      for (int32_t q = 0; q < join.world_size; ++q) link->neighbours.push_back(descriptor_of(link->arena->pid_of(q)));
    });
    agree(join, report, "cuda_ipc");
    agree_on_order(*link, join);
  } catch (...) {
    if (!link->is_lost) free_all(link.release());
    static_cast<void>(link.release());  // else a stream may still wait for its memory
    throw;
  }
  return link.release();
}

// Memory that work may still use stays until the process ends.
void leave(gsel_link* link) noexcept {
  bool is_done = true;
  word_of(link->arena->ending(link->rank)).store(1);
  try {
    if (!link->aborting) finish(*link);
  } catch (...) {
    abort(link);
  }
  if (link->aborting) is_done = ends_after_abort(*link);
  if (!is_done || link->is_lost) {
    if (link->releasing.joinable()) link->releasing.detach();  // it goes on
    return;
  }
  link->leaving = true;
  if (link->releasing.joinable()) link->releasing.join();
  free_all(link);
}

void abort(gsel_link* link) noexcept {
  if (link->aborting.exchange(true) || !link->by_streams) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of the program runs on the thread
  try {
    link->releasing = std::thread([link] { release_waits(*link); });
  } catch (const std::system_error&) {  // no thread could be started
    word_of(link->arena->ending(link->rank)).store(1);
    release_once(*link);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace gsel_ipc
