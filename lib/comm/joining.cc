// comm/joining.cc: how ranks join: completes the options from the settings and the environment, and opens the
// transports after the ranks have met. See communicator.h.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/call/check.h"
#include "comm/communicator.h"
#include "comm/device/device_backend.h"
#include "comm/hosts/meeting.h"

namespace gsel {
namespace {

// option: where `device` was given. uuid: of the one that is this rank's; the host stands in for none that was chosen.
void offer_host(OpenTransports& open, const char* option, std::string_view device, std::string_view uuid) {
  const DeviceWish wish = device_wish(device);
  open.or_host = wish.or_host && uuid.empty();
  if (!wish.or_host)
    open.how_to_take_host =
        fmt::format("; {} = \"{} | cpu\" takes the host where no rank has such a device", option, one_line(device));
  else if (!uuid.empty())
    open.how_to_take_host = fmt::format(
        "; this rank's device was chosen, {}, and the host stands in where none was: leave out GSEL_DEVICE and "
        "gsel_comm_options.device",
        one_line(uuid));
}

// Borrows from the caller's texts.
struct Joining {
  Joining(const gsel_comm_options& options, const Config& config) : given(options), settings(config) {
    if (given.timeout_s == 0) given.timeout_s = settings.comm.timeout_s;
    join = complete_join(given);
    if (join.trace.len == 0) join.trace = borrow(settings.comm.trace);
    open.between_hosts = [this] { return open_between_hosts(given, settings); };
    const std::string_view transport = view(given.transport);
    if (has_accelerator(given)) {
      open.accelerator = [this] { return open_accelerator(given, settings); };
      offer_host(open, "gsel_comm_options.accelerator", view(given.accelerator), own_device(given).uuid);
    } else if (!transport.empty() && transport != "auto" && join.rendezvous.empty())
      fail(GSEL_ERR_ARG,
           "gsel_comm_options.transport is {} without an accelerator and without a rendezvous; memory of one host has "
           "one transport",
           in_quotes(transport));
  }
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

  gsel_comm_options given;
  const Config& settings;
  JoinOptions join;
  OpenTransports open;
};

// What became of a rank's accelerator.
struct Outcome {
  gsel_status code;
  uint32_t lacks_device, or_host;
  char text[2036];

