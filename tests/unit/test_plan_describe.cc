// Described transformers: they have as many parameters as the closed form says, and strategies compile them.
#include "base/config.h"
#include "plan/describe.h"
#include "program/verify/verify.h"
#include "support/check.h"
#include "support/gpt_shape.h"
#include "train/compile/exchange_programs.h"
#include "train/compile/pass.h"

namespace {

using namespace gsel;
using plan::Description;
using plan::Transformer;

Transformer shape(const char* name) {
  Transformer t = plan::gpt(name, 4, 64, 8, 128, 32);
  const std::string wanted = name;
  if (wanted == "gpt") return t;
  t.positions = 0;
  t.tied = t.qkv_bias = t.output_bias = t.mlp_bias = false;
  t.norm_vectors = 1;
  t.mlp_matrices = 3;
  t.ffn = 96;
  if (wanted != "heads") t.kv_heads = 2;
  if (wanted == "norms") t.norms_per_layer = 4, t.qk_norm = 2 * t.head_dim;
  if (wanted == "biases") t.head_bias = t.embedding_norm = true, t.norm_vectors = 2;
  if (wanted == "bare norms") t.norm_vectors = 0;
  if (wanted == "experts" || wanted == "shared")
    t.experts = 4, t.experts_per_token = 2, t.expert_ffn = 32, t.dense_layers = 1;
  if (wanted == "shared") t.shared_ffn = 64;
  if (wanted == "latent") t.q_rank = 24, t.kv_rank = 16, t.rope_dim = 4, t.value_dim = 8, t.kv_heads = 8;
  if (wanted == "latent of keys") t.kv_rank = 16, t.rope_dim = 4, t.value_dim = 8, t.kv_heads = 8;
  return t;
}

constexpr const char* kShapes[] = {"gpt",    "heads",  "groups",         "norms",  "experts",
                                   "shared", "latent", "latent of keys", "biases", "bare norms"};

void test_parameters_are_those_of_the_closed_form(void**) {
  for (const char* name : kShapes) {
    const Transformer t = shape(name);
    const auto model = plan::describe(t, {.sequence = 32});
    if (model->element_count() != t.params())
      fail_msg("%s: the closed form has %lld parameters, the description %lld", name,
               static_cast<long long>(t.params()), static_cast<long long>(model->element_count()));
  }
}

void compile_and_verify(const char* name, const Model& model, const std::string& toml, int32_t ranks) {
  try {
    const Config config = parse_config(toml, "test");
    const Mesh mesh{resolve_mesh(config, ranks)};
    const Compiler compiler(model, config, mesh);
    std::vector<Program> programs;
    for (int32_t rank = 0; rank < ranks; ++rank) programs.push_back(compiler.compile(rank).program);
    place_post_validations(programs);
    const int32_t transfers = enough_transfers(whole_job(programs));
    for (Program& p : programs) p.transfers = transfers;
    verify(whole_job(programs));
  } catch (const Error& e) {
    std::string all;
    for (const Error* at = &e; at; at = at->cause().get()) all += at->message() + "; ";
    fail_msg("%s under\n%s\n%s", name, toml.c_str(), all.c_str());
  }
}

void test_every_strategy_compiles_them(void**) {
  const std::pair<const char*, int32_t> strategies[] = {
      {"[strategy.data]\nplugin = \"zero\"\nstage = 3\n[train]\nbatch = 8\nrecompute = \"all\"\n", 4},
      {"[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n[train]\nbatch = 8\n", 4},
      {"[mesh]\ntensor = 4\n[strategy.tensor]\nplugin = \"tp\"\nsequence_parallel = true\n[train]\nbatch = 8\n", 4},
      {"[mesh]\npipeline = 2\ntensor = 2\ndata = 2\n[strategy.tensor]\nplugin = \"tp\"\n[strategy.pipeline]\nplugin = "
       "\"pp\"\nschedule = \"zb-h1\"\n[strategy.data]\nplugin = \"zero\"\nstage = 1\n[train]\nbatch = 8\nmicrobatches "
       "= 4\n"
       "recompute = \"h0.attn,h1.attn,h2.attn,h3.attn\"\n",
       8},
      {"[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n[train]\nbatch = 8\n", 4},
  };
  for (const char* name : kShapes)
    for (const auto& [toml, ranks] : strategies)
      for (const bool ring : {false, true}) {
        if (ring && std::string_view(toml).find("context") == std::string_view::npos) continue;
        const auto model = plan::describe(shape(name), {.sequence = 32, .dtype = GSEL_BF16, .ring_attention = ring});
        compile_and_verify(name, *model, toml, ranks);
      }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_parameters_are_those_of_the_closed_form),
      cmocka_unit_test(test_every_strategy_compiles_them),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
