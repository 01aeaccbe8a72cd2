// Shapes of transformers from config.json files: parameters against the counts that these models have, and what is
// refused; lists of layers.
#include <cmath>

#include "base/error.h"
#include "plan/workload.h"
#include "support/check.h"
#include "support/gpt_shape.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

// Parameters that one token uses.
int64_t active_params(const Transformer& t) {
  return t.params() - t.moe_layers() * (t.experts - t.experts_per_token) * t.expert_matrices();
}

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
    {"bloom", 176'247'271'424, R"({"model_type":"bloom","n_embed":14336,"n_layer":70,"num_attention_heads":112,
      "vocab_size":250880,"seq_length":2048})"},
    {"phi-2", 2'779'683'840, R"({"model_type":"phi","hidden_size":2560,"intermediate_size":10240,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":51200})"},
    {"gpt-j-6b", 6'050'882'784, R"({"model_type":"gptj","n_embd":4096,"n_layer":28,"n_head":16,"n_inner":null,
      "n_positions":2048,"vocab_size":50400})"},
    {"OLMo-2-1124-7B", 7'298'617'344, R"({"model_type":"olmo2","hidden_size":4096,"intermediate_size":11008,
      "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":100352,
      "rms_norm_eps":1e-6})"},
    {"OLMo-7B-hf", 6'888'095'744, R"({"model_type":"olmo","hidden_size":4096,"intermediate_size":11008,
      "num_hidden_layers":32,"num_attention_heads":32,"vocab_size":50304})"},
    {"chatglm3-6b", 6'243'584'000, R"({"model_type":"chatglm","hidden_size":4096,"ffn_hidden_size":13696,
      "kv_channels":128,"num_layers":28,"num_attention_heads":32,"multi_query_attention":true,
      "multi_query_group_num":2,"padded_vocab_size":65024,"add_bias_linear":false,"add_qkv_bias":true,
      "seq_length":8192})"},
    {"gemma-3-1b-it", 999'885'952, R"({"model_type":"gemma3_text","hidden_size":1152,"intermediate_size":6912,
      "head_dim":256,"num_hidden_layers":26,"num_attention_heads":4,"num_key_value_heads":1,"vocab_size":262144})"},
    // 4,300,079,472 of the whole model, of which the vision tower has 416,866,032 and the projector 2,950,272.
    {"gemma-3-4b-it", 3'880'263'168, R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text",
      "hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,"sliding_window":1024}})"},
    {"c4ai-command-r-v01", 34'980'831'232, R"({"model_type":"cohere","hidden_size":8192,"intermediate_size":22528,
      "num_hidden_layers":40,"num_attention_heads":64,"num_key_value_heads":64,"vocab_size":256000})"},
    {"mpt-7b", 6'649'286'656, R"({"model_type":"mpt","d_model":4096,"expansion_ratio":4,"n_heads":32,"n_layers":32,
      "no_bias":true,"max_seq_len":2048,"vocab_size":50432})"},
    {"stablelm-2-1_6b", 1'644'515'328, R"({"model_type":"stablelm","hidden_size":2048,"intermediate_size":5632,
      "num_hidden_layers":24,"num_attention_heads":32,"num_key_value_heads":32,"use_qkv_bias":true,
      "vocab_size":100352})"},
    {"gpt-neo-1.3B", 1'315'575'808, R"({"model_type":"gpt_neo","hidden_size":2048,"intermediate_size":null,
      "num_layers":24,"num_heads":16,"max_position_embeddings":2048,"vocab_size":50257})"},
    {"Qwen3-30B-A3B", 30'532'122'624, R"({"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,
      "moe_intermediate_size":768,"head_dim":128,"num_hidden_layers":48,"num_attention_heads":32,
      "num_key_value_heads":4,"num_experts":128,"num_experts_per_tok":8,"vocab_size":151936,"rms_norm_eps":1e-6})"},
};

void near_to(const char* what, double got, double expected, double relative) {
  if (!(std::abs(got - expected) <= relative * std::abs(expected)))
    fail_msg("%s: expected %.12g, got %.12g", what, expected, got);
}

