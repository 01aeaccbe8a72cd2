// train/check/optimizer_check.cc: see model_check.h. Two steps run several times from the same start: whole, whole
// again, whole at other addresses, and in runs. All must give the same bits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/foreign.h"
#include "base/random.h"
#include "base/text.h"
#include "train/check/ground.h"
#include "train/check/model_check.h"
#include "train/state/storage.h"

namespace gsel::check {
namespace {

constexpr int64_t kMostElems = 4099, kMostWhole = int64_t{1} << 20;
constexpr int kSteps = 2;
constexpr double kLearningRate = 1e-3, kWeightDecay = 0.01, kNoiseOnValues = 0.1;

// The arrays of a step, for the checked elements.
struct Arrays {
  Buffer values, gradient;
  std::vector<Buffer> states;
};

struct Run {
  int64_t first, count;
};

class OptimizerCheck {
 public:
  OptimizerCheck(const std::shared_ptr<DeviceContext>& device, const Model& model, int32_t param,
                 const gsel_optimizer_options& optimizer, uint64_t seed, Findings& findings)
      : device_(device),
        param_(model.params()[static_cast<size_t>(param)]),
        id_(param),
        optimizer_(optimizer),
        findings_(findings),
        seed_(derive_key(derive_key(seed, "optimizer"), param_.name)),
        n_(takes_pieces() ? std::min(param_.n_elems, kMostElems) : param_.n_elems) {}

  // False: the optimizer kept a pointer, so that its further results are not reliable.
  bool run(bool checks_pieces) {
    if (n_ > kMostWhole) {
      findings_.note(fmt::format("optimizer: parameter \"{}\" of {} was not checked; more than {} are not", param_.name,
                                 with_noun(n_, "element"), kMostWhole));
      return true;
    }
    Ground ground(device_), elsewhere(device_);
    const std::vector<Run> whole{{0, n_}};
    const Arrays first = steps(whole, ground);
    if (!good_) return true;
    if (differs(GSEL_BREACH_NOT_REPEATABLE, steps(whole, ground), first,
                "in a second run with the same bytes, and in the first"))
      return true;
    ground.poison();
    const Arrays moved = steps(whole, elsewhere);
    if (!good_) return true;
    if (!ground.is_poisoned()) {
      findings_.breach(GSEL_BREACH_KEPT_POINTER, site(), moved.values, 0,
                       "memory of an earlier call was written; pointers are lent for one call, take them from it");
      return false;
    }
    if (differs(GSEL_BREACH_KEPT_POINTER, moved, first,
                "once the buffers have moved and their old places are poisoned, and before"))
      return false;
    if (!checks_pieces || !takes_pieces() || n_ < 2) return true;
    differs(GSEL_BREACH_PIECES, steps(pieces(), elsewhere), first,
            "stepped in pieces, as strategies that shard parameters do, and",
            " in one piece; compute each element alike wherever it lies, for instance without -ffast-math");
    return true;
  }

 private:
  bool takes_pieces() const { return optimizer_.needs != GSEL_NEEDS_WHOLE_PARAM; }
  Site site() const { return Site(fmt::format("optimizer on parameter \"{}\"", param_.name), -1, 0); }

  std::vector<Run> pieces() const {
    std::vector<int64_t> cuts{0, 1, n_ / 3, n_ / 2 + 1, n_ - 1, n_};
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Run> result;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) result.push_back({cuts[i], cuts[i + 1] - cuts[i]});
    return result;
  }

  Buffer numbers(int32_t role, int32_t index) const {
    gsel_tensor view{};
    view.dtype = GSEL_F32;
    view.n_dims = 1;
    view.dims[0] = n_;
    view.n_elems = n_;
    return make_buffer(role, index, "", view);
  }

  Arrays begin() const {
    Arrays arrays{numbers(GSEL_BUFFER_VALUES, id_), numbers(GSEL_BUFFER_GRADIENT, id_), {}};
    std::vector<float> initial(static_cast<size_t>(n_));
    make_initial(param_, 0, initial, seed_);
    for (int64_t i = 0; i < n_; ++i)
      arrays.values.put(i, initial[static_cast<size_t>(i)] +
                               kNoiseOnValues * random_normal(derive_key(seed_, "noise"), static_cast<uint64_t>(i)));
    for (int32_t i = 0; i < optimizer_.n_states; ++i) arrays.states.push_back(numbers(GSEL_BUFFER_STATES, i));
    return arrays;
  }

  Arrays steps(const std::vector<Run>& runs, Ground& ground) {
    Arrays arrays = begin();
    for (int t = 1; t <= kSteps && good_; ++t) {
      fill_random(arrays.gradient, derive_key(seed_, static_cast<uint64_t>(t)), 1, 1);
      for (const Run& run : runs) call(arrays, run, t, 0, {}, ground);
      if (optimizer_.needs != GSEL_NEEDS_PARAM_NORM) continue;
      const std::array<double, 2> norms{norm(arrays.values), norm(arrays.gradient)};
      for (const Run& run : runs) call(arrays, run, t, 1, norms, ground);
    }
    return arrays;
  }

