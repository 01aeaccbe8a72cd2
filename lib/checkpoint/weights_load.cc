// checkpoint/weights_load.cc: see weights.h. Each rank finds the elements that it holds in the file and reads them.
// Where fewer than kLeastRunBytes are in a row, because a tensor is transposed or divided, it reads the rows as a block
// and takes its elements out.
#include <algorithm>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "base/types.h"
#include "checkpoint/rounds.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_match.h"
#include "device/formulas/floats.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

constexpr int64_t kReadBytes = int64_t{16} << 20;
constexpr int64_t kLeastRunBytes = 4096;
constexpr int64_t kStagedElems = int64_t{1} << 22;

std::vector<WeightParam> params_of(const StateDict& state) {
  constexpr std::string_view kRole = "param:";
  std::vector<WeightParam> params;
  for (const StateTensor& tensor : state.tensors())
    if (tensor.state < 0) params.push_back({tensor.name.substr(kRole.size()), tensor.shape});
  return params;
}

// From one tensor of a file to f32 in memory.
class TensorReader {
 public:
  TensorReader(DiskFile& file, const WeightFiles::Tensor& tensor, gsel_weights_report& report)
      : file_(file),
        tensor_(tensor),
        report_(report),
        dtype_(tensor.stored.dtype()),
        elem_bytes_(static_cast<int64_t>(dtype_bytes(dtype_))) {}

  // Reads the elements of the tensor that one piece of a parameter has.
  void read(const std::vector<WeightCopy>& copies, float* dst) {
    for (const WeightCopy& copy : copies) report_.needed_bytes += static_cast<uint64_t>(copy.count() * elem_bytes_);
    if (!copies.empty()) part(copies, dst);
  }

 private:
  // Reads one block of the file if all of it is needed, or if the elements that are needed of each row are too few for
  // a read of their own. Otherwise reads both halves, each with the rows that begin in it.
  void part(const std::vector<WeightCopy>& copies, float* dst) {
    int64_t begin = copies.front().file, end = begin, count = 0;
    for (const WeightCopy& copy : copies) {
      begin = std::min(begin, copy.file);
      end = std::max(end, copy.file + copy.extent());
      count += copy.count();
    }
    const bool is_worth = end - begin == count || row_extent(copies) * elem_bytes_ < kLeastRunBytes;
    if (is_worth && (end - begin) * elem_bytes_ <= kReadBytes) return block(copies, begin, end, dst);
    const int64_t middle = begin + (end - begin) / 2;
    std::vector<WeightCopy> halves[2];
    for (const WeightCopy& copy : copies) {
      const int64_t below = outer_below(copy, middle);
      if (below > 0) halves[0].push_back(outer_part(copy, 0, below));
      if (const int64_t count_above = outer_count(copy) - below; count_above > 0)
        halves[1].push_back(outer_part(copy, below, count_above));
    }
    if (halves[1].empty()) return block(copies, begin, end, dst);  // one row, in which others begin
    part(halves[0], dst);
    part(halves[1], dst);
  }

  // The longest extent that the copies have together in one row. A row is one index of the largest copy's outermost
  // dimension.
  static int64_t row_extent(const std::vector<WeightCopy>& copies) {
    const WeightCopy& main = *std::ranges::max_element(copies, {}, &WeightCopy::count);
    const int64_t row = main.dims.empty() ? 0 : main.dims.front().file;
    if (row <= 1) return main.count();
    int64_t least = 0, most = 0;
    for (const WeightCopy& copy : copies) {
      const bool has_rows = !copy.dims.empty() && copy.dims.front().file == row;
      const int64_t extent = has_rows ? copy.extent() - (copy.dims.front().count - 1) * row : copy.extent();
      int64_t at = (copy.file - main.file) % row;
      if (at > row / 2) at -= row;
      if (at < -row / 2) at += row;
      least = std::min(least, at);
      most = std::max(most, at + extent);
    }
    return most - least;
  }

