// cuda/typed_kernels.h: kernels for arrays of Real, included by kernels.cu for each of its two types: TYPED(name)
// begins a kernel. Parameters, values and gradients of values are Real; gradients of parameters, what is kept from
// forward to backward, and what ranks reduce or pass on are f32 whatever Real is.

// ---- embedding ------------------------------------------------------------------------------------------------------

TYPED(token_forward)
(Real* x, const uint8_t* tokens, const Real* table, int64_t rows, int64_t first, int64_t count, int64_t width) {
  over(rows * width, [=](int64_t i) {
    const int64_t at = tokens[i / width] - first;
    put(x + i, at >= 0 && at < count ? wide(table[at * width + i % width]) : 0);
  });
}

// A thread has one column of one token and looks for that token in all rows.
TYPED(token_backward)
(float* dtable, const Real* dx, const uint8_t* tokens, int64_t rows, int64_t first, int64_t count, int64_t width,
 int64_t accumulate) {
  over(count * width, [=](int64_t i) {
    float sum = accumulate ? dtable[i] : 0;
    for (int64_t r = 0; r < rows; ++r)
      if (tokens[r] - first == i / width) sum += wide(dx[r * width + i % width]);
    dtable[i] = sum;
  });
}

TYPED(position_forward)
(Real* y, const Real* x, const Real* table, int64_t n, int64_t first, int64_t here, int64_t width) {
  over(n * here * width, [=](int64_t i) { put(y + i, wide(x[i]) + wide(table[first * width + i % (here * width)])); });
}

TYPED(position_backward)
(float* dtable, const Real* dy, int64_t n, int64_t context, int64_t first, int64_t here, int64_t width,
 int64_t accumulate) {
  over(context * width, [=](int64_t i) {
    const int64_t at = i - first * width;
    float sum = accumulate ? dtable[i] : 0;
    for (int64_t s = 0; s < n && at >= 0 && at < here * width; ++s) sum += wide(dy[s * here * width + at]);
    dtable[i] = sum;
  });
}

// ---- linear ---------------------------------------------------------------------------------------------------------

TYPED(linear_forward)(Real* y, const Real* x, const Real* w, const Real* b, int64_t rows, int64_t in, int64_t out) {
  product(Operand<Real>{x, rows, in, 1}, Operand<Real>{w, out, in, 1}, in,
          [=](int64_t r, int64_t o, float sum) { put(y + r * out + o, b ? wide(b[o]) + sum : sum); });
}

TYPED(linear_backward_input)(Real* dx, const Real* dy, const Real* w, int64_t rows, int64_t in, int64_t out) {
  product(Operand<Real>{dy, rows, out, 1}, Operand<Real>{w, in, 1, in}, out,
          [=](int64_t r, int64_t i, float sum) { put(dx + r * in + i, sum); });
}

TYPED(linear_backward_weight)
(float* dw, const Real* dy, const Real* x, int64_t rows, int64_t in, int64_t out, int64_t accumulate) {
  product(Operand<Real>{dy, out, 1, out}, Operand<Real>{x, in, 1, in}, rows,
          [=](int64_t o, int64_t i, float sum) { dw[o * in + i] = accumulate ? dw[o * in + i] + sum : sum; });
}

// Of biases.
TYPED(sum_rows)(float* sum, const Real* dy, int64_t rows, int64_t width, int64_t accumulate) {
  sum_over_rows(sum, rows, width, accumulate, [=](int64_t r, int64_t i) { return wide(dy[r * width + i]); });
}

// ---- layer norm -----------------------------------------------------------------------------------------------------

TYPED(layernorm_forward)
(Real* y, float* stats, const Real* x, const Real* g, const Real* b, int64_t rows, int64_t width) {
  each_row(rows, [=](int64_t row, int64_t is_here) {
    const int64_t at = row * width, n = is_here * width;
    float sum = 0, squares = 0;
    for (int64_t i = lane(); i < n; i += kLanes) sum += wide(x[at + i]);
    const float mean = fold_lanes<Plus>(sum) / static_cast<float>(width);
    for (int64_t i = lane(); i < n; i += kLanes) squares += (wide(x[at + i]) - mean) * (wide(x[at + i]) - mean);
    const float scale = 1 / sqrtf(fold_lanes<Plus>(squares) / static_cast<float>(width) + 1e-5f);
    for (int64_t i = lane(); i < n; i += kLanes)
      put(y + at + i, (wide(x[at + i]) - mean) * scale * wide(g[i]) + wide(b[i]));
    if (is_here && lane() == 0) stats[2 * row] = mean, stats[2 * row + 1] = scale;
  });
}

