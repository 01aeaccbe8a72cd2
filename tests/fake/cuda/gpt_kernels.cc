// fake/cuda/gpt_kernels.cc: the kernels of examples/gpt, compiled for the host, by name, with what each reads and
// writes.
#include "shim.h"
// clang-format off: the shim comes first
#include "../../../examples/gpt/cuda/kernels.cu"
// clang-format on

#include "makers.h"

namespace fake_cuda {
namespace {

// Both types of a kernel.
#define TYPED_MAKER(name, has_barriers, ...)                        \
  all["gpt_" #name] = maker(gpt_##name, __VA_ARGS__, has_barriers); \
  all["gpt_" #name "_bf16"] = maker(gpt_##name##_bf16, __VA_ARGS__, has_barriers)

void add_plain(std::map<std::string, Maker>& all) {
  using F = float*;
  using C = const float*;
  using T = const uint8_t*;
  using N = int64_t;
  TYPED_MAKER(token_forward, false, [](auto* x, T tokens, const auto* table, N rows, N, N count, N width) {
    return All{written(x, rows * width), read(tokens, rows), read(table, count * width)};
  });
  TYPED_MAKER(token_backward, false, [](F d, const auto* dx, T tokens, N rows, N, N count, N width, N) {
    return All{written(d, count * width), read(dx, rows * width), read(tokens, rows)};
  });
  TYPED_MAKER(position_forward, false, [](auto* y, const auto* x, const auto* table, N n, N first, N here, N width) {
    return All{written(y, n * here * width), read(x, n * here * width), read(table + first * width, here * width)};
  });
  TYPED_MAKER(position_backward, false, [](F d, const auto* dy, N n, N context, N, N here, N width, N) {
    return All{written(d, context * width), read(dy, n * here * width)};
  });
  TYPED_MAKER(linear_forward, true, [](auto* y, const auto* x, const auto* w, const auto* b, N rows, N in, N out) {
    return All{written(y, rows * out), read(x, rows * in), read(w, out * in), read(b, out)};
  });
  TYPED_MAKER(linear_backward_input, true, [](auto* dx, const auto* dy, const auto* w, N rows, N in, N out) {
    return All{written(dx, rows * in), read(dy, rows * out), read(w, out * in)};
  });
  TYPED_MAKER(linear_backward_weight, true, [](F dw, const auto* dy, const auto* x, N rows, N in, N out, N) {
    return All{written(dw, out * in), read(dy, rows * out), read(x, rows * in)};
  });
  TYPED_MAKER(sum_rows, true, [](F sum, const auto* dy, N rows, N width, N) {
    return All{written(sum, width), read(dy, rows * width)};
  });
  TYPED_MAKER(layernorm_forward, true,
              [](auto* y, F stats, const auto* x, const auto* g, const auto* b, N rows, N width) {
                return All{written(y, rows * width), written(stats, 2 * rows), read(x, rows * width), read(g, width),
                           read(b, width)};
              });
  TYPED_MAKER(layernorm_backward_input, true,
              [](auto* dx, const auto* dy, const auto* x, C stats, const auto* g, N rows, N width) {
                return All{written(dx, rows * width), read(dy, rows * width), read(x, rows * width),
                           read(stats, 2 * rows), read(g, width)};
              });
  TYPED_MAKER(layernorm_backward_weight, true,
              [](F dg, F db, const auto* dy, const auto* x, C stats, N rows, N width, N) {
                return All{written(dg, width), written(db, width), read(dy, rows * width), read(x, rows * width),
                           read(stats, 2 * rows)};
              });
  TYPED_MAKER(gelu_forward, false, [](auto* y, const auto* x, N n) { return All{written(y, n), read(x, n)}; });
  TYPED_MAKER(gelu_backward, false, [](auto* dx, const auto* dy, const auto* x, N n) {
    return All{written(dx, n), read(dy, n), read(x, n)};
  });
  TYPED_MAKER(residual_forward, false, [](auto* y, const auto* x, const auto* f, const auto* b, N rows, N width) {
    return All{written(y, rows * width), read(x, rows * width), read(f, rows * width), read(b, width)};
  });
}

void add_attention(std::map<std::string, Maker>& all) {
  using F = float*;
  using C = const float*;
  using N = int64_t;
  TYPED_MAKER(attention_forward, true, [](auto* y, F probs, const auto* qkv, N n, N context, N heads, N head) {
    const N values = n * context * heads * head;
    return All{written(y, values), written(probs, n * heads * context * context), read(qkv, 3 * values)};
  });
  const auto backward = [](auto* d, const auto* dy, const auto* qkv, C probs, N n, N context, N heads, N head) {
    const N values = n * context * heads * head;
    return All{written(d, 3 * values), read(dy, values), read(qkv, 3 * values),
               read(probs, n * heads * context * context)};
  };
  TYPED_MAKER(attention_backward_queries, true, backward);
  TYPED_MAKER(attention_backward_keys, true, backward);
  TYPED_MAKER(attention_backward_values, true, [](auto* d, const auto* dy, C probs, N n, N context, N heads, N head) {
    const N values = n * context * heads * head;
    return All{written(d, 3 * values), read(dy, values), read(probs, n * heads * context * context)};
  });
  TYPED_MAKER(attention_block_forward, true,
              [](auto* y, F log_sums, const auto* qkv, C block, N room, N n, N, N here, N heads, N head, N) {
                const N values = n * here * heads * head;
                return All{written(y, values), written(log_sums, n * heads * here), read(qkv, 3 * values),
                           read(block, GPT_BLOCK_HEAD + 2 * n * room * heads * head)};
              });
  TYPED_MAKER(attention_block_backward_queries, true,
              [](auto* d, const auto* dy, const auto* y, C log_sums, const auto* qkv, C block, N room, N n, N, N here,
                 N heads, N head, N) {
                const N values = n * here * heads * head;
                return All{written(d, 3 * values), read(dy, values),
                           read(y, values),        read(log_sums, n * heads * here),
                           read(qkv, 3 * values),  read(block, GPT_BLOCK_HEAD + 2 * n * room * heads * head)};
              });
  TYPED_MAKER(attention_block_backward_keys, true,
              [](auto* d, F block, const auto* dy, const auto* y, C log_sums, const auto* qkv, N room, N n, N, N here,
                 N heads, N head) {
                const N values = n * here * heads * head;
                return All{
                    block ? written(block, GPT_BLOCK_HEAD + 4 * n * room * heads * head) : written(d, 3 * values),
                    read(dy, values), read(y, values), read(log_sums, n * heads * here), read(qkv, 3 * values)};
              });
  TYPED_MAKER(block_fill, false, [](F block, const auto* qkv, N n, N, N here, N width, N gradients) {
    return All{written(block, GPT_BLOCK_HEAD + (gradients ? 4 : 2) * n * here * width),
               read(qkv, 3 * n * here * width)};
  });
  TYPED_MAKER(block_home, false, [](auto* d, C block, N n, N here, N width) {
    return All{written(d, 3 * n * here * width), read(block, GPT_BLOCK_HEAD + 4 * n * here * width)};
  });
}

void add_cross_entropy(std::map<std::string, Maker>& all) {
  using F = float*;
  using C = const float*;
  using T = const uint8_t*;
  using N = int64_t;
  TYPED_MAKER(cross_entropy_tops, true, [](F tops, const auto* logits, N rows, N count) {
    return All{written(tops, rows), read(logits, rows * count)};
  });
  TYPED_MAKER(cross_entropy_sums, true, [](F sums, const auto* logits, C tops, T targets, N rows, N, N count) {
    return All{written(sums, 2 * rows), read(logits, rows * count), read(tops, rows), read(targets, rows)};
  });
  all["gpt_cross_entropy_loss"] = maker(
      gpt_cross_entropy_loss,
      [](double* loss, double* weight, F log_sums, C tops, C sums, N rows) {
        return All{written(loss, 1), written(weight, 1), written(log_sums, rows), read(tops, rows),
                   read(sums, 2 * rows)};
      },
      true);
  TYPED_MAKER(
      cross_entropy_backward, false, [](auto* d, const auto* logits, C log_sums, T targets, N rows, N, N count) {
        return All{written(d, rows * count), read(logits, rows * count), read(log_sums, rows), read(targets, rows)};
      });
}

std::map<std::string, Maker> make_makers() {
  std::map<std::string, Maker> all;
  add_plain(all);
  add_attention(all);
  add_cross_entropy(all);
  return all;
}

}  // namespace

const std::map<std::string, Maker>& gpt_makers() {
  static const std::map<std::string, Maker> all = make_makers();
  return all;
}

}  // namespace fake_cuda
