// recordings.cc: see recordings.h.
#include "recordings.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>

#include "client.h"
#include "descendants.h"

namespace gsel::cli {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);  // for hosts that do not answer
constexpr int kClientPatienceMs = 15'000;

struct Address {
  explicit Address(pid_t pid) {
    const std::string name = "gsel-recordings-1-" + std::to_string(pid);
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t length;
};

bool is_ours(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

std::unique_ptr<Channel> channel_of(int fd) {
  return std::make_unique<Channel>(fd, fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

}  // namespace

// ---- the launcher ----

Recordings::Recordings() {
  const Address address(getpid());
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ >= 0 && bind(listener_, address.get(), address.length) == 0 && listen(listener_, SOMAXCONN) == 0)
    return;
  if (listener_ >= 0) close(listener_);
  listener_ = -1;
}

Recordings::~Recordings() {
  if (listener_ >= 0) close(listener_);
}

bool Recordings::begins(size_t hosts) {
  if (asking_.empty() || awaited_ > 0) return false;
  found_.clear();
  awaited_ = hosts;
  begun_ = Clock::now();
  if (hosts == 0) answer();
  return hosts > 0;
}

void Recordings::add(const std::string& json) {
  found_.push_back(json);
}

void Recordings::end_of_host() {
  if (awaited_ > 0 && --awaited_ == 0) answer();
}

void Recordings::answer() {
  for (auto& channel : asking_) {
    for (const std::string& json : found_) channel->send(FrameKind::recording, FrameText().text("").text(json));
    channel->send(FrameKind::recorded);
    answered_.push_back(std::move(channel));
  }
  asking_.clear();
}

void Recordings::add_to(std::vector<pollfd>& polls) const {
  if (listener_ >= 0) polls.push_back({listener_, POLLIN, 0});
  for (const auto* channels : {&asking_, &answered_})
    for (const auto& channel : *channels) channel->add_to(polls);
}

void Recordings::serve(const std::vector<pollfd>& polls) {
  for (auto* channels : {&asking_, &answered_}) {
    for (const auto& channel : *channels) channel->serve(polls);
    // An asking process sends nothing; its channel ends with the process.
    std::erase_if(*channels, [](const auto& channel) { return channel->has_ended(); });
  }
  for (const pollfd& poll : polls)
    if (poll.revents && poll.fd == listener_) admit();
  if (awaited_ == 0 || Clock::now() - begun_ < kPatience) return;
  awaited_ = 0;
  answer();
}

void Recordings::admit() {
  for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
    if (is_ours(fd))
      asking_.push_back(channel_of(fd));
    else
      close(fd);
  }
}

// ---- asking process ----

std::optional<std::vector<std::string>> recordings_of_launcher(pid_t pid) {
  const Address address(pid);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, address.get(), address.length) != 0 || !is_ours(fd)) {
    if (fd >= 0) close(fd);
    return {};
  }
  const auto channel = channel_of(fd);
  std::vector<std::string> found;
  for (;;) {
    while (const auto frame = channel->take()) {
      if (frame->kind == FrameKind::recorded) return found;
      FrameReader reader(frame->bytes);
      reader.text();
      found.push_back(reader.text());
    }
    if (channel->has_ended()) refuse(GSEL_ERR_NOT_FOUND, "the job of gsel run " + std::to_string(pid) + " has ended");
    std::vector<pollfd> polls;
    channel->add_to(polls);
    if (poll(polls.data(), polls.size(), kClientPatienceMs) == 0)
      refuse(GSEL_ERR_TIMEOUT, "gsel run " + std::to_string(pid) + " does not answer; it may be stopped");
    channel->serve(polls);
  }
}

// ---- an agent ----

std::vector<std::string> recordings_below() {
  std::vector<std::string> found;
  std::set<int64_t> seen;  // pids of ranks that a recording already contains
  for (const pid_t pid : processes_below()) {
    if (seen.contains(pid)) continue;
    gsel_trace* trace = nullptr;
    if (gsel_trace_process(pid, &trace, nullptr) != GSEL_OK) continue;
    found.push_back(text(gsel_trace_json(trace)));
    gsel_trace_free(trace);
    const auto json = nlohmann::json::parse(found.back(), nullptr, false);
    if (json.is_discarded()) continue;
    for (const auto& communicator : json["communicators"])
      for (const auto& rank : communicator["ranks"]) seen.insert(rank["pid"].get<int64_t>());
  }
  return found;
}

std::vector<std::pair<std::string, std::string>> recorded_files(const std::string& folder, timespec since) {
  std::vector<std::pair<std::string, std::string>> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  while (const dirent* entry = open ? readdir(open.get()) : nullptr) {
    const std::string name = entry->d_name;
    struct stat info {};
    if (!name.starts_with("gsel-") || !name.ends_with(".json") || stat((folder + "/" + name).c_str(), &info) != 0)
      continue;
    const auto& made = info.st_mtim;
    if (made.tv_sec < since.tv_sec || (made.tv_sec == since.tv_sec && made.tv_nsec < since.tv_nsec)) continue;
    try {
      found.emplace_back(name, read_file(folder + "/" + name));
    } catch (const Failure&) {  // not readable by this user, so not ours
    }
  }
  return found;
}

bool keep_recording(const std::string& folder, const std::string& host, const std::string& name,
                    const std::string& content) {
  if (name.find('/') != name.npos || !name.starts_with("gsel-")) return false;
  const std::string there = folder + "/" + name;
  if (access(there.c_str(), F_OK) == 0 && read_file(there) == content) return false;
  replace_file(folder + "/gsel-" + host + name.substr(4), content);
  return true;
}

}  // namespace gsel::cli