TYPED(layernorm_backward_input)
(Real* dx, const Real* dy, const Real* x, const float* stats, const Real* g, int64_t rows, int64_t width) {
  each_row(rows, [=](int64_t row, int64_t is_here) {
    const int64_t at = row * width, n = is_here * width;
    const float mean = is_here ? stats[2 * row] : 0, scale = is_here ? stats[2 * row + 1] : 0;
    float sum = 0, with_x = 0;  // of dy * g, alone and with the normalised x
    for (int64_t i = lane(); i < n; i += kLanes) {
      sum += wide(dy[at + i]) * wide(g[i]);
      with_x += wide(dy[at + i]) * wide(g[i]) * (wide(x[at + i]) - mean) * scale;
    }
    sum = fold_lanes<Plus>(sum) / static_cast<float>(width);
    with_x = fold_lanes<Plus>(with_x) / static_cast<float>(width);
    for (int64_t i = lane(); i < n; i += kLanes)
      put(dx + at + i, scale * (wide(dy[at + i]) * wide(g[i]) - sum - (wide(x[at + i]) - mean) * scale * with_x));
  });
}

TYPED(layernorm_backward_weight)
(float* dg, float* db, const Real* dy, const Real* x, const float* stats, int64_t rows, int64_t width,
 int64_t accumulate) {
  sum_over_rows(dg, rows, width, accumulate, [=](int64_t r, int64_t i) {
    return wide(dy[r * width + i]) * (wide(x[r * width + i]) - stats[2 * r]) * stats[2 * r + 1];
  });
  sum_over_rows(db, rows, width, accumulate, [=](int64_t r, int64_t i) { return wide(dy[r * width + i]); });
}

// ---- attention ------------------------------------------------------------------------------------------------------

// Rows of probs are those of each_row. A lane reads again only what it has written.
TYPED(attention_forward)
(Real* y, float* probs, const Real* qkv, int64_t n, int64_t context, int64_t heads, int64_t head) {
  const int64_t width = heads * head, stride = 3 * width;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  each_row(n * heads * context, [=](int64_t row, int64_t is_here) {
    const Place at(row, context, heads, head);
    const Real *q = qkv + at.in_qkv + at.position * stride, *k = qkv + at.in_qkv + width, *v = k + width;
    const int64_t seen = is_here * (at.position + 1);
    float *p = probs + row * context, top = -INFINITY, sum = 0;
    for (int64_t j = lane(); j < seen; j += kLanes) {
      p[j] = scale * dot(q, k + j * stride, head);
      top = Larger()(p[j], top);
    }
    top = fold_lanes<Larger>(top);
    for (int64_t j = lane(); j < seen; j += kLanes) {
      p[j] = expf(p[j] - top);
      sum += p[j];
    }
    sum = fold_lanes<Plus>(sum);
    for (int64_t j = lane(); j < is_here * context; j += kLanes) p[j] = j < seen ? p[j] / sum : 0;
    mix(y + at.in_y + at.position * width, is_here * head, head, v, stride, 0, seen, context,
        [=](int64_t j) { return p[j]; });
  });
}

// The gradients of the scores of a row are scale * p * (d - the sum of p * d over the row), where d = dy v are those of
// the probabilities p. They are computed where they are needed and never stored. The sum of each row, which
// backward_keys needs as well, waits where the first gradient of its value will be, as a Real; backward_values, the
// last of the three, overwrites it.
TYPED(attention_backward_queries)
(Real* dqkv, const Real* dy, const Real* qkv, const float* probs, int64_t n, int64_t context, int64_t heads,
 int64_t head) {
  const int64_t width = heads * head, stride = 3 * width;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  each_row(n * heads * context, [=](int64_t row, int64_t is_here) {
    const Place at(row, context, heads, head);
    const Real *k = qkv + at.in_qkv + width, *v = k + width, *d_out = dy + at.in_y + at.position * width;
    const float* p = probs + row * context;
    Real* dq = dqkv + at.in_qkv + at.position * stride;
    float sum = 0;
    const int64_t seen = is_here * (at.position + 1);
    for (int64_t j = lane(); j < seen; j += kLanes) sum += p[j] * dot(d_out, v + j * stride, head);
    sum = fold_lanes<Plus>(sum);
    mix(dq, is_here * head, head, k, stride, 0, seen, context,
        [=](int64_t j) { return scale * p[j] * (dot(d_out, v + j * stride, head) - sum); });
    if (is_here && lane() == 0) put(dq + 2 * width, sum);
  });
}