  static int64_t outer_count(const WeightCopy& copy) { return copy.dims.empty() ? 1 : copy.dims.front().count; }

  // The number of indices of the outermost dimension that begin before an element of the file.
  static int64_t outer_below(const WeightCopy& copy, int64_t end) {
    if (copy.file >= end) return 0;
    return copy.dims.empty() ? 1
                             : std::min(copy.dims.front().count, (end - copy.file - 1) / copy.dims.front().file + 1);
  }

  static WeightCopy outer_part(const WeightCopy& copy, int64_t first, int64_t count) {
    WeightCopy part = copy;
    if (copy.dims.empty()) return part;
    part.file += first * copy.dims.front().file;
    part.memory += first * copy.dims.front().memory;
    part.dims.front().count = count;
    if (count == 1) part.dims.erase(part.dims.begin());
    return part;
  }

  void block(const std::vector<WeightCopy>& copies, int64_t begin, int64_t end, float* dst) {
    const auto bytes = static_cast<size_t>((end - begin) * elem_bytes_);
    raw_.resize(bytes);
    file_.read(tensor_.at + static_cast<uint64_t>(begin * elem_bytes_), raw_.data(), bytes);
    report_.bytes += bytes;
    ++report_.reads;
    for (const WeightCopy& copy : copies) {
      const char* const from = raw_.data() + (copy.file - begin) * elem_bytes_;
      if (dtype_ == GSEL_F32)
        take<uint32_t>(copy, from, dst, [](uint32_t bits) { return float_of(bits); });
      else if (dtype_ == GSEL_BF16)
        take<uint16_t>(copy, from, dst, [](uint16_t bits) { return BF16{bits}.widen(); });
      else
        take<uint16_t>(copy, from, dst, [](uint16_t bits) { return F16{bits}.widen(); });
    }
  }

  template <class Bits, class Widen>
  static void take(const WeightCopy& copy, const char* begin, float* dst, Widen widen) {
    const auto descend = [&](auto& self, size_t d, const char* from, float* to) -> void {
      if (d == copy.dims.size()) {
        Bits bits;
        std::memcpy(&bits, from, sizeof bits);
        *to = widen(bits);
        return;
      }
      const WeightCopy::Dim& dim = copy.dims[d];
      if (d + 1 < copy.dims.size()) {
        for (int64_t i = 0; i < dim.count; ++i)
          self(self, d + 1, from + static_cast<size_t>(i * dim.file) * sizeof(Bits), to + i * dim.memory);
        return;
      }
      for (int64_t i = 0; i < dim.count; ++i) {
        Bits bits;
        std::memcpy(&bits, from + static_cast<size_t>(i * dim.file) * sizeof bits, sizeof bits);
        to[i * dim.memory] = widen(bits);
      }
    };
    descend(descend, 0, begin, dst + copy.memory);
  }

  DiskFile& file_;
  const WeightFiles::Tensor& tensor_;
  gsel_weights_report& report_;
  const gsel_dtype dtype_;
  const int64_t elem_bytes_;
  std::vector<char> raw_;
};

class WeightLoading {
 public:
  WeightLoading(Trainer& trainer, StateDict& state, const std::string& path, const Config& map, Disk& disk)
      : trainer_(trainer), state_(state), path_(path), map_(map), disk_(disk), params_(params_of(state)) {}

  gsel_weights_report run(const std::function<void()>& begins_to_write) {
    const WeightPlan plan = agreed_plan(trainer_, state_, map_);
    plan_ = &plan;
    aside([&] { files_.emplace(disk_, path_); });
    aside([&] { match_.emplace(plan, params_, map_.weights.rules, map_.weights.prefix, *files_, path_); });
    check_agreement(trainer_.comm(), {Particular("file of weights", "headers with the sum " + files_->sum())});
    aside([&] { compare_copies(); });
    begins_to_write();
    Rounds rounds(trainer_.comm());
    rounds.run(kMade, [&] { read_all(rounds); });
    count();
    return report_;
  }

