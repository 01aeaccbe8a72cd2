// train/memory/lender.h: makes the tensors that one callback gets, and takes them back when it returns. With lending
// "direct" they are views of the library's memory. With "moved" they are copies at a new address for each call,
// poisoned afterwards, so that a kernel that keeps a pointer reads NaN. Does not know the order of calls.
#pragma once

#include <gsel/model.h>

#include <vector>

#include "device/device.h"

namespace gsel {

class Lender {
 public:
  Lender(std::shared_ptr<DeviceContext> device, bool moves);

  enum class Access : uint8_t { read, write, update };
  // A view to put in a call; `tensor.data` may be nullptr, which stays so. Valid until take_back.
  gsel_tensor lend(gsel_tensor tensor, Access access);
  // Saved bytes, input buffers: the same for plain memory.
  void* lend_bytes(void* data, uint64_t bytes, Access access);
  // The callback has returned: what was written goes home, what was lent is poisoned.
  void take_back();

  bool moves() const { return moves_; }
  // Overwrites memory of the device with bytes that read as NaN.
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
  // A ring of scratch buffers, so that memory is lent again only after all the rest was. Where the ring was too small a
  // larger one follows; old ones stay poisoned, so that a callback which kept a pointer reads NaN.
  std::vector<Memory> grounds_;
  uint64_t next_ = 0;         // in the last ground
  uint64_t on_loan_ = 0;      // bytes of this call's loans, gaps included
  std::vector<char> poison_;  // a block of bytes that read as NaN
};

}  // namespace gsel