TYPED(attention_backward_keys)
(Real* dqkv, const Real* dy, const Real* qkv, const float* probs, int64_t n, int64_t context, int64_t heads,
 int64_t head) {
  const int64_t width = heads * head, stride = 3 * width;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  each_row(n * heads * context, [=](int64_t row, int64_t is_here) {
    const Place at(row, context, heads, head);
    const Real *q = qkv + at.in_qkv, *v = q + 2 * width + at.position * stride, *d_out = dy + at.in_y;
    const float* p = probs + at.sample_head * context * context + at.position;
    const Real* sums = dqkv + at.in_qkv + 2 * width;
    mix(dqkv + at.in_qkv + width + at.position * stride, is_here * head, head, q, stride, at.position,
        is_here * context, context,
        [=](int64_t i) { return scale * p[i * context] * (dot(d_out + i * width, v, head) - wide(sums[i * stride])); });
  });
}

TYPED(attention_backward_values)
(Real* dqkv, const Real* dy, const float* probs, int64_t n, int64_t context, int64_t heads, int64_t head) {
  const int64_t width = heads * head;
  each_row(n * heads * context, [=](int64_t row, int64_t is_here) {
    const Place at(row, context, heads, head);
    const float* p = probs + at.sample_head * context * context + at.position;
    mix(dqkv + at.in_qkv + (2 + 3 * at.position) * width, is_here * head, head, dy + at.in_y, width, at.position,
        is_here * context, context, [=](int64_t i) { return p[i * context]; });
  });
}

// ---- attention in blocks: see attention_block_forward and _backward in the kernels.h of the host -------------------

// block: NULL for the rank's own keys; room: positions that it has place for. begins: nothing was gathered before.
TYPED(attention_block_forward)
(Real* y, float* log_sums, const Real* qkv, const float* block, int64_t room, int64_t n, int64_t first, int64_t here,
 int64_t heads, int64_t head, int64_t begins) {
  __shared__ Line queries[kOwn], others[kOthers];
  __shared__ float weights[kOwn][kOthers + 1];
  const int64_t width = heads * head, across = (here + kOwn - 1) / kOwn;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  for (int64_t t = blockIdx.x; t < n * heads * across; t += gridDim.x) {
    const Tile tile(t, across, heads);
    const Keys<Real> keys(qkv, block, room, tile.sample, tile.head * head, first, here, width);
    const Real* q = qkv + (tile.sample * here + tile.first) * 3 * width + tile.head * head;
    const int64_t i = tile.first + own_row(), last = tile.first + kOwn < here ? tile.first + kOwn : here;
    const int64_t seen = i < here ? clamped(first + i + 1 - keys.first, keys.count) : 0;
    const int64_t most = clamped(first + last - keys.first, keys.count);  // of any row of the tile
    float *log_sum = log_sums + tile.sample_head * here + i, out[kColumns] = {}, sum = 0;
    float top = -INFINITY;
    const float before = begins || i >= here ? -INFINITY : *log_sum;
    load_lines(queries, kOwn, here - tile.first, head,
               [=](int64_t r, int64_t c) { return scale * wide(q[r * 3 * width + c]); });
    for (int64_t j0 = 0; j0 < most; j0 += kOthers) {
      float scores[kEach], high = top;
      load_lines(others, kOthers, keys.count - j0, head, [=](int64_t j, int64_t c) { return keys.key(j0 + j, c); });
      __syncthreads();
      for (int e = 0; e < kEach; ++e) {
        const int j = part() + e * kParts;
        scores[e] = j0 + j < seen ? dot_lines(queries[own_row()], others[j], head) : -INFINITY;
        high = Larger()(scores[e], high);
      }
      high = fold_parts<Larger>(high);
      const float keep = top == high ? 1 : expf(top - high);
      sum *= keep;
      for (int e = 0; e < kEach; ++e) {
        const int j = part() + e * kParts;
        sum += weights[own_row()][j] = j0 + j < seen ? expf(scores[e] - high) : 0;
      }
      for (int c = 0; c < kColumns; ++c) out[c] *= keep;
      top = high;
      load_lines(others, kOthers, keys.count - j0, head, [=](int64_t j, int64_t c) { return keys.value(j0 + j, c); });
      __syncthreads();
      add_others(out, weights[own_row()], others, head);
      __syncthreads();
    }
    sum = fold_parts<Plus>(sum);
    if (seen == 0) continue;
    const float own = top + logf(sum), high = own > before ? own : before;
    const float all = begins ? own : high + logf(expf(own - high) + expf(before - high));
    const float share = expf(own - all) / sum, keep = begins ? 0 : expf(before - all);
    for (int c = 0; c < kColumns && part() + c * kParts < head; ++c) {
      Real* to = y + (tile.sample * here + i) * width + tile.head * head + part() + c * kParts;
      put(to, begins ? out[c] * share : wide(*to) * keep + out[c] * share);
    }
    if (part() == 0) *log_sum = all;
  }
}

