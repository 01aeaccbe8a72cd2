// train/check/memory_checks.cc: which memory a callback reads and writes. The callback is called several times with the
// same bytes: again in place, with other poison, and at other addresses. The way results differ shows the fault. See
// layer_check.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/check/layer_check.h"

namespace gsel::check {
namespace {

const Buffer& at(const Member& member, const Buffer& like) {
  return member[like.role][static_cast<size_t>(like.index)];
}

// The first element whose bits differ, or -1.
int64_t first_other(const Buffer& a, const Buffer& b) {
  if (a.bytes == b.bytes) return -1;
  for (int64_t i = 0; i < a.elems(); ++i)
    if (!a.same_bits(i, b)) return i;
  return -1;
}

std::string two_results(const Buffer& a, const Buffer& b, int64_t i) {
  return fmt::format("{} or {}", shown(a.number(i)), shown(b.number(i)));
}

}  // namespace

// Lends poison for buffers that the layer declares unread; all later calls lend NULL.
bool LayerCheck::check_unread(const Round& round, const Member& state) {
  Member a = state, b = state;
  Round lending = round;
  lending.unread = kPoison;
  caller_.run(a, lending);
  if (!is_repeatable(lending, state, a)) return false;
  lending.unread = kOtherPoison;
  caller_.run(b, lending);
  for (const Buffer* buffer : written_by(a, round.callback)) {
    const Buffer& other = at(b, *buffer);
    const int64_t i = first_other(*buffer, other);
    if (i < 0) continue;
    findings().breach(GSEL_BREACH_UNREAD, site(round.callback), *buffer, i,
                      fmt::format("is {}, depending on what the layer's description calls unread; take the bit out of "
                                  "backward_*_unread (backward_weight reads no parameters, unless the layer is flagged "
                                  "GSEL_LAYER_WEIGHT_READS_PARAMS)",
                                  two_results(*buffer, other, i)),
                      buffer->number(i), other.number(i));
    return false;
  }
  return true;
}

bool LayerCheck::is_repeatable(const Round& round, const Member& state, const Member& first) {
  Member again = state;
  caller_.run(again, round);
  for (const Buffer* buffer : written_by(again, round.callback))
    if (const int64_t i = first_other(at(first, *buffer), *buffer); i >= 0) {
      findings().breach(
          GSEL_BREACH_NOT_REPEATABLE, site(round.callback), *buffer, i,
          fmt::format("two calls with the same bytes gave {}; a recomputed forward would give something else, "
                      "and noise comes from rng_key",
                      two_results(at(first, *buffer), *buffer, i)),
          at(first, *buffer).number(i), buffer->number(i));
      return false;
    }
  return true;
}

// Whether the result of a gradient includes its initial value although accumulate is 0.
bool LayerCheck::always_adds(const Round& round, Member member, const Buffer& gradient, int64_t i) {
  auto from = [&](double start) {
    Member m = member;
    for (Buffer& buffer : m[GSEL_BUFFER_D_PARAM])
      for (int64_t e = 0; e < buffer.elems(); ++e) buffer.put(e, start);
    Round as_it_is = round;
    as_it_is.poisons_gradients = false;
    caller_.run(m, as_it_is);
    return at(m, gradient).number(i);
  };
  const double zero = from(0), start = std::max(1.0, std::fabs(zero)), result = from(start);
  return std::fabs(result - zero - start) <= 1e-3 * start;
}

// x, y: results with the two kinds of poison.
bool LayerCheck::check_element(const Round& round, const Member& before, const Buffer& x, const Buffer& y, int64_t i) {
  if (x.same_bits(i, y)) return true;
  if (x.is_filled(i, kPoison) && y.is_filled(i, kOtherPoison)) {
    if (!must_write(x)) return true;
    if (x.role == GSEL_BUFFER_D_PARAM && !before.produced[static_cast<size_t>(x.index)]) return true;
    findings().breach(GSEL_BREACH_UNWRITTEN, site(round.callback), x, i,
                      "was left unwritten; the next reader gets an earlier step's contents");
    return false;
  }
  if (x.role == GSEL_BUFFER_D_PARAM && always_adds(round, before, x, i)) {
    findings().breach(GSEL_BREACH_ALWAYS_ADDED, site(round.callback), x, i,
                      "was added to though accumulate is 0; overwrite it then, or flag the layer "
                      "GSEL_LAYER_ALWAYS_ACCUMULATES");
    return false;
  }
  findings().breach(GSEL_BREACH_STRAY_READ, site(round.callback), x, i,
                    fmt::format("is {}, depending on memory that nobody has written: what the call is to write, saved "
                                "bytes that forward left out, or memory outside of what is lent",
                                two_results(x, y, i)),
                    x.number(i), y.number(i));
  return false;
}

// x, y: results with the two kinds of poison.
bool LayerCheck::is_independent(const Round& round, const Member& state, Member& x, const Member& y) {
  Member before = state;
  before.produced = x.produced;
  for (const Buffer* buffer : written_by(x, round.callback)) {
    const Buffer& other = at(y, *buffer);
    for (int64_t i = first_other(*buffer, other); i >= 0 && i < buffer->elems(); ++i)
      if (!check_element(round, before, *buffer, other, i)) return false;
  }
  return true;
}

bool LayerCheck::keeps_no_pointer(const Round& round, const Member& state, const Member& first) {
  Member elsewhere = state;
  Round moved = round;
  moved.moved = true;
  if (!caller_.run(elsewhere, moved)) return false;
  for (const Buffer* buffer : written_by(elsewhere, round.callback))
    if (const int64_t i = first_other(at(first, *buffer), *buffer); i >= 0) {
      findings().breach(
          GSEL_BREACH_KEPT_POINTER, site(round.callback), *buffer, i,
          fmt::format("is {} once the buffers have moved and their old places are poisoned; pointers are lent "
                      "for one call, take them from it",
                      two_results(at(first, *buffer), *buffer, i)),
          at(first, *buffer).number(i), buffer->number(i));
      return false;
    }
  return true;
}

bool LayerCheck::check_produced(const Round& round, const Member& m) {
  for (const Buffer& buffer : m[GSEL_BUFFER_D_PARAM]) {
    if (round.callback == GSEL_FORWARD || round.callback == GSEL_BACKWARD_INPUT || round.accumulate) break;
    if (buffer.is_absent || m.produced[static_cast<size_t>(buffer.index)]) continue;
    for (int64_t i = 0; i < buffer.elems(); ++i) {
      if (buffer.is_filled(i, kPoison)) continue;
      findings().breach(GSEL_BREACH_PRODUCED, site(round.callback), buffer, i,
                        "was written, and produced says 0, so that it counts as zero; leave produced at 1");
      return false;
    }
  }
  return true;
}

// a, b: before the call, b with other bytes where forward left saved memory unwritten; afterwards the results.
bool LayerCheck::check_memory(const Round& round, Member& a, Member& b) {
  if (round.callback != GSEL_FORWARD && !check_unread(round, a)) return false;
  Member first = a;
  if (!caller_.run(first, round) || !is_repeatable(round, a, first)) return false;
  Round other = round;
  other.poison = kOtherPoison;
  if (!caller_.run(b, other) || !is_independent(round, a, first, b) || !keeps_no_pointer(round, a, first) ||
      !check_produced(round, first))
    return false;
  a = std::move(first);
  sound_ |= 1u << round.callback;
  return true;
}

}  // namespace gsel::check
