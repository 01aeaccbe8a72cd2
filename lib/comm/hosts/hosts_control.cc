// comm/hosts/hosts_control.cc: see hosts_control.h.
#include "comm/hosts/hosts_control.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

uint64_t fingerprint_of(std::string_view text) {
  uint64_t print = 0xcbf29ce484222325u;  // FNV-1a, 64 bit
  for (const char c : text) print = (print ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return print;
}

// Ranks agree on an exchange if its size and label are the same.
Head head_of_exchange(uint64_t bytes, std::string_view label) {
  Head head;
  head.kind = GSEL_COLLECTIVE_ALLGATHER;
  head.dtype = GSEL_U8;
  head.count = head.bytes = bytes;
  head.root = kRootOfExchange;
  label.copy(head.label, sizeof head.label - 1);
  head.fingerprint = fingerprint_of(label) ^ bytes;
  return head;
}

os::Fd wake_fd() {
  os::Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) fail(GSEL_ERR_IO, "no descriptor for a break of a communicator: {}", errno_text(errno));
  return fd;
}

std::vector<shm::PartOfHost> parts_of(const Roster& roster) {
  std::vector<shm::PartOfHost> parts(roster.hosts());
  for (size_t h = 0; h < parts.size(); ++h) {
    roster.table().names[h].copy(parts[h].host, shm::kHostBytes - 1);
    parts[h].first_rank = roster.shown(roster.on(h).front());
    parts[h].ranks = static_cast<int32_t>(roster.on(h).size());
  }
  return parts;
}

}  // namespace

HostsControl::HostsControl(Place place)
    : Control(place.rank, static_cast<int32_t>(place.table.host_of.size())),
      facts_(std::move(place.facts)),
      roster_(std::move(place.table), place.rank),
      local_(std::move(place.local)),
      timeout_s_(place.timeout_s),
      join_timeout_s_(place.join_timeout_s),
      wake_(wake_fd()),
      assembly_(roster_, *local_),
      backend_(roster_, *local_, assembly_, *serial_, facts_->order, timeout_s_) {
  const Founding founding{roster_.table().job, roster_.table().port};
  if (!place.series) {
    connect(founding, place.listener, place.is_given_up);
    open_recovery_listener();
    if (failure_notifier_) failure_notifier_->begin_inquiries(series_, facts_->secret);
    join_transport();
    return;
  }
  series_ = std::move(*place.series);
  try {
    connect(founding, place.listener, place.is_given_up);
    if (failure_notifier_) failure_notifier_->begin_inquiries(series_, facts_->secret);
    join_transport();
  } catch (...) {
    local_->break_with(current_error());
  }
}

void HostsControl::open_recovery_listener() {
  auto first = std::make_shared<HostTable>(roster_.table());
  first->shown_ranks.clear();
  series_ = {std::make_shared<RecoveryListener>(), std::move(first), std::vector<int32_t>(roster_.ranks()), 0};
  std::iota(series_.ranks.begin(), series_.ranks.end(), 0);
  RecoveryListener& recovery = *series_.recovery;
  recovery.job = roster_.table().job;
  recovery.newest.generation.job = recovery.job;
  recovery.newest.marks.assign(roster_.ranks(), static_cast<char>(Mark::comes));
  recovery.ports.resize(roster_.ranks());
  const uint16_t port = recovery.own.port();
  exchange(&port, recovery.ports.data(), sizeof port, "join", join_timeout_s_);
}