 private:
  static constexpr const char* kMade = "trainer's weights";

  // On all ranks, for as long as the slowest disk takes.
  void aside(const std::function<void()>& work) {
    Rounds rounds(trainer_.comm());
    rounds.run(kMade, [&] { rounds.aside(work); });
  }

  // Each rank a part of every copy.
  void compare_copies() {
    const Communicator& comm = trainer_.comm();
    std::vector<char> a, b;
    for (const WeightMatch::Found& found : match_->sources)
      for (const auto& [name, copy] : found.copies) {
        const auto bytes = static_cast<int64_t>(copy->stored.end - copy->stored.begin);
        const gsel_range mine = shard_range(bytes, comm.world_size(), comm.rank());
        for (int64_t at = mine.begin; at < mine.end; at += kReadBytes) {
          const auto some = static_cast<size_t>(std::min(kReadBytes, mine.end - at));
          a.resize(some), b.resize(some);
          files_->file(found.tensor->file).read(found.tensor->at + static_cast<uint64_t>(at), a.data(), some);
          files_->file(copy->file).read(copy->at + static_cast<uint64_t>(at), b.data(), some);
          report_.compared_bytes += 2 * some;
          const auto differs = std::ranges::mismatch(a, b).in1 - a.begin();
          if (static_cast<size_t>(differs) < some)
            throw Error(
                GSEL_ERR_MISMATCH,
                fmt::format("{}: {} is another name of {}, and differs from byte {} of it on; the model has one "
                            "parameter for both",
                            path_, in_quotes(name, name.size()), in_quotes(found.name, found.name.size()),
                            at + differs))
                .at({path_, 0, 0, name});
        }
      }
  }

  // In the order of the files.
  void read_all(Rounds& rounds) {
    std::vector<const StatePiece*> all;
    for (const StatePiece& held : state_.held())
      if (is_filled(held)) all.push_back(&held);
    std::ranges::stable_sort(all, {}, [&](const StatePiece* held) {
      const WeightFiles::Tensor& tensor = tensor_of(pieces_of(*held).front());
      return std::pair(tensor.file, tensor.at);
    });
    for (const StatePiece* held : all) read(*held, rounds);
  }

  bool is_filled(const StatePiece& held) const {
    const StateTensor& tensor = state_.tensors()[static_cast<size_t>(held.tensor)];
    return tensor.state < 0 && match_->is_filled[static_cast<size_t>(tensor.param)];
  }
  const std::vector<WeightPiece>& pieces_of(const StatePiece& held) const {
    return plan_->pieces[static_cast<size_t>(state_.tensors()[static_cast<size_t>(held.tensor)].param)];
  }
  const WeightFiles::Tensor& tensor_of(const WeightPiece& piece) const {
    return *match_->sources[static_cast<size_t>(piece.source)].tensor;
  }

  // Elements of the last dimension that the region has.
  static int64_t row_of(const Region& region) {
    int64_t row = 0;
    if (!region.shape().empty())
      for (const gsel_range& interval : region.intervals(region.shape().size() - 1))
        row += interval.end - interval.begin;
    return std::max<int64_t>(row, 1);
  }

  // Elements that are staged at a time: of a transposed tensor so many rows that in the file kLeastRunBytes are in a
  // row.
  int64_t staged_elems(const StatePiece& held, int64_t row) const {
    int64_t most = kStagedElems;
    for (const WeightPiece& piece : pieces_of(held))
      if (!held.region.shape().empty() && piece.digits.back().back().stride > 1)
        most =
            std::max(most, row * kLeastRunBytes / static_cast<int64_t>(dtype_bytes(tensor_of(piece).stored.dtype())));
    return std::max(most / row, int64_t{1}) * row;
  }

