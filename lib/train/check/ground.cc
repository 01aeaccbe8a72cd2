// train/check/ground.cc: see ground.h.
#include "train/check/ground.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/align.h"
#include "base/text.h"

namespace gsel::check {
namespace {

constexpr uint64_t kAlign = 64;  // promised by gsel_call for saved bytes and tensors

uint64_t stride_of(const Loan& loan) {
  return round_up(loan.shift + loan.buffer->bytes.size() + loan.guard_bytes, kAlign);
}

}  // namespace

Ground::Ground(std::shared_ptr<DeviceContext> device) : device_(std::move(device)) {}

void Ground::reserve(uint64_t bytes) {
  if (memory_.size() < bytes + kAlign) {
    memory_.assign(bytes + kAlign, 0);
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = memory_.data() + (round_up(at, kAlign) - at);
    if (device_->compute()) on_device_ = Memory(device_, memory_.size());
    base_ = on_device_.data() ? on_device_.at(0) : begin_;
  }
  bytes_ = bytes;
}

// All of the memory. To the host: after the work on the compute stream.
void Ground::copy(int32_t direction) {
  if (!on_device_.data()) return;
  const uint64_t bytes = memory_.size() - static_cast<uint64_t>(begin_ - memory_.data());
  if (direction == GSEL_COPY_TO_DEVICE)
    device_->copy(on_device_.data(), begin_, bytes, direction);
  else
    device_->copy(begin_, on_device_.data(), bytes, direction);
}

void Ground::lend(std::span<Loan> loans, unsigned char guard) {
  const uint64_t before = loans.empty() ? 0 : round_up(loans.front().guard_bytes, kAlign);
  uint64_t bytes = before;
  for (const Loan& loan : loans) bytes += stride_of(loan);
  reserve(bytes);
  std::memset(begin_, guard, bytes_);
  uint64_t next = before;
  for (Loan& loan : loans) {
    loan.lent = const_cast<char*>(base_) + next + loan.shift;
    std::memcpy(image_of(loan.lent), loan.buffer->bytes.data(), loan.buffer->bytes.size());
    next += stride_of(loan);
  }
  copy(GSEL_COPY_TO_DEVICE);
}

// Changed bytes count towards the nearer loan.
bool Ground::check_gap(const Loan* before, const Loan* behind, const char* begin, const char* end, unsigned char guard,
                       const Site& site, Findings& findings) const {
  auto changed = [&](char c) { return static_cast<unsigned char>(c) != guard; };
  const char* first = std::find_if(begin, end, changed);
  if (first == end) return true;
  const auto n = std::count_if(first, end, changed);
  const bool is_past_end = before && (!behind || first - begin < (end - begin) / 2);
  const Buffer& buffer = is_past_end ? *before->buffer : *behind->buffer;
  const auto size = static_cast<int64_t>(buffer.elem_bytes());
  const int64_t element = is_past_end ? buffer.elems() + (first - begin) / size : -((end - first + size - 1) / size);
  findings.breach(GSEL_BREACH_OUTSIDE, site, buffer, element,
                  fmt::format("{} bytes were written {} of {}; sizes are in the tensor's dims, and saved_bytes", n,
                              is_past_end ? "past the end" : "before the start", with_noun(buffer.elems(), "element")));
  return false;
}

bool Ground::take_back(std::span<Loan> loans, unsigned char guard, const Site& site, Findings& findings) {
  copy(GSEL_COPY_TO_HOST);
  bool good = true;
  const char* free_from = begin_;
  const Loan* before = nullptr;
  for (const Loan& loan : loans) {
    good &= check_gap(before, &loan, free_from, image_of(loan.lent), guard, site, findings);
    free_from = image_of(loan.lent) + loan.buffer->bytes.size();
    before = &loan;
  }
  if (before) good &= check_gap(before, nullptr, free_from, begin_ + bytes_, guard, site, findings);
  for (const Loan& loan : loans) {
    std::vector<char>& bytes = loan.buffer->bytes;
    const char* lent = image_of(loan.lent);
    if (loan.is_written) {
      std::memcpy(bytes.data(), lent, bytes.size());
      continue;
    }
    const auto [was, is] = std::mismatch(bytes.begin(), bytes.end(), lent);
    if (was == bytes.end()) continue;
    findings.breach(GSEL_BREACH_READ_ONLY, site, *loan.buffer,
                    (was - bytes.begin()) / static_cast<int64_t>(loan.buffer->elem_bytes()),
                    "was written, and is lent to be read; others read it as it was");
    good = false;
  }
  return good;
}

void Ground::poison() {
  std::memset(memory_.data(), kPoison, memory_.size());
  copy(GSEL_COPY_TO_DEVICE);
}

bool Ground::is_poisoned() {
  copy(GSEL_COPY_TO_HOST);
  return std::ranges::all_of(memory_, [](char c) { return static_cast<unsigned char>(c) == kPoison; });
}

}  // namespace gsel::check
