// unit/test_comm_folds.cc: orders, factors and callers' functions in the reduction loops, and results that go to
// several buffers, for every instruction set this processor has, against the definition, bit for bit.
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/host/reduce/kernels.h"
#include "support/check.h"
#include "support/reference.h"

namespace {

using gsel::host::Fold;
using gsel::host::Isa;
using Buffer = std::vector<char>;
using Buffers = std::vector<Buffer>;

// ---- the definition: folded two at a time by support/reference.h, in the type it is computed in ----

uint64_t next_random(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Any bits at all; in the wider floating point types every other number between 1 and 2, so that sums round.
void fill(Buffer& bytes, gsel_dtype dtype, uint64_t& state) {
  for (char& c : bytes) c = static_cast<char>(next_random(state));
  const size_t element = gsel_dtype_bytes(dtype);
  if (dtype < GSEL_F16 || element == 1) return;
  const unsigned top = dtype == GSEL_F64 ? 0x3ff0 : dtype == GSEL_F16 ? 0x3c00 : 0x3f80;
  const unsigned kept = dtype == GSEL_F64 ? 0x000f : dtype == GSEL_F16 ? 0x03ff : 0x007f;
  for (size_t end = element; end <= bytes.size(); end += 2 * element) {
    const unsigned low = static_cast<unsigned char>(bytes[end - 2]), high = static_cast<unsigned char>(bytes[end - 1]);
    const unsigned word = ((high << 8 | low) & (kept | 0x8000)) | top;
    bytes[end - 2] = static_cast<char>(word), bytes[end - 1] = static_cast<char>(word >> 8);
  }
}

bool is_integer(gsel_dtype dtype) {
  return dtype <= GSEL_U64;
}

std::vector<const void*> pointers(const Buffers& buffers) {
  std::vector<const void*> all;
  for (const Buffer& b : buffers) all.push_back(b.data());
  return all;
}

gsel_dtype computed_in(gsel_dtype dtype) {
  return reference_small(dtype) ? GSEL_F32 : dtype;
}

Buffer widened(gsel_dtype dtype, const Buffer& in, size_t count) {
  const reference_format* small = reference_small(dtype);
  if (!small) return in;
  Buffer out(count * sizeof(float));
  for (size_t i = 0; i < count; ++i)
    reinterpret_cast<float*>(out.data())[i] = reference_widen(small, reference_bits(small, in.data(), i));
  return out;
}

Buffer narrowed(gsel_dtype dtype, const Buffer& in, size_t count) {
  const reference_format* small = reference_small(dtype);
  if (!small) return in;
  Buffer out(count * gsel_dtype_bytes(dtype));
  for (size_t i = 0; i < count; ++i) reference_put(small, out.data(), i, reinterpret_cast<const float*>(in.data())[i]);
  return out;
}

void multiply(gsel_dtype dtype, Buffer& x, double factor, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (dtype == GSEL_F32)
      reinterpret_cast<float*>(x.data())[i] *= static_cast<float>(factor);
    else
      reinterpret_cast<double*>(x.data())[i] *= factor;
}

// Not associative, not commutative, on the bytes of any type.
int32_t mangle(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void*) {
  auto* a = static_cast<uint8_t*>(accumulated);
  const auto* b = static_cast<const uint8_t*>(next);
  for (size_t i = 0; i < count * gsel_dtype_bytes(dtype); ++i) a[i] = static_cast<uint8_t>(a[i] * 3 + b[i] * 5 + 1);
  return 0;
}

void fold_two(gsel_dtype dtype, gsel_op op, Buffer& a, const Buffer& b, size_t count) {
  const void* in[] = {a.data(), b.data()};
  if (op == GSEL_OP_USER)
    mangle(a.data(), b.data(), count, dtype, nullptr);
  else
    reference_fold(dtype, op, 2, in, a.data(), count);
}

// Pairs of neighbours, level by level; an odd one goes up as it is.
Buffer by_tree(gsel_dtype dtype, gsel_op op, Buffers level, size_t count) {
  while (level.size() > 1) {
    Buffers above;
    for (size_t q = 0; q < level.size(); q += 2) {
      if (q + 1 < level.size()) fold_two(dtype, op, level[q], level[q + 1], count);
      above.push_back(level[q]);
    }
    level = above;
  }
  return level[0];
}

Buffer by_ranks(gsel_dtype dtype, gsel_op op, Buffers level, size_t count) {
  for (size_t q = 1; q < level.size(); ++q) fold_two(dtype, op, level[0], level[q], count);
  return level[0];
}

Buffer defined(const Fold& fold, const Buffers& inputs, size_t count) {
  if (inputs.size() == 1 && fold.op != GSEL_SCALED_SUM) return inputs[0];
  const bool user = fold.op == GSEL_OP_USER;
  const gsel_dtype wide = user ? fold.dtype : computed_in(fold.dtype);
  const gsel_op op = fold.op == GSEL_AVG || fold.op == GSEL_SCALED_SUM ? GSEL_SUM : fold.op;
  Buffers numbers;
  for (const Buffer& in : inputs) numbers.push_back(user ? in : widened(fold.dtype, in, count));
  if (fold.op == GSEL_SCALED_SUM)
    for (size_t q = 0; q < numbers.size(); ++q) multiply(wide, numbers[q], fold.factors[q], count);
  Buffer sum = fold.order == GSEL_ORDER_TREE ? by_tree(wide, op, numbers, count) : by_ranks(wide, op, numbers, count);
  if (user) return sum;
  if (fold.op == GSEL_AVG && !is_integer(wide)) {
    const auto n = static_cast<double>(inputs.size());
    for (size_t i = 0; i < count; ++i)
      if (wide == GSEL_F32)
        reinterpret_cast<float*>(sum.data())[i] /= static_cast<float>(n);
      else
        reinterpret_cast<double*>(sum.data())[i] /= n;
  }
  if (fold.op == GSEL_AVG && is_integer(wide)) {  // order is of no meaning to wrapped sums
    const auto in = pointers(inputs);
    reference_fold(wide, GSEL_AVG, static_cast<int32_t>(inputs.size()), in.data(), sum.data(), count);
  }
  if (!is_integer(wide)) {  // one NaN
    const void* one[] = {sum.data()};
    reference_fold(wide, GSEL_SUM, 1, one, sum.data(), count);
  }
  return narrowed(fold.dtype, sum, count);
}

// ---- the loops beside it ----

void compare(const char* what, Isa isa, const Fold& fold, size_t n, size_t count, const char* got,
             const Buffer& expected) {
  const size_t element = gsel_dtype_bytes(fold.dtype);
  for (size_t i = 0; i < count * element; ++i)
    if (got[i] != expected[i]) {
      print_error("%s: set %d, %s, op %d, order %d, %zu inputs, %zu elements: element %zu differs\n", what,
                  static_cast<int>(isa), gsel_dtype_name(fold.dtype), fold.op, fold.order, n, count, i / element);
      fail();
    }
}

// Apart, off the alignment and from a later element on, and in place.
void check_fold(Isa isa, const Fold& fold, const Buffers& inputs, size_t count, const Buffer& expected) {
  const size_t element = gsel_dtype_bytes(fold.dtype), bytes = count * element, n = inputs.size();
  Buffer out(bytes + 3 * element + 64, 0x55);
  gsel::host::reduce_with(isa, fold, out.data(), pointers(inputs).data(), static_cast<int>(n), count);
  compare("apart", isa, fold, n, count, out.data(), expected);
  for (size_t i = bytes; i < out.size(); ++i) assert_int_equal(out[i], 0x55);

  Buffers later(n);
  for (size_t q = 0; q < n; ++q) {
    later[q].assign(3 * element, 0x33);
    later[q].insert(later[q].end(), inputs[q].begin(), inputs[q].end());
  }
  gsel::host::reduce_with(isa, fold, out.data() + element, pointers(later).data(), static_cast<int>(n), count, 3);
  compare("later", isa, fold, n, count, out.data() + element, expected);

  for (const size_t input : {size_t{0}, n / 2, n - 1}) {
    Buffers own = inputs;
    gsel::host::reduce_with(isa, fold, own[input].data(), pointers(own).data(), static_cast<int>(n), count);
    compare("in place", isa, fold, n, count, own[input].data(), expected);
  }
}

// The first inputs, then the others behind them: what is computed in f32 comes as f32, else as one more input.
void check_in_parts(Isa isa, const Fold& fold, const Buffers& inputs, size_t count, const Buffer& expected) {
  const size_t element = gsel_dtype_bytes(fold.dtype), n = inputs.size();
  const bool averages = fold.op == GSEL_AVG, scales = fold.op == GSEL_SCALED_SUM;
  const bool rounds = averages || scales || fold.op == GSEL_SUM || fold.op == GSEL_PROD;
  const bool is_wide =
      rounds && fold.dtype >= GSEL_F16 && fold.dtype <= GSEL_F8E5M2 && fold.dtype != GSEL_F32 && fold.dtype != GSEL_F64;
  for (size_t first = 2; first < n; first += 3) {
    Fold part = fold;
    if (averages) part.op = GSEL_SUM;
    part.partial = is_wide;
    std::vector<float> wide(count);
    Buffer narrow(count * element), out(count * element);
    void* const before = is_wide ? static_cast<void*>(wide.data()) : narrow.data();
    gsel::host::reduce_with(isa, part, before, pointers(inputs).data(), static_cast<int>(first), count);
    auto in = pointers(inputs);
    in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(first));
    std::vector<double> factors;
    if (scales) factors.assign(fold.factors + first, fold.factors + n);
    part = fold;
    part.averaged = static_cast<int>(n);
    if (is_wide)
      part.before = wide.data();
    else
      in.insert(in.begin(), narrow.data()), factors.insert(factors.begin(), 1);
    part.factors = factors.data();
    gsel::host::reduce_with(isa, part, out.data(), in.data(), static_cast<int>(in.size()), count);
    compare("in parts", isa, fold, n, count, out.data(), expected);
  }
}

std::vector<gsel_op> operations(gsel_dtype dtype) {
  std::vector<gsel_op> ops = {GSEL_SUM, GSEL_PROD, GSEL_MIN, GSEL_MAX, GSEL_AVG, GSEL_OP_USER};
  if (is_integer(dtype))
    ops.insert(ops.end(), {GSEL_BAND, GSEL_BOR, GSEL_BXOR});
  else
    ops.push_back(GSEL_SCALED_SUM);
  return ops;
}

void sweep(Isa isa) {
  const double factors[] = {1.5, -0.1, 3, 1e-3, 1 / 3.0, 1e39, 0, 2, 1, -1, 7, 0.7, 1e-30, 5, 6, 8, 1.1};
  uint64_t state = 7;
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_F8E5M2; ++dtype)
    for (const gsel_op op : operations(dtype))
      for (const int32_t order : {GSEL_ORDER_RANKS, GSEL_ORDER_TREE})
        for (const size_t n : {1, 2, 3, 4, 5, 17})
          for (const size_t count : {size_t{1}, size_t{67}, 4096 / gsel_dtype_bytes(dtype) + 5}) {
            Buffers inputs(n, Buffer(count * gsel_dtype_bytes(dtype)));
            for (Buffer& b : inputs) fill(b, dtype, state);
            Fold fold;
            fold.dtype = dtype;
            fold.op = op;
            fold.order = order;
            fold.factors = factors;
            fold.function = mangle;
            const Buffer expected = defined(fold, inputs, count);
            check_fold(isa, fold, inputs, count, expected);
            if (order == GSEL_ORDER_RANKS) check_in_parts(isa, fold, inputs, count, expected);
          }
}

