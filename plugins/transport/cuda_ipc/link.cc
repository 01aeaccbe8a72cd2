// plugins/transport/cuda_ipc/link.cc: how a link begins and ends; see link.h.
#include "link.h"

#include <unistd.h>

#include <system_error>

namespace gsel_ipc {
namespace {

using namespace gsel_between;

constexpr useconds_t kPollUs = 200;
constexpr double kEndSeconds = 5;         // for work that was released, before the link is left as it is
constexpr double kTogetherSeconds = 0.5;  // until all ranks end their work
constexpr double kTrialSeconds = 0.1;

bool has_reduce(const gsel_device_v1& device) {
  return device.struct_size >= offsetof(gsel_device_v1, reduce) + sizeof device.reduce && device.reduce;
}

// A stream of the device, for the length of a trial.
class Trial {
 public:
  explicit Trial(const gsel_link& link) : link_(link) {
    must([&](gsel_error** err) { return link_.device->stream_create(link_.device_ctx, 0, &stream_, err); });
  }
  ~Trial() { link_.device->stream_free(link_.device_ctx, stream_); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  // Whether a write of the stream ends a wait of the stream's, in time.
  bool passes() const {
    const LineAt own = link_.arena->line(Kind::slot, 0, link_.rank, link_.rank);
    const Stream native = link_.device->stream_native(link_.device_ctx, stream_);
    if (link_.driver->write_value(native, own.device, kFull, 0) != kSuccess) return false;
    const bool waits = link_.driver->wait_value(native, own.device, kUntilFull, kAtLeast) == kSuccess;
    must([&](gsel_error** err) { return link_.device->event_record(link_.device_ctx, link_.spare, stream_, err); });
    const bool is_in_time = ends(after(kTrialSeconds));
    std::atomic_ref(own.host->word).store(kFull);
    while (!is_in_time && !ends(after(kTrialSeconds))) {
    }
    std::atomic_ref(own.host->word).store(kEmpty);
    return waits && is_in_time;
  }

 private:
  bool ends(Clock::time_point deadline) const {
    for (int32_t done = 0;; usleep(kPollUs)) {
      must([&](gsel_error** err) { return link_.device->event_done(link_.device_ctx, link_.spare, &done, err); });
      if (done || Clock::now() > deadline) return done != 0;
    }
  }

  const gsel_link& link_;
  gsel_stream* stream_ = nullptr;
};

// Whether this rank's streams can wait for a word; why not.
std::string why_not_by_streams(const gsel_link& link) {
  if (!link.driver->wait_value || !link.driver->write_value) return "the driver has no cuStreamWaitValue32";
  return Trial(link).passes() ? "" : "a trial of it did not end";
}

struct Ways {
  int32_t by_streams;
};

void agree_on_order(gsel_link& link, const gsel_join& join) {
  const std::string why = why_not_by_streams(link);
  link.by_streams = true;
  for (const Ways& other : exchanged(join, Ways{why.empty()})) link.by_streams = link.by_streams && other.by_streams;
  if (link.by_streams)
    link.note = "streams wait for each other by words of the host's memory";
  else
    link.note = "the host waits in each call, since on some rank no stream can wait for a word" +
                (why.empty() ? "" : ": " + why);
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
  for (gsel_event* event : {link->last, link->spare})
    if (event) link->device->event_free(link->device_ctx, event);
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

// What this rank's streams go on to write could pass for data. So all ranks end their work together, if they can.
void await_endings(gsel_link& link) {
  const auto end = after(kTogetherSeconds);
  word_of(link.arena->ending(link.rank)).store(1);
  for (int32_t q = 0; q < link.world_size; ++q)
    while (!link.leaving && Clock::now() < end && word_of(link.arena->ending(q)).load() == 0) usleep(kPollUs);
}

// Streams wait again and again, as long as they have calls. Others see no more of it than this rank's own waits need.
void release_waits(gsel_link& link) {
  await_endings(link);
  for (; !link.leaving; usleep(kPollUs))
    for (int32_t q = 0; q < link.world_size; ++q)
      for (const Kind kind : {Kind::slot, Kind::box})
        for (int which = 0; which < kSlots; ++which) {
          word_of(*link.arena->line(kind, which, q, link.rank).host).store(kFull);
          word_of(*link.arena->line(kind, which, link.rank, q).host).store(kEmpty);
        }
}

// Waits until the work is done; throws when the communicator is broken.
void finish(gsel_link& link) {
  while (!is_idle(link)) {
    must([&](gsel_error** err) { return link.control->look(link.control->ctx, err); });
    usleep(kPollUs);
  }
}

bool ends_after_abort(gsel_link& link) noexcept {
  const auto end = after(kEndSeconds);
  try {
    while (!is_idle(link)) {
      if (Clock::now() > end) return false;
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
    for (gsel_event** event : {&link->last, &link->spare})
      must([&](gsel_error** err) { return link->device->event_create(link->device_ctx, 0, event, err); });
    agree_on_order(*link, join);
  } catch (...) {
    free_all(link.release());
    throw;
  }
  return link.release();
}

void leave(gsel_link* link) noexcept {
  bool is_done = true;
  try {
    if (!link->aborting) finish(*link);
  } catch (...) {
    abort(link);
  }
  if (link->aborting) is_done = ends_after_abort(*link);
  link->leaving = true;
  if (link->releasing.joinable()) link->releasing.join();
  if (is_done) free_all(link);  // else its work may still use the memory
}

void abort(gsel_link* link) noexcept {
  if (link->aborting.exchange(true) || !link->by_streams) return;
  try {
    link->releasing = std::thread([link] { release_waits(*link); });
  } catch (const std::system_error&) {  // no thread could be started: what waits stays
  }
}

}  // namespace gsel_ipc
