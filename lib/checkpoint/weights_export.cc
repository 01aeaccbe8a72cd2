// checkpoint/weights_export.cc: see weights.h. All ranks make one parameter whole after the other; rank 0 puts its
// elements in their places in a tensor of the file, and writes the tensor when all of it is there.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "base/types.h"
#include "checkpoint/rounds.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "device/formulas/floats.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

constexpr size_t kWriteBytes = size_t{16} << 20;

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t dim : shape) n *= dim;
  return n;
}

// The elements of a copy from memory to a tensor in its type.
template <class Bits, class Narrow>
void put(const WeightCopy& copy, const float* from, char* to, Narrow narrow) {
  const auto descend = [&](auto& self, size_t d, int64_t file, int64_t memory) -> void {
    if (d == copy.dims.size()) {
      const Bits bits = narrow(from[memory]);
      std::memcpy(to + static_cast<size_t>(file) * sizeof bits, &bits, sizeof bits);
      return;
    }
    const WeightCopy::Dim& dim = copy.dims[d];
    if (d + 1 < copy.dims.size()) {
      for (int64_t i = 0; i < dim.count; ++i) self(self, d + 1, file + i * dim.file, memory + i * dim.memory);
      return;
    }
    for (int64_t i = 0; i < dim.count; ++i) {
      const Bits bits = narrow(from[memory + i * dim.memory]);
      std::memcpy(to + static_cast<size_t>(file + i * dim.file) * sizeof bits, &bits, sizeof bits);
    }
  };
  descend(descend, 0, copy.file, copy.memory);
}

class WeightExport {
 public:
  WeightExport(Trainer& trainer, const WeightPlan& plan, const std::vector<StateTensor>& tensors,
               const std::string& path, gsel_dtype dtype, Disk& disk)
      : trainer_(trainer), plan_(plan), disk_(disk), path_(path), dtype_(dtype) {
    for (const StateTensor& tensor : tensors)
      if (tensor.state < 0) params_.push_back({tensor.name, tensor.shape});
    for (size_t s = 0; s < plan.sources.size(); ++s) order_.push_back(s);
    std::ranges::stable_sort(order_, std::greater<>(), [&](size_t s) { return dtype_bytes(type_of(s)); });
  }

  gsel_weights_report run() {
    const size_t slash = path_.rfind('/');
    folder_ = slash == path_.npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
    const std::string name = slash == path_.npos ? path_ : path_.substr(slash + 1);
    uint64_t nonce = 0;
    os::random_bytes(&nonce, sizeof nonce);
    temporary_ = fmt::format("{}/.{}-{:016x}", folder_, name, nonce);
    try {
      together([&](Rounds&) { take_room(); });
      on_first([&] { begin(); });
      for (const size_t source : order_) write(source);
      on_first([&] { commit(); });
    } catch (...) {
      undo();
      throw;
    }
    report_.n_tensors = static_cast<int32_t>(plan_.sources.size());
    report_.needed_bytes = report_.bytes;
    return report_;
  }

 private:
  bool writes() const { return trainer_.comm().rank() == 0; }
  // Where every rank has all parameters, the first one needs no other.
  bool reads() const { return !trainer_.holds_params() || writes(); }
  gsel_dtype type_of(size_t source) const { return plan_.sources[source].cast ? plan_.sources[source].cast : dtype_; }

  template <class Work>
  void together(Work&& work) {
    Rounds rounds(trainer_.comm());
    rounds.run("file of weights", [&] { work(rounds); });
  }
  // Work of the first rank, for which the others wait as long as its disk takes.
  void on_first(const std::function<void()>& work) {
    together([&](Rounds& rounds) {
      if (writes()) rounds.aside(work);
    });
  }

  // For the largest parameter, so that no rank fails between the collectives.
  void take_room() {
    int64_t most = 0;
    for (const WeightParam& param : params_) most = std::max(most, elements(param.shape));
    if (reads()) values_.reserve(static_cast<size_t>(most));
  }

  void begin() {
    SafetensorsHeader header;
    uint64_t at = 0;
    for (const size_t s : order_) {
      const WeightSource& source = plan_.sources[s];
      const uint64_t bytes = static_cast<uint64_t>(elements(source.shape)) * dtype_bytes(type_of(s));
      header.tensors.push_back({source.name, stored_type(type_of(s)), source.shape, at, at + bytes});
      at += bytes;
    }
    header.metadata = {{"format", "pt"}};  // other libraries want to know whose layout it is
    const std::string head = header.text();
    if (const uint64_t free = disk_.free_bytes(folder_); free < head.size() + at)
      throw Error(GSEL_ERR_IO,
                  fmt::format("{} has {} bytes free, and the file needs {}", folder_, free, head.size() + at))
          .at({folder_, 0, 0, {}});
    file_ = disk_.create(temporary_);
    file_->reserve(head.size() + at);
    file_->write(0, head.data(), head.size());
    at_ = head.size();
  }

