// train/check/data_check.cc: see model_check.h.
#include <fmt/format.h>

#include <algorithm>

#include "base/foreign.h"
#include "base/text.h"
#include "train/check/ground.h"
#include "train/check/model_check.h"

namespace gsel::check {
namespace {

class DataCheck {
 public:
  DataCheck(const std::shared_ptr<DeviceContext>& device, const DataSource& data, std::span<const int64_t> sample_ids,
            int32_t id, const Buffer& value, Findings& findings)
      : device_(device), data_(data), ids_(sample_ids), id_(id), value_(value), findings_(findings) {
    value_.role = GSEL_BUFFER_DATA;
    value_.index = id;
    sample_elems_ = value_.elems() / std::max<int64_t>(1, static_cast<int64_t>(ids_.size()));
  }

  std::optional<Buffer> run() {
    Ground here(device_), elsewhere(device_);
    bool good = true;
    Buffer first = ask(here, kPoison, good);
    if (!good) return std::nullopt;
    here.poison();
    const Buffer again = ask(elsewhere, kPoison, good);
    if (!here.is_poisoned()) {
      breach(GSEL_BREACH_KEPT_POINTER, first, 0,
             "memory of an earlier request was written; dst is lent for one call, take it from the request");
      return std::nullopt;
    }
    const Buffer other = ask(elsewhere, kOtherPoison, good);
    if (!good || !is_filled(first, other)) return std::nullopt;
    return is_alike(first, again, other) ? std::optional(std::move(first)) : std::nullopt;
  }

 private:
  Buffer ask(Ground& ground, unsigned char poison, bool& good) {
    Buffer buffer = value_;
    buffer.fill(poison);
    // The guard has room for one sample too many.
    Loan loan{&buffer, true};
    loan.guard_bytes = std::max(loan.guard_bytes, 2 * static_cast<uint64_t>(sample_elems_) * buffer.elem_bytes());
    ground.lend({&loan, 1}, poison);
    call(loan.lent);
    good &= ground.take_back({&loan, 1}, poison, site(), findings_);
    return buffer;
  }

  void call(void* dst) const {
    std::array<char, 512> message{};
    gsel_data_request request{};
    request.struct_size = sizeof request;
    request.value = id_;
    request.n_samples = static_cast<int64_t>(ids_.size());
    request.sample_ids = ids_.data();
    request.dst = value_.view;
    request.dst.data = dst;
    request.message = message.data();
    request.message_capacity = message.size();
    request.stream = device_->native_compute();
    std::string thrown;
    const gsel_status status =
        call_foreign([&] { return data_.fill(&request, data_.user_data); }, GSEL_ERR_CALLBACK, thrown);
    message.back() = '\0';
    if (status == GSEL_NO_SAMPLES)
      fail(GSEL_ERR_CALLBACK, "input \"{}\" had no samples {} to {} to check kernels with; use fewer n_samples",
           value_.name, ids_.front(), ids_.back());
    if (status)
      fail(GSEL_ERR_CALLBACK, "the data for input \"{}\" failed: {}", value_.name,
           reason_of(status, thrown.empty() ? message.data() : thrown));
  }

  // Elements that keep both kinds of poison were not written.
  bool is_filled(const Buffer& first, const Buffer& other) {
    for (int64_t i = 0; i < first.elems(); ++i) {
      if (!first.is_filled(i, kPoison) || !other.is_filled(i, kOtherPoison)) continue;
      breach(GSEL_BREACH_UNWRITTEN, first, i,
             fmt::format("was left unwritten, of sample {}; all {} of the request are to be filled",
                         ids_[static_cast<size_t>(i / std::max<int64_t>(1, sample_elems_))],
                         with_noun(ids_.size(), "sample")));
      return false;
    }
    return true;
  }

  // Data that differs for equal sample_ids is only noted: ranks that read the same input would get different samples.
  bool is_alike(const Buffer& first, const Buffer& again, const Buffer& other) {
    for (int64_t i = 0; i < first.elems(); ++i) {
      if (!first.same_bits(i, again)) {
        findings_.note(
            fmt::format("data: input \"{}\" was not the same for the same sample_ids; stages of a pipeline "
                        "that both read it would get different samples",
                        first.name));
        return true;
      }
      if (first.same_bits(i, other)) continue;
      breach(GSEL_BREACH_STRAY_READ, first, i,
             fmt::format("is {} or {}, depending on what was in dst; overwrite it", shown(first.number(i)),
                         shown(other.number(i))));
      return false;
    }
    return true;
  }

  static Site site() { return Site("data", -1, GSEL_INPUT); }
  void breach(gsel_breach_kind kind, const Buffer& buffer, int64_t element, const std::string& what) {
    findings_.breach(kind, site(), buffer, element, what);
  }

  const std::shared_ptr<DeviceContext>& device_;
  const DataSource& data_;
  const std::span<const int64_t> ids_;
  const int32_t id_;
  Buffer value_;
  Findings& findings_;
  int64_t sample_elems_ = 1;
};

}  // namespace

bool ask_for_data(const std::shared_ptr<DeviceContext>& device, const DataSource& data,
                  std::span<const int64_t> sample_ids, int32_t id, Buffer& value, Findings& findings) {
  const std::optional<Buffer> filled = DataCheck(device, data, sample_ids, id, value, findings).run();
  if (filled) value.bytes = filled->bytes;
  return filled.has_value();
}

}  // namespace gsel::check
