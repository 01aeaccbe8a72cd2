// Shapes of transformers from config.json files: parameters against the counts that these models have, and what is
// refused; lists of layers; the division of layers over stages.
#include <numeric>

#include "base/error.h"
#include "plan/workload.h"
#include "support/check.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

// Counts as the hub shows them for each model.
struct Known {
  const char* name;
  int64_t params;
  const char* config;
};
constexpr Known kKnown[] = {
    {"gpt2", 124'439'808, R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_positions":1024,"n_ctx":1024,
      "vocab_size":50257,"resid_pdrop":0.1,"activation_function":"gelu_new"})"},
    {"Llama-2-7b", 6'738'415'616, R"({"model_type":"llama","hidden_size":4096,"intermediate_size":11008,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32000,"hidden_act":"silu",
      "rms_norm_eps":1e-5,"tie_word_embeddings":false,"rope_scaling":null})"},
    {"Llama-2-70b", 68'976'648'192, R"({"model_type":"llama","hidden_size":8192,"intermediate_size":28672,
      "num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":32000})"},
    {"Llama-3.1-8B", 8'030'261'248, R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256})"},
    {"Qwen2-7B", 7'615'616'512, R"({"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,
      "num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,
      "tie_word_embeddings":false})"},
    {"Qwen2.5-0.5B", 494'032'768, R"({"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,
      "num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,"vocab_size":151936,
      "tie_word_embeddings":true})"},
    {"gemma-2-9b", 9'241'705'984, R"({"model_type":"gemma2","hidden_size":3584,"intermediate_size":14336,"head_dim":256,
      "num_hidden_layers":42,"num_attention_heads":16,"num_key_value_heads":8,"vocab_size":256000})"},
    {"opt-125m", 125'239'296, R"({"model_type":"opt","hidden_size":768,"ffn_dim":3072,"num_hidden_layers":12,
      "num_attention_heads":12,"vocab_size":50272,"max_position_embeddings":2048,"dropout":0.1})"},
    {"gpt-neox-20b", 20'554'567'680, R"({"model_type":"gpt_neox","hidden_size":6144,"intermediate_size":24576,
      "num_hidden_layers":44,"num_attention_heads":64,"vocab_size":50432})"},
    {"falcon-7b", 6'921'720'704, R"({"model_type":"falcon","hidden_size":4544,"num_hidden_layers":32,
      "num_attention_heads":71,"multi_query":true,"bias":false,"vocab_size":65024})"},
    {"Mixtral-8x7B", 46'702'792'704, R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,
      "num_local_experts":8,"num_experts_per_tok":2})"},
    {"DeepSeek-V3", 671'026'404'352, R"({"model_type":"deepseek_v3","hidden_size":7168,"intermediate_size":18432,
      "num_hidden_layers":61,"num_attention_heads":128,"num_key_value_heads":128,"vocab_size":129280,
      "q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
      "n_routed_experts":256,"num_experts_per_tok":8,"moe_intermediate_size":2048,"n_shared_experts":1,
      "first_k_dense_replace":3})"},
};

void parameters_are_those_of_the_models(void**) {
  for (const Known& known : kKnown) {
    const Transformer shape = read_transformer(known.config, known.name);
    if (shape.params() != known.params)
      fail_msg("%s: expected %lld parameters, got %lld", known.name, static_cast<long long>(known.params),
               static_cast<long long>(shape.params()));
    // What layers add up to is the model, whatever its sequence.
    assert_true(workload_of(shape, 512).params() == static_cast<double>(known.params));
  }
}

