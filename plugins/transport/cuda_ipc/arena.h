// plugins/transport/cuda_ipc/arena.h: memory that all ranks of a link reach. Each rank has slots for collectives and a
// pair of boxes for messages to each other rank, in memory of its device, and lines in memory of the host, by which the
// others tell it that something lies there for it. Does not know who waits for what.
#pragma once

#include <gsel/transport.h>

#include <vector>

#include "driver.h"
#include "handover.h"

namespace gsel_ipc {

constexpr int kSlots = 2;  // of each kind: one is filled while the other is read
constexpr uint64_t kSlotBytes = 2 << 20, kBoxBytes = 512 << 10;

// Of a slot or a box, between its writer and one reader, in the reader's memory.
struct alignas(64) Line {
  uint32_t word;
};
enum class Kind : uint8_t { slot, box };

// A line, and its address for a stream.
struct LineAt {
  Line* host;
  Pointer device;
};

class Arena {
 public:
  // Collective. The device is current, as it is for the destructor. Throws GSEL_ERR_NOMEM, _DEVICE, _IO, _TIMEOUT.
  Arena(const Driver& driver, const gsel_join& join);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  char* slot(int32_t of, int which) const;
  char* box(int32_t from, int32_t to, int which) const;
  LineAt line(Kind kind, int which, int32_t writer, int32_t reader) const;
  // Not 0: this rank ends its work that waits.
  Line& ending(int32_t of) const;
  // The process of another rank, as this one sees it; 0: unknown.
  int32_t pid_of(int32_t rank) const { return neighbours_[static_cast<size_t>(rank)].pid; }

 private:
  struct OnDevice {
    Pointer at = 0;
    uint64_t bytes = 0;
    Handle handle = 0;
    bool has_handle = false, is_mapped = false;
  };
  struct OnHost {
    char* at = nullptr;
    Pointer device = 0;
  };
  Files make_own();
  void map_device(int32_t rank, int fd, uint64_t bytes);
  void map_host(int32_t rank, int fd);
  void write_pattern(const gsel_join& join);
  void check_pattern(const gsel_join& join, int32_t rank) const;
  static void copy(const gsel_join& join, void* to, const void* from, uint64_t bytes, int32_t direction);
  void release() noexcept;

  const Driver& driver_;
  const int32_t rank_, world_size_;
  AllocationProperties properties_{};
  Access access_{};
  size_t host_bytes_ = 0;
  std::vector<OnDevice> on_device_;  // by rank
  std::vector<OnHost> on_host_;
  std::vector<Neighbour> neighbours_;
};

}  // namespace gsel_ipc
