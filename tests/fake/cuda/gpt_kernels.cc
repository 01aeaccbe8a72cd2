// fake/cuda/gpt_kernels.cc: the kernels of examples/gpt, compiled for the host, by name, with what each reads and
// writes.
#include "shim.h"
// clang-format off: the shim comes first
#include "../../../examples/gpt/cuda/kernels.cu"
// clang-format on

#include "makers.h"

namespace fake_cuda {
namespace {

Access reads_floats(const float* from, int64_t n) {
  return reads(from, static_cast<uint64_t>(n) * sizeof(float));
}
Access writes_floats(float* to, int64_t n) {
  return writes(to, static_cast<uint64_t>(n) * sizeof(float));
}
Access reads_bytes(const uint8_t* from, int64_t n) {
  return reads(from, static_cast<uint64_t>(n));
}

using All = std::vector<Access>;

template <class... Args, class Touched>
Maker with_barriers(void (*kernel)(Args...), Touched touched) {
  return maker(kernel, touched, true);
}

std::map<std::string, Maker> make_makers() {
  using F = float*;
  using C = const float*;
  using T = const uint8_t*;
  using N = int64_t;
  std::map<std::string, Maker> all;
  all["gpt_token_forward"] = maker(gpt_token_forward, [](F x, T tokens, C table, N rows, N, N count, N width) {
    return All{writes_floats(x, rows * width), reads_bytes(tokens, rows), reads_floats(table, count * width)};
  });
  all["gpt_token_backward"] = maker(gpt_token_backward, [](F d, C dx, T tokens, N rows, N, N count, N width, N) {
    return All{writes_floats(d, count * width), reads_floats(dx, rows * width), reads_bytes(tokens, rows)};
  });
  all["gpt_position_forward"] = maker(gpt_position_forward, [](F y, C x, C table, N n, N first, N here, N width) {
    return All{writes_floats(y, n * here * width), reads_floats(x, n * here * width),
               reads_floats(table + first * width, here * width)};
  });
  all["gpt_position_backward"] = maker(gpt_position_backward, [](F d, C dy, N n, N context, N, N here, N width, N) {
    return All{writes_floats(d, context * width), reads_floats(dy, n * here * width)};
  });
  all["gpt_linear_forward"] = with_barriers(gpt_linear_forward, [](F y, C x, C w, C b, N rows, N in, N out) {
    return All{writes_floats(y, rows * out), reads_floats(x, rows * in), reads_floats(w, out * in),
               reads_floats(b, out)};
  });
  all["gpt_linear_backward_input"] = with_barriers(gpt_linear_backward_input, [](F dx, C dy, C w, N rows, N in, N out) {
    return All{writes_floats(dx, rows * in), reads_floats(dy, rows * out), reads_floats(w, out * in)};
  });
  all["gpt_linear_backward_weight"] =
      with_barriers(gpt_linear_backward_weight, [](F dw, C dy, C x, N rows, N in, N out, N) {
        return All{writes_floats(dw, out * in), reads_floats(dy, rows * out), reads_floats(x, rows * in)};
      });
  all["gpt_sum_rows"] = with_barriers(gpt_sum_rows, [](F sum, C dy, N rows, N width, N) {
    return All{writes_floats(sum, width), reads_floats(dy, rows * width)};
  });
  all["gpt_layernorm_forward"] = with_barriers(gpt_layernorm_forward, [](F y, F stats, C x, C g, C b, N rows, N width) {
    return All{writes_floats(y, rows * width), writes_floats(stats, 2 * rows), reads_floats(x, rows * width),
               reads_floats(g, width), reads_floats(b, width)};
  });
  all["gpt_layernorm_backward_input"] =
      with_barriers(gpt_layernorm_backward_input, [](F dx, C dy, C x, C stats, C g, N rows, N width) {
        return All{writes_floats(dx, rows * width), reads_floats(dy, rows * width), reads_floats(x, rows * width),
                   reads_floats(stats, 2 * rows), reads_floats(g, width)};
      });
  all["gpt_layernorm_backward_weight"] =
      with_barriers(gpt_layernorm_backward_weight, [](F dg, F db, C dy, C x, C stats, N rows, N width, N) {
        return All{writes_floats(dg, width), writes_floats(db, width), reads_floats(dy, rows * width),
                   reads_floats(x, rows * width), reads_floats(stats, 2 * rows)};
      });
  all["gpt_attention_forward"] =
      with_barriers(gpt_attention_forward, [](F y, F probs, C qkv, N n, N context, N heads, N head) {
        const N values = n * context * heads * head;
        return All{writes_floats(y, values), writes_floats(probs, n * heads * context * context),
                   reads_floats(qkv, 3 * values)};
      });
  const auto attention_backward = [](F d, C dy, C qkv, C probs, N n, N context, N heads, N head) {
    const N values = n * context * heads * head;
    return All{writes_floats(d, 3 * values), reads_floats(dy, values), reads_floats(qkv, 3 * values),
               reads_floats(probs, n * heads * context * context)};
  };
  all["gpt_attention_backward_queries"] = with_barriers(gpt_attention_backward_queries, attention_backward);
  all["gpt_attention_backward_keys"] = with_barriers(gpt_attention_backward_keys, attention_backward);
  all["gpt_attention_backward_values"] =
      with_barriers(gpt_attention_backward_values, [](F d, C dy, C probs, N n, N context, N heads, N head) {
        const N values = n * context * heads * head;
        return All{writes_floats(d, 3 * values), reads_floats(dy, values),
                   reads_floats(probs, n * heads * context * context)};
      });
  all["gpt_gelu_forward"] = maker(gpt_gelu_forward, [](F y, C x, N n) {
    return All{writes_floats(y, n), reads_floats(x, n)};
  });
  all["gpt_gelu_backward"] = maker(gpt_gelu_backward, [](F dx, C dy, C x, N n) {
    return All{writes_floats(dx, n), reads_floats(dy, n), reads_floats(x, n)};
  });
  all["gpt_residual_forward"] = maker(gpt_residual_forward, [](F y, C x, C f, C b, N rows, N width) {
    return All{writes_floats(y, rows * width), reads_floats(x, rows * width), reads_floats(f, rows * width),
               reads_floats(b, width)};
  });
  all["gpt_cross_entropy_tops"] = with_barriers(gpt_cross_entropy_tops, [](F tops, C logits, N rows, N count) {
    return All{writes_floats(tops, rows), reads_floats(logits, rows * count)};
  });
  all["gpt_cross_entropy_sums"] =
      with_barriers(gpt_cross_entropy_sums, [](F sums, C logits, C tops, T targets, N rows, N, N count) {
        return All{writes_floats(sums, 2 * rows), reads_floats(logits, rows * count), reads_floats(tops, rows),
                   reads_bytes(targets, rows)};
      });
  all["gpt_cross_entropy_loss"] =
      with_barriers(gpt_cross_entropy_loss, [](double* loss, double* weight, F log_sums, C tops, C sums, N rows) {
        return All{writes(loss, sizeof *loss), writes(weight, sizeof *weight), writes_floats(log_sums, rows),
                   reads_floats(tops, rows), reads_floats(sums, 2 * rows)};
      });
  all["gpt_cross_entropy_backward"] =
      maker(gpt_cross_entropy_backward, [](F d, C logits, C log_sums, T targets, N rows, N, N count) {
        return All{writes_floats(d, rows * count), reads_floats(logits, rows * count), reads_floats(log_sums, rows),
                   reads_bytes(targets, rows)};
      });
  return all;
}

}  // namespace

const std::map<std::string, Maker>& gpt_makers() {
  static const std::map<std::string, Maker> all = make_makers();
  return all;
}

}  // namespace fake_cuda