  std::string why() const { return one_line({text, strnlen(text, sizeof text)}); }
};

JoinOptions checked(const JoinOptions& join) {
  if (join.world_size < 1 || join.rank < 0 || join.rank >= join.world_size)
    fail(GSEL_ERR_ARG, "rank {} of a world of {}: the rank must be 0 to world_size - 1", join.rank, join.world_size);
  JoinOptions complete = join;
  complete.timeout_s = checked_seconds(join.timeout_s, "timeout_s");
  complete.join_timeout_s = checked_seconds(join.join_timeout_s, "join_timeout_s");
  if (join.order != GSEL_ORDER_RANKS && join.order != GSEL_ORDER_TREE)
    fail(GSEL_ERR_ARG, "order {} is unknown; use GSEL_ORDER_RANKS or GSEL_ORDER_TREE", join.order);
  return complete;
}

}  // namespace

Communicator Communicator::join(const gsel_comm_options& given, const Config& settings) {
  const Joining joining(given, settings);
  return Communicator(joining.join, joining.open);
}

Communicator Communicator::alone(const Config& settings) {
  const bool is_host = settings.train.device == "auto" || settings.train.device == "cpu";
  gsel_comm_options given = GSEL_COMM_OPTIONS_INIT;
  given.world_size = 1;
  given.timeout_s = settings.comm.timeout_s;
  if (!is_host) given.accelerator = borrow(settings.train.device);
  if (!is_host) given.transport = GSEL_STR("host");  // nothing is sent
  const JoinOptions join = complete_join(given);
  given.world_size = 0;  // a launcher says which device is this process's
  OpenTransports open;
  if (!is_host) {
    open.accelerator = [&] { return open_accelerator(given, settings); };
    offer_host(open, "train.device", settings.train.device, own_device(given).uuid);
  }
  return Communicator(join, open);
}

Communicator::Communicator(const JoinOptions& join, const OpenTransports& open) {
  JoinOptions complete = checked(join);
  complete.accelerator = open.accelerator != nullptr;
  joined_ = {complete.timeout_s, complete.join_timeout_s, complete.flags};
  control_ = hosts::join(complete, open.between_hosts);
  backend_ = &control_->host();
  if (open.accelerator) accelerator_ = open_together(open);
  prepare();
}

// Opens the accelerator on all ranks and exchanges failures before any rank waits in a transport. The start of a driver
// counts towards the join timeout. nullptr: no rank has its device, and all allow the host.
std::shared_ptr<const Accelerator> Communicator::open_together(const OpenTransports& open) {
  Outcome own{};
  own.or_host = open.or_host;
  std::shared_ptr<const Accelerator> opened;
  std::optional<Error> failure;
  try {
    if ((joined_.flags & GSEL_COMM_THREAD_MULTIPLE) != 0)
      fail(GSEL_ERR_UNSUPPORTED,
           "GSEL_COMM_THREAD_MULTIPLE with an accelerator, where one thread at a time makes calls; leave it out");
    opened = open.accelerator();
  } catch (const WithoutDevice& error) {
    own.lacks_device = 1;
    failure = Error(error.code(), error.message() + open.how_to_take_host);
  } catch (...) {
    failure = current_error();
  }
  if (failure) {
    own.code = failure->code();
    failure->message().copy(own.text, sizeof own.text - 1);
  }
  std::vector<Outcome> all(static_cast<size_t>(world_size()));
  try {
    control_->exchange(&own, all.data(), sizeof own, "accelerator", joined_.join_timeout_s);
  } catch (const Error&) {
    if (!failure) throw;
    throw Error(*failure);
  }
  if (std::ranges::all_of(all, [](const Outcome& o) { return o.lacks_device && o.or_host; })) {
    host_reason_ = fmt::format("the host stands in for a device that no rank has (rank 0: {})", all[0].why());
    log(GSEL_LOG_WARN, "comm", "rank {} of {}: {}", rank(), control_->name(), host_reason_);
    return nullptr;
  }
  const auto with_device = std::ranges::find(all, GSEL_OK, &Outcome::code);
  const auto why_no_host = [&](const Outcome& of) -> std::string {
    if (with_device == all.end() || !of.lacks_device || !of.or_host) return {};
    return fmt::format(
        "; rank {} has its device, and the ranks of a communicator are on devices or on the host "
        "together: give this rank a device, or every rank \"cpu\"",
        with_device - all.begin());
  };
  if (failure && why_no_host(own).empty()) throw Error(*failure);
  if (failure) throw Error(failure->code(), failure->message() + why_no_host(own));
  for (size_t q = 0; q < all.size(); ++q)
    if (all[q].code != GSEL_OK)
      throw Error(all[q].code, fmt::format("rank {}: {}{}", q, all[q].why(), why_no_host(all[q])))
          .about_rank(static_cast<int32_t>(q));
  return opened;
}

Communicator Communicator::grow(const gsel_comm_options& given, const Config& settings) {
  return join_larger("gsel_comm_grow", given, false, settings);
}

Communicator Communicator::merge(const gsel_comm_options& given, bool high, const Config& settings) {
  return join_larger("gsel_comm_merge", given, high, settings);
}

// high: the ranks of this communicator are the last ones of the larger one, else the first ones. They check here that
// they agree; the rendezvous checks all ranks.
Communicator Communicator::join_larger(std::string_view name, gsel_comm_options given, bool high,
                                       const Config& settings) {
  if (!given.id || given.world_size == 0)
    fail(GSEL_ERR_ARG, "{}: the config has no {}; it needs a fresh id and the new world_size", name,
         given.id ? "world_size" : "id");
  given.rank = rank();
  Joining joining(given, settings);
  JoinOptions& join = joining.join;
  const int32_t first = high ? join.world_size - world_size() : 0;
  join.rank = first + rank();
  if (join.world_size < world_size())
    fail(GSEL_ERR_ARG, "{}: world_size is {} and the communicator has {} already; it takes a larger one", name,
         join.world_size, with_noun(world_size(), "rank"));
  if (control_->is_over_hosts() && join.rendezvous.empty())
    fail(GSEL_ERR_ARG,
         "{}: the ranks are on several hosts and gsel_comm_options.rendezvous is not given; "
         "name a place on rank 0's host where all can meet, as in tcp://10.0.0.1:29500",
         name);
  struct Plan {
    gsel_unique_id id;
    int32_t world_size, first;
  };
  const Plan own{join.id, join.world_size, first};
  std::vector<Plan> plans(static_cast<size_t>(world_size()));
  control_->exchange(&own, plans.data(), sizeof own, "grow");
  for (size_t q = 0; q < plans.size(); ++q)
    if (std::memcmp(&plans[q], &plans[0], sizeof own) != 0)
      throw Error(GSEL_ERR_MISMATCH,
                  fmt::format("{}: rank {} grows to {} as rank {}, rank 0 to {} as rank {}{}; give "
                              "every rank the same id and world_size",
                              name, q, with_noun(plans[q].world_size, "rank"), plans[q].first + static_cast<int32_t>(q),
                              plans[0].world_size, plans[0].first,
                              std::memcmp(&plans[q].id, &plans[0].id, sizeof own.id) != 0 ? " by another id" : ""))
          .about_rank(static_cast<int32_t>(q));
  return Communicator(join, joining.open);
}

}  // namespace gsel