void test_every_order_type_and_operation_gives_the_bits_of_the_definition(void**) {
  for (const Isa isa : gsel::host::kIsas) {
    if (gsel::host::has_isa(isa))
      sweep(isa);
    else
      print_message("instruction set %d is not there and was not tried\n", static_cast<int>(isa));
  }
}

// All pairs of numbers of eight bits, with a third one now and then, so that every way to round is gone.
void test_all_pairs_of_eight_bit_numbers(void**) {
  constexpr size_t kPairs = 1 << 16;
  Buffers inputs(3, Buffer(kPairs));
  for (size_t i = 0; i < kPairs; ++i) {
    inputs[0][i] = static_cast<char>(i >> 8);
    inputs[1][i] = static_cast<char>(i);
    inputs[2][i] = static_cast<char>(i * 37 >> 4);
  }
  const auto in = pointers(inputs);
  Buffer expected(kPairs), out(kPairs);
  for (const gsel_dtype dtype : {GSEL_F8E4M3, GSEL_F8E5M2})
    for (gsel_op op = GSEL_SUM; op <= GSEL_AVG; ++op)
      for (const int n : {2, 3}) {
        reference_fold(dtype, op, n, in.data(), expected.data(), kPairs);
        const Fold fold{.dtype = dtype, .op = op};
        for (const Isa isa : gsel::host::kIsas) {
          if (!gsel::host::has_isa(isa)) continue;
          gsel::host::reduce_with(isa, fold, out.data(), in.data(), n, kPairs);
          compare("pairs", isa, fold, static_cast<size_t>(n), kPairs, out.data(), expected);
        }
      }
}

