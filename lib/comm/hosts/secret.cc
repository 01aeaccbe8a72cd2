// comm/hosts/secret.cc: see secret.h. SHA-256 is from Mbed TLS.
#include "comm/hosts/secret.h"

#include <fcntl.h>
#include <mbedtls/sha256.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/os.h"

namespace gsel::hosts {
namespace {

constexpr size_t kBlock = 64;
constexpr size_t kLeastBytes = 16, kMostBytes = 4096;  // of a token

class Hash {
 public:
  Hash() {
    mbedtls_sha256_init(&context_);
    mbedtls_sha256_starts_ret(&context_, 0);
  }
  ~Hash() { mbedtls_sha256_free(&context_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
  void add(std::span<const uint8_t> bytes) { mbedtls_sha256_update_ret(&context_, bytes.data(), bytes.size()); }
  Bytes32 end() {
    Bytes32 out;
    mbedtls_sha256_finish_ret(&context_, out.data());
    return out;
  }

 private:
  mbedtls_sha256_context context_;
};

bool is_own_group(gid_t group) {
  if (group == getegid()) return true;
  std::vector<gid_t> groups(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  const int n = getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(n, 0)));
  return std::ranges::count(groups, group) > 0;
}

// Whether root owns the file and only a group of this process can read it, as with a Secret in a pod with an fsGroup.
bool is_given_by_root(const struct stat& about) {
  return about.st_uid == 0 && (about.st_mode & (S_IRWXG | S_IRWXO)) == S_IRGRP && is_own_group(about.st_gid);
}

}  // namespace

Bytes32 sha256(std::span<const uint8_t> bytes) {
  Hash hash;
  hash.add(bytes);
  return hash.end();
}

Bytes32 Secret::sign(std::initializer_list<std::span<const uint8_t>> parts) const {
  std::array<uint8_t, kBlock> key{};
  if (key_.size() > kBlock)
    std::ranges::copy(sha256(key_), key.begin());
  else
    std::ranges::copy(key_, key.begin());
  const auto masked = [&](uint8_t mask) {
    std::array<uint8_t, kBlock> out = key;
    for (uint8_t& byte : out) byte ^= mask;
    return out;
  };
  Hash inner, outer;
  inner.add(masked(0x36));
  for (const auto& part : parts) inner.add(part);
  outer.add(masked(0x5c));
  outer.add(inner.end());
  return outer.end();
}

bool Secret::is_signed(std::initializer_list<std::span<const uint8_t>> parts, const Bytes32& signature) const {
  const Bytes32 right = sign(parts);
  uint8_t different = 0;
  for (size_t i = 0; i < right.size(); ++i) different |= static_cast<uint8_t>(right[i] ^ signature[i]);
  return different == 0;
}

Secret Secret::of_file(const std::string& path) {
  const os::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // O_NONBLOCK: it may be a pipe
  if (!file)
    fail(GSEL_ERR_IO, "the token of the job is to be in {}, which cannot be opened: {}", path, errno_text(errno));
  struct stat about = {};
  if (fstat(file.get(), &about) == 0 && (about.st_mode & (S_IRWXG | S_IRWXO)) != 0 && !is_given_by_root(about))
    fail(GSEL_ERR_PERMISSION, "{} has mode {:o}, and others may read the token of the job; chmod 600 {}", path,
         about.st_mode & 07777, path);
  std::vector<uint8_t> key(kMostBytes + 1);
  const ssize_t got = read(file.get(), key.data(), key.size());
  if (got < 0) fail(GSEL_ERR_IO, "{} cannot be read: {}", path, errno_text(errno));
  if (static_cast<size_t>(got) < kLeastBytes || static_cast<size_t>(got) > kMostBytes)
    fail(GSEL_ERR_CONFIG, "{} has {} bytes; the token of a job has {} to {}, as from head -c 32 /dev/urandom", path,
         static_cast<size_t>(got) > kMostBytes ? "too many" : std::to_string(got), kLeastBytes, kMostBytes);
  key.resize(static_cast<size_t>(got));
  return Secret(std::move(key));
}

}  // namespace gsel::hosts