// Queries' gradients: those of this block are added, or they are the first.
TYPED(attention_block_backward_queries)
(Real* dqkv, const Real* dy, const Real* y, const float* log_sums, const Real* qkv, const float* block, int64_t room,
 int64_t n, int64_t first, int64_t here, int64_t heads, int64_t head, int64_t begins) {
  __shared__ Line queries[kOwn], d_outs[kOwn], others[kOthers];
  __shared__ float weights[kOwn][kOthers + 1];
  const int64_t width = heads * head, across = (here + kOwn - 1) / kOwn;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  for (int64_t t = blockIdx.x; t < n * heads * across; t += gridDim.x) {
    const Tile tile(t, across, heads);
    const Keys<Real> keys(qkv, block, room, tile.sample, tile.head * head, first, here, width);
    const int64_t in_y = (tile.sample * here + tile.first) * width + tile.head * head;
    const Real *q = qkv + 3 * in_y - 2 * tile.head * head, *d_out = dy + in_y, *out_before = y + in_y;
    const int64_t i = tile.first + own_row(), last = tile.first + kOwn < here ? tile.first + kOwn : here;
    const int64_t seen = i < here ? clamped(first + i + 1 - keys.first, keys.count) : 0;
    const int64_t most = clamped(first + last - keys.first, keys.count);
    const float log_sum = i < here ? log_sums[tile.sample_head * here + i] : 0;
    float out[kColumns] = {}, sum = 0;
    load_lines(queries, kOwn, here - tile.first, head,
               [=](int64_t r, int64_t c) { return scale * wide(q[r * 3 * width + c]); });
    load_lines(d_outs, kOwn, here - tile.first, head, [=](int64_t r, int64_t c) { return wide(d_out[r * width + c]); });
    for (int64_t c = part(); c < head && i < here; c += kParts)
      sum += wide(out_before[own_row() * width + c]) * wide(d_out[own_row() * width + c]);
    sum = fold_parts<Plus>(sum);
    for (int64_t j0 = 0; j0 < most; j0 += kOthers) {
      const auto load_keys = [&] {
        load_lines(others, kOthers, keys.count - j0, head, [=](int64_t j, int64_t c) { return keys.key(j0 + j, c); });
        __syncthreads();
      };
      float p[kEach];
      load_keys();
      for (int e = 0; e < kEach; ++e) {
        const int j = part() + e * kParts;
        p[e] = j0 + j < seen ? expf(dot_lines(queries[own_row()], others[j], head) - log_sum) : 0;
      }
      __syncthreads();
      load_lines(others, kOthers, keys.count - j0, head, [=](int64_t j, int64_t c) { return keys.value(j0 + j, c); });
      __syncthreads();
      for (int e = 0; e < kEach; ++e) {
        const int j = part() + e * kParts;
        weights[own_row()][j] = p[e] * (dot_lines(d_outs[own_row()], others[j], head) - sum);
      }
      __syncthreads();
      load_keys();
      add_others(out, weights[own_row()], others, head);
      __syncthreads();
    }
    for (int c = 0; c < kColumns && part() + c * kParts < head && i < here; ++c) {
      Real* to = dqkv + 3 * in_y - 2 * tile.head * head + own_row() * 3 * width + part() + c * kParts;
      put(to, begins ? scale * out[c] : wide(*to) + scale * out[c]);
    }
  }
}

