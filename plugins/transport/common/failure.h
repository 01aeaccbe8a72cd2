// plugins/transport/common/failure.h: shared by transports between hosts: failures that are thrown inside and converted
// to errors at the boundary, calls of the host's tables, and deadlines. Does not know how bytes travel.
#pragma once

#include <gsel/transport.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace gsel_between {

struct Failure {
  gsel_status status;
  std::string text;
};

[[noreturn]] inline void fail(gsel_status status, std::string text) {
  throw Failure{status, std::move(text)};
}

// Status and error of the exception being handled.
inline gsel_status failed(const gsel_host_v1* host, gsel_error** err) noexcept {
  gsel_status status = GSEL_ERR_NOMEM;
  try {
    throw;
  } catch (const Failure& failure) {
    if (err) *err = host->error_new(failure.status, failure.text.c_str());
    return failure.status;
  } catch (const std::pair<gsel_status, gsel_error*>& foreign) {
    if (err) *err = foreign.second;
    return foreign.first;
  } catch (const std::bad_alloc&) {
    if (err) *err = host->error_new(status, "no memory of the host for a transport");
  } catch (const std::exception& e) {
    status = GSEL_ERR_IO;
    if (err) *err = host->error_new(status, e.what());
  } catch (...) {
    status = GSEL_ERR_INTERNAL;
    if (err) *err = host->error_new(status, "unexpected exception in a transport");
  }
  return status;
}

// Makes a call of one of the host's tables, call(&err), and throws its error.
template <class Call>
void must(Call&& call) {
  gsel_error* err = nullptr;
  const gsel_status status = call(&err);
  if (status != GSEL_OK) throw std::pair(status, err);
}

// An allgather: each rank's value, by rank. T is sent as raw bytes.
template <class T>
std::vector<T> exchanged(const gsel_join& join, const T& mine) {
  std::vector<T> all(static_cast<size_t>(join.world_size));
  must(
      [&](gsel_error** err) { return join.control->exchange(join.control->ctx, &mine, all.data(), sizeof mine, err); });
  return all;
}

// A failure of this rank, if any. In agree(), every rank fails with the failure of the lowest rank that has one.
struct Report {
  int32_t status = GSEL_OK;
  char text[400] = "";

  void say(gsel_status code, const std::string& what) {
    status = code;
    snprintf(text, sizeof text, "%s", what.c_str());
  }
};

// Does what may fail on this rank alone, unless it has failed before.
template <class Body>
void attempt(Report& report, Body&& body) {
  if (report.status != GSEL_OK) return;
  try {
    body();
  } catch (const Failure& failure) {
    report.say(failure.status, failure.text);
  } catch (const std::pair<gsel_status, gsel_error*>& foreign) {
    report.say(foreign.first, "a call of the host or the device has failed");
  } catch (const std::bad_alloc&) {
    report.say(GSEL_ERR_NOMEM, "no memory of the host");
  }
}

inline void agree(const gsel_join& join, const Report& mine, const char* who) {
  const std::vector<Report> all = exchanged(join, mine);
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].status != GSEL_OK)
      fail(all[r].status, std::string(who) + " cannot join: rank " + std::to_string(r) + ": " + all[r].text);
}

using Clock = std::chrono::steady_clock;

inline Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)));
}

// A transport between hosts makes no collectives.
inline int32_t supports_nothing(gsel_link*, const gsel_collective*, char* reason, size_t capacity) {
  if (reason && capacity > 0) snprintf(reason, capacity, "a transport between hosts moves bytes only");
  return 0;
}

}  // namespace gsel_between
