// train/memory/offload.h: offload memory: arrays that are needed only for a short part of each step. With the host
// device they lie in one file without a name, mapped into memory; after each use changed pages are written back and
// dropped, so that they take no main memory. Another device would keep them in host memory and copy: begin_use
// returns where they can be computed on, and end_use ends this.
#pragma once

#include <memory>
#include <string>

#include "base/os.h"
#include "train/memory/ledger.h"

namespace gsel {

class OffloadMemory {
 public:
  // folder: of the file; empty: the system's for temporary files. GSEL_ERR_CONFIG when no file can be made there,
  // GSEL_ERR_UNSUPPORTED for another device than the host's.
  OffloadMemory(const DeviceContext& device, const std::string& folder);

  // Makes room for bytes more at the end of the file, zero; returns where. GSEL_ERR_NOMEM when the disk is full.
  uint64_t extend(uint64_t bytes);
  int file() const { return file_.get(); }

  // What was read from the file and written to it so far.
  uint64_t bytes_in = 0, bytes_out = 0;

 private:
  std::string folder_;
  os::Fd file_;
  uint64_t end_ = 0;
};

// An array in offload memory that stands in a ledger; both must live longer.
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

  // Where it can be read and written until end_use, for collectives and kernels of the device.
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
