// unit/test_comm_rendezvous.cc: somebody else is where ranks meet: another user, or a program that speaks otherwise.
// Whoever joins gets an error that says so, and never half a communicator.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/error.h"
#include "comm/shm/join/messages.h"
#include "comm/shm/join/rendezvous.h"
#include "support/check.h"

using namespace gsel;
using namespace gsel::shm;

namespace {

constexpr uid_t kStranger = 65534;
constexpr int64_t kLongNs = 20'000'000'000;

gsel_unique_id fresh_id() {
  gsel_unique_id id;
  os::random_bytes(&id, sizeof id);
  return id;
}

gsel::JoinOptions join_of(const gsel_unique_id& id, int32_t rank, int32_t world_size, double timeout_s) {
  gsel::JoinOptions join{};
  join.rank = rank;
  join.world_size = world_size;
  join.id = id;
  join.timeout_s = 5;
  join.join_timeout_s = timeout_s;
  return join;
}

// In a child, of this user or of another: `host` with a socket that listens where ranks of this id meet. Returns when
// it listens and `before` has returned; the child ends by itself.
pid_t listens(
    const gsel_unique_id& id, uid_t user, const std::function<void(const Socket&)>& host,
    const std::function<void(const Socket&)>& before = [](const Socket&) {}) {
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    alarm(60);
    if (user != geteuid() && setuid(user) != 0) _exit(1);
    const auto listener = Socket::listen(meeting_name(id));
    if (!listener) _exit(2);
    before(*listener);
    if (::write(ready[1], "", 1) != 1) _exit(2);
    host(*listener);
    _exit(0);
  }
  close(ready[1]);
  char byte;
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return pid;
}

void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

void fails(const gsel::JoinOptions& join, gsel_status code, const char* part) {
  try {
    rendezvous(join);
  } catch (const Error& e) {
    if (e.code() != code || !std::strstr(e.what(), part))
      fail_msg("expected %d with \"%s\", got %d: %s", code, part, e.code(), e.what());
    return;
  }
  fail_msg("rank %d joined", join.rank);
}

// Answers every guest's hello with the message, for ever.
void answers(const Socket& listener, const Message& message, int fd) {
  std::vector<Socket> guests;
  for (;; usleep(100)) {
    auto guest = listener.accept();
    if (!guest) continue;
    Hello hello;
    std::vector<os::Fd> fds;
    if (guest->read_until(&hello, sizeof hello, fds, os::now_ns() + kLongNs) != Read::message) continue;
    guest->write(&message, sizeof message, &fd, fd >= 0 ? 1 : 0, os::now_ns() + kLongNs);
    guests.push_back(std::move(*guest));
  }
}

void test_a_name_that_another_user_holds_is_refused_by_every_rank(void**) {
  if (geteuid() != 0) skip();  // nobody else may take another user's place
  const gsel_unique_id id = fresh_id();
  const pid_t stranger = listens(id, kStranger, [](const Socket& listener) {
    Message lie;
    lie.say = Say::failed;
    lie.code = GSEL_ERR_ABORTED;
    answers(listener, lie, -1);
  });
  for (int32_t rank = 0; rank < 2; ++rank)
    fails(join_of(id, rank, 2, 20), GSEL_ERR_PERMISSION, "is held by user 65534, this is user 0");
  end(stranger);
}

// The stranger listens, and as many wait there as may: whoever comes is not even connected.
void test_another_user_behind_a_full_queue_is_named_by_every_rank(void**) {
  if (geteuid() != 0) skip();  // nobody else may take another user's place
  const gsel_unique_id id = fresh_id();
  const pid_t stranger = listens(
      id, kStranger, [](const Socket&) { pause(); },
      [&](const Socket& listener) {
        static std::vector<Socket> waiting;
        if (::listen(listener.fd(), 0) != 0) _exit(3);
        while (auto socket = Socket::connect(meeting_name(id))) waiting.push_back(std::move(*socket));
      });
  bool is_full = false;
  assert_false(Socket::connect(meeting_name(id), &is_full).has_value());
  assert_true(is_full);
  for (int32_t rank = 0; rank < 2; ++rank)
    fails(join_of(id, rank, 2, 2), GSEL_ERR_PERMISSION, "is held by user 65534, this is user 0");
  end(stranger);
}

