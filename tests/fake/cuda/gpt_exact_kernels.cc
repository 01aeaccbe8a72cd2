// fake/cuda/gpt_exact_kernels.cc: the kernels of the exact model of examples/gpt, compiled for the host, by name, with
// what each reads and writes. None has barriers.
#include "shim.h"
// clang-format off: the shim comes first
#include "../../../examples/gpt/cuda/exact_kernels.cu"
// clang-format on

#include "makers.h"

namespace fake_cuda {
namespace {

std::map<std::string, Maker> make_makers() {
  using F = float*;
  using C = const float*;
  using T = const uint8_t*;
  using N = int64_t;
  std::map<std::string, Maker> all;
  all["gpt_exact_token_forward"] =
      maker(gpt_exact_token_forward, [](F x, T tokens, C table, N rows, N, N count, N width) {
        return All{written(x, rows * width), read(tokens, rows), read(table, count * width)};
      });
  all["gpt_exact_token_backward"] =
      maker(gpt_exact_token_backward, [](F d, C dx, T tokens, N rows, N, N count, N width, N) {
        return All{written(d, count * width), read(dx, rows * width), read(tokens, rows)};
      });
  all["gpt_exact_position_forward"] =
      maker(gpt_exact_position_forward, [](F y, C x, C table, N count, N first, N here) {
        return All{written(y, count), read(x, count), read(table + first, here)};
      });
  all["gpt_exact_position_backward"] = maker(gpt_exact_position_backward, [](F d, C dy, N count, N elems, N, N, N) {
    return All{written(d, elems), read(dy, count)};
  });
  all["gpt_exact_folded"] = maker(gpt_exact_folded, [](F dx, C dy, N count) {
    return All{written(dx, count), read(dy, count)};
  });
  all["gpt_exact_sum_rows"] = maker(gpt_exact_sum_rows, [](F d, C dy, N rows, N width, N) {
    return All{written(d, width), read(dy, rows * width)};
  });
  all["gpt_exact_residual_forward"] = maker(gpt_exact_residual_forward, [](F y, C x, C f, C b, N count, N width) {
    return All{written(y, count), read(x, count), read(f, count), read(b, width)};
  });
  all["gpt_exact_layernorm_forward"] =
      maker(gpt_exact_layernorm_forward, [](F y, F sums, C x, C g, C b, N rows, N width) {
        return All{written(y, rows * width), written(sums, 2 * rows), read(x, rows * width), read(g, width),
                   read(b, width)};
      });
  all["gpt_exact_layernorm_backward_input"] =
      maker(gpt_exact_layernorm_backward_input, [](F dx, C dy, C g, N rows, N width) {
        return All{written(dx, rows * width), read(dy, rows * width), read(g, width)};
      });
  all["gpt_exact_layernorm_backward_weight"] =
      maker(gpt_exact_layernorm_backward_weight, [](F dg, F db, C dy, C x, C sums, N rows, N width, N) {
        return All{written(dg, width), written(db, width), read(dy, rows * width), read(x, rows * width),
                   read(sums, 2 * rows)};
      });
  all["gpt_exact_linear_forward"] = maker(gpt_exact_linear_forward, [](F y, C x, C w, C b, N rows, N in, N out) {
    return All{written(y, rows * out), read(x, rows * in), read(w, out * in), read(b, out)};
  });
  all["gpt_exact_linear_backward_input"] =
      maker(gpt_exact_linear_backward_input, [](F dx, C dy, C w, N rows, N in, N out) {
        return All{written(dx, rows * in), read(dy, rows * out), read(w, out * in)};
      });
  all["gpt_exact_linear_backward_weight"] =
      maker(gpt_exact_linear_backward_weight, [](F dw, C dy, C x, N rows, N in, N out, N) {
        return All{written(dw, out * in), read(dy, rows * out), read(x, rows * in)};
      });
  all["gpt_exact_attention_forward"] = maker(gpt_exact_attention_forward, [](F y, C qkv, N n, N context, N width, N) {
    return All{written(y, n * context * width), read(qkv, 3 * n * context * width)};
  });
  all["gpt_exact_attention_backward"] =
      maker(gpt_exact_attention_backward, [](F d, C dy, C qkv, N n, N context, N width, N) {
        const N values = n * context * width;
        return All{written(d, 3 * values), read(dy, values), read(qkv, 3 * values)};
      });
  all["gpt_exact_gelu_forward"] = maker(gpt_exact_gelu_forward, [](F y, C x, N n) {
    return All{written(y, n), read(x, n)};
  });
  all["gpt_exact_gelu_backward"] = maker(gpt_exact_gelu_backward, [](F dx, C dy, C x, N n) {
    return All{written(dx, n), read(dy, n), read(x, n)};
  });
  all["gpt_exact_loss_tops"] = maker(gpt_exact_loss_tops, [](F tops, C logits, N rows, N count) {
    return All{written(tops, rows), read(logits, rows * count)};
  });
  all["gpt_exact_loss_sums"] = maker(gpt_exact_loss_sums, [](F sums, C logits, C tops, T targets, N rows, N, N count) {
    return All{written(sums, 2 * rows), read(logits, rows * count), read(tops, rows), read(targets, rows)};
  });
  all["gpt_exact_loss"] = maker(gpt_exact_loss, [](double* loss, double* weight, F kept, C tops, C sums, N rows) {
    return All{written(loss, 1), written(weight, 1), written(kept, rows), read(tops, rows), read(sums, 2 * rows)};
  });
  all["gpt_exact_loss_backward"] =
      maker(gpt_exact_loss_backward, [](F d, C logits, C kept, T targets, N rows, N, N count) {
        return All{written(d, rows * count), read(logits, rows * count), read(kept, rows), read(targets, rows)};
      });
  return all;
}

}  // namespace

const std::map<std::string, Maker>& gpt_exact_makers() {
  static const std::map<std::string, Maker> all = make_makers();
  return all;
}

}  // namespace fake_cuda