  // What the tensors have of a region of the held piece, into staged_. Returns how many elements.
  int64_t read_staged(const StatePiece& held, const Region& region) {
    int64_t n = 0;
    for (const WeightPiece& piece : pieces_of(held)) {
      const WeightFiles::Tensor& tensor = tensor_of(piece);
      TensorReader reader(files_->file(tensor.file), tensor, report_);
      std::vector<WeightCopy> copies;
      each_copy(region, piece, [&](const WeightCopy& copy) {
        copies.push_back(copy);
        n += copy.count();
      });
      reader.read(copies, staged_.data());
    }
    return n;
  }

  void read(const StatePiece& held, Rounds& rounds) {
    const int64_t row = row_of(held.region), most = staged_elems(held, row);
    // Whole rows, of which the piece may begin in the middle.
    for (int64_t first = 0, end = 0; first < held.region.count(); first = end) {
      end = std::min(held.region.count(), first + most - (held.region.range().begin + first) % row);
      StatePiece some = held;
      some.region = held.region.part(first, end - first);
      some.first += first;
      staged_.resize(static_cast<size_t>(some.region.count()));
      int64_t n = 0;
      rounds.aside([&] { n = read_staged(held, some.region); });
      if (n != some.region.count())
        fail(GSEL_ERR_INTERNAL, "{} of {} elements were found in {}", n, some.region.count(), path_);
      state_.write(some, staged_.data());
    }
  }

  void count() {
    report_.n_ignored = match_->n_ignored;
    for (const WeightMatch::Found& found : match_->sources) {
      if (!found.tensor) continue;
      ++report_.n_tensors;
      report_.n_widened += dtype_bytes(found.tensor->stored.dtype()) == 2;
    }
    for (const bool is_filled : match_->is_filled) report_.n_kept += !is_filled;
  }

  Trainer& trainer_;
  StateDict& state_;
  const std::string& path_;
  const Config& map_;
  Disk& disk_;
  const std::vector<WeightParam> params_;
  const WeightPlan* plan_ = nullptr;
  std::optional<WeightFiles> files_;
  std::optional<WeightMatch> match_;
  std::vector<float> staged_;
  gsel_weights_report report_ = GSEL_WEIGHTS_REPORT_INIT;
};

}  // namespace

void check_weights_path(const std::string& path) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (path.empty()) fail(GSEL_ERR_ARG, "path is empty; expected that of a safetensors file");
  if (std::ranges::any_of(path, is_control))
    fail(GSEL_ERR_ARG, "path is {}, with control characters; expected that of a safetensors file", in_quotes(path));
}

WeightPlan agreed_plan(Trainer& trainer, const StateDict& state, const Config& map) {
  Particulars particulars{Particular("weights.prefix", in_quotes(map.weights.prefix)),
                          Particular("number of rules in weights.map", std::to_string(map.weights.rules.size()))};
  for (size_t i = 0; i < map.weights.rules.size(); ++i)
    particulars.push_back(Particular(fmt::format("weights.map, rule {},", i + 1), map.weights.rules[i].text()));
  check_agreement(trainer.comm(), particulars);
  std::optional<WeightPlan> plan;
  on_all_ranks(trainer.comm(), "trainer's weights", [&] { plan.emplace(map.weights.rules, params_of(state)); });
  return std::move(*plan);
}

// An error while tensors are read leaves a mixture, from which no rank may go on.
gsel_weights_report load_weights(Trainer& trainer, const std::string& path, const Config* map, Disk& disk) {
  check_weights_path(path);
  const double began = os::now_seconds();
  StateDict state = trainer.begin_params(JointCall::load_weights);
  bool is_writing = false;
  try {
    gsel_weights_report report =
        WeightLoading(trainer, state, path, map ? *map : trainer.config(), disk).run([&] { is_writing = true; });
    report.seconds = os::now_seconds() - began;
    return report;
  } catch (const Error& e) {
    if (is_writing) trainer.lose_state("weights were loaded in part: " + e.message());
    throw;
  }
}

}  // namespace gsel::checkpoint
