// fake/cuda/kernels.cc: kernels by name. Those of plugins/device/cuda, compiled for the host, with what each reads and
// writes, are here.
#include "shim.h"
// clang-format off: the shim comes first
#include "../../../plugins/device/cuda/kernels.cu"
// clang-format on

namespace fake_cuda {
StepMemory here(StepMemory s);
ByteStateMemory here(ByteStateMemory s);
LowRankMemory here(LowRankMemory m);
gsel_update_scale here(gsel_update_scale s);
ReduceMemory here(ReduceMemory m);
}  // namespace fake_cuda

#include "makers.h"

namespace fake_cuda {

StepMemory here(StepMemory s) {
  s.param = here(s.param), s.gradient = here(s.gradient), s.param16 = here(s.param16);
  s.state0 = here(s.state0), s.state1 = here(s.state1);
  return s;
}
ByteStateMemory here(ByteStateMemory s) {
  s.param = here(s.param), s.gradient = here(s.gradient), s.param16 = here(s.param16);
  s.codes0 = here(s.codes0), s.codes1 = here(s.codes1);
  s.scale0 = here(s.scale0), s.scale1 = here(s.scale1);
  return s;
}

LowRankMemory here(LowRankMemory m) {
  m.matrix = here(m.matrix), m.left = here(m.left), m.right = here(m.right);
  m.error = here(m.error), m.old_error = here(m.old_error);
  return m;
}

ReduceMemory here(ReduceMemory m) {
  m.dst = here(m.dst);
  for (int32_t q = 0; q < m.n; ++q) m.srcs[q] = here(m.srcs[q]);
  return m;
}

// What it reads by addresses is page-locked, so that these are the same.
gsel_update_scale here(gsel_update_scale s) {
  s.weights = here(s.weights), s.squares = here(s.squares), s.ends = here(s.ends), s.out = here(s.out);
  return s;
}

namespace {

template <class T>
Maker scales(void (*kernel)(T*, double, uint64_t)) {
  return maker(kernel, [](T* dst, double, uint64_t n) { return std::vector{writes(dst, n * sizeof(T))}; });
}
template <class To, class From>
Maker converts(void (*kernel)(To*, const From*, uint64_t)) {
  return maker(kernel, [](To* dst, const From* src, uint64_t n) {
    return std::vector{writes(dst, n * sizeof(To)), reads(src, n * sizeof(From))};
  });
}
template <class T>
Maker sums(void (*kernel)(const T*, uint64_t, double*)) {
  return maker(
      kernel,
      [](const T* src, uint64_t n, double* out) {
        return std::vector{reads(src, n * sizeof(T)), writes(out, (n + 4095) / 4096 * sizeof(double))};
      },
      true);
}
template <class Rule>
Maker steps(void (*kernel)(Rule, StepMemory)) {
  return maker(kernel, [](Rule, StepMemory s) {
    const uint64_t bytes = s.count * sizeof(float);
    std::vector<Access> all{writes(s.param, bytes), reads(s.gradient, bytes), writes(s.param16, s.count * 2)};
    if (Rule::kStates > 0) all.push_back(writes(s.state0, bytes));
    if (Rule::kStates > 1) all.push_back(writes(s.state1, bytes));
    return all;
  });
}
template <class Rule>
Maker graph_steps(void (*kernel)(const void*, const double*, StepMemory)) {
  return maker(kernel, [](const void* factors, const double* scale, StepMemory s) {
    const uint64_t bytes = s.count * sizeof(float);
    std::vector<Access> all{writes(s.param, bytes), reads(s.gradient, bytes), writes(s.param16, s.count * 2),
                            reads(factors, sizeof(Rule)), reads(scale, sizeof *scale)};
    if (Rule::kStates > 0) all.push_back(writes(s.state0, bytes));
    if (Rule::kStates > 1) all.push_back(writes(s.state1, bytes));
    return all;
  });
}
Maker scales_update(void (*kernel)(gsel_update_scale)) {
  return maker(kernel, [](gsel_update_scale s) {
    std::vector<Access> all{writes(s.out, 2 * sizeof(double)),
                            reads(s.ends, sizeof(int32_t) * static_cast<uint64_t>(s.n_ends)),
                            reads(s.weights, sizeof(double*) * static_cast<uint64_t>(s.n_weights))};
    for (int32_t i = 0; i < s.n_weights; ++i) all.push_back(reads(s.weights[i], sizeof(double)));
    if (s.n_ends) all.push_back(reads(s.squares, sizeof(double) * static_cast<uint64_t>(s.ends[s.n_ends - 1])));
    return all;
  });
}
Maker sums_numbers(void (*kernel)(const double*, const int32_t*, int32_t, double*)) {
  const auto touched = [](const double* numbers, const int32_t* ends, int32_t n_ends, double* out) {
    return std::vector{reads(numbers, n_ends ? sizeof(double) * static_cast<uint64_t>(ends[n_ends - 1]) : 0),
                       reads(ends, sizeof(int32_t) * static_cast<uint64_t>(n_ends)), writes(out, sizeof *out)};
  };
  return maker(kernel, touched, true);
}
Maker reduces(void (*kernel)(ReduceMemory)) {
  return maker(kernel, [](ReduceMemory m) {
    const uint64_t bytes = m.count * gsel_cuda::kElementBytes[m.dtype];
    std::vector<Access> all{writes(m.dst, bytes)};
    for (int32_t q = 0; q < m.n; ++q) all.push_back(reads(m.srcs[q], bytes));
    return all;
  });
}
Maker steps_8bit(void (*kernel)(gsel::Factors, ByteStateMemory)) {
  const auto touched = [](gsel::Factors, ByteStateMemory s) {
    const uint64_t scales = (s.count + 255) / 256 * sizeof(float);
    return std::vector{writes(s.param, s.count * sizeof(float)),
                       reads(s.gradient, s.count * sizeof(float)),
                       writes(s.codes0, s.count),
                       writes(s.codes1, s.count),
                       writes(s.scale0, scales),
                       writes(s.scale1, scales),
                       writes(s.param16, s.count * 2)};
  };
  return maker(kernel, touched, true);
}
Maker graph_steps_8bit(void (*kernel)(const void*, const double*, ByteStateMemory)) {
  const auto touched = [](const void* factors, const double* scale, ByteStateMemory s) {
    const uint64_t scales = (s.count + 255) / 256 * sizeof(float);
    return std::vector{writes(s.param, s.count * sizeof(float)),
                       reads(s.gradient, s.count * sizeof(float)),
                       writes(s.codes0, s.count),
                       writes(s.codes1, s.count),
                       writes(s.scale0, scales),
                       writes(s.scale1, scales),
                       writes(s.param16, s.count * 2),
                       reads(factors, sizeof(gsel::Factors)),
                       reads(scale, sizeof *scale)};
  };
  return maker(kernel, touched, true);
}

struct LowRankBytes {
  explicit LowRankBytes(const LowRankMemory& m)
      : matrix(sizeof(float) * static_cast<uint64_t>(m.rows * m.cols)),
        left(sizeof(float) * static_cast<uint64_t>(m.rows * m.rank)),
        right(sizeof(float) * static_cast<uint64_t>(m.cols * m.rank)) {}
  uint64_t matrix, left, right;
};
Maker starts(void (*kernel)(LowRankMemory)) {
  return maker(kernel, [](LowRankMemory m) { return std::vector{writes(m.right, LowRankBytes(m).right)}; });
}
Maker adds_error(void (*kernel)(LowRankMemory)) {
  return maker(kernel, [](LowRankMemory m) {
    return std::vector{writes(m.matrix, LowRankBytes(m).matrix), reads(m.old_error, LowRankBytes(m).matrix)};
  });
}
Maker orthonormal(void (*kernel)(float*, int64_t, int64_t, uint64_t)) {
  return maker(
      kernel,
      [](float* columns, int64_t n, int64_t n_columns, uint64_t) {
        return std::vector{writes(columns, sizeof(float) * static_cast<uint64_t>(n * n_columns))};
      },
      true);
}
Maker makes_left(void (*kernel)(LowRankMemory)) {
  return maker(
      kernel,
      [](LowRankMemory m) {
        const LowRankBytes bytes(m);
        return std::vector{reads(m.matrix, bytes.matrix), reads(m.right, bytes.right), writes(m.left, bytes.left)};
      },
      true);
}
Maker makes_right(void (*kernel)(LowRankMemory)) {
  return maker(kernel, [](LowRankMemory m) {
    const LowRankBytes bytes(m);
    return std::vector{reads(m.matrix, bytes.matrix), reads(m.left, bytes.left), writes(m.right, bytes.right)};
  });
}
Maker looks(void (*kernel)(LowRankMemory)) {
  return maker(
      kernel,
      [](LowRankMemory m) {
        return std::vector{writes(m.left, LowRankBytes(m).left), reads(m.right, LowRankBytes(m).right)};
      },
      true);
}
Maker finishes(void (*kernel)(LowRankMemory)) {
  return maker(kernel, [](LowRankMemory m) {
    const LowRankBytes bytes(m);
    return std::vector{writes(m.matrix, bytes.matrix), writes(m.error, bytes.matrix), reads(m.old_error, bytes.matrix),
                       reads(m.left, bytes.left), reads(m.right, bytes.right)};
  });
}

#define NAMED(make, kernel) \
  { #kernel, make(kernel) }
const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> all{
      NAMED(scales, gsel_scale_f32),
      NAMED(scales, gsel_scale_f64),
      NAMED(scales, gsel_scale_f16),
      NAMED(scales, gsel_scale_bf16),
      NAMED(scales, gsel_scale_f8e4m3),
      NAMED(scales, gsel_scale_f8e5m2),
      NAMED(converts, gsel_add_f32),
      NAMED(converts, gsel_add_f64),
      NAMED(converts, gsel_add_f16),
      NAMED(converts, gsel_add_bf16),
      NAMED(converts, gsel_add_f8e4m3),
      NAMED(converts, gsel_add_f8e5m2),
      NAMED(converts, gsel_cast_f32_f16),
      NAMED(converts, gsel_cast_f32_bf16),
      NAMED(converts, gsel_cast_f16_f32),
      NAMED(converts, gsel_cast_bf16_f32),
      NAMED(converts, gsel_cast_f32_f64),
      NAMED(converts, gsel_cast_f64_f32),
      NAMED(reduces, gsel_reduce_f32),
      NAMED(reduces, gsel_reduce_f64),
      NAMED(reduces, gsel_reduce_u64),
      NAMED(sums, gsel_square_sums_f32),
      NAMED(sums, gsel_square_sums_f64),
      NAMED(sums, gsel_sums_f64),
      NAMED(steps, gsel_step_sgd),
      NAMED(steps, gsel_step_momentum),
      NAMED(steps, gsel_step_sign_sgd),
      NAMED(steps, gsel_step_lion),
      NAMED(steps, gsel_step_adamw),
      NAMED(steps, gsel_step_adam),
      NAMED(steps_8bit, gsel_step_adamw_8bit),
      NAMED(graph_steps<gsel::Sgd>, gsel_graph_step_sgd),
      NAMED(graph_steps<gsel::Momentum>, gsel_graph_step_momentum),
      NAMED(graph_steps<gsel::SignSgd>, gsel_graph_step_sign_sgd),
      NAMED(graph_steps<gsel::Lion>, gsel_graph_step_lion),
      NAMED(graph_steps<gsel::AdamDecoupled>, gsel_graph_step_adamw),
      NAMED(graph_steps<gsel::AdamInGradient>, gsel_graph_step_adam),
      NAMED(graph_steps_8bit, gsel_graph_step_adamw_8bit),
      NAMED(scales_update, gsel_scale_of_update),
      NAMED(sums_numbers, gsel_sum_of_numbers),
      NAMED(starts, gsel_low_rank_start),
      NAMED(starts, gsel_low_rank_start_again),
      NAMED(adds_error, gsel_low_rank_add_error),
      NAMED(orthonormal, gsel_low_rank_orthonormal),
      NAMED(makes_left, gsel_low_rank_left),
      NAMED(makes_right, gsel_low_rank_right),
      NAMED(looks, gsel_low_rank_look),
      NAMED(finishes, gsel_low_rank_finish),
  };
  return all;
}

const Maker* maker_of(const std::string& name) {
  for (const auto* all : {&makers(), &gpt_makers(), &gpt_exact_makers()})
    if (const auto found = all->find(name); found != all->end()) return &found->second;
  return nullptr;
}

}  // namespace

bool has_kernel(const std::string& name) {
  return maker_of(name) != nullptr;
}

Launch make_launch(const std::string& name, unsigned blocks, unsigned threads, void** params) {
  return (*maker_of(name))(blocks, threads, params);
}

}  // namespace fake_cuda
