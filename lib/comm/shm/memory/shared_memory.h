// comm/shm/memory/shared_memory.h: the shared memory of a family in this process. Does not know what is in it or which
// ranges are in use.
//
// The memory is one memfd: it has no name, disappears with its last user, and is not limited by the size of a file
// system. It begins with a directory and the control part, and grows by extents. A rank takes an extent without asking
// the others: one atomic addition gives the extent's place in the file, and one directory entry announces it. A process
// maps an extent when it first needs it, at any address, so a family uses no more address space than it needs. An
// offset has the extent's number in the bits above kExtentShift and the byte within the extent below. Pages are
// reserved before they are used, so that a lack of memory is an error and never a signal.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/os.h"

namespace gsel::shm {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr int kExtentShift = 48;
constexpr uint32_t kMostExtents = 2048;

// At the beginning of the file. Extent 0 is the control part.
struct Directory {
  std::atomic<uint64_t> end;      // end of the last extent in the file
  std::atomic<uint32_t> extents;  // entries taken, including incomplete ones
  struct Extent {
    std::atomic<uint64_t> begin;  // in the file
    std::atomic<uint64_t> bytes;  // written last; 0: not yet an extent
  } extent[kMostExtents];
};

class SharedMemory {
 public:
  static constexpr uint64_t kControlAt = (sizeof(Directory) + kPage - 1) / kPage * kPage;  // in the file

  // On rank 0: creates the file and seals it against shrinking. Reserves the directory and the first `reserved_bytes`
  // of the control part.
  static os::Fd create(uint64_t reserved_bytes, uint64_t control_bytes, int32_t ranks);
  // Ranks that are threads of one process get the same object.
  static std::shared_ptr<SharedMemory> map(int fd, uint64_t control_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* control() const { return at(kControlAt); }
  // The address of an offset; maps the extent at the first use. GSEL_ERR_NOMEM.
  char* at(uint64_t offset) const {
    const uint64_t number = offset >> kExtentShift;
    char* base = number < kMostExtents ? base_[number].load(std::memory_order_acquire) : nullptr;
    return (base ? base : map_extent(number)) + (offset & kWithin);
  }
  // The offset of an address; 0: not in an extent, or in the control part.
  uint64_t offset_of(const void* memory, uint64_t bytes) const;
  // The offset of an address that is in this memory, including the control part.
  uint64_t position(const void* memory) const;
  // Place of an offset in the file.
  uint64_t file_offset(uint64_t offset) const;
  int fd() const { return fd_.get(); }

  // Adds and maps an extent of `wanted` bytes, or of `least` if this process has resource limits.
  struct Extent {
    uint64_t offset = 0, bytes = 0;
  };
  Extent extend(uint64_t least, uint64_t wanted);
  // Creates pages for [offset, offset + bytes) near the calling thread and keeps contents; GSEL_ERR_NOMEM.
  void reserve(uint64_t offset, uint64_t bytes, const char* purpose) const;
  // Gives the pages back.
  void punch(uint64_t offset, uint64_t bytes) const noexcept;

 private:
  static constexpr uint64_t kWithin = (uint64_t{1} << kExtentShift) - 1;
  struct Mapping {
    char* base = nullptr;
    uint64_t bytes = 0;
    uint64_t offset = 0;
    uint64_t position(const void* memory) const {
      return offset + static_cast<uint64_t>(static_cast<const char*>(memory) - base);
    }
  };

  SharedMemory() = default;
  Directory& directory() const { return *reinterpret_cast<Directory*>(mapping_[0].base); }
  char* map_extent(uint64_t number) const;
  char* add_mapping(uint64_t number, uint64_t begin, uint64_t bytes) const;
  const Mapping* mapping_of(const void* memory, uint64_t bytes) const;

  os::Fd fd_;
  mutable std::mutex mutex_;                    // held to add a mapping
  mutable std::atomic<uint32_t> mappings_{0};   // valid entries of mapping_
  std::unique_ptr<Mapping[]> mapping_;          // in the order mapped
  std::unique_ptr<std::atomic<char*>[]> base_;  // by number
};

}  // namespace gsel::shm
