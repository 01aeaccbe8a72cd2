// comm/hosts/torchrun_store.cc: an address store in the store of torchrun's agent, PyTorch's TCPStore; implements the
// necessary part of its protocol. Numbers have the hosts' byte order; a text is its length in 64 bits, then its bytes.
// PyTorch has changed the codes twice, and the store closes a connection with an unknown code, so each dialect is
// tried. Source: pytorch torch/csrc/distributed/c10d/TCPStoreBackend.{hpp,cpp} of 1.13, 2.1 and 2.8.
#include <poll.h>

#include <algorithm>

#include "base/error.h"
#include "comm/hosts/address_store.h"
#include "comm/hosts/stream.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kStoreAnswerNs = 5'000'000'000;
constexpr int kPauseMs = 100;
constexpr uint64_t kMostStored = 4096;
constexpr uint32_t kValidation = 0x3C85F7CE;
constexpr uint8_t kValidate = 0, kPing = 13, kDelete = 8;
// The oldest store reads the first nine bytes as a code and a length; this makes the length invalid.
constexpr uint32_t kNonce = 0xffffffff;

struct Dialect {
  bool validates, pings;
  uint8_t set, get, check;
};
constexpr Dialect kDialects[] = {{true, true, 1, 3, 5}, {true, false, 1, 3, 5}, {false, false, 0, 2, 4}};

class Bytes {
 public:
  template <class T>
  Bytes& add(T number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  Bytes& add_text(const std::string& text) {
    add<uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  const std::string& get() const { return bytes_; }

 private:
  std::string bytes_;
};

class TorchrunStore : public AddressStore {
 public:
  TorchrunStore(const MeetingPlace& place, const std::string& job) : place_(place), key_("/gsel/meet/" + job) {}
  ~TorchrunStore() override {
    if (!posted_) return;
    try {
      std::string why;
      int64_t deleted = 0;
      if (auto session = open(os::now_ns() + kStoreAnswerNs / 5, &why))
        if (send_bytes(*session, Bytes().add(kDelete).add_text(key_)))
          session->stream.await(deleted, session->deadline_ns);  // waits until it is deleted
    } catch (...) {                                              // a reader then finds no listener
    }
  }

  void post(const Endpoint& endpoint, int64_t deadline_ns) override {
    std::string why;
    for (;;) {
      if (auto session = open(deadline_ns, &why)) {
        const std::string text = endpoint_text(endpoint);
        posted_ = true;
        if (send_bytes(*session, Bytes().add(session->dialect->set).add_text(key_).add_text(text)) &&
            is_there(*session))
          return;
        why = "the store went away";
      }
      if (os::now_ns() >= deadline_ns)
        throw Error(GSEL_ERR_TIMEOUT,
                    fmt::format("timed out: rank 0 cannot post where it listens in {}: {}", place_.text, why))
            .about_rank(0);
      poll(nullptr, 0, kPauseMs);
    }
  }

  std::vector<Endpoint> read(int64_t deadline_ns, std::string* why) override {
    auto session = open(deadline_ns, why);
    if (!session) return {};
    *why = "rank 0 has posted nothing there";
    uint64_t length = 0;
    if (!session->is_there || !send_bytes(*session, Bytes().add(session->dialect->get).add_text(key_)) ||
        session->stream.await(length, session->deadline_ns) != Stream::Wait::all || length > kMostStored)
      return {};
    std::string text(length, '\0');
    if (session->stream.await(text.data(), length, session->deadline_ns) != Stream::Wait::all) return {};
    if (const auto endpoint = parse_endpoint(text)) return {*endpoint};
    *why = "the entry of rank 0 there is from another version of gsel";
    return {};
  }

 private:
  struct Session {
    Stream stream;
    const Dialect* dialect;
    int64_t deadline_ns;
    bool is_there = false;  // rank 0 has posted
  };

  std::optional<Session> open(int64_t deadline_ns, std::string* why) {
    for (const Dialect& dialect : kDialects) {
      if (dialect_ && dialect_ != &dialect) continue;
      auto stream = connect_to(place_, deadline_ns, why);
      if (!stream) return {};
      Session session{std::move(*stream), &dialect, std::min(deadline_ns, os::now_ns() + kStoreAnswerNs)};
      Bytes hello;
      if (dialect.validates) hello.add(kValidate).add(kValidation);
      if (dialect.pings) hello.add(kPing).add(kNonce);
      uint32_t nonce = 0;
      if (!hello.get().empty() && !send_bytes(session, hello)) continue;
      if (dialect.pings && (session.stream.await(nonce, session.deadline_ns) != Stream::Wait::all || nonce != kNonce))
        continue;
      if (!answers(session)) continue;
      dialect_ = &dialect;
      return session;
    }
    if (!dialect_) *why = "the listener there does not answer like torchrun's store";
    return {};
  }

  // Whether the store supports the query; sets is_there.
  bool answers(Session& session) const {
    uint8_t not_ready = 0;
    if (!send_bytes(session, Bytes().add(session.dialect->check).add<uint64_t>(1).add_text(key_)) ||
        session.stream.await(not_ready, session.deadline_ns) != Stream::Wait::all || not_ready > 1)
      return false;
    session.is_there = not_ready == 0;
    return true;
  }
  bool is_there(Session& session) const { return answers(session) && session.is_there; }

  static bool send_bytes(Session& session, const Bytes& bytes) {
    return session.stream.send(bytes.get().data(), bytes.get().size(), session.deadline_ns);
  }

  const MeetingPlace place_;
  const std::string key_;
  const Dialect* dialect_ = nullptr;  // nullptr: not known yet
  bool posted_ = false;
};

}  // namespace

std::unique_ptr<AddressStore> torchrun_store(const MeetingPlace& place, const std::string& job) {
  return std::make_unique<TorchrunStore>(place, job);
}

}  // namespace gsel::hosts
