// remote_ranks.cc: see remote_ranks.h.
#include "remote_ranks.h"

#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "client.h"
#include "colour.h"

namespace gsel::cli {
namespace {

constexpr size_t kMostConnecting = 128;              // remote shells that are connecting at the same time
constexpr double kAnswerS = 60;                      // for a host to answer
constexpr size_t kInputWindow = 1 << 18;             // bytes of input in flight
constexpr auto kKilledS = std::chrono::seconds(10);  // for a host to confirm that its ranks are killed
constexpr auto kEndS = std::chrono::seconds(4);      // for remote shells to end
constexpr auto kSettle = std::chrono::milliseconds(50);

std::string new_token() {
  std::string token(32, '\0');
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    refuse(GSEL_ERR_IO, "no random numbers for the token of the job");
  return token;
}

// A name that only this job has.
std::string new_job_name() {
  std::string name = "gsel-run-";
  for (const char c : new_token().substr(0, 8)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    name += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return name;
}

}  // namespace

RemoteRanks::RemoteRanks(RemoteJob job) : job_(std::move(job)), printer_(job_.tag_output), has_input_(isatty(0) == 0) {
  signal(SIGPIPE, SIG_IGN);
  int32_t first = 0;
  for (const HostSlots& host : job_.hosts.hosts) {
    hosts_.push_back(std::make_unique<RemoteHost>(host.name, first, host.slots));
    first += host.slots;
  }
}

RemoteRanks::~RemoteRanks() {
  for (const auto& host : hosts_) {
    host->end();
    if (host->state() == State::connecting && host->shell() > 0) kill(-host->shell(), SIGKILL);
  }
  const auto runs = [](const auto& host) { return host->shell() > 0; };
  for (const auto end = Clock::now() + kEndS; Clock::now() < end; poll(nullptr, 0, 10)) {
    reap();
    if (std::ranges::none_of(hosts_, runs)) break;
  }
  descendants_.end_all();
}

std::vector<int32_t> RemoteRanks::numbers() const {
  std::vector<int32_t> numbers(static_cast<size_t>(job_.hosts.slots()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
  return numbers;
}

// ---- before ranks start ----

void RemoteRanks::connect() {
  await(State::greeted, [](RemoteHost& host, const Frame& frame) { host.receive_hello(frame); });
  HostJob job = job_.job;
  job.nodes.count = static_cast<int64_t>(hosts_.size());
  job.nodes.world_size = job_.hosts.slots();
  if (hosts_.size() > 1) {
    job.nodes.rendezvous = job_.rendezvous.empty() ? hosts_.front()->rendezvous() : job_.rendezvous;
    job.token = new_token();
    if (job.nodes.job.empty()) job.nodes.job = new_job_name();
  }
  for (size_t i = 0; i < hosts_.size(); ++i) {
    job.nodes.rank = static_cast<int64_t>(i);
    job.nodes.first_rank = hosts_[i]->first_rank();
    job.ranks = hosts_[i]->ranks();
    job.has_input = i == 0 && has_input_;
    hosts_[i]->channel().send(FrameKind::job, FrameText().raw(encoded(job)));
  }
  await(State::ready, [](RemoteHost& host, const Frame& frame) {
    FrameReader reader(frame.bytes);
    if (frame.kind == FrameKind::ready) return host.set_state(State::ready);
    if (frame.kind != FrameKind::refused) refuse(GSEL_ERR_VERSION, "host " + host.name() + " speaks otherwise");
    const auto code = static_cast<gsel_status>(reader.number());
    refuse(code, "host " + host.name() + ": " + reader.text());
  });
}

// Polls until every host is in `state`, into which `on_frame` brings it. Starts the remaining remote shells as others
// connect.
void RemoteRanks::await(State state, const std::function<void(RemoteHost&, const Frame&)>& on_frame) {
  const auto in = [&](State one) {
    return static_cast<size_t>(std::ranges::count_if(hosts_, [&](const auto& host) { return host->state() == one; }));
  };
  while (in(state) < hosts_.size()) {
    for (const auto& host : hosts_)
      if (host->state() == State::idle && in(State::connecting) < kMostConnecting) host->connect(job_.shell);
    std::vector<pollfd> polls;
    for (const auto& host : hosts_) host->add_to(polls, true);
    poll(polls.data(), polls.size(), 100);
    reap();
    for (const auto& host : hosts_) {
      host->serve(polls);
      if (host->state() == State::idle) continue;
      while (const auto frame = host->channel().take()) on_frame(*host, *frame);
      if (host->is_gone()) host->refuse_gone();
      if (host->is_alive() && host->state() != state && host->age_s() > kAnswerS)
        refuse(GSEL_ERR_TIMEOUT, "host " + host->name() + " has not answered within 60 s: " + host->why_gone());
    }
  }
}

// ---- while they run ----

void RemoteRanks::start() {
  for (const auto& host : hosts_) {
    host->channel().send(FrameKind::go);
    host->set_state(State::running);
    forward_stderr(*host);
  }
}

void RemoteRanks::send(int signal) {
  if (signal == SIGKILL) killed_ = Clock::now();
  for (const auto& host : hosts_)
    if (host->state() == State::running) host->channel().send(FrameKind::signal, FrameText().number(signal));
}

// If our reader is slow, the ranks wait too; after they were killed, their ends are read anyway.
bool RemoteRanks::reads() const {
  return killed_ || (!printer_.is_full(1) && !printer_.is_full(2));
}

bool RemoteRanks::wants_input() const {
  return has_input_ && hosts_.front()->state() == State::running && input_sent_ - input_taken_ < kInputWindow;
}

void RemoteRanks::add_to(std::vector<pollfd>& polls) {
  for (const auto& host : hosts_) host->add_to(polls, reads());
  printer_.add_to(polls);
  recordings_.add_to(polls);
  if (wants_input()) polls.push_back({0, POLLIN, 0});
}

void RemoteRanks::serve(const std::vector<pollfd>& polls) {
  for (const auto& host : hosts_) {
    host->serve(polls);
    while (const auto frame = host->channel().take()) on_frame(*host, *frame);
    forward_stderr(*host);
  }
  printer_.serve(polls);
  recordings_.serve(polls);
  const auto runs = [](const auto& host) { return host->state() == State::running; };
  if (recordings_.begins(static_cast<size_t>(std::ranges::count_if(hosts_, runs))))
    for (const auto& host : hosts_)
      if (runs(host)) {
        host->is_recording = true;
        host->channel().send(FrameKind::record);
      }
  for (int to : {1, 2}) {
    if (!printer_.is_broken(to) || is_closed_[to]) continue;
    is_closed_[to] = true;
    for (const auto& host : hosts_) host->channel().send(FrameKind::close_output, FrameText().number(to));
  }
  for (const pollfd& poll : polls)
    if (poll.fd == 0 && poll.revents && wants_input()) read_input();
}

void RemoteRanks::read_input() {
  char buffer[1 << 14];
  const ssize_t n = read(0, buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) has_input_ = false;
  input_sent_ += n > 0 ? static_cast<size_t>(n) : 0;
  hosts_.front()->channel().send(FrameKind::input, FrameText().text({buffer, n > 0 ? static_cast<size_t>(n) : 0}));
}

void RemoteRanks::on_frame(RemoteHost& host, const Frame& frame) {
  FrameReader reader(frame.bytes);
  RankEvent event{};
  const auto rank = [&] { return static_cast<int32_t>(reader.number()); };
  switch (frame.kind) {
    case FrameKind::started:
      event = {.what = RankEvent::What::started, .rank = rank()};
      event.pid = static_cast<pid_t>(reader.number());
      break;
    case FrameKind::not_started:
      event = {.what = RankEvent::What::not_started, .rank = rank()};
      event.status = static_cast<int>(reader.number());
      event.text = reader.text();
      break;
    case FrameKind::ended:
      event = {.what = RankEvent::What::ended, .rank = rank()};
      event.pid = static_cast<pid_t>(reader.number());
      event.status = static_cast<int>(reader.number());
      if (event.status != 0 && !failed_) failed_ = Clock::now();
      break;
    case FrameKind::output: {
      const int32_t of = rank();
      const auto to = static_cast<int>(reader.number());
      if (to == 1 || to == 2) printer_.add(of, to, reader.text());
      return;
    }
    case FrameKind::taken:
      input_taken_ += static_cast<size_t>(reader.number());
      return;
    case FrameKind::recording: {
      const std::string name = reader.text();
      name.empty() ? recordings_.add(reader.text()) : keep(host, name, reader.text());
      return;
    }
    case FrameKind::recorded:
      return end_recording(host);
    case FrameKind::done: {
      end_recording(host);
      host.set_state(State::done);
      host.end();
      event = {.what = RankEvent::What::left, .text = " on " + host.name()};
      event.count = static_cast<int32_t>(reader.number());
      if (event.count == 0) return;
      break;
    }
    default:
      return;
  }
  events_.push_back(std::move(event));
}

// Among ranks that ended at about the same time, those killed by a signal come first, whatever their host: they may be
// the cause of the other failures. Messages from different hosts arrive in any order.
std::vector<RankEvent> RemoteRanks::take_events() {
  reap();
  for (const auto& host : hosts_)
    if (host->is_gone() || (host->is_alive() && killed_ && Clock::now() - *killed_ > kKilledS)) lose(*host);
  if (failed_ && Clock::now() - *failed_ < kSettle) return {};
  failed_.reset();
  std::vector<RankEvent> events = std::move(events_);
  events_.clear();
  const auto cause = [](const RankEvent& event) {
    return event.what != RankEvent::What::ended || WIFSIGNALED(event.status);
  };
  std::ranges::stable_partition(events, cause);
  return events;
}

// Collects recordings of failed calls in one folder; writes a file with the host in its name, unless the folder has it
// already.
void RemoteRanks::keep(const RemoteHost& host, const std::string& name, const std::string& content) {
  if (job_.trace_folder.empty() || !keeps_recordings_) return;
  try {
    keep_recording(job_.trace_folder, host.name(), name, content);
  } catch (const Failure& failure) {
    keeps_recordings_ = false;
    std::fprintf(stderr, "%srecordings of %s: %s\n", warning_prefix().c_str(), host.name().c_str(),
                 failure.message.c_str());
  }
}

void RemoteRanks::end_recording(RemoteHost& host) {
  if (host.is_recording) recordings_.end_of_host();
  host.is_recording = false;
}

void RemoteRanks::lose(RemoteHost& host) {
  end_recording(host);
  events_.push_back({.what = RankEvent::What::lost,
                     .rank = host.first_rank(),
                     .text = "host " + host.name() + " was lost: " + host.why_gone()});
  host.set_state(State::lost);
  host.end();
  if (host.shell() > 0) kill(-host.shell(), SIGKILL);
}

// Passes on the output of remote shells with the name of the host.
void RemoteRanks::forward_stderr(RemoteHost& host) {
  std::string_view rest;
  const std::string all = host.take_stderr();
  for (rest = all; !rest.empty();) {
    const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size()));
    std::fprintf(stderr, "%s: %.*s\n", host.name().c_str(), static_cast<int>(line.size()), line.data());
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
}

void RemoteRanks::reap() {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (const auto& host : hosts_)
      if (host->shell_is(pid)) host->shell_ended(status);
}

bool RemoteRanks::is_finished() const {
  return std::ranges::none_of(hosts_, [](const auto& host) { return host->is_alive(); }) && events_.empty() &&
         printer_.finished();
}

int RemoteRanks::patience_ms() const {
  const bool ends = std::ranges::any_of(
      hosts_, [](const auto& host) { return host->is_alive() && host->state() != State::idle && host->has_ended(); });
  return killed_ || failed_ || ends ? 20 : recordings_.is_awaited() ? 100 : -1;
}

}  // namespace gsel::cli