// Of model cards, which round: Llama 4 has 109 and 400 billion parameters with a vision tower of below one billion,
// and a token uses 17 billion of either.
void a_mixture_beside_a_dense_part_is_counted(void**) {
  const std::string scout = R"({"model_type":"llama4","text_config":{"model_type":"llama4_text","hidden_size":5120,
      "intermediate_size":8192,"intermediate_size_mlp":16384,"num_hidden_layers":48,"num_attention_heads":40,
      "num_key_value_heads":8,"head_dim":128,"vocab_size":202048,"num_local_experts":16,"num_experts_per_tok":1,
      "interleave_moe_layer_step":1}})";
  std::string maverick = scout;
  maverick.replace(maverick.find("16,\"num_experts_per"), 2, "128");
  maverick.replace(maverick.find("_step\":1") + 7, 1, "2");
  const Transformer a = read_transformer(scout, "scout"), b = read_transformer(maverick, "maverick");
  assert_true(std::abs(static_cast<double>(a.params()) / 108.5e9 - 1) < 0.01);
  assert_true(std::abs(static_cast<double>(b.params()) / 400e9 - 1) < 0.005);
  for (const Transformer* one : {&a, &b})
    assert_true(std::abs(static_cast<double>(active_params(*one)) / 17e9 - 1) < 0.03);
  assert_true(a.notes.empty());
  assert_string_equal(b.notes.at(0).c_str(), "layers of experts lie among dense ones; they are taken as the last ones");
}

void what_is_guessed_is_said(void**) {
  const auto note = [](const char* type, const char* more) {
    const Transformer shape = read_transformer(
        fmt::format(R"({{{}"hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":4,
                        "intermediate_size":128{}}})",
                    type, more),
        "m.json");
    assert_true(workload_of(shape, 16).notes == shape.notes);
    return shape.notes.empty() ? std::string() : shape.notes[0];
  };
  assert_string_equal(note(R"("model_type":"newest",)", R"(,"rms_norm_eps":1e-5)").c_str(),
                      "model_type \"newest\" is not known: by its keys its layers are taken as gated MLPs, RMSNorm, no "
                      "biases and rotary positions");
  assert_string_equal(note("", R"(,"max_position_embeddings":64)").c_str(),
                      "the file has no model_type: by its keys its layers are taken as plain MLPs, LayerNorm, biases "
                      "and learned positions");
  assert_string_equal(note(R"("model_type":"llama",)", "").c_str(), "");
}

