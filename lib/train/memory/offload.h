// train/memory/offload.h: offload memory, for arrays that are needed only for a short part of each step. With the host
// device it is an unnamed file mapped into memory; after each use, changed pages are written back and dropped, so that
// they occupy no main memory. With any other device it is page-locked memory of the host, which kernels and copies of
// the device read and write in place, in the order of their streams.
#pragma once

#include <memory>
#include <string>

#include "base/os.h"
#include "train/memory/ledger.h"

namespace gsel {

class OffloadMemory {
 public:
  // folder: of the host device's file; empty: the system's temporary folder. GSEL_ERR_CONFIG when no file can be made
  // there.
  OffloadMemory(std::shared_ptr<DeviceContext> device, const std::string& folder);

  bool is_file() const { return static_cast<bool>(file_); }
  // Extends the file by this many zero bytes; returns their offset. GSEL_ERR_NOMEM when the disk is full.
  uint64_t extend(uint64_t bytes);
  int file() const { return file_.get(); }
  // Zeroed page-locked memory. GSEL_ERR_NOMEM.
  Memory page_locked(uint64_t bytes) const;

  // Bytes read from and written to offload memory so far.
  uint64_t bytes_in = 0, bytes_out = 0;

 private:
  const std::shared_ptr<DeviceContext> device_;
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

  void* data() const { return mapped_; }
  // The array's address until end_use, for collectives and kernels of the device.
  void* begin_use();
  void end_use(bool written);
  uint64_t bytes() const { return bytes_; }
  // Whether all work on the array must have ended before end_use.
  bool ends_with_its_work() const { return mapped_ && !page_locked_.data(); }

 private:
  void swap(OffloadedArray& other) noexcept;
  OffloadMemory* offload_ = nullptr;
  Ledger* ledger_ = nullptr;
  MemoryPart part_ = MemoryPart::offload_state;
  Memory page_locked_;
  void* mapped_ = nullptr;  // the file, or page_locked_
  uint64_t offset_ = 0, bytes_ = 0;
};

}  // namespace gsel
