// fake/torchrun/store.h: a test double of the store that torchrun's agent keeps (PyTorch's TCPStore): as much of its
// protocol as ranks that meet there need, in each of the three forms that PyTorch has had. It closes a connection at
// what it does not know, as the real one does. Debian has the oldest form alone; tests/cli/launchers.sh runs that one.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

class FakeTorchrunStore {
 public:
  enum class Form { before_2_1, since_2_1, since_2_4 };

  explicit FakeTorchrunStore(Form form) : form_(form), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* at = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, at, length) == 0 && listen(listener_, 64) == 0 && getsockname(listener_, at, &length) == 0)
      port = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~FakeTorchrunStore() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  uint16_t port = 0;

  std::map<std::string, std::string> values() {
    const std::lock_guard lock(mutex_);
    return values_;
  }
  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }

 private:
  void run() {
    std::vector<std::thread> clients;
    for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0;) clients.emplace_back([this, fd] { serve(fd); });
    for (std::thread& client : clients) client.join();
  }

  struct Gone {};
  template <class T>
  static T take(int fd) {
    T value;
    if (recv(fd, &value, sizeof value, MSG_WAITALL) != sizeof value) throw Gone();
    return value;
  }
  static std::string take_text(int fd) {
    const auto length = take<uint64_t>(fd);
    if (length > 1 << 20) throw Gone();  // a text that long cannot be had
    std::string text(length, '\0');
    if (length > 0 && recv(fd, text.data(), length, MSG_WAITALL) != static_cast<ssize_t>(length)) throw Gone();
    return text;
  }
  template <class T>
  static void give(int fd, T value) {
    send(fd, &value, sizeof value, MSG_NOSIGNAL);
  }

  void serve(int fd) {
    try {
      if (form_ != Form::before_2_1 && (take<uint8_t>(fd) != 0 || take<uint32_t>(fd) != 0x3C85F7CE)) throw Gone();
      for (;;) answer(fd, take<uint8_t>(fd));
    } catch (const Gone&) {
      close(fd);
    }
  }

  void answer(int fd, uint8_t code) {
    const uint8_t shift = form_ == Form::before_2_1 ? 0 : 1;
    if (code == 13 && form_ == Form::since_2_4) return give(fd, take<uint32_t>(fd));
    if (code == 0 + shift) {
      const std::string key = take_text(fd);
      set(key, take_text(fd));
    } else if (code == 2 + shift) {
      const std::string key = take_text(fd);
      const std::lock_guard lock(mutex_);
      if (!values_.contains(key)) throw Gone();
      give<uint64_t>(fd, values_[key].size());
      send(fd, values_[key].data(), values_[key].size(), MSG_NOSIGNAL);
    } else if (code == 4 + shift) {
      bool is_there = true;
      for (auto keys = take<uint64_t>(fd); keys > 0; --keys) {
        const std::string key = take_text(fd);
        const std::lock_guard lock(mutex_);
        is_there = is_there && values_.contains(key);
      }
      give<uint8_t>(fd, is_there ? 0 : 1);
    } else if (code == 8) {
      const std::string key = take_text(fd);
      const std::lock_guard lock(mutex_);
      give<int64_t>(fd, static_cast<int64_t>(values_.erase(key)));
    } else {
      throw Gone();
    }
  }

  const Form form_;
  const int listener_;
  std::thread thread_;
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};