// Those of keys and values: added behind the block's own, or, where block is NULL, the first in dqkv.
TYPED(attention_block_backward_keys)
(Real* dqkv, float* block, const Real* dy, const Real* y, const float* log_sums, const Real* qkv, int64_t room,
 int64_t n, int64_t first, int64_t here, int64_t heads, int64_t head) {
  constexpr int kFolded = kThreads / kOthers;  // threads that add up one number of a query
  __shared__ Line own_keys[kOwn], own_values[kOwn], others[kOthers];
  __shared__ float probs[kOwn][kOthers + 1], scores[kOwn][kOthers + 1], terms[kThreads];
  const int64_t width = heads * head;
  const int64_t count = Keys<Real>(qkv, block, room, 0, 0, first, here, width).count;
  const int64_t across = (count + kOwn - 1) / kOwn;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  for (int64_t t = blockIdx.x; t < n * heads * across; t += gridDim.x) {
    const Tile tile(t, across, heads);
    const Keys<Real> keys(qkv, block, room, tile.sample, tile.head * head, first, here, width);
    const int64_t column = tile.head * head, in_y = tile.sample * here * width + column;
    const Real *q = qkv + tile.sample * here * 3 * width + column, *d_out = dy + in_y, *out = y + in_y;
    const int64_t key = tile.first + own_row(), from = clamped(keys.first + tile.first - first, here);
    float d_key[kColumns] = {}, d_value[kColumns] = {};
    load_lines(own_keys, kOwn, keys.count - tile.first, head,
               [=](int64_t r, int64_t c) { return keys.key(tile.first + r, c); });
    load_lines(own_values, kOwn, keys.count - tile.first, head,
               [=](int64_t r, int64_t c) { return keys.value(tile.first + r, c); });
    for (int64_t i0 = from; i0 < here; i0 += kOthers) {
      const auto load_queries = [&] {
        load_lines(others, kOthers, here - i0, head,
                   [=](int64_t i, int64_t c) { return scale * wide(q[(i0 + i) * 3 * width + c]); });
        __syncthreads();
      };
      const int64_t folded = i0 + static_cast<int>(threadIdx.x) / kFolded;
      float p[kEach], term = 0;
      for (int64_t c = static_cast<int>(threadIdx.x) % kFolded; c < head && folded < here; c += kFolded)
        term += wide(out[folded * width + c]) * wide(d_out[folded * width + c]);
      terms[threadIdx.x] = term;
      load_queries();
      for (int e = 0; e < kEach; ++e) {
        const int64_t i = i0 + part() + e * kParts;
        const bool sees = key < keys.count && i < here && first + i >= keys.first + key;
        p[e] = sees ? expf(dot_lines(own_keys[own_row()], others[i - i0], head) - log_sums[tile.sample_head * here + i])
                    : 0;
      }
      __syncthreads();
      load_lines(others, kOthers, here - i0, head,
                 [=](int64_t i, int64_t c) { return wide(d_out[(i0 + i) * width + c]); });
      __syncthreads();
      for (int e = 0; e < kEach; ++e) {
        const int j = part() + e * kParts;
        float sum = 0;
        for (int k = 0; k < kFolded; ++k) sum += terms[j * kFolded + k];
        probs[own_row()][j] = p[e];
        scores[own_row()][j] = p[e] * (dot_lines(own_values[own_row()], others[j], head) - sum);
      }
      __syncthreads();
      add_others(d_value, probs[own_row()], others, head);
      __syncthreads();
      load_queries();
      add_others(d_key, scores[own_row()], others, head);
      __syncthreads();
    }
    for (int c = 0; c < kColumns && part() + c * kParts < head && key < keys.count; ++c) {
      const int64_t at = column + part() + c * kParts;
      if (block) {
        float* to = block + GPT_BLOCK_HEAD + ((n + tile.sample) * keys.count + key) * 2 * width + at;
        to[0] += d_key[c];
        to[width] += d_value[c];
      } else {
        Real* to = dqkv + (tile.sample * here + key) * 3 * width + width + at;
        put(to, d_key[c]);
        put(to + width, d_value[c]);
      }
    }
    __syncthreads();
  }
}