void HostsControl::connect(const Founding& founding, const std::optional<Listener>& listener,
                           const std::function<bool()>& is_given_up) {
  try {
    if (roster_.leads()) {
      const HostTable& table = roster_.table();
      const int64_t deadline = os::now_ns() + static_cast<int64_t>(join_timeout_s_ * 1e9);
      lines_ = connect_lines({facts_->secret, founding.job, roster_.tree(), table.names, table.addresses, founding.port,
                              join_timeout_s_, deadline, is_given_up},
                             roster_.own_host(), listener);
    }
  } catch (...) {  // the other ranks of this host wait for this one
    local_->break_with(current_error());
    throw;
  }
  if (!roster_.leads()) return;
  uint64_t of = 0;
  std::memcpy(&of, roster_.table().job.bytes, sizeof of);
  local_->note_part(of, static_cast<int32_t>(roster_.ranks()), parts_of(roster_), roster_.own_host());
  relay_.emplace(roster_, lines_, wake_.get());
  failure_notifier_ = std::make_unique<FailureNotifier>(roster_, *local_, lines_, facts_->silence_ns, wake_);
  backend_.notify_failures_with([this] { failure_notifier_->await_notified(); });
  assembly_.lead(*relay_);
}

// A forked child does not have the threads, so it leaks what they use.
HostsControl::~HostsControl() {
  if (os::fork_generation() != fork_generation_) {
    static_cast<void>(serial_.release());
    static_cast<void>(failure_notifier_.release());
    static_cast<void>(announcer_.release());
    backend_.abandon();
    return;
  }
  const bool makes = std::ranges::any_of(makers_, [](const auto& maker) { return !maker->has_ended(); });
  if (makes || serial_->under_way() || backend_.messages_under_way()) abort("destroyed with requests under way", -1);
  for (const auto& maker : makers_) maker->join();
  serial_->stop();
  announcer_.reset();
  if (!is_broken()) backend_.leave();
  backend_.take(nullptr);
  close_recovery_listener();
}

// Closes the recovery listener when the newest generation is freed: this rank has left, even if the caller keeps older
// ones.
void HostsControl::close_recovery_listener() {
  if (!series_.recovery || is_shrunk_) return;
  const std::lock_guard lock(series_.recovery->mutex);
  if (series_.recovery->newest.generation.number != series_.generation || series_.recovery->is_kept) return;
  const std::lock_guard requests_lock(series_.recovery->requests_mutex);
  series_.recovery->own.close();
  series_.recovery->requests.clear();
}

// Joins the transport that all ranks have, or none.
void HostsControl::join_transport() {
  const std::string own = facts_->between_hosts ? facts_->between_hosts->offers.front().name : std::string();
  const bool all_have_it = agree_on(own, "transport", join_timeout_s_) && !own.empty();
  if (all_have_it || compare_transports())
    backend_.take(std::make_unique<HostTransport>(facts_->between_hosts, *this, timeout_s_, join_timeout_s_,
                                                  roster_.table().addresses[roster_.own_host()]));
}

// Whether all ranks give the same text. The exchanged bytes do not grow with the number of ranks.
bool HostsControl::agree_on(std::string_view text, std::string_view label, double timeout_s) {
  Head head = head_of_exchange(0, label);
  head.fingerprint ^= fingerprint_of(text);
  try {
    run_in_turn([&] { assembly_.gather(head, nullptr, nullptr, timeout_s); });
  } catch (const Error& error) {
    if (error.code() != GSEL_ERR_MISMATCH) throw;
    return false;
  }
  return true;
}