// With a window of w < s positions, a position before w has as many as before, and each other w: 2 s w - w^2 when both
// directions are counted, as without a window s^2.
void a_window_bounds_the_scores(void**) {
  const auto shape = [](const char* type, const char* more) {
    return read_transformer(fmt::format(R"({{"model_type":"{}","hidden_size":64,"num_hidden_layers":12,"vocab_size":8,
                                            "num_attention_heads":4,"intermediate_size":128{}}})",
                                        type, more),
                            "m.json");
  };
  const double s = 4096, w = 1024, all = s * s, some = 2 * s * w - w * w;
  const char* window = R"(,"sliding_window":1024)";
  assert_true(shape("mistral", "").pairs(s) == all);
  assert_true(shape("mistral", window).pairs(s) == some);
  assert_true(shape("mistral", window).pairs(512) == 512.0 * 512);
  assert_true(shape("gemma2", window).pairs(s) == (some + all) / 2);
  near_to("gemma3", shape("gemma3_text", window).pairs(s), (5 * some + all) / 6, 1e-12);
  assert_true(shape("qwen2", R"(,"sliding_window":1024,"use_sliding_window":false)").pairs(s) == all);
  assert_true(shape("llama", window).pairs(s) == all);
  assert_string_equal(shape("llama", window).notes.at(0).c_str(),
                      "sliding_window = 1024 is not counted: which layers have it is not known");
  const Workload dense = workload_of(shape("mistral", ""), 4096), near = workload_of(shape("mistral", window), 4096);
  near_to("scores", near.blocks[1].costs.flop_core / dense.blocks[1].costs.flop_core, some / all, 1e-12);
}

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
  assert_int_equal(active_params(mixtral), 12'879'925'248);
  const Workload w = workload_of(mixtral, 1024);
  const double dense = 2.0 * 1024 * static_cast<double>(active_params(mixtral) - 2 * 32000 * 4096LL);
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
       "m.json: line 1: none of \"hidden_size\", \"n_embd\", \"n_embed\", \"d_model\", \"hidden_dim\" is there; a "
       "transformer "
       "needs one of "
       "them"},
      {R"({"model_type":"t5","d_model":512,"num_layers":6,"num_heads":8,"vocab_size":32128})",
       "m.json: line 1: model_type is \"t5\", a model of an encoder with a decoder; one stack of layers with attention "
       "is "
       "planned, "
       "and any other model as a list of \"layers\" (docs/plan.md)"},
      {R"({"model_type":"opt","hidden_size":1024,"ffn_dim":4096,"num_hidden_layers":24,"num_attention_heads":16,"vocab_size":50272,"word_embed_proj_dim":512})",
       "m.json: line 1: word_embed_proj_dim is 512, and hidden_size is 1024; an embedding of the width of the layers "
       "is "
       "planned"},
      {R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":8,"intermediate_size":0})",
       "m.json: line 1: intermediate_size is 0; a number from 1 is needed"},
      {R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":8})",
       "m.json: line 1: none of \"intermediate_size\", \"n_inner\", \"ffn_dim\", \"ffn_hidden_size\", "
       "\"feed_forward_size\" is "
       "there; a transformer needs one of them"},
      {R"({"model_type":"gpt2","n_embd":64,"n_layer":2,"num_hidden_layers":4,"vocab_size":8,"n_head":8})",
       "m.json: line 1: n_layer is 2, and num_hidden_layers is 4; both mean one number, which is needed once"},
      {R"({"hidden_size":0})", "m.json: line 1: hidden_size is 0; a number from 1 is needed"},
      {R"({"hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":7})",
       "m.json: line 1: hidden_size is 64, which 7 heads do not divide; another number of heads, or head_dim, is "
       "needed"},
      {R"({"hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":8,"num_key_value_heads":3})",
       "m.json: line 1: num_key_value_heads is 3, and num_attention_heads is 8; a divisor of it is needed"},
      {R"({"hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":8,"intermediate_size":128,"num_local_experts":4,"num_experts_per_tok":5})",
       "m.json: line 1: num_experts_per_tok is 5; from 1 to the 4 experts is needed"},
      {R"({SHAPE,"num_key_value_heads":4,"num_kv_heads":2})",
       "m.json: line 1: num_kv_heads is 2, and num_key_value_heads is 4; both mean one number, which is needed once"},
      {R"({SHAPE,"num_local_experts":4,"num_experts":8})",
       "m.json: line 1: num_experts is 8, and num_local_experts is 4; both mean one number, which is needed once"},
      {R"({SHAPE,"num_local_experts":4,"num_experts_per_tok":2,"num_experts_per_token":1})",
       "m.json: line 1: num_experts_per_token is 1, and num_experts_per_tok is 2; both mean one number, which is "
       "needed once"},
      {R"({SHAPE,"head_dim":8,"kv_channels":16})",
       "m.json: line 1: kv_channels is 16, and head_dim is 8; both mean one number, which is needed once"},
      {R"({SHAPE,"n_positions":1024,"n_ctx":2048})",
       "m.json: line 1: n_ctx is 2048, and n_positions is 1024; both mean one number, which is needed once"},
      {R"({SHAPE,"num_experts":4,"first_k_dense_replace":3})",
       "m.json: line 1: first_k_dense_replace is 3, and there are 2 layers; from 0 to 2 is needed"},
      {R"({"model_type":"qwen2",SHAPE,"sliding_window":8,"use_sliding_window":true,"max_window_layers":3})",
       "m.json: line 1: max_window_layers is 3, and there are 2 layers; from 0 to 2 is needed"},
      {R"({"model_type":"qwen3_moe",SHAPE,"num_experts":4,"mlp_only_layers":[0,2]})",
       "m.json: line 1: mlp_only_layers[1] is no layer; a number from 0 to 1 is needed"},
      {R"({"hidden_size":8,"num_hidden_layers":1000000000,"vocab_size":8,"num_attention_heads":8,"intermediate_size":8,"num_experts":4})",
       "m.json: line 1: num_hidden_layers is 1000000000; up to 1000000 are counted where some of them have experts"},
      {R"({"model_type":"zamba2",SHAPE})",
       "m.json: line 1: model_type is \"zamba2\", a model of layers that are partly no attention; one stack of layers "
       "with "
       "attention is planned, and any other model as a list of \"layers\" (docs/plan.md)"},
  };
  for (const Refused& one : all) {
    std::string config = one.config;
    const std::string shape =
        R"("hidden_size":64,"num_hidden_layers":2,"vocab_size":8,"num_attention_heads":8,"intermediate_size":128)";
    if (const size_t at = config.find("SHAPE"); at != config.npos) config.replace(at, 5, shape);
    try {
      read_transformer(config, "m.json");
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

// Where a key stands, or the object that lacks it.
void what_is_refused_has_its_place(void**) {
  const struct {
    const char *config, *token;
    int32_t line, column;
    gsel_status code;
  } rows[] = {
      {"{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 0\n}", "hidden_size", 3, 3, GSEL_ERR_CONFIG},
      {"{\n  \"model_type\": \"llama\",\n  \"hidden_size\": \"many\"\n}", "hidden_size", 3, 3, GSEL_ERR_PARSE},
      {"{\"hidden_size\": 64,\n \"num_hidden_layers\": 2.5}", "num_hidden_layers", 2, 2, GSEL_ERR_PARSE},
      {"{\"text_config\":\n  {\"hidden_size\": 64,\n   \"num_hidden_layers\": 2}}", "text_config.vocab_size", 1, 2,
       GSEL_ERR_CONFIG},
      {"{\"hidden_size\": 64,\n\"n_embd\": 32}", "n_embd", 2, 1, GSEL_ERR_CONFIG},
      {"{\"layers\": [\n  {\"name\": \"a\"},\n  {\"name\": \"b\", \"count\": 0}]}", "layers[1].count", 3, 17,
       GSEL_ERR_PARSE},
      {"{\"layers\": [\n  {\"name\": \"a\"},\n  {\"count\": 1}]}", "layers[1].name", 3, 3, GSEL_ERR_PARSE},
  };
  for (const auto& row : rows) {
    try {
      read_workload(row.config, "m.json", 8);
      fail_msg("%s was accepted", row.config);
    } catch (const Error& error) {
      const Place& place = error.place();
      assert_int_equal(error.code(), row.code);
      assert_string_equal(place.file.c_str(), "m.json");
      if (place.token != row.token || place.line != row.line || place.column != row.column)
        fail_msg("%s: %s at %d:%d", error.what(), place.token.c_str(), place.line, place.column);
      const std::string said = fmt::format("m.json: line {}: ", row.line);
      if (!strstr(error.what(), said.c_str())) fail_msg("no \"%s\" in %s", said.c_str(), error.what());
    }
  }
}

// Which layers have experts, as the classes of the families decide.
void layers_without_experts_are_counted(void**) {
  const auto read = [](const char* more) {
    return read_transformer(fmt::format(R"({{"hidden_size":64,"num_hidden_layers":12,"vocab_size":8,
                                            "num_attention_heads":4,"intermediate_size":128,"num_experts":4{}}})",
                                        more),
                            "m.json");
  };
  const struct {
    const char* more;
    int64_t moe;
    bool among;
  } rows[] = {
      {R"(,"model_type":"qwen3_moe","decoder_sparse_step":1,"mlp_only_layers":[])", 12, false},
      {R"(,"model_type":"qwen3_moe","decoder_sparse_step":2)", 6, true},
      {R"(,"model_type":"qwen2_moe","mlp_only_layers":[0,1,2])", 9, false},
      {R"(,"model_type":"qwen2_moe","decoder_sparse_step":2,"mlp_only_layers":[1,2])", 5, true},
      {R"(,"model_type":"deepseek_v2","first_k_dense_replace":1,"moe_layer_freq":1)", 11, false},
      {R"(,"model_type":"deepseek_v2","first_k_dense_replace":1,"moe_layer_freq":2)", 5, true},
      {R"(,"model_type":"llama4_text","moe_layers":[1,3,5])", 3, true},
      {R"(,"model_type":"llama4_text","interleave_moe_layer_step":1)", 12, false},
  };
  for (const auto& row : rows) {
    const Transformer shape = read(row.more);
    if (shape.moe_layers() != row.moe || shape.notes.empty() == row.among)
      fail_msg("%s: %d layers of experts, %d notes", row.more, static_cast<int>(shape.moe_layers()),
               static_cast<int>(shape.notes.size()));
  }
}

