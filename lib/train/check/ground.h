// train/check/ground.h: memory for the buffers of one call, with guards between them that show writes outside. Does not
// know what callbacks compute.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "train/check/findings.h"

namespace gsel::check {

constexpr unsigned char kPoison = 0xff;       // NaN in every floating-point type; a large index
constexpr unsigned char kOtherPoison = 0x3f;  // a number below 1; a large index

// A buffer as it is lent: to be read, or to be written as well.
struct Loan {
  static constexpr uint64_t kGuard = 4096;
  Buffer* buffer;
  bool is_written;
  void* lent = nullptr;
  uint64_t guard_bytes = kGuard;  // behind it, at least; before the first one, too
  uint64_t shift = 0;             // bytes from what tensors are aligned to
};

class Ground {
 public:
  // Puts the loans in place, with guards of this byte between them. The same loans come to the same addresses.
  void lend(std::span<Loan> loans, unsigned char guard);
  // What was written outside of loans, or to those that are read, is a breach; false: there was one. What was written
  // to the others goes home.
  bool take_back(std::span<Loan> loans, unsigned char guard, const Site& site, Findings& findings) const;

  // Overwritten, for those who still look here; and whether somebody has written since.
  void poison();
  bool is_poisoned() const;

 private:
  void reserve(uint64_t bytes);
  bool check_gap(const Loan* before, const Loan* behind, const char* begin, const char* end, unsigned char guard,
                 const Site& site, Findings& findings) const;

  std::vector<char> memory_;
  char* begin_ = nullptr;  // aligned
  uint64_t bytes_ = 0;     // in use
};

}  // namespace gsel::check
