// 8-bit states as f32 and back: what a step has left comes back to the same values, whole or in any part of a block,
// and values that no scale has are refused. Blocks lie the same way whatever part of a parameter a rank has.
#include <cmath>
#include <limits>
#include <random>

#include "support/bucket_shard.h"
#include "train/optimize/byte_blocks.h"

using namespace gsel;
using namespace gsel_test;

namespace {

Config config_8bit() {
  Config config;
  config.train.optimizer = "adamw_8bit";
  config.train.learning_rate = 0.01;
  return config;
}

struct Moments {
  std::vector<float> of[2];
};

// Decoded: by element of the shard.
Moments moments_of(const Owner& owner) {
  Moments moments;
  for (int s = 0; s < 2; ++s) {
    const auto* codes = static_cast<const uint8_t*>(owner.shard.states[static_cast<size_t>(s)]);
    const auto* scales = reinterpret_cast<const float*>(codes + codes_bytes(owner.shard.count));
    moments.of[s].resize(static_cast<size_t>(owner.shard.count));
    for (const ParamRun& run : owner.runs)
      for (int64_t at = run.first; at < run.first + run.count;) {
        const ByteBlock block = byte_block_at(owner.runs, at);
        assert_int_equal(block.first, at);
        decode_block(s == 0, codes + at, scales[block.scale], block.count, moments.of[s].data() + at);
        at += block.count;
      }
  }
  return moments;
}

void check_holds(bool is_signed, const float* values, int64_t count) {
  uint8_t codes[kByteBlock];
  float scale = 0, again[kByteBlock];
  if (!encode_block(is_signed, values, count, codes, scale))
    fail_msg("%d values around %g have no scale", static_cast<int>(count), values[0]);
  decode_block(is_signed, codes, scale, count, again);
  for (int64_t i = 0; i < count; ++i)
    if (again[i] != values[i]) fail_msg("element %d: %g, got %g", static_cast<int>(i), values[i], again[i]);
}

// Gradients of many magnitudes, some of them 0. Some moments are subnormal.
void what_a_step_leaves_comes_back_whole_and_in_parts(void**) {
  Bucket bucket({{"a", {700}}, {"b", {3, 100}}, {"c", {256}}, {"d", {1}}});
  const auto device = DeviceContext::open_host();
  const Optimizer optimizer(config_8bit(), bucket.model, nullptr);
  std::minstd_rand draw(7);
  for (const float size : {1.0f, 1e-12f, 1e-18f, 1e-20f, 1e-25f, 1e14f}) {
    Owner owner(bucket, optimizer, 0, bucket.count());
    for (int64_t step = 0; step < 4; ++step) {
      for (float& g : owner.gradient) {
        const int n = static_cast<int>(draw() % 2001) - 1000;
        g = n % 7 == 0 ? 0 : size * std::exp(static_cast<float>(n) / 100) * (n % 2 == 0 ? 1.0f : -1.0f);
      }
      optimizer.step(*device, owner.shard, {step, 1, 1}, bucket.params, no_sum);
      const Moments moments = moments_of(owner);
      for (int s = 0; s < 2; ++s)
        for (const ParamRun& run : owner.runs)
          for (int64_t at = run.first; at < run.first + run.count;) {
            const ByteBlock block = byte_block_at(owner.runs, at);
            const float* const values = moments.of[s].data() + at;
            check_holds(s == 0, values, block.count);
            for (int64_t cut = 1; cut < block.count; cut += 1 + cut / 3) {
              check_holds(s == 0, values, cut);
              check_holds(s == 0, values + cut, block.count - cut);
            }
            at += block.count;
          }
    }
  }
}

void values_without_a_common_scale_are_refused(void**) {
  std::minstd_rand draw(3);
  uint8_t codes[kByteBlock];
  float values[kByteBlock], scale = 0;
  for (float& v : values) v = static_cast<float>(draw()) / 1e9f;
  assert_false(encode_block(true, values, kByteBlock, codes, scale));
  assert_false(encode_block(false, values, kByteBlock, codes, scale));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const float two[] = {1, bad};
    assert_false(encode_block(true, two, 2, codes, scale));
  }
  const float minus[] = {-1, 0.5f};
  assert_false(encode_block(false, minus, 2, codes, scale));
  const float zeros[3] = {};
  assert_true(encode_block(false, zeros, 3, codes, scale));
  assert_true(scale == 0 && codes[0] == 0 && codes[2] == 0);
}

void blocks_begin_where_the_parameter_has_them(void**) {
  const std::vector<ParamRun> runs{{0, 0, 500, 300}, {1, 500, 256, 0}, {2, 760, 10, 0}};
  const auto is = [&](int64_t at, int64_t first, int64_t count, int64_t scale) {
    const ByteBlock block = byte_block_at(runs, at);
    assert_int_equal(block.first, first);
    assert_int_equal(block.count, count);
    assert_int_equal(block.scale, scale);
  };
  is(0, 0, 212, 0);  // element 300 of the parameter, whose second block ends at 512
  is(211, 0, 212, 0);
  is(212, 212, 256, 1);
  is(499, 468, 32, 2);
  is(500, 500, 256, 3);
  is(769, 760, 10, 4);
  assert_int_equal(byte_blocks(runs[0]), 3);
  assert_int_equal(first_byte_block(runs[0]), 212);
  assert_int_equal(byte_blocks(runs[1]), 1);
  for (const int64_t padding : {756, 770}) {
    bool is_refused = false;
    try {
      byte_block_at(runs, padding);
    } catch (const Error& e) {
      is_refused = e.code() == GSEL_ERR_INTERNAL;
    }
    assert_true(is_refused);
  }
}

// So that where shards end with blocks, a step leaves the bits of a rank that has all.
void cuts_between_blocks_change_nothing(void**) {
  Bucket bucket({{"a", {1000}}, {"b", {77}}});
  const auto device = DeviceContext::open_host();
  const Optimizer optimizer(config_8bit(), bucket.model, nullptr);
  const auto stepped = [&](std::vector<int64_t> cuts) {
    std::vector<float> values;
    cuts.push_back(bucket.count());
    int64_t from = 0;
    for (const int64_t to : cuts) {
      Owner owner(bucket, optimizer, from, to);
      for (int64_t step = 0; step < 5; ++step)
        optimizer.step(*device, owner.shard, {step, 0.5, 0.25}, bucket.params, no_sum);
      owner.check_rest();
      values.insert(values.end(), owner.values.begin(), owner.values.end());
      from = to;
    }
    return values;
  };
  const std::vector<float> whole = stepped({});
  assert_true(same(stepped({256}), whole));
  assert_true(same(stepped({512, 768}), whole));
  const std::vector<float> cut = stepped({300});  // the second block alone
  assert_false(same(cut, whole));
  assert_true(same({cut.begin(), cut.begin() + 256}, {whole.begin(), whole.begin() + 256}));
  assert_true(same({cut.begin() + 512, cut.end()}, {whole.begin() + 512, whole.end()}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_a_step_leaves_comes_back_whole_and_in_parts),
      cmocka_unit_test(values_without_a_common_scale_are_refused),
      cmocka_unit_test(blocks_begin_where_the_parameter_has_them),
      cmocka_unit_test(cuts_between_blocks_change_nothing),
  };
  return cmocka_run_group_tests_name("byte blocks", tests, nullptr, nullptr);
}