// false: there is no transport for large payloads, and no rank needs one.
bool HostsControl::compare_transports() {
  struct Has {
    char name[32], why[512];
    bool needs;
  } own{};
  own.needs = !facts_->on_devices;
  if (facts_->between_hosts) facts_->between_hosts->offers.front().name.copy(own.name, sizeof own.name - 1);
  facts_->why_none.copy(own.why, sizeof own.why - 1);
  std::vector<Has> all(roster_.ranks());
  exchange(&own, all.data(), sizeof own, "transport", join_timeout_s_);
  if (std::ranges::none_of(all, &Has::needs)) {
    const auto lacks = std::ranges::find_if(all, [](const Has& has) { return !has.name[0]; });
    if (lacks != all.end()) {
      backend_.go_without(fmt::format("{} has none: {}", roster_.named(static_cast<int32_t>(lacks - all.begin())),
                                      read_text(lacks->why)));
      return false;
    }
  }
  for (size_t q = 0; q < all.size(); ++q) {
    const auto rank = static_cast<int32_t>(q);
    const auto refuse_for = [&](const std::string& why) {
      throw Error(GSEL_ERR_UNSUPPORTED, fmt::format("{} {}", roster_.named(rank), why)).about_rank(roster_.shown(rank));
    };
    if (!all[q].name[0]) refuse_for(fmt::format("has no transport between hosts: {}", read_text(all[q].why)));
    if (std::strcmp(all[q].name, all[0].name) != 0)
      refuse_for(fmt::format("has the transport {}, {} has {}; name one on all ranks", read_text(all[q].name),
                             roster_.named(0), read_text(all[0].name)));
  }
  return true;
}

// Among the collectives. What breaks the communicator is known on the other hosts before it is thrown.
void HostsControl::run_in_turn(const std::function<void()>& body) {
  try {
    serial_->run(body);
  } catch (...) {
    if (failure_notifier_ && is_broken()) failure_notifier_->await_notified();
    if (is_broken()) local_->note_failure(current_error());
    throw;
  }
}

void HostsControl::exchange(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s) {
  run_in_turn([&] { exchange_in_turn(mine, all, bytes, label, timeout_s); });
}

void HostsControl::exchange_in_turn(const void* mine, void* all, uint64_t bytes, std::string_view label,
                                    double timeout_s) {
  assembly_.gather(head_of_exchange(bytes, label), mine, all, timeout_s > 0 ? timeout_s : timeout_s_);
}

void HostsControl::abort(const char* reason, int32_t about) noexcept {
  local_->abort(reason, about);
  if (failure_notifier_) failure_notifier_->await_notified();
}

// A difference on this host is known without waiting. Between hosts the calls are compared; they are exchanged only if
// they differ.
std::optional<OtherJointCall> HostsControl::begin_joint_call(int32_t kind, uint64_t argument) {
  if (auto other = local_->begin_joint_call(kind, argument)) {
    other->rank = roster_.here()[static_cast<size_t>(other->rank)];
    return other;
  }
  struct Begun {
    uint64_t kind, argument;
  };
  const Begun own{static_cast<uint64_t>(kind), argument};
  if (agree_on({reinterpret_cast<const char*>(&own), sizeof own}, "joint call", timeout_s_)) return std::nullopt;
  std::vector<Begun> all(roster_.ranks());
  exchange(&own, all.data(), sizeof own, "joint call", 0);
  for (size_t q = 0; q < all.size(); ++q)
    if (all[q].kind != own.kind || all[q].argument != own.argument)
      return OtherJointCall{static_cast<int32_t>(q), static_cast<int32_t>(all[q].kind), all[q].argument};
  return std::nullopt;
}

void HostsControl::set_timeout(double seconds) {
  timeout_s_ = seconds;
  local_->set_timeout(seconds);
  backend_.set_timeout(seconds);
}

// ---- communicators from this one ------------------------------------------------------------------------------------

std::unique_ptr<Control> HostsControl::split(int32_t colour, int32_t key, std::string_view label) {
  std::unique_ptr<Control> made;
  run_in_turn([&] { made = split_in_turn(colour, key, label, "split"); });
  return made;
}