  // A collective where ranks have parts.
  void read_param(int32_t p) {
    if (p == whole_ || !reads()) return;
    values_.resize(static_cast<size_t>(elements(params_[static_cast<size_t>(p)].shape)));
    trainer_.read_param(p, values_.data(), values_.size() * sizeof(float));
    whole_ = p;
  }

  void write(size_t s) {
    const WeightSource& source = plan_.sources[s];
    const gsel_dtype dtype = type_of(s);
    together([&](Rounds&) {
      if (writes()) tensor_.resize(static_cast<size_t>(elements(source.shape)) * dtype_bytes(dtype));
    });
    for (const int32_t p : source.params) {
      read_param(p);
      together([&](Rounds&) {
        if (writes()) place(s, p, dtype);
      });
    }
    on_first([&] {
      for (size_t first = 0; first < tensor_.size(); first += kWriteBytes) {
        const size_t some = std::min(kWriteBytes, tensor_.size() - first);
        file_->write(at_, tensor_.data() + first, some);
        at_ += some;
        report_.bytes += some;
        ++report_.reads;
      }
    });
  }

  void place(size_t s, int32_t p, gsel_dtype dtype) {
    const Region whole(params_[static_cast<size_t>(p)].shape);
    for (const WeightPiece& piece : plan_.pieces[static_cast<size_t>(p)]) {
      if (piece.source != static_cast<int32_t>(s)) continue;
      each_copy(whole, piece, [&](const WeightCopy& copy) {
        if (dtype == GSEL_F32)
          put<uint32_t>(copy, values_.data(), tensor_.data(), [](float x) { return bits_of(x); });
        else if (dtype == GSEL_BF16)
          put<uint16_t>(copy, values_.data(), tensor_.data(), [](float x) { return BF16::narrow(x).bits; });
        else
          put<uint16_t>(copy, values_.data(), tensor_.data(), [](float x) { return F16::narrow(x).bits; });
      });
    }
  }

  void commit() {
    file_->sync();
    file_.reset();
    disk_.rename(temporary_, path_);
    disk_.sync_folder(folder_);
  }

  void undo() noexcept {
    try {
      file_.reset();
      disk_.remove(temporary_);
    } catch (...) {
    }
  }

  Trainer& trainer_;
  const WeightPlan& plan_;
  Disk& disk_;
  const std::string& path_;
  const gsel_dtype dtype_;
  std::vector<WeightParam> params_;
  std::vector<size_t> order_;  // of the sources in the file
  std::string folder_, temporary_;
  std::unique_ptr<DiskFile> file_;
  uint64_t at_ = 0;            // byte of the file
  std::vector<float> values_;  // of parameter whole_
  int32_t whole_ = -1;
  std::vector<char> tensor_;
  gsel_weights_report report_ = GSEL_WEIGHTS_REPORT_INIT;
};

void check_all_named(const WeightPlan& plan, const std::vector<StateTensor>& tensors) {
  constexpr size_t kMost = 10;
  std::vector<std::string> names;
  for (const StateTensor& tensor : tensors)
    if (tensor.state < 0 && plan.pieces[static_cast<size_t>(tensor.param)].empty())
      names.push_back(in_quotes(tensor.name.substr(tensor.name.find(':') + 1)));
  if (names.empty()) return;
  const size_t n = names.size();
  names.resize(std::min(n, kMost));
  fail(GSEL_ERR_CONFIG, "no rule of weights.map names {}: {}{}", with_noun(n, "parameter"), fmt::join(names, ", "),
       n > kMost ? fmt::format(", and {} more", n - kMost) : std::string());
}

}  // namespace

gsel_weights_report export_weights(Trainer& trainer, const std::string& path, const Config* map, gsel_dtype dtype,
                                   Disk& disk) {
  check_weights_path(path);
  if (path.back() == '/') fail(GSEL_ERR_ARG, "path is {}, a folder; expected that of a file", in_quotes(path));
  if (dtype != GSEL_F32 && dtype != GSEL_BF16 && dtype != GSEL_F16)
    fail(GSEL_ERR_ARG, "dtype is {}; expected f32, bf16 or f16", dtype_name(dtype));
  const double began = os::now_seconds();
  const StateDict state = trainer.begin_params(JointCall::export_weights);
  const WeightPlan plan = agreed_plan(trainer, state, map ? *map : trainer.config());
  check_agreement(trainer.comm(), {Particular("dtype of the exported weights", dtype_name(dtype))});
  on_all_ranks(trainer.comm(), "file of weights", [&] { check_all_named(plan, state.tensors()); });
  gsel_weights_report report = WeightExport(trainer, plan, state.tensors(), path, dtype, disk).run();
  report.seconds = os::now_seconds() - began;
  return report;
}

}  // namespace gsel::checkpoint