// num_kv_heads is read in Falcon's new architecture alone; sampling's top_k and the window of unwindowed layers say
// nothing of the shape.
void keys_that_others_overrule_are_not_read(void**) {
  const auto read = [](const char* more) {
    return read_transformer(fmt::format(R"({{"hidden_size":64,"num_hidden_layers":2,"vocab_size":8,
                                            "num_attention_heads":8,"intermediate_size":128{}}})",
                                        more),
                            "m.json");
  };
  const char* old = R"(,"model_type":"falcon","multi_query":true,"new_decoder_architecture":false,"num_kv_heads":8)";
  assert_int_equal(read(old).kv_heads, 1);
  assert_int_equal(read(R"(,"model_type":"falcon","multi_query":false,"num_kv_heads":2)").kv_heads, 8);
  assert_int_equal(read(R"(,"model_type":"falcon","new_decoder_architecture":true,"num_kv_heads":2)").kv_heads, 2);
  assert_int_equal(read(R"(,"num_experts":4,"num_experts_per_tok":2,"top_k":50)").experts_per_token, 2);
  assert_int_equal(read(R"(,"max_position_embeddings":64,"seq_length":16)").max_positions, 64);
  read(R"(,"model_type":"qwen2","sliding_window":8,"use_sliding_window":false,"max_window_layers":70)");
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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(parameters_are_those_of_the_models),
      cmocka_unit_test(a_mixture_beside_a_dense_part_is_counted),
      cmocka_unit_test(what_is_guessed_is_said),
      cmocka_unit_test(a_window_bounds_the_scores),
      cmocka_unit_test(a_token_of_a_mixture_uses_few_experts),
      cmocka_unit_test(operations_are_those_of_the_closed_form),
      cmocka_unit_test(what_contradicts_itself_is_refused_with_its_key),
      cmocka_unit_test(what_is_refused_has_its_place),
      cmocka_unit_test(layers_without_experts_are_counted),
      cmocka_unit_test(keys_that_others_overrule_are_not_read),
      cmocka_unit_test(a_text_model_inside_another_is_found),
      cmocka_unit_test(layers_can_be_listed),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