void test_a_tree_of_two_to_the_power_of_anything_is_made_of_trees(void**) {
  constexpr size_t kCount = 300;
  uint64_t state = 3;
  Buffers inputs(16, Buffer(kCount * sizeof(float)));
  for (Buffer& b : inputs) fill(b, GSEL_F32, state);
  const Fold fold{.dtype = GSEL_F32, .op = GSEL_SUM, .order = GSEL_ORDER_TREE};
  const auto in = pointers(inputs);
  Buffer whole(kCount * sizeof(float)), out(whole.size());
  gsel::host::reduce(fold, whole.data(), in.data(), 16, kCount);
  for (const int part : {2, 4, 8}) {
    Buffers halves;
    for (int from = 0; from < 16; from += part) {
      gsel::host::reduce(fold, out.data(), in.data() + from, part, kCount);
      halves.push_back(out);
    }
    gsel::host::reduce(fold, out.data(), pointers(halves).data(), 16 / part, kCount);
    assert_memory_equal(out.data(), whole.data(), whole.size());
  }
  gsel::host::reduce({.dtype = GSEL_F32, .op = GSEL_SUM}, out.data(), in.data(), 16, kCount);
  assert_memory_not_equal(out.data(), whole.data(), whole.size());  // the order does matter to these numbers
}