void a_token_of_a_mixture_uses_few_experts(void**) {
  const Transformer mixtral = read_transformer(kKnown[10].config, "mixtral");
  assert_int_equal(mixtral.active_params(), 12'879'925'248);
  const Workload w = workload_of(mixtral, 1024);
  const double dense = 2.0 * 1024 * static_cast<double>(mixtral.active_params() - 2 * 32000 * 4096LL);
  double flop = 0;
  for (const Block& block : w.blocks)
    if (block.kind == BlockKind::layer)
      flop += static_cast<double>(block.count) * (block.costs.flop_dense + block.costs.flop_whole);
  assert_true(std::abs(flop / dense - 1) < 1e-4);  // norms are no products
}

// 72 B L s h^2 (1 + s/(6h) + V/(12 L h)) is three times forward: arXiv:2104.04473.
void operations_are_those_of_the_closed_form(void**) {
  const Transformer shape = gpt("gpt3", 96, 12288, 96, 51200, 2048);
  const double s = 2048, h = 12288, L = 96, V = 51200;
  const double published = 72 * L * s * h * h * (1 + s / (6 * h) + V / (12 * L * h));
  assert_true(std::abs(3 * workload_of(shape, 2048).flop_forward() / published - 1) < 1e-12);
}

struct Refused {
  const char* config;
  const char* says;  // all of it
};

void what_contradicts_itself_is_refused_with_its_key(void**) {
  const Refused all[] = {
      {R"({"model_type":"llama"})",
       "m.json: none of \"hidden_size\", \"n_embd\", \"d_model\", \"hidden_dim\" is there; a transformer needs one of "
       "them"},
      {R"({"hidden_size":0})", "m.json: hidden_size is 0; a number from 1 is needed"},
      {R"({"hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":7})",
       "m.json: hidden_size is 64, which 7 heads do not divide; another number of heads, or head_dim, is needed"},
      {R"({"hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":8,"num_key_value_heads":3})",
       "m.json: num_key_value_heads is 3, and num_attention_heads is 8; a divisor of it is needed"},
      {R"({"hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":8,"num_local_experts":4,"num_experts_per_tok":5})",
       "m.json: num_experts_per_tok is 5; from 1 to the 4 experts is needed"},
  };
  for (const Refused& one : all) {
    try {
      read_transformer(one.config, "m.json");
      fail_msg("%s was accepted", one.config);
    } catch (const Error& error) {
      assert_string_equal(error.what(), one.says);
      assert_int_equal(error.code(), GSEL_ERR_CONFIG);
    }
  }
  for (const char* text : {"", "[1]", "{\"hidden_size\": \"many\"}", "{\"hidden_size\": -1}", "{"}) {
    try {
      read_transformer(text, "m.json");
      fail_msg("%s was accepted", text);
    } catch (const Error& error) {
      assert_non_null(strstr(error.what(), "m.json"));
    }
  }
}

void a_text_model_inside_another_is_found(void**) {
  const Transformer shape = read_transformer(
      R"({"model_type":"llava","text_config":{"model_type":"llama","hidden_size":64,"num_hidden_layers":2,
          "num_attention_heads":4,"vocab_size":100,"intermediate_size":128}})",
      "m.json");
  assert_int_equal(shape.hidden, 64);
  assert_int_equal(shape.mlp_matrices, 3);
}

void layers_can_be_listed(void**) {
  const Workload w = read_workload(R"({"name":"u-net","layers":[
      {"name":"in","kind":"embedding","params":1000,"output_elems":64},
      {"name":"mid","count":6,"params":5000,"forward_flop":1e9,"output_elems":64,"saved_elems":640},
      {"name":"out","kind":"head","params":200,"tensor":false}]})",
                                   "u.json", 1);
  assert_int_equal(w.layers(), 6);
  assert_true(w.params() == 31200);
  assert_true(w.flop_forward() == 6e9 + 2 * 1200);
  try {
    read_workload(R"({"layers":[{"name":"x","parms":1}]})", "u.json", 1);
    fail_msg("a field that is no field was accepted");
  } catch (const Error& error) {
    assert_non_null(strstr(error.what(), "parms"));
  }
}

void every_split_has_all_layers(void**) {
  const Workload w = workload_of(gpt("g", 31, 64, 4, 1000, 128), 128);
  for (int32_t stages = 1; stages <= 31; ++stages) {
    for (const bool weighted : {false, true}) {
      std::vector<double> weights;
      for (int32_t i = 0; weighted && i < stages; ++i) weights.push_back(1 + i % 3);
      const Split s = split(w, stages, weights);
      double params = 0, layers = 0;
      int32_t counted = 0;
      for (const StageRun& run : s.runs) {
        assert_int_equal(run.first, counted);
        counted += run.count;
        params += run.count * run.costs.params();
        layers += run.count * run.costs.layers;
      }
      assert_int_equal(counted, stages);
      assert_true(layers == 31);
      assert_true(params == w.params() + (stages > 1 ? w.tied_params : 0));
      assert_int_equal(std::accumulate(s.layers.begin(), s.layers.end(), int64_t{0}), 31);
    }
  }
  assert_int_equal(split(w, 2, {2, 1}).layers[0], 21);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(parameters_are_those_of_the_models),
      cmocka_unit_test(a_token_of_a_mixture_uses_few_experts),
      cmocka_unit_test(operations_are_those_of_the_closed_form),
      cmocka_unit_test(what_contradicts_itself_is_refused_with_its_key),
      cmocka_unit_test(a_text_model_inside_another_is_found),
      cmocka_unit_test(layers_can_be_listed),
      cmocka_unit_test(every_split_has_all_layers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
