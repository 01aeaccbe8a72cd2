// train/memory/offload.h: offload memory, for arrays that are needed only for a short part of each step. With the host
// device it is an unnamed file mapped into memory; after each use, changed pages are written back and dropped, so that
// they occupy no main memory.
#pragma once

#include <memory>
#include <string>

#include "base/os.h"
#include "train/memory/ledger.h"

namespace gsel {

class OffloadMemory {
 public:
  // folder: of the file; empty: the system's temporary folder. GSEL_ERR_CONFIG when no file can be made there,
  // GSEL_ERR_UNSUPPORTED for devices other than the host.
  OffloadMemory(const DeviceContext& device, const std::string& folder);

  // Extends the file by this many zero bytes; returns their offset. GSEL_ERR_NOMEM when the disk is full.
  uint64_t extend(uint64_t bytes);
  int file() const { return file_.get(); }

  // Bytes read from and written to the file so far.
  uint64_t bytes_in = 0, bytes_out = 0;

 private:
  std::string folder_;
  os::Fd file_;
  uint64_t end_ = 0;
};

// An array in offload memory, counted in a ledger. Both must outlive it.
class OffloadedArray {
 public:
  OffloadedArray() = default;
  OffloadedArray(OffloadMemory& offload, Ledger& ledger, MemoryPart part, uint64_t bytes);
  OffloadedArray(OffloadedArray&& other) noexcept { swap(other); }
  OffloadedArray& operator=(OffloadedArray&& other) noexcept {
    swap(other);
    return *this;
  }
  ~OffloadedArray();

  // Maps the array until end_use, for collectives and kernels of the device.
  void* begin_use();
  void end_use(bool written);
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(OffloadedArray& other) noexcept;
  OffloadMemory* offload_ = nullptr;
  Ledger* ledger_ = nullptr;
  MemoryPart part_ = MemoryPart::offload_state;
  void* mapped_ = nullptr;
  uint64_t offset_ = 0, bytes_ = 0;
};

}  // namespace gsel
