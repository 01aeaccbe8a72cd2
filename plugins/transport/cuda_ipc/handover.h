// plugins/transport/cuda_ipc/handover.h: gives each other rank of the host file descriptors of this one, over sockets
// that have no name in a file system. Does not know what the files are.
#pragma once

#include <gsel/transport.h>

#include <array>
#include <vector>

namespace gsel_ipc {

class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  File& operator=(File&& other) noexcept;
  ~File();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

constexpr int kFiles = 2;
using Files = std::array<File, kFiles>;

struct Neighbour {
  Files files;
  int32_t pid = 0;  // as this process sees it; 0: unknown
};

// Collective: what the other ranks hand over, by rank. On failure, all ranks fail within join_timeout_s.
std::vector<Neighbour> hand_over(const gsel_join& join, const Files& own);

}  // namespace gsel_ipc
