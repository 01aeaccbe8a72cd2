// comm/shm/join/socket_holder.cc: which user holds a name; see socket.h. The kernel lists the listening local sockets
// over a sock_diag netlink socket; each entry is a message with attributes, of which the name and the user are read.
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "base/os.h"
#include "comm/shm/join/socket.h"

namespace gsel::shm {
namespace {

constexpr uint32_t kListening = 1u << 10;  // TCP_LISTEN, for sockets of every kind
constexpr size_t kAnswerBytes = 32768;

bool ask(int fd) {
  struct {
    nlmsghdr header;
    unix_diag_req wanted;
  } question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  question.wanted.sdiag_family = AF_UNIX;
  question.wanted.udiag_states = kListening;
  question.wanted.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID;
  return send(fd, &question, sizeof question, 0) == static_cast<ssize_t>(sizeof question);
}

// The user in an entry that has the name.
std::optional<uid_t> user_in(nlmsghdr* entry, std::string_view name) {
  auto* message = static_cast<unix_diag_msg*>(NLMSG_DATA(entry));
  auto* part = reinterpret_cast<rtattr*>(message + 1);
  int left = static_cast<int>(entry->nlmsg_len) - static_cast<int>(NLMSG_LENGTH(sizeof *message));
  bool is_it = false;
  std::optional<uid_t> user;
  for (; RTA_OK(part, left); part = RTA_NEXT(part, left)) {
    const std::string_view data(static_cast<const char*>(RTA_DATA(part)), RTA_PAYLOAD(part));
    if (part->rta_type == UNIX_DIAG_NAME)
      is_it = !data.empty() && data.front() == '\0' && data.substr(1) == name;
    else if (part->rta_type == UNIX_DIAG_UID && data.size() == sizeof(uint32_t))
      std::memcpy(&user.emplace(), data.data(), sizeof(uint32_t));
  }
  return is_it ? user : std::nullopt;
}

}  // namespace

std::optional<uid_t> user_of_listener(const std::string& name) {
  const os::Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd || !ask(fd.get())) return {};
  std::optional<uid_t> found;
  std::vector<char> answer(kAnswerBytes);
  for (;;) {
    const ssize_t got = recv(fd.get(), answer.data(), answer.size(), 0);
    if (got <= 0) return found;
    auto left = static_cast<uint32_t>(got);
    for (auto* entry = reinterpret_cast<nlmsghdr*>(answer.data()); NLMSG_OK(entry, left);
         entry = NLMSG_NEXT(entry, left)) {
      if (entry->nlmsg_type == NLMSG_DONE || entry->nlmsg_type == NLMSG_ERROR) return found;
      if (!found) found = user_in(entry, name);
    }
  }
}

}  // namespace gsel::shm
