// comm/hosts/wire.h: the messages of a meeting. Rank 0 sends a challenge on each new connection; the other side answers
// with its greeting and proves that it knows the secret; rank 0 proves the same. The other side may speak for more
// ranks of its host, and reports each that comes. When all ranks have come, rank 0 sends the table, and the other side
// reports that its ranks have it. Rank 0 may send "failed" at any point instead. A rank whose join timeout has passed
// asks for that, since rank 0 knows who is missing. All messages of rank 0 are signed, except that to a joiner with
// another token.
#pragma once

#include <gsel/error.h>
#include <gsel/types.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

constexpr uint64_t kMagic = 0x7465656d6c657367;  // "gselmeet"; differs in another byte order
constexpr uint32_t kMeetingProtocol = 6;
constexpr size_t kHostNameBytes = 64, kJobNameBytes = 88;
constexpr int64_t kHandshakeNs = 5'000'000'000;  // timeout of the handshake

struct Challenge {
  uint64_t magic = kMagic;
  uint32_t protocol = kMeetingProtocol;
  uint32_t reserved = 0;
  Bytes32 nonce = {};
};

// The size and first fields are the same in every protocol version, so that errors can name a rank with another version
// or byte order.
struct Greeting {
  uint64_t magic = kMagic;
  uint32_t protocol = kMeetingProtocol;
  int32_t rank = 0;
  int32_t world_size = 0;
  int32_t pid = 0;
  char host[kHostNameBytes] = {};
  char version[24] = {};  // of gsel
  Bytes32 nonce = {};
  Bytes32 identity = {};         // key_of host_identity
  Bytes32 space = {};            // key_of name_space
  char job[kJobNameBytes] = {};  // Meeting::job_name
  int32_t order = 0;             // gsel_comm_options.order
  uint32_t accelerator = 0;      // 1: joins with one
};
static_assert(sizeof(Greeting) == 304);
struct SignedGreeting {
  Greeting greeting;
  Bytes32 signature = {};
};

enum class WordKind : uint32_t { failed = 1, welcome, table, here, absent, comes, gone, late };
struct Word {
  WordKind kind = WordKind::failed;
  gsel_status code = GSEL_OK;  // of failed
  int32_t about = -1;
  uint32_t bytes = 0;      // size of the table that follows (table_code.cc); of late: as Report::milliseconds
  Bytes32 signature = {};  // of rank 0: see Session
  int64_t silence_ns = 0;  // of a table
  uint8_t job[128] = {};   // of a table
  uint16_t port = 0;       // of a table: of the first host
  uint16_t fanout = 0;     // of a table
  char text[764] = {};
};
static_assert(std::has_unique_object_representations_v<Word> && std::has_unique_object_representations_v<Greeting>);
// Reports to rank 0 about one rank of a host, or about all of them (WordKind::here).
struct Report {
  WordKind kind = WordKind::here;
  uint32_t milliseconds = 0;  // of late: the rank's join timeout
  Greeting greeting = {};
};

// The signer's role is part of a signature, so that a proof cannot be reflected to its sender.
inline constexpr uint8_t kByJoiner[] = "a rank that joins", kByRoot[] = "rank 0";

// The nonces of both sides of a connection: a signature of rank 0 is valid on that connection only.
struct Session {
  const Secret& secret;
  Bytes32 joiner = {}, root = {};  // nonces

  // Signs the whole message and the sum (sha256) of the table that follows it.
  void sign(Word& word, const Bytes32& sum = {}) const {
    word.signature = {};
    word.signature = secret.sign({kByRoot, joiner, root, bytes_of(word), sum});
  }
  bool is_signed(Word word, const Bytes32& sum = {}) const {
    const Bytes32 given = word.signature;
    word.signature = {};
    return secret.is_signed({kByRoot, joiner, root, bytes_of(word), sum}, given);
  }
};

template <size_t n>
void write_text(char (&out)[n], const std::string& text) {
  std::memcpy(out, text.data(), std::min(text.size(), n - 1));
}
template <class Text>
Bytes32 key_of(const Text& text) {
  return sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}
// Writes the name, or a prefix and a hash if it is too long.
inline void write_job(char (&out)[kJobNameBytes], const std::string& name) {
  constexpr size_t kKey = 8;
  if (name.size() < sizeof out) return write_text(out, name);
  std::string text = name.substr(0, sizeof out - 2 - 2 * kKey) + "~";
  for (size_t i = 0; i < kKey; ++i) text += fmt::format("{:02x}", key_of(name)[i]);
  write_text(out, text);
}
template <size_t n>
std::string read_text(const char (&text)[n]) {
  return one_line({text, strnlen(text, n)});
}

inline uint32_t milliseconds_of(double seconds) {
  return static_cast<uint32_t>(std::min(seconds * 1e3, 4e9));
}

inline std::string version_text() {
  return fmt::format("{}.{}.{}", GSEL_VERSION_MAJOR, GSEL_VERSION_MINOR, GSEL_VERSION_PATCH);
}

inline Word failed_word(const Error& error) {
  Word word;
  word.code = error.code();
  word.about = error.rank();
  write_text(word.text, error.message());
  return word;
}

}  // namespace gsel::hosts
