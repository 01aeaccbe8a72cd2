// The programs of strategies for models that nobody would write: layers that share and mix parameters of two dtypes,
// frozen ones, values read far behind or never, losses with parameters, layers behind the loss. The verifier must
// accept all of them, forward alone included, and no strategy may lose or double a use of a parameter.
#include <algorithm>
#include <random>

#include "program/forward_programs.h"
#include "program/text/text.h"
#include "support/trainer_trial.h"
#include "support/verdict.h"
#include "train/compile/pass.h"

namespace {

using namespace gsel;

gsel_status nothing(const gsel_call*, void*) {
  return GSEL_OK;
}

class RandomModel {
 public:
  explicit RandomModel(uint32_t seed) : random_(seed) {
    const int n_layers = below(7) + 1, n_params = below(n_layers) + 1;
    add_value(GSEL_VALUE_INPUT);
    add_value(GSEL_VALUE_INPUT);
    readable_ = {0};
    for (int p = 0; p < n_params; ++p) add_param(p);
    for (int l = 0; l < n_layers; ++l) add_layer(l, n_params);
    add_loss(n_params);
    if (below(4) == 0) add_layer_behind_loss();
    model.finish();
  }

  Model model;

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  std::vector<int32_t> some(const std::vector<int32_t>& of, int most) {
    std::vector<int32_t> all = of;
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(std::min(all.size(), static_cast<size_t>(most)));
    return all;
  }

  void add_param(int p) {
    const std::string name = fmt::format("p{}", p);
    const int64_t n = below(60) + 1;
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    options.name = {name.data(), name.size()};
    options.dims = &n;
    options.n_dims = 1;
    options.dtype = below(3) ? GSEL_F32 : GSEL_BF16;
    options.flags = p > 0 && below(5) == 0 ? GSEL_PARAM_FROZEN : 0;
    model.add_param(options);
  }

  int32_t add_value(uint32_t flags) {
    const std::string name = fmt::format("v{}", model.values().size());
    const int64_t n = 2;
    gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
    options.name = {name.data(), name.size()};
    options.dims = &n;
    options.n_dims = flags & GSEL_VALUE_SCALAR ? 0 : 1;
    options.dtype = flags & GSEL_VALUE_SCALAR ? GSEL_F64 : GSEL_F32;
    options.flags = flags;
    return model.add_value(options);
  }

  void add(const std::vector<int32_t>& in, const std::vector<int32_t>& out, const std::vector<int32_t>& params,
           uint32_t flags) {
    const std::string name = fmt::format("l{}", model.layers().size());
    gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
    options.name = {name.data(), name.size()};
    options.inputs = in.data();
    options.outputs = out.data();
    options.params = params.data();
    options.n_inputs = static_cast<int32_t>(in.size());
    options.n_outputs = static_cast<int32_t>(out.size());
    options.n_params = static_cast<int32_t>(params.size());
    options.flags = flags;
    options.forward = nothing;
    if (below(2)) {
      options.backward = nothing;
    } else {
      options.backward_input = nothing;
      options.backward_weight = nothing;
    }
    options.backward_unread_params = params.empty() ? 0 : random_() & ((UINT64_C(1) << params.size()) - 1);
    model.add_layer(options);
  }

  // Layer l uses parameter l, so that all are used, and some others.
  void add_layer(int l, int n_params) {
    std::vector<int32_t> others, params;
    for (int p = 0; p < n_params; ++p)
      if (p != l) others.push_back(p);
    params = some(others, below(3));
    if (l < n_params) params.push_back(l);
    std::vector<int32_t> in = some(readable_, below(2) + 1), out;
    const int32_t newest = readable_.back();
    if (!std::ranges::count(in, newest)) in[0] = newest;
    for (int i = below(3) ? 1 : 2; i > 0; --i) out.push_back(add_value(0));
    add(in, out, params, below(3) ? GSEL_LAYER_RECOMPUTABLE : 0);
    readable_.insert(readable_.end(), out.begin(), out.end());
  }

  void add_loss(int n_params) {
    std::vector<int32_t> in = some(readable_, below(2) + 1);
    if (!std::ranges::count(in, readable_.back())) in[0] = readable_.back();
    in.push_back(1);
    const std::vector<int32_t> out = {add_value(GSEL_VALUE_SCALAR), add_value(GSEL_VALUE_SCALAR)};
    std::vector<int32_t> params;
    if (below(3) == 0) params.push_back(below(n_params));
    add(in, out, params, GSEL_LAYER_LOSS);
  }

  // A measurement, which nothing depends on.
  void add_layer_behind_loss() {
    const auto loss = static_cast<int32_t>(model.values().size()) - 2;
    add({loss, 1}, {add_value(0)}, {}, 0);
  }

  std::mt19937 random_;
  std::vector<int32_t> readable_;
};

// How often callbacks run, by kind and layer, weighted by their samples: the same under every strategy.
std::map<std::array<int32_t, 2>, int64_t> callbacks(const std::vector<Program>& programs) {
  std::map<std::array<int32_t, 2>, int64_t> samples;
  for (const Program& program : programs)
    for (const gsel_instr& instr : program.step)
      if (instr.layer >= 0) samples[{instr.kind, instr.layer}] += program.microbatches[instr.microbatch].count;
  return samples;
}

void check_model(uint32_t seed, const std::string& settings) {
  const RandomModel random(seed);
  for (int32_t n = 1; n <= 3; ++n)
    for (int s = -1; s < N_STRATEGIES; ++s) {
      const std::string text = (s < 0 ? "" : kStrategies[s].section) + settings;
      const Config config = parse_config(text, "trial.toml");
      const Compiler compiler(random.model, config, Mesh{{1, n, 1, 1}});
      std::vector<Program> programs, evaluations;
      for (int32_t r = 0; r < n; ++r) programs.push_back(compiler.compile(r).program);
      for (const Program& p : programs) evaluations.push_back(forward_only(p));
      std::string why = test::refusal(programs, Purpose::training);
      if (why.empty()) why = test::refusal(evaluations, Purpose::evaluation);
      static std::map<std::array<int32_t, 2>, int64_t> expected;
      if (n == 1 && s < 0) expected = callbacks(programs);
      if (why.empty() && callbacks(programs) != expected) why = "callbacks see other samples than on one rank";
      if (!why.empty())
        fail_msg("model %u, %s on %d ranks: %s\n%s\n%s", seed, text.c_str(), int(n), why.c_str(),
                 to_text(programs[0]).c_str(), to_text(programs.back()).c_str());
    }
}

void any_model_is_compiled_to_programs_that_hold(void**) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    check_model(seed, "[train]\nbatch = 7\nmicrobatch = 2\n");
    check_model(seed, "[train]\nbatch = 2\nclip_norm = 1.0\nprecision = \"fp16\"\nrecompute = \"all\"\n");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(any_model_is_compiled_to_programs_that_hold)};
  return cmocka_run_group_tests_name("strategies_random", tests, nullptr, nullptr);
}