// Some program of this user that connects to rank 0 by mistake, with more descriptors than any rank sends.
void sends_descriptors(const gsel_unique_id& id, const void* bytes, size_t n_bytes, size_t n_fds) {
  std::optional<Socket> socket;
  while (!(socket = Socket::connect(meeting_name(id)))) usleep(100);
  alignas(cmsghdr) char control[CMSG_SPACE(250 * sizeof(int))] = {};
  iovec part{const_cast<void*>(bytes), n_bytes};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
  for (size_t i = 0; i < n_fds; ++i) reinterpret_cast<int*>(CMSG_DATA(rights))[i] = socket->fd();
  assert_true(sendmsg(socket->fd(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(n_bytes));
}

void test_a_stray_message_with_many_descriptors_fails_no_join(void**) {
  Hello hello;
  hello.rank = 1;
  hello.world_size = 2;
  const struct { size_t bytes, fds; } strays[] = {{1, 200}, {sizeof hello, 200}, {sizeof hello, 2}};
  for (const auto& [bytes, fds] : strays) {
    const gsel_unique_id id = fresh_id();
    std::string failure;
    std::thread host([&] {
      try {
        rendezvous(join_of(id, 0, 2, 20));
      } catch (const Error& e) {
        failure = e.what();
      }
    });
    sends_descriptors(id, &hello, bytes, fds);
    std::string guest;
    try {
      rendezvous(join_of(id, 1, 2, 20));
    } catch (const Error& e) {
      guest = e.what();
    }
    host.join();
    if (!failure.empty() || !guest.empty())
      fail_msg("behind %zu bytes with %zu descriptors: rank 0: %s; rank 1: %s", bytes, fds, failure.c_str(),
               guest.c_str());
  }
}

void test_another_user_is_turned_away_by_rank_0(void**) {
  if (geteuid() != 0) skip();  // the foreign process of this test needs setuid
  const gsel_unique_id id = fresh_id();
  const pid_t stranger = fork();
  assert_true(stranger >= 0);
  if (stranger == 0) {
    alarm(60);
    if (setuid(kStranger) != 0) _exit(1);
    std::optional<Socket> socket;
    while (!(socket = Socket::connect(meeting_name(id)))) usleep(100);
    pause();
  }
  fails(join_of(id, 0, 2, 1), GSEL_ERR_TIMEOUT, "turned a process of user 65534 away, being user 0");
  end(stranger);
}

void test_an_answer_that_is_none_is_an_error(void**) {
  Message silent, wrong, empty;
  silent.say = Say::failed;  // and no code
  wrong.say = Say::go;
  empty.say = Say::arena;
  const os::Fd small(memfd_create("other", MFD_CLOEXEC));
  const struct {
    Message message;
    int fd;
    gsel_status code;
    const char* part;
  } cases[] = {
      {silent, -1, GSEL_ERR_VERSION, "failed without saying why"},
      {wrong, -1, GSEL_ERR_VERSION, "speaks another protocol"},
      {empty, -1, GSEL_ERR_VERSION, "speaks another protocol"},
      {empty, small.get(), GSEL_ERR_TIMEOUT, "to learn of the other ranks, and rank 0 does not answer"},
  };
  for (const auto& one : cases) {
    const gsel_unique_id id = fresh_id();
    const pid_t host = listens(id, geteuid(), [&](const Socket& listener) { answers(listener, one.message, one.fd); });
    fails(join_of(id, 1, 2, one.code == GSEL_ERR_TIMEOUT ? 0.5 : 20), one.code, one.part);
    end(host);
  }
}

void test_memory_of_another_make_is_refused(void**) {
  const os::Fd small(memfd_create("other", MFD_CLOEXEC));
  try {
    map_family(small.get(), Layout(2));
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_INTERNAL);
    return;
  }
  fail_msg("an empty file was taken for shared memory");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_name_that_another_user_holds_is_refused_by_every_rank),
      cmocka_unit_test(test_another_user_behind_a_full_queue_is_named_by_every_rank),
      cmocka_unit_test(test_a_stray_message_with_many_descriptors_fails_no_join),
      cmocka_unit_test(test_another_user_is_turned_away_by_rank_0),
      cmocka_unit_test(test_an_answer_that_is_none_is_an_error),
      cmocka_unit_test(test_memory_of_another_make_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
