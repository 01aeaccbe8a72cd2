// unit/test_socket.cc: a message written before its sender closes is read, however the reader is caught between the
// two.
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "comm/shm/socket.h"
#include "support/check.h"

namespace gsel::shm {
namespace {

constexpr int kRounds = 30000;

// Linux tells a reader that finds no message, and then a closed peer, of the end: the message may have come in between.
void what_was_written_before_a_close_is_read(void**) {
  std::atomic<int> fd = -1;
  std::atomic<bool> done = false;
  std::thread writer([&] {
    while (!done) {
      const int own = fd.exchange(-1);
      if (own < 0) continue;
      const Socket socket{os::Fd(own)};
      const uint64_t message = 7;
      socket.write(&message, sizeof message, nullptr, 0, INT64_MAX);
    }
  });
  int messages = 0;
  for (int i = 0; i < kRounds; ++i) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    const Socket reader{os::Fd(pair[0])};
    fd = pair[1];
    uint64_t message = 0;
    std::vector<os::Fd> fds;
    Read result = Read::nothing;
    while (result == Read::nothing) result = reader.read(&message, sizeof message, fds);
    messages += result == Read::message && message == 7;
  }
  done = true;
  writer.join();
  assert_int_equal(messages, kRounds);
}

void an_end_without_a_message_is_an_end(void**) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  const Socket reader{os::Fd(pair[0])};
  Socket other{os::Fd(pair[1])};
  uint64_t message = 0;
  std::vector<os::Fd> fds;
  assert_true(reader.read(&message, sizeof message, fds) == Read::nothing);
  other.close();
  assert_true(reader.read(&message, sizeof message, fds) == Read::end);
}

}  // namespace
}  // namespace gsel::shm

int main() {
  using namespace gsel::shm;
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_was_written_before_a_close_is_read),
      cmocka_unit_test(an_end_without_a_message_is_an_end),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
