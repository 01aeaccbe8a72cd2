// train/memory/lender.h: makes the tensors for one callback, and takes them back when it returns. With lending "direct"
// they are views of the library's memory. With "moved" they are copies at a new address for each call and are poisoned
// afterwards, so that a kernel that keeps a pointer reads NaN.
#pragma once

#include <gsel/model.h>

#include <vector>

#include "device/device.h"

namespace gsel {

class Lender {
 public:
  Lender(std::shared_ptr<DeviceContext> device, bool moves);

  enum class Access : uint8_t { read, write, update };
  // A view to pass to a callback, valid until take_back. If `tensor.data` is nullptr, so is the view's.
  gsel_tensor lend(gsel_tensor tensor, Access access);
  // The same for plain bytes: saved bytes, input buffers.
  void* lend_bytes(void* data, uint64_t bytes, Access access);
  // After the callback: copies written tensors back and poisons the copies.
  void take_back();

  bool moves() const { return moves_; }
  // Overwrites device memory with bytes that read as NaN.
  void poison(void* memory, uint64_t bytes) const;

 private:
  struct Loan {
    void* home;
    void* lent;
    uint64_t bytes;
    Access access;
  };
  char* memory_for(uint64_t bytes);

  std::shared_ptr<DeviceContext> device_;
  bool moves_;
  std::vector<Loan> loans_;
  // A ring of scratch buffers, so that memory is reused as late as possible. A ring that is too small is replaced by a
  // larger one; old ones stay poisoned.
  std::vector<Memory> grounds_;
  uint64_t next_ = 0;         // offset in the last ring
  uint64_t on_loan_ = 0;      // bytes of this call's loans with gaps
  std::vector<char> poison_;  // a block of bytes that read as NaN
};

}  // namespace gsel
