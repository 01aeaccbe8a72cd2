// api/request.cc: requests of gsel/comm.h.
#include "comm/request.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "api/handles.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/options.h"
#include "base/text.h"

struct gsel_request {
  gsel::CallRequest impl;
};

struct gsel_queue {
  std::shared_ptr<gsel::CompletionQueue> impl = std::make_shared<gsel::CompletionQueue>();
};

namespace {

constexpr double kLongestWait = 1e8;  // seconds, three years: fits in a clock's nanoseconds

std::unique_ptr<gsel_request> make_request(gsel_comm* comm, std::vector<gsel_collective> calls,
                                           gsel::CallRequest::Use use) {
  gsel::Communicator& communicator = gsel::required(comm, "comm").impl;
  return std::unique_ptr<gsel_request>(new gsel_request{{communicator, std::move(calls), use}});
}

std::vector<gsel_collective> read_call(const gsel_collective* call) {
  return {gsel::read_struct(call, "gsel_collective")};
}

gsel::CallRequest& live(gsel_request* request) {
  return gsel::required(request, "request").impl;
}

// ranks[n]: the ranks that the operation names.
gsel_status start_making(gsel_comm* comm, gsel_request** out, gsel_error** err, gsel::Making making,
                         const int32_t* ranks, size_t n) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::Communicator& from = gsel::required(comm, "comm").impl;
    if (n > static_cast<size_t>(from.world_size()))
      gsel::fail(GSEL_ERR_ARG, "n is {}; the communicator has {}", n, gsel::with_noun(from.world_size(), "rank"));
    if (n > 0) making.ranks.assign(&gsel::required(ranks, "ranks"), ranks + n);
    auto request = std::unique_ptr<gsel_request>(new gsel_request{{from, std::move(making)}});
    request->impl.start();
    *out = request.release();
  });
}

}  // namespace

extern "C" {

gsel_status gsel_comm_start(gsel_comm* comm, const gsel_collective* call, gsel_request** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    auto request = make_request(comm, read_call(call), gsel::CallRequest::Use::started);
    request->impl.start();
    *out = request.release();
  });
}

gsel_status gsel_group_start(gsel_comm* comm, const gsel_collective* const* calls, size_t n, gsel_request** out,
                             gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    if (n == 0 || n > PTRDIFF_MAX / sizeof *calls)
      gsel::fail(GSEL_ERR_ARG, "n is {}; a group that is started has 1 call or more", n);
    gsel::required(calls, "calls");
    std::vector<gsel_collective> group;
    for (size_t i = 0; i < n; ++i) {
      if (!calls[i]) gsel::fail(GSEL_ERR_ARG, "calls[{}] is NULL in a group of {}", i, n);
      group.push_back(gsel::read_struct(calls[i], "gsel_collective"));
    }
    auto request = make_request(comm, std::move(group), gsel::CallRequest::Use::started);
    request->impl.start();
    *out = request.release();
  });
}

gsel_status gsel_comm_start_split(gsel_comm* comm, int32_t colour, int32_t key, gsel_request** out, gsel_error** err) {
  return start_making(comm, out, err, {gsel::Making::Kind::split, colour, key}, nullptr, 0);
}

gsel_status gsel_comm_start_dup(gsel_comm* comm, gsel_request** out, gsel_error** err) {
  return start_making(comm, out, err, {gsel::Making::Kind::dup}, nullptr, 0);
}

gsel_status gsel_comm_start_create_group(gsel_comm* comm, const int32_t* ranks, size_t n, gsel_request** out,
                                         gsel_error** err) {
  return start_making(comm, out, err, {gsel::Making::Kind::group}, ranks, n);
}

gsel_status gsel_comm_start_shrink(gsel_comm* comm, const int32_t* without, size_t n, gsel_request** out,
                                   gsel_error** err) {
  return start_making(comm, out, err, {gsel::Making::Kind::shrink}, without, n);
}

gsel_status gsel_request_take_comm(gsel_request* request, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    if (auto made = live(request).take()) *out = new gsel_comm{std::move(*made)};
  });
}

gsel_status gsel_request_create(gsel_comm* comm, const gsel_collective* call, gsel_request** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = make_request(comm, read_call(call), gsel::CallRequest::Use::persistent).release();
  });
}

gsel_status gsel_request_start(gsel_request* request, gsel_error** err) {
  return gsel::guard(err, [&] { live(request).start(); });
}

gsel_status gsel_request_run(gsel_request* request, gsel_error** err) {
  return gsel::guard(err, [&] { live(request).run(); });
}

gsel_status gsel_request_test(gsel_request* request, int32_t* done, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(done, "done") = 0;
    live(request).test(done);
  });
}

gsel_status gsel_request_wait(gsel_request* request, gsel_error** err) {
  return gsel::guard(err, [&] { live(request).wait(); });
}

gsel_status gsel_request_wait_for(gsel_request* request, double seconds, int32_t* done, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(done, "done") = 0;
    if (!(seconds >= 0)) gsel::fail(GSEL_ERR_ARG, "seconds is {}; give 0 or more", seconds);
    gsel::CallRequest& impl = live(request);
    *done = !impl.waits_for_itself();  // 1 also if the result is an error
    *done = impl.wait_for(std::min(seconds, kLongestWait));
  });
}

gsel_status gsel_request_notify(gsel_request* request, gsel_queue* queue, void* user, gsel_error** err) {
  return gsel::guard(err, [&] { live(request).notify(queue ? queue->impl : nullptr, user); });
}

gsel_status gsel_queue_create(gsel_queue** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_queue();
  });
}

int32_t gsel_queue_fd(const gsel_queue* queue) {
  return queue ? queue->impl->descriptor() : -1;
}

gsel_status gsel_queue_next(gsel_queue* queue, double seconds, int32_t* found, void** user, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(found, "found") = 0;
    gsel::required(user, "user") = nullptr;
    if (std::isnan(seconds)) gsel::fail(GSEL_ERR_ARG, "seconds is no number; 0 looks, and less than 0 waits");
    gsel::CompletionQueue& impl = *gsel::required(queue, "queue").impl;
    gsel::require_own_process(impl.fork_generation(), "gsel_queue_next");
    const auto next = impl.next(std::min(seconds, kLongestWait));
    *found = next.has_value();
    *user = next.value_or(nullptr);
  });
}

void gsel_queue_free(gsel_queue* queue) {
  if (!queue) return;
  queue->impl->close();
  delete queue;
}

gsel_status gsel_request_wait_any(gsel_request* const* requests, size_t n, size_t* index, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(index, "index");
    gsel::required(requests, "requests");
    if (n > PTRDIFF_MAX / sizeof *requests) gsel::fail(GSEL_ERR_ARG, "n is {}; no array has so many requests", n);
    std::vector<gsel::CallRequest*> all(n);
    for (size_t i = 0; i < n; ++i) all[i] = requests[i] ? &requests[i]->impl : nullptr;
    gsel::CallRequest::wait_any(all, index);
  });
}

gsel_status gsel_request_event(gsel_request* request, void** event, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(event, "event") = nullptr;
    *event = live(request).event();
  });
}

gsel_status gsel_request_cancel(gsel_request* request, int32_t* cancelled, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(cancelled, "cancelled") = 0;
    *cancelled = live(request).cancel();
  });
}

void gsel_request_free(gsel_request* request) {
  if (request && request->impl.waits_for_itself())
    return gsel::log(GSEL_LOG_ERROR, "comm",
                     "gsel_request_free from an operation that runs before the request's end: it is not released; free "
                     "it after the operation returns");
  delete request;
}

}  // extern "C"
