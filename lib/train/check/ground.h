// train/check/ground.h: memory of a device for the buffers of one call, with guard bytes between them that reveal
// writes outside the buffers. Does not know what callbacks compute.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"
#include "train/check/findings.h"

namespace gsel::check {

constexpr unsigned char kPoison = 0xff;       // NaN in every floating-point type; a large index
constexpr unsigned char kOtherPoison = 0x3f;  // a number below 1; a large index

// A buffer lent to a callback, read-only unless is_written.
struct Loan {
  static constexpr uint64_t kGuard = 4096;
  Buffer* buffer;
  bool is_written;
  void* lent = nullptr;
  uint64_t guard_bytes = kGuard;  // minimum, after this loan; before the first loan as well
  uint64_t shift = 0;             // offset from the usual tensor alignment
};

class Ground {
 public:
  explicit Ground(std::shared_ptr<DeviceContext> device);

  // Places the loans, with guard bytes between them. The same loans get the same addresses every time.
  void lend(std::span<Loan> loans, unsigned char guard);
  // Waits for the device, and copies written loans back to their buffers. A write outside the loans or to a read-only
  // loan is a breach; returns false if there was one.
  bool take_back(std::span<Loan> loans, unsigned char guard, const Site& site, Findings& findings);

  // poison: overwrites the memory. is_poisoned: nothing has written to it since, as a callback with a kept pointer
  // does.
  void poison();
  bool is_poisoned();

 private:
  void reserve(uint64_t bytes);
  char* image_of(const void* lent) const { return begin_ + (static_cast<const char*>(lent) - base_); }
  void copy(int32_t direction);
  bool check_gap(const Loan* before, const Loan* behind, const char* begin, const char* end, unsigned char guard,
                 const Site& site, Findings& findings) const;

  std::shared_ptr<DeviceContext> device_;
  std::vector<char> memory_;  // lent memory, or its copy on the host where the host cannot access the device's
  Memory on_device_;
  char* begin_ = nullptr;       // in memory_, aligned
  const char* base_ = nullptr;  // where that is lent
  uint64_t bytes_ = 0;          // in use
};

}  // namespace gsel::check