int32_t refuse(void*, const void*, size_t, gsel_dtype, void* user_data) {
  if (!user_data) throw std::runtime_error("no such luck");
  return *static_cast<int*>(user_data);
}

void test_a_function_that_fails_ends_the_fold(void**) {
  Buffers inputs(3, Buffer(100));
  Buffer out(100);
  int answer = -12;
  for (void* data : {static_cast<void*>(&answer), static_cast<void*>(nullptr)}) try {
      const Fold fold{.dtype = GSEL_I8, .op = GSEL_OP_USER, .function = refuse, .user_data = data};
      gsel::host::reduce(fold, out.data(), pointers(inputs).data(), 3, 100);
      fail();
    } catch (const gsel::Error& e) {
      assert_int_equal(e.code(), GSEL_ERR_CALLBACK);
      assert_non_null(strstr(e.what(), data ? "returned -12" : "no such luck"));
    }
}

// Each buffer gets the whole result and nothing beside it; one of the buffers is an input.
void check_outputs(gsel_dtype dtype, size_t count, int n_outs, bool streaming, bool in_place, uint64_t& state) {
  const size_t element = gsel_dtype_bytes(dtype), bytes = count * element;
  Buffers inputs(3, Buffer(bytes)), outs(static_cast<size_t>(n_outs), Buffer(bytes + 256, 0x55));
  for (Buffer& b : inputs) fill(b, dtype, state);
  const Fold fold{.dtype = dtype, .op = GSEL_SUM};
  const auto in = pointers(inputs);
  Buffer expected(bytes);
  gsel::host::reduce(fold, expected.data(), in.data(), 3, count);
  std::vector<void*> to;
  for (size_t o = 0; o < outs.size(); ++o) to.push_back(outs[o].data() + o * element);
  if (in_place) to.back() = inputs[1].data();
  gsel::host::reduce_to(fold, to.data(), n_outs, in.data(), 3, count, streaming);
  for (size_t o = 0; o < outs.size(); ++o) {
    compare("outputs", gsel::host::best_isa(), fold, 3, count, static_cast<const char*>(to[o]), expected);
    for (size_t i = 0; to[o] != inputs[1].data() && i < o * element; ++i) assert_int_equal(outs[o][i], 0x55);
    for (size_t i = o * element + bytes; to[o] != inputs[1].data() && i < outs[o].size(); ++i)
      assert_int_equal(outs[o][i], 0x55);
  }
}

void test_a_result_goes_to_several_buffers(void**) {
  uint64_t state = 5;
  for (const gsel_dtype dtype : {GSEL_I8, GSEL_BF16, GSEL_F32, GSEL_F64})
    for (const size_t count : {0, 1, 63, 1000, 8191, 20000})
      for (const int n_outs : {1, 2, 5})
        for (const bool streaming : {false, true})
          for (const bool in_place : {false, true}) check_outputs(dtype, count, n_outs, streaming, in_place, state);
}

void test_a_streaming_copy_of_any_size_and_alignment(void**) {
  Buffer from(6000);
  uint64_t state = 9;
  fill(from, GSEL_I8, state);
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 200, 4096, 5000})
    for (const size_t to_shift : {0, 1, 17, 63})
      for (const size_t from_shift : {0, 5}) {
        Buffer to(6000, 0x55);
        gsel::host::copy_streaming(to.data() + to_shift, from.data() + from_shift, bytes);
        assert_memory_equal(to.data() + to_shift, from.data() + from_shift, bytes);
        for (size_t i = 0; i < to_shift; ++i) assert_int_equal(to[i], 0x55);
        for (size_t i = to_shift + bytes; i < to.size(); ++i) assert_int_equal(to[i], 0x55);
      }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_every_order_type_and_operation_gives_the_bits_of_the_definition),
      cmocka_unit_test(test_all_pairs_of_eight_bit_numbers),
      cmocka_unit_test(test_a_tree_of_two_to_the_power_of_anything_is_made_of_trees),
      cmocka_unit_test(test_a_function_that_fails_ends_the_fold),
      cmocka_unit_test(test_a_result_goes_to_several_buffers),
      cmocka_unit_test(test_a_streaming_copy_of_any_size_and_alignment),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
