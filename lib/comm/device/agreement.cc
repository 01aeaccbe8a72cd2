// comm/device/agreement.cc: see accelerator.h.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/os.h"
#include "comm/device/accelerator.h"

namespace gsel {
namespace {

constexpr const char* kHost = "host";

// What the ranks exchange before any transport is joined.
struct Choice {
  char transport[32], uuid[64], why[160];
  int32_t version, named;
  uint32_t flags;  // GSEL_COMM_*
  uint32_t transport_flags;
  uint64_t process;
  int32_t pid, ordinal;
};

void copy_text(std::span<char> to, std::string_view text) {
  to[text.copy(to.data(), to.size() - 1)] = '\0';
}

// Together with the pid, which a forked child does not share, unique even across containers.
uint64_t number_of_process() {
  static const uint64_t drawn = [] {
    uint64_t number;
    os::random_bytes(&number, sizeof number);
    return number;
  }();
  return drawn;
}

std::vector<int32_t> other_devices_here(std::span<const Choice> all, const Choice& own) {
  std::vector<int32_t> found;
  for (const Choice& c : all)
    if (c.process == own.process && c.pid == own.pid && c.ordinal != own.ordinal) found.push_back(c.ordinal);
  return found;
}

Error about(const Control& control, size_t rank, gsel_status code, const std::string& text) {
  return Error(code, text).about_rank(control.shown(static_cast<int32_t>(rank)));
}

// Why the ranks cannot use a transport together, the same on every rank; nullopt: they can.
std::optional<Error> why_not(const Control& control, std::span<const Choice> all, const Choice& wanted) {
  const bool through_host = std::strcmp(wanted.transport, kHost) == 0;
  const auto named = [&](size_t q) { return control.named(static_cast<int32_t>(q)); };
  for (size_t q = 0; q < all.size(); ++q) {
    if (all[q].named && std::strcmp(all[q].transport, wanted.transport) != 0)
      return about(control, q, GSEL_ERR_MISMATCH,
                   fmt::format("{} asks for the transport \"{}\", another rank for \"{}\"; name one on all ranks, or "
                               "\"auto\"",
                               named(q), all[q].transport, wanted.transport));
    if (through_host) continue;
    if (std::strcmp(all[q].transport, wanted.transport) != 0)
      return about(control, q, GSEL_ERR_UNSUPPORTED,
                   fmt::format("{} cannot use {}: {}", named(q), wanted.transport,
                               all[q].why[0] ? all[q].why : "it has another transport"));
    if (all[q].version != all[0].version)
      return about(control, q, GSEL_ERR_VERSION,
                   fmt::format("{} has {} {}, {} has {}; use one version on all ranks", named(q), wanted.transport,
                               all[q].version, named(0), all[0].version));
    if ((all[q].transport_flags & GSEL_TRANSPORT_OWN_DEVICE) == 0) continue;
    for (size_t before = 0; before < q; ++before)
      if (std::strcmp(all[before].uuid, all[q].uuid) == 0)
        return about(control, q, GSEL_ERR_DUPLICATE,
                     fmt::format("{} and {} share the device {}, and {} needs one for each rank; give each rank its "
                                 "own, or use the transport \"host\"",
                                 named(before), named(q), all[q].uuid, wanted.transport));
  }
  return {};
}

// Checks the flags of all ranks against the agreed transport.
void check_demands(const Control& control, std::span<const Choice> all, const Choice& wanted,
                   const Agreement& agreement) {
  for (size_t q = 0; q < all.size(); ++q) {
    const std::string name = control.named(static_cast<int32_t>(q));
    if ((all[q].flags & GSEL_COMM_NOT_THROUGH_HOST) != 0 && agreement.through_host)
      throw about(control, q, GSEL_ERR_UNSUPPORTED,
                  fmt::format("{} was made with GSEL_COMM_NOT_THROUGH_HOST, and no transport takes its memory: {}",
                              name, agreement.reason));
    if ((all[q].flags & GSEL_COMM_BITWISE) != 0 && !agreement.through_host &&
        (wanted.transport_flags & GSEL_TRANSPORT_BITWISE) == 0)
      throw about(control, q, GSEL_ERR_UNSUPPORTED,
                  fmt::format("{} was made with GSEL_COMM_BITWISE, and {} does not promise the same bits in every run; "
                              "use the transport \"host\"",
                              name, wanted.transport));
  }
}

}  // namespace

Agreement agree_on_transport(const Accelerator& accelerator, Control& control, uint32_t flags) {
  Choice own{};
  copy_text(own.transport, accelerator.transport_name);
  copy_text(own.uuid, accelerator.uuid);
  copy_text(own.why, accelerator.others);
  own.version = accelerator.can.version;
  own.named = accelerator.is_named;
  own.flags = flags;
  own.transport_flags = accelerator.can.flags;
  own.process = number_of_process();
  own.pid = getpid();
  own.ordinal = accelerator.ordinal;
  std::vector<Choice> all(static_cast<size_t>(control.world_size()));
  control.exchange(&own, all.data(), sizeof own, "join transport");
  const auto named = std::ranges::find_if(all, [](const Choice& c) { return c.named != 0; });
  const Choice& wanted = named == all.end() ? all[0] : *named;
  const std::optional<Error> problem = why_not(control, all, wanted);
  if (problem && named != all.end()) throw Error(*problem);
  Agreement agreement;
  if (problem)
    agreement.reason = problem->message();
  else if (std::strcmp(wanted.transport, kHost) == 0)
    agreement.reason = wanted.named    ? "it was asked for"
                       : wanted.why[0] ? wanted.why
                                       : "no transport takes memory of this device";
  else
    agreement = {false,
                 fmt::format("{}{}", accelerator.is_named ? "it was asked for" : "all ranks have it",
                             accelerator.others.empty() ? "" : "; " + accelerator.others),
                 {}};
  if (!agreement.through_host && (own.transport_flags & GSEL_TRANSPORT_IN_PLACE) != 0)
    agreement.reached_by = other_devices_here(all, own);
  check_demands(control, all, wanted, agreement);
  return agreement;
}

}  // namespace gsel