  static double norm(const Buffer& of) {
    double sum = 0;
    for (int64_t i = 0; i < of.elems(); ++i) sum += of.number(i) * of.number(i);
    return std::sqrt(sum);
  }

  static Buffer shard_of(const Buffer& whole, const Run& run) {
    Buffer piece = whole;
    piece.view.n_elems = piece.view.dims[0] = run.count;
    const auto begin = whole.bytes.begin() + run.first * int64_t{sizeof(float)};
    piece.bytes.assign(begin, begin + run.count * int64_t{sizeof(float)});
    return piece;
  }
  static void put_back(const Buffer& piece, const Run& run, Buffer& whole) {
    std::ranges::copy(piece.bytes, whole.bytes.begin() + run.first * int64_t{sizeof(float)});
  }

  // Runs keep the alignment that their elements have in the parameter.
  void call(Arrays& arrays, const Run& run, int t, int32_t phase, const std::array<double, 2>& norms, Ground& ground) {
    std::vector<Buffer*> wholes{&arrays.values, &arrays.gradient};
    for (Buffer& state : arrays.states) wholes.push_back(&state);
    std::vector<Buffer> copies;
    for (const Buffer* whole : wholes) copies.push_back(shard_of(*whole, run));
    std::vector<Loan> loans;
    for (Buffer& piece : copies) {
      loans.push_back({&piece, true});
      loans.back().shift = static_cast<uint64_t>(run.first) * sizeof(float) % 64;
    }
    ground.lend(loans, kPoison);
    std::vector<float*> states;
    for (size_t i = 2; i < loans.size(); ++i) states.push_back(static_cast<float*>(loans[i].lent));
    std::array<char, 512> message{};
    gsel_optimizer_call call{};
    call.struct_size = sizeof call;
    call.phase = phase;
    call.param = id_;
    call.flags = param_.flags;
    call.dims = param_.dims.data();
    call.n_dims = static_cast<int32_t>(param_.dims.size());
    call.n_states = optimizer_.n_states;
    call.first = run.first;
    call.count = run.count;
    call.values = static_cast<float*>(loans[0].lent);
    call.gradient = static_cast<float*>(loans[1].lent);
    call.states = states.data();
    call.t = t;
    call.learning_rate = kLearningRate * param_.lr_factor;
    call.weight_decay = param_.flags & GSEL_PARAM_NO_DECAY ? 0 : kWeightDecay;
    call.param_norm = norms[0];
    call.update_norm = norms[1];
    call.message = message.data();
    call.message_capacity = message.size();
    call.stream = device_->native_compute();
    std::string thrown;
    const gsel_status status =
        call_foreign([&] { return optimizer_.step(&call, optimizer_.user_data); }, GSEL_ERR_CALLBACK, thrown);
    message.back() = '\0';
    if (status)
      fail(GSEL_ERR_CALLBACK, "the optimizer failed on parameter \"{}\" while it was checked: {}", param_.name,
           reason_of(status, thrown.empty() ? message.data() : thrown));
    good_ &= ground.take_back(loans, kPoison, site(), findings_);
    for (size_t i = 0; i < copies.size(); ++i) put_back(copies[i], run, *wholes[i]);
  }

  // Gradients are not compared: the optimizer may overwrite them.
  bool differs(gsel_breach_kind kind, const Arrays& got, const Arrays& want, const std::string& what,
               const std::string& remedy = "") {
    auto compare = [&](const Buffer& a, const Buffer& b) {
      for (int64_t i = 0; i < a.elems(); ++i) {
        if (a.same_bits(i, b)) continue;
        findings_.breach(kind, site(), a, i,
                         fmt::format("is {} {} {}{}", shown(a.number(i)), what, shown(b.number(i)), remedy),
                         a.number(i), b.number(i));
        return true;
      }
      return false;
    };
    if (!good_ || compare(got.values, want.values)) return true;
    for (size_t i = 0; i < got.states.size(); ++i)
      if (compare(got.states[i], want.states[i])) return true;
    return false;
  }

  const std::shared_ptr<DeviceContext>& device_;
  const Param& param_;
  const int32_t id_;
  const gsel_optimizer_options& optimizer_;
  Findings& findings_;
  const uint64_t seed_;
  const int64_t n_;
  bool good_ = true;  // no write outside loans so far
};

}  // namespace

void check_optimizer(const std::shared_ptr<DeviceContext>& device, const Model& model,
                     const gsel_optimizer_options& optimizer, uint64_t seed, bool checks_pieces, Findings& findings) {
  for (size_t p = 0; p < model.params().size(); ++p)
    if (model.params()[p].trainable() &&
        !OptimizerCheck(device, model, static_cast<int32_t>(p), optimizer, seed, findings).run(checks_pieces))
      return;
}

}  // namespace gsel::check