namespace {

struct Wish {
  int32_t colour, key;
};
// Of the first rank of a group on several hosts. Has no padding, since its bytes are signed.
struct FoundingOfSplit {
  uint64_t number = 0;  // random
  uint32_t port = 0;
  uint32_t fails = 0;  // 1: it cannot listen
};
struct WhyNot {
  char text[126] = {};
};

// The id of a group follows from the number, which is shorter.
gsel_unique_id job_of_group(const Secret& secret, const gsel_unique_id& parent, const FoundingOfSplit& founding) {
  static constexpr uint8_t kOfGroup[] = "the job of a group";
  gsel_unique_id job;
  static_assert(sizeof job.bytes % sizeof(Bytes32) == 0);
  for (uint8_t i = 0; i < sizeof job.bytes / sizeof(Bytes32); ++i) {
    const Bytes32 part = secret.sign({kOfGroup, bytes_of(parent), bytes_of(founding), {&i, 1}});
    std::memcpy(job.bytes + i * sizeof part, &part, sizeof part);
  }
  return job;
}

// By rank of the group.
std::vector<int32_t> members_of(const std::vector<Wish>& wishes, int32_t colour) {
  std::vector<int32_t> members;
  for (size_t q = 0; q < wishes.size(); ++q)
    if (colour >= 0 && wishes[q].colour == colour) members.push_back(static_cast<int32_t>(q));
  std::ranges::stable_sort(members, {}, [&](int32_t q) { return wishes[static_cast<size_t>(q)].key; });
  return members;
}

}  // namespace

std::unique_ptr<Control> HostsControl::split_in_turn(int32_t colour, int32_t key, std::string_view label,
                                                     std::string_view what) {
  const Wish own{colour, key};
  std::vector<Wish> wishes(roster_.ranks());
  exchange_in_turn(&own, wishes.data(), sizeof own, what, 0);
  const std::vector<int32_t> members = members_of(wishes, colour);
  HostTable table = table_of(roster_, members);
  FoundingOfSplit founding;
  WhyNot why;
  std::optional<Listener> listener;
  if (table.names.size() > 1 && members.front() == rank()) try {
      listener = Listener::at_any_port();
      founding.port = listener->port();
      os::random_bytes(&founding.number, sizeof founding.number);
    } catch (const Error& error) {
      founding.fails = 1;
      error.message().copy(why.text, sizeof why.text - 1);
    }
  std::vector<FoundingOfSplit> foundings(roster_.ranks());
  exchange_in_turn(&founding, foundings.data(), sizeof founding, what, 0);
  std::vector<WhyNot> whys(roster_.ranks());
  if (std::ranges::any_of(foundings, [](const FoundingOfSplit& of) { return of.fails != 0; }))
    exchange_in_turn(&why, whys.data(), sizeof why, what, 0);
  const auto place = std::ranges::find(members, rank());
  const auto number = static_cast<int32_t>(place - members.begin());
  const auto shown = [&](int32_t q) {  // a communicator made for the caller numbers its ranks anew
    if (!label.empty()) return roster_.shown(q);
    const auto in_group = std::ranges::find(members, q);
    return in_group == members.end() ? -1 : static_cast<int32_t>(in_group - members.begin());
  };
  std::vector<int32_t> shown_here;
  for (const int32_t q : roster_.here()) shown_here.push_back(shown(q));
  auto local = local_->split_shown(colour, number, label, shown_here);
  if (members.empty()) return nullptr;
  if (table.names.size() == 1) return local;
  const FoundingOfSplit& founder = foundings[static_cast<size_t>(members.front())];
  if (founder.fails != 0)
    throw Error(GSEL_ERR_IO, whys[static_cast<size_t>(members.front())].text).about_rank(members.front());
  table.job = job_of_group(facts_->secret, roster_.table().job, founder);
  table.port = static_cast<uint16_t>(founder.port);
  if (!label.empty())
    for (const int32_t q : members) table.shown_ranks.push_back(shown(q));
  return std::make_unique<HostsControl>(
      Place{facts_, std::move(table), number, std::move(local), std::move(listener), timeout_s_, join_timeout_s_});
}

std::unique_ptr<Control> HostsControl::dup() {
  std::unique_ptr<Control> made;
  run_in_turn([&] { made = split_in_turn(0, rank(), {}, "dup"); });
  return made;
}

}  // namespace gsel::hosts
