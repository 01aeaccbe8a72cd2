// comm/hosts/host_proxy.cc: see host_proxy.h.
#include "comm/hosts/host_proxy.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "comm/hosts/roster.h"

namespace gsel::hosts {
namespace {

using shm::Read;
using shm::Socket;

constexpr int64_t kAnswerNs = 1'000'000'000;  // additional wait for rank 0, which knows the missing ranks
constexpr int64_t kTellLocalNs = 200'000'000;
constexpr size_t kChunkBytes = 32768;  // of a message between ranks of a host

constexpr uint64_t kMostTableBytes = uint64_t{1} << 30;

// What the other ranks of a host get, in this order: a message, the table, and the secret, which rank 0 may have made.
struct ReceivedTable {
  Word word;
  std::vector<char> code;
  std::vector<uint8_t> key;
};

[[noreturn]] void fail_protocol() {
  throw Error(GSEL_ERR_VERSION, "rank 0 speaks another protocol; all ranks must use one libgsel").about_rank(0);
}

[[noreturn]] void fail_unsigned() {
  throw Error(GSEL_ERR_PERMISSION,
              "a message of rank 0 is not signed by it: somebody between the hosts has changed it; "
              "use another network")
      .about_rank(0);
}

[[noreturn]] void fail_gone(const Meeting& meeting) {
  throw Error(GSEL_ERR_PEER,
              fmt::format("rank 0 at {} died or gave up joining while rank {} of {} waited for the other ranks",
                          meeting.place.text, meeting.rank, meeting.world_size))
      .about_rank(0);
}

[[noreturn]] void fail_silent(const Meeting& meeting) {
  throw Error(GSEL_ERR_TIMEOUT,
              fmt::format("timed out: rank {} of {} waited {} for the other ranks to come to {}, and rank 0 does not "
                          "answer",
                          meeting.rank, meeting.world_size, seconds_text(meeting.seconds), meeting.place.text))
      .about_rank(0);
}

Met met_of(const ReceivedTable& received, int32_t world_size) {
  auto table = decode_table(received.code, static_cast<size_t>(world_size));
  if (received.word.kind != WordKind::table || !table || received.word.fanout == 0 || received.word.silence_ns < 0)
    fail_protocol();
  for (auto* texts : {&table->names, &table->addresses})
    for (std::string& text : *texts) text = one_line(text);
  table->port = received.word.port;
  table->fanout = received.word.fanout;
  table->silence_ns = received.word.silence_ns;
  std::memcpy(table->job.bytes, received.word.job, sizeof received.word.job);
  if (received.word.text[0]) table->addresses.front() = read_text(received.word.text);
  return {std::move(*table), Secret(received.key)};
}

bool write_chunks(const Socket& socket, const void* bytes, size_t n, int64_t deadline_ns) noexcept {
  try {
    for (size_t at = 0; at < n; at += kChunkBytes)
      if (!socket.write(static_cast<const char*>(bytes) + at, std::min(kChunkBytes, n - at), nullptr, 0, deadline_ns))
        return false;
    return true;
  } catch (...) {  // the rank reads nothing; it will be missing
    return false;
  }
}

Read read_chunks(const Socket& socket, void* bytes, size_t n, int64_t deadline_ns) {
  std::vector<os::Fd> none;
  for (size_t at = 0; at < n; at += kChunkBytes)
    if (const Read result =
            socket.read_until(static_cast<char*>(bytes) + at, std::min(kChunkBytes, n - at), none, deadline_ns);
        result != Read::message)
      return result;
  return Read::message;
}

template <class T>
bool write_list(const Socket& socket, const std::vector<T>& list, int64_t deadline_ns) {
  const uint64_t n = list.size();
  return write_chunks(socket, &n, sizeof n, deadline_ns) && write_chunks(socket, list.data(), n, deadline_ns);
}

template <class T>
Read read_list(const Socket& socket, std::vector<T>& list, int64_t deadline_ns) {
  uint64_t n = 0;
  if (const Read result = read_chunks(socket, &n, sizeof n, deadline_ns); result != Read::message) return result;
  if (n > kMostTableBytes) fail_protocol();
  list.resize(n);
  return read_chunks(socket, list.data(), n, deadline_ns);
}

}  // namespace

Error error_of(const Word& failed) {
  if (failed.code >= 0) fail_protocol();
  return Error(failed.code, read_text(failed.text)).about_rank(failed.about);
}

std::string proxy_name(const Meeting& meeting) {
  const std::string text = fmt::format("gsel proxy {} {} {} {} {}", kMeetingProtocol, host_identity(), getuid(),
                                       meeting.job, meeting.place.text);
  const Secret secret = meeting.secret ? *meeting.secret : Secret({});
  const Bytes32 hash = secret.sign({{reinterpret_cast<const uint8_t*>(text.data()), text.size()}});
  std::string name = "gsel-meet-";
  for (size_t i = 0; i < 16; ++i) name += fmt::format("{:02x}", hash[i]);
  return name;
}

std::optional<HostProxy> HostProxy::at(const std::string& name) {
  auto listener = Socket::listen(name);
  if (!listener) return {};
  return HostProxy(std::move(*listener));
}

void HostProxy::notify_all(const Word& word) noexcept {
  try {
    admit();
  } catch (...) {  // ranks that were not accepted try again
  }
  const int64_t deadline = os::now_ns() + kTellLocalNs;
  for (const Local& local : locals_) write_chunks(local.socket, &word, sizeof word, deadline);
}

void HostProxy::admit() {
  if (listener_.fd() < 0) return;
  while (auto socket = listener_.accept())
    if (socket->peer_user() == geteuid()) locals_.emplace_back(std::move(*socket));
}

// ---- a meeting --------------------------------------------------------------------------------------------------

Met HostProxy::represent(const Meeting& meeting, Stream& stream, const Session& session, const Greeting& own) {
  const int64_t deadline = meeting.deadline_ns + kAnswerNs;
  ReceivedTable received;
  received.word = await_word(meeting, stream, session, own);
  if (received.word.kind != WordKind::table) fail_protocol();
  if (received.word.bytes > kMostTableBytes) fail_protocol();
  received.code.resize(received.word.bytes);
  received.key = session.secret.key();
  const Stream::Wait result = stream.await(received.code.data(), received.code.size(), deadline);
  if (result != Stream::Wait::all) result == Stream::Wait::end ? fail_gone(meeting) : fail_silent(meeting);
  if (!session.is_signed(received.word, key_of(received.code))) fail_unsigned();
  write_text(received.word.text, stream.peer_address());  // rank 0's host: no later connection resolves a name
  Met met = met_of(received, meeting.world_size);
  for (Local& local : locals_)
    local.is_over = !write_chunks(local.socket, &received.word, sizeof received.word, deadline) ||
                    !write_list(local.socket, received.code, deadline) ||
                    !write_list(local.socket, received.key, deadline);
  while (!all_have_table())
    if (poll_once(stream, session, deadline)) fail_gone(meeting);
  stream.send(Report{}, deadline);
  const Word here = await_word(meeting, stream, session, own);
  if (here.kind != WordKind::here) fail_protocol();
  for (const Local& local : locals_) write_chunks(local.socket, &here, sizeof here, deadline);
  return met;
}

Word HostProxy::await_word(const Meeting& meeting, Stream& stream, const Session& session, const Greeting& own) {
  for (const int64_t deadline : {meeting.deadline_ns, meeting.deadline_ns + kAnswerNs}) {
    if (deadline != meeting.deadline_ns)
      stream.send(Report{WordKind::late, milliseconds_of(meeting.seconds), own}, os::now_ns());
    while (os::now_ns() < deadline)
      if (const auto word = poll_once(stream, session, deadline)) {
        if (word->kind == WordKind::gone) fail_gone(meeting);
        return *word;
      }
  }
  fail_silent(meeting);
}

// The next message of rank 0, if any; WordKind::gone: it has ended. The message may already be in the stream's buffer.
std::optional<Word> HostProxy::poll_once(Stream& stream, const Session& session, int64_t deadline_ns) {
  auto word = stream.take<Word>();
  if (!word) {
    std::vector<pollfd> items{{stream.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
    for (const Local& local : locals_) items.push_back({local.socket.fd(), POLLIN, 0});
    poll(items.data(), items.size(), milliseconds_until(deadline_ns));
    admit();
    for (Local& local : locals_) receive(local, stream, deadline_ns);
    std::erase_if(locals_, [](const Local& local) { return local.is_over; });
    const bool goes_on = stream.fill(sizeof(Word));
    word = stream.take<Word>();
    if (!word && !goes_on) {
      word.emplace().kind = WordKind::gone;
      return word;
    }
  }
  const bool is_whole = word && word->kind != WordKind::table;  // a table's message is signed together with the table
  if (is_whole && !session.is_signed(*word)) fail_unsigned();
  if (word && word->kind == WordKind::failed) throw error_of(*word);
  return word;
}

// If a rank that rank 0 knows ends, rank 0 ends the meeting.
void HostProxy::receive(Local& local, Stream& stream, int64_t deadline_ns) {
  std::vector<os::Fd> none;
  Word word;
  Read result = Read::nothing;
  if (!local.is_known) {
    result = local.socket.read(&local.greeting, sizeof local.greeting, none);
    local.is_known = result == Read::message;
    if (local.is_known) stream.send(Report{WordKind::comes, 0, local.greeting}, deadline_ns);
  } else {
    result = local.socket.read(&word, sizeof word, none);
    if (result == Read::message && word.kind == WordKind::late)
      stream.send(Report{WordKind::late, word.bytes, local.greeting}, deadline_ns);
    else if (result == Read::message)
      local.has_table = true;
  }
  if (result != Read::end && result != Read::cut) return;
  local.is_over = true;
  if (local.is_known) stream.send(Report{WordKind::gone, 0, local.greeting}, deadline_ns);
}

bool HostProxy::all_have_table() const {
  return std::ranges::all_of(locals_, [](const Local& local) { return local.has_table || !local.is_known; });
}

// ---- the other ranks of a host ----------------------------------------------------------------------------------

std::optional<Met> follow_proxy(const Meeting& meeting, const std::string& name, const Greeting& own, bool* is_foreign,
                                std::string* why) {
  const auto socket = Socket::connect(name);
  if (!socket) return {};
  if (socket->peer_user() != geteuid()) {
    *is_foreign = true;
    return {};
  }
  const int64_t deadline = meeting.deadline_ns + 2 * kAnswerNs;
  if (!write_chunks(*socket, &own, sizeof own, deadline)) return {};
  ReceivedTable received;
  Read result = read_chunks(*socket, &received.word, sizeof received.word, meeting.deadline_ns);
  if (result == Read::nothing) {
    Word late;
    late.kind = WordKind::late;
    late.bytes = milliseconds_of(meeting.seconds);
    write_chunks(*socket, &late, sizeof late, deadline);
    result = read_chunks(*socket, &received.word, sizeof received.word, deadline);
  }
  if (result == Read::nothing) fail_silent(meeting);
  if (result != Read::message) return {};  // the proxy has ended, and another rank replaces it
  if (received.word.kind == WordKind::absent) *why = read_text(received.word.text);
  if (received.word.kind == WordKind::absent) return {};
  if (received.word.kind == WordKind::failed) throw error_of(received.word);
  Word word;
  word.kind = WordKind::here;
  if (read_list(*socket, received.code, deadline) != Read::message ||
      read_list(*socket, received.key, deadline) != Read::message ||
      !write_chunks(*socket, &word, sizeof word, deadline) ||
      read_chunks(*socket, &word, sizeof word, deadline) != Read::message)
    throw Error(GSEL_ERR_PEER, "the rank of this host that speaks with rank 0 died or gave up while the ranks joined");
  if (word.kind == WordKind::failed) throw error_of(word);
  return met_of(received, meeting.world_size);
}

}  // namespace gsel::hosts