// The rank's own keys and values as a block, with zeros for their gradients behind them where these are to travel.
TYPED(block_fill)
(float* block, const Real* qkv, int64_t n, int64_t first, int64_t here, int64_t width, int64_t gradients) {
  const int64_t count = n * here * 2 * width;
  over(GPT_BLOCK_HEAD + count * (gradients ? 2 : 1), [=](int64_t i) {
    const int64_t at = i - GPT_BLOCK_HEAD;
    block[i] = i == 0                  ? static_cast<float>(first)
               : i == 1                ? static_cast<float>(here)
               : at < 0 || at >= count ? 0
                                       : wide(qkv[at / (2 * width) * 3 * width + width + at % (2 * width)]);
  });
}

// What has come home: the gradients of the rank's own keys and values.
TYPED(block_home)(Real* dqkv, const float* block, int64_t n, int64_t here, int64_t width) {
  const int64_t count = n * here * 2 * width;
  over(count, [=](int64_t i) {
    put(dqkv + i / (2 * width) * 3 * width + width + i % (2 * width), block[GPT_BLOCK_HEAD + count + i]);
  });
}

// ---- gelu, residual -------------------------------------------------------------------------------------------------

TYPED(gelu_forward)(Real* y, const Real* x, int64_t count) {
  over(count, [=](int64_t at) {
    const float in = wide(x[at]), z = kGelu2u * (in + kGeluCube * in * in * in);
    put(y + at, in * logistic(z, expf(-fabsf(z))));
  });
}

TYPED(gelu_backward)(Real* dx, const Real* dy, const Real* x, int64_t count) {
  over(count, [=](int64_t at) {
    const float in = wide(x[at]), z = kGelu2u * (in + kGeluCube * in * in * in);
    const float slope = kGelu2u * (1 + 3 * kGeluCube * in * in), e = expf(-fabsf(z));
    put(dx + at, wide(dy[at]) * logistic(z, e) * (1 + in * slope * logistic(-z, e)));
  });
}

TYPED(residual_forward)(Real* y, const Real* x, const Real* f, const Real* b, int64_t rows, int64_t width) {
  over(rows * width, [=](int64_t i) { put(y + i, wide(x[i]) + wide(f[i]) + wide(b[i % width])); });
}

// ---- cross-entropy --------------------------------------------------------------------------------------------------

TYPED(cross_entropy_tops)(float* tops, const Real* logits, int64_t rows, int64_t count) {
  each_row(rows, [=](int64_t row, int64_t is_here) {
    float top = -INFINITY;
    for (int64_t i = lane(); i < is_here * count; i += kLanes) top = Larger()(wide(logits[row * count + i]), top);
    top = fold_lanes<Larger>(top);
    if (is_here && lane() == 0) tops[row] = top;
  });
}

TYPED(cross_entropy_sums)
(float* sums, const Real* logits, const float* tops, const uint8_t* targets, int64_t rows, int64_t first,
 int64_t count) {
  each_row(rows, [=](int64_t row, int64_t is_here) {
    const float top = is_here ? tops[row] : 0;
    float sum = 0;
    for (int64_t i = lane(); i < is_here * count; i += kLanes) sum += expf(wide(logits[row * count + i]) - top);
    sum = fold_lanes<Plus>(sum);
    if (!is_here || lane() > 0) return;
    const int64_t target = targets[row] - first;
    sums[2 * row] = sum;
    sums[2 * row + 1] = target >= 0 && target < count ? wide(logits[row * count + target]) : 0;
  });
}

TYPED(cross_entropy_backward)
(Real* dlogits, const Real* logits, const float* log_sums, const uint8_t* targets, int64_t rows, int64_t first,
 int64_t count) {
  over(rows * count, [=](int64_t i) {
    const float p = expf(wide(logits[i]) - log_sums[i / count]);
    put(dlogits + i, targets[i / count] - first == i % count ? p - 1 : p);
  });
}
