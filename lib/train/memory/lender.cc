// train/memory/lender.cc: see lender.h.
#include "train/memory/lender.h"

#include <algorithm>

#include "base/align.h"
#include "base/types.h"

namespace gsel {
namespace {

constexpr uint64_t kPoisonBlock = uint64_t{1} << 16;
constexpr uint64_t kLeastGround = uint64_t{1} << 16;
constexpr uint64_t kGroundsPerCall = 4;  // approximate number of calls before memory is reused
constexpr char kPoison = '\xff';         // NaN in every floating-point type

}  // namespace

Lender::Lender(std::shared_ptr<DeviceContext> device, bool moves) : device_(std::move(device)), moves_(moves) {
  if (moves_) poison_.assign(kPoisonBlock, kPoison);
}

void Lender::poison(void* memory, uint64_t bytes) const {
  for (uint64_t done = 0; done < bytes; done += kPoisonBlock)
    device_->enqueue(&gsel_device_v1::copy, static_cast<void*>(static_cast<char*>(memory) + done),
                     static_cast<const void*>(poison_.data()), std::min(kPoisonBlock, bytes - done),
                     int32_t{GSEL_COPY_TO_DEVICE});
}

char* Lender::memory_for(uint64_t bytes) {
  const uint64_t size = round_up(std::max<uint64_t>(bytes, 1), kTensorAlign);
  const uint64_t ground = grounds_.empty() ? 0 : grounds_.back().bytes();
  const bool wraps = next_ + size > ground;
  const uint64_t gap = wraps ? ground - next_ : 0;
  if (on_loan_ + gap + size > ground) {
    grounds_.emplace_back(device_, std::max(kLeastGround, kGroundsPerCall * (on_loan_ + size)));
    poison(grounds_.back().data(), grounds_.back().bytes());
    next_ = on_loan_ = 0;
  } else if (wraps) {
    next_ = 0;
    on_loan_ += gap;
  }
  char* memory = grounds_.back().at(next_);
  next_ += size;
  on_loan_ += size;
  return memory;
}

void* Lender::lend_bytes(void* data, uint64_t bytes, Access access) {
  if (!data || !moves_) return data;
  char* memory = memory_for(bytes);
  if (access != Access::write) device_->copy(memory, data, bytes, GSEL_COPY_ON_DEVICE);
  loans_.push_back({data, memory, bytes, access});
  return memory;
}

gsel_tensor Lender::lend(gsel_tensor tensor, Access access) {
  tensor.data = lend_bytes(tensor.data, static_cast<uint64_t>(tensor.n_elems) * dtype_bytes(tensor.dtype), access);
  return tensor;
}

void Lender::take_back() {
  for (const Loan& loan : loans_) {
    if (loan.access != Access::read) device_->copy(loan.home, loan.lent, loan.bytes, GSEL_COPY_ON_DEVICE);
    poison(loan.lent, loan.bytes);
  }
  loans_.clear();
  on_loan_ = 0;
}

}  // namespace gsel
