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

constexpr size_t kMostOffers = 4;

// What the ranks exchange before any transport is joined.
struct Offer {
  char name[32];
  int32_t version;
  uint32_t flags;  // GSEL_TRANSPORT_*
};
struct Choice {
  Offer offers[kMostOffers];
  char uuid[64], why[160];
  int32_t n_offers, named;
  uint32_t flags;  // GSEL_COMM_*
  int32_t ordinal;
  uint64_t process;
  int32_t pid, reserved;

  const Offer* find(const char* name) const {
    const auto* const end = offers + n_offers;
    const auto* const found = std::find_if(offers, end, [&](const Offer& o) { return std::strcmp(o.name, name) == 0; });
    return found == end ? nullptr : found;
  }
  // Of a rank that names one.
  const char* name() const { return n_offers > 0 ? offers[0].name : kHost; }
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

// Whether several processes of one host have one device. Ranks of one process would share its default stream and the
// queues of its hardware, in which a stream that waits holds up others.
bool share_a_device(const Control& control, std::span<const Choice> all) {
  if (all.size() == 1 || control.is_over_hosts() || !all[0].uuid[0]) return false;
  for (size_t q = 1; q < all.size(); ++q) {
    if (std::strcmp(all[q].uuid, all[0].uuid) != 0) return false;
    for (size_t before = 0; before < q; ++before)
      if (all[before].process == all[q].process && all[before].pid == all[q].pid) return false;
  }
  return true;
}

// Why the ranks cannot use a transport together, the same on every rank; nullopt: they can.
std::optional<Error> why_not(const Control& control, std::span<const Choice> all, const char* wanted) {
  const bool through_host = std::strcmp(wanted, kHost) == 0;
  const auto named = [&](size_t q) { return control.named(static_cast<int32_t>(q)); };
  int32_t version = 0;
  for (size_t q = 0; q < all.size(); ++q) {
    if (all[q].named && std::strcmp(all[q].name(), wanted) != 0)
      return about(control, q, GSEL_ERR_MISMATCH,
                   fmt::format("{} asks for the transport \"{}\", another rank for \"{}\"; name one on all ranks, or "
                               "\"auto\"",
                               named(q), all[q].name(), wanted));
    if (through_host) continue;
    const Offer* offer = all[q].find(wanted);
    if (!offer)
      return about(control, q, GSEL_ERR_UNSUPPORTED,
                   fmt::format("{} cannot use {}: {}", named(q), wanted,
                               all[q].why[0] ? all[q].why : "it has another transport"));
    if (q == 0) version = offer->version;
    if (offer->version != version)
      return about(control, q, GSEL_ERR_VERSION,
                   fmt::format("{} has {} {}, {} has {}; use one version on all ranks", named(q), wanted,
                               offer->version, named(0), version));
    if ((offer->flags & GSEL_TRANSPORT_OWN_DEVICE) == 0) continue;
    for (size_t before = 0; before < q; ++before)
      if (std::strcmp(all[before].uuid, all[q].uuid) == 0)
        return about(control, q, GSEL_ERR_DUPLICATE,
                     fmt::format("{} and {} share the device {}, and {} needs one for each rank; give each rank its "
                                 "own, or use the transport \"cuda_ipc\" or \"host\"",
                                 named(before), named(q), all[q].uuid, wanted));
  }
  return {};
}

// Checks the flags of all ranks against the agreed transport.
void check_demands(const Control& control, std::span<const Choice> all, const Agreement& agreement) {
  for (size_t q = 0; q < all.size(); ++q) {
    const std::string name = control.named(static_cast<int32_t>(q));
    if ((all[q].flags & GSEL_COMM_NOT_THROUGH_HOST) != 0 && !agreement.transport)
      throw about(control, q, GSEL_ERR_UNSUPPORTED,
                  fmt::format("{} was made with GSEL_COMM_NOT_THROUGH_HOST, and no transport takes its memory: {}",
                              name, agreement.reason));
    if ((all[q].flags & GSEL_COMM_BITWISE) != 0 && agreement.transport &&
        (agreement.transport->can.flags & GSEL_TRANSPORT_BITWISE) == 0)
      throw about(control, q, GSEL_ERR_UNSUPPORTED,
                  fmt::format("{} was made with GSEL_COMM_BITWISE, and {} does not promise the same bits in every run; "
                              "use the transport \"host\"",
                              name, agreement.transport->name));
  }
}

Choice own_choice(const Accelerator& accelerator, uint32_t flags) {
  Choice own{};
  for (const Offered& offered : accelerator.offers) {
    if (static_cast<size_t>(own.n_offers) == kMostOffers) break;
    Offer& offer = own.offers[own.n_offers++];
    copy_text(offer.name, offered.name);
    offer.version = offered.can.version;
    offer.flags = offered.can.flags;
  }
  copy_text(own.uuid, accelerator.uuid);
  copy_text(own.why, accelerator.others);
  own.named = accelerator.is_named;
  own.flags = flags;
  own.process = number_of_process();
  own.pid = getpid();
  own.ordinal = accelerator.ordinal;
  return own;
}

// This rank's offer of that name. Empty: "host".
const Offered* offer_named(const Accelerator& accelerator, std::string_view name) {
  const auto found = std::ranges::find(accelerator.offers, name, &Offered::name);
  return found == accelerator.offers.end() ? nullptr : &*found;
}

std::string joined(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + "; " + second;
}

// All ranks take what one of them names.
Agreement agree_on_named(const Accelerator& accelerator, const Control& control, std::span<const Choice> all,
                         const Choice& wanted) {
  if (const auto problem = why_not(control, all, wanted.name())) throw Error(*problem);
  const Offered* offered = offer_named(accelerator, wanted.name());
  if (!offered) return {nullptr, "it was asked for", true, {}};
  return {
      offered, joined(accelerator.is_named ? "it was asked for" : "all ranks have it", accelerator.others), true, {}};
}

// The first of rank 0's that all ranks can use. Where there is none, the reason has those that cannot be used here,
// such as those for devices of another vendor.
Agreement agree_on_any(const Accelerator& accelerator, const Control& control, std::span<const Choice> all) {
  std::string why_others;
  for (const Offer& offer : std::span(all[0].offers, static_cast<size_t>(all[0].n_offers))) {
    if ((offer.flags & GSEL_TRANSPORT_SHARED_DEVICE) != 0 && !share_a_device(control, all)) continue;
    const auto problem = why_not(control, all, offer.name);
    if (!problem) return {offer_named(accelerator, offer.name), joined("all ranks have it", why_others), false, {}};
    why_others = joined(why_others, problem->message());
  }
  if (why_others.empty()) why_others = all[0].why;
  return {nullptr, why_others.empty() ? "no transport takes memory of this device" : why_others, false, {}};
}

}  // namespace

Agreement agree_on_transport(const Accelerator& accelerator, Control& control, uint32_t flags) {
  const Choice own = own_choice(accelerator, flags);
  std::vector<Choice> all(static_cast<size_t>(control.world_size()));
  control.exchange(&own, all.data(), sizeof own, "join transport");
  const auto named = std::ranges::find_if(all, [](const Choice& c) { return c.named != 0; });
  Agreement agreement =
      named == all.end() ? agree_on_any(accelerator, control, all) : agree_on_named(accelerator, control, all, *named);
  if (agreement.transport && (agreement.transport->can.flags & GSEL_TRANSPORT_IN_PLACE) != 0)
    agreement.reached_by = other_devices_here(all, own);
  check_demands(control, all, agreement);
  return agreement;
}

}  // namespace gsel
