// unit/test_memory.cc: what a rank keeps: the ledger, the layout of buckets against the closed forms of ZeRO, storage
// against the layout byte by byte, initial values in shards, and offload memory.
#include <filesystem>

#include "base/error.h"
#include "device/formulas/floats.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/scratch.h"
#include "train/compile/base_program.h"
#include "train/state/storage.h"

namespace {

using namespace gsel;

constexpr uint64_t kSharded[] = {0, GSEL_BUCKET_SHARD_STATE, GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT,
                                 GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT | GSEL_BUCKET_SHARD_PARAM};

uint64_t of(const MemoryPartBytes& parts, MemoryPart part) {
  return parts[static_cast<size_t>(part)];
}

template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  return {GSEL_OK, "no error"};
}

void expect_error(const Error& e, gsel_status code, const std::string& part) {
  if (e.code() != code || e.message().find(part) == std::string::npos)
    fail_msg("expected %s with \"%s\"\n  got %s with \"%s\"", gsel_status_name(code), part.c_str(),
             gsel_status_name(e.code()), e.what());
}

// The base program of one rank, its only bucket kept as `flags` say.
Program kept_as(const Model& model, const Config& config, int32_t ranks, int32_t rank, uint64_t flags) {
  Program program = base_program(model, config, made::data_mesh(ranks), rank);
  for (ProgramBucket& bucket : program.buckets) {
    bucket.flags = static_cast<uint32_t>(flags);
    bucket.axis = GSEL_AXIS_DATA;
  }
  return program;
}

// What storage takes of each part is what the layouts say; the rest of the forecast is arena and staging.
void expect_storage_takes(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
                          const MemoryPartBytes& forecast) {
  Ledger ledger(0);
  {
    const ParamStorage storage(DeviceContext::open_host(), model, program, config, optimizer, 0, ledger);
    for (size_t i = 0; i < kMemoryParts; ++i) {
      const auto part = static_cast<MemoryPart>(i);
      if (part == MemoryPart::windows || part == MemoryPart::staging) continue;
      if (ledger.now()[i] != forecast[i])
        fail_msg("rank %d of %d, %s: forecast %llu bytes, storage took %llu", program.rank, program.mesh.world_size(),
                 memory_part_name(part), static_cast<unsigned long long>(forecast[i]),
                 static_cast<unsigned long long>(ledger.now()[i]));
    }
  }
  assert_int_equal(total_bytes(ledger.now()), 0);  // all given back
}

void the_ledger_counts_each_part_and_refuses_beyond_the_budget(void**) {
  Ledger ledger(1000);
  ledger.take(MemoryPart::params, 600);
  ledger.take(MemoryPart::windows, 400);
  expect_error(error_of([&] { ledger.take(MemoryPart::gradients, 1); }), GSEL_ERR_NOMEM,
               "gradients needs 1 bytes more; 1000 of the 1000 bytes");
  ledger.take(MemoryPart::offload_state, 5000);  // not of this budget
  ledger.give_back(MemoryPart::params, 600);
  ledger.take(MemoryPart::gradients, 100);
  assert_int_equal(of(ledger.now(), MemoryPart::params), 0);
  assert_int_equal(of(ledger.peak(), MemoryPart::params), 600);
  assert_int_equal(of(ledger.peak(), MemoryPart::offload_state), 5000);
  assert_int_equal(ledger.peak_total(), 1000);
}

void counted_memory_stands_in_the_ledger_while_it_lives(void**) {
  const auto device = DeviceContext::open_host();
  Ledger ledger(0);
  {
    CountedMemory a(device, ledger, MemoryPart::staging, 100), none(device, ledger, MemoryPart::staging, 0);
    assert_null(none.data());
    CountedMemory b = std::move(a);
    assert_int_equal(of(ledger.now(), MemoryPart::staging), 100);
    b = CountedMemory(device, ledger, MemoryPart::staging, 30);
    assert_int_equal(of(ledger.now(), MemoryPart::staging), 30);
  }
  assert_int_equal(of(ledger.now(), MemoryPart::staging), 0);
  assert_int_equal(of(ledger.peak(), MemoryPart::staging), 130);
}

// Rajbhandari et al., SC 2020: (e_p + e_g + K) psi and what stages 1, 2, 3 divide by N; shards are ceil(psi / N).
void model_state_is_what_zero_says_to_the_byte(void**) {
  const auto model = made::chain({1000, 7, 6});
  const int64_t psi = 1013;
  for (const char* precision : {"f32", "bf16", "fp16"}) {
    const Config config = made::config(fmt::format("[train]\nprecision = \"{}\"\nbatch = 16\n", precision));
    const Optimizer optimizer(config, *model, nullptr);
    const uint64_t e_p = precision == std::string("f32") ? 4 : 2, e_g = 4, moments = 8, master = e_p == 4 ? 0 : 4;
    for (int32_t n : {1, 3, 4, 7, 1024})
      for (int stage = 0; stage <= 3; ++stage) {
        const uint64_t shard = (psi + n - 1) / n, whole = stage ? shard * n : psi;
        const Program program = kept_as(*model, config, n, n - 1, kSharded[stage]);
        const MemoryPartBytes parts = forecast_memory(*model, program, optimizer);
        assert_int_equal(of(parts, MemoryPart::params), e_p * (stage == 3 ? shard : whole));
        assert_int_equal(of(parts, MemoryPart::gradients), e_g * (stage >= 2 ? shard : whole));
        assert_int_equal(of(parts, MemoryPart::state), moments * (stage >= 1 ? shard : psi));
        assert_int_equal(of(parts, MemoryPart::master), master * (stage >= 1 ? shard : psi));
        expect_storage_takes(*model, program, config, optimizer, parts);
      }
  }
}

// The same as one sum: 16 bits with a master copy, K = 12, on 4 ranks, of which none divides 1013.
void model_state_in_sixteen_bits_sums_up_to_the_closed_forms(void**) {
  const auto model = made::chain({1013});
  const Config config = made::config("[train]\nprecision = \"bf16\"\nbatch = 16\n");
  const Optimizer optimizer(config, *model, nullptr);
  const uint64_t shard = 254, whole = 1016;  // ceil(1013 / 4), and four of them
  const uint64_t expected[] = {(2 + 4 + 12) * 1013, (2 + 4) * whole + 12 * shard, 2 * whole + (4 + 12) * shard,
                               (2 + 4 + 12) * shard};
  for (int stage = 0; stage <= 3; ++stage)
    for (int32_t rank = 0; rank < 4; ++rank) {
      MemoryPartBytes parts = forecast_memory(*model, kept_as(*model, config, 4, rank, kSharded[stage]), optimizer);
      parts[static_cast<size_t>(MemoryPart::windows)] = parts[static_cast<size_t>(MemoryPart::staging)] = 0;
      assert_int_equal(total_bytes(parts), expected[stage]);
    }
}

void other_optimizers_frozen_parameters_and_offload_are_forecast_to_the_byte(void**) {
  made::Maker make;
  const int32_t x = make.value(8, GSEL_VALUE_INPUT), y = make.value(8), z = make.value(8);
  made::LayerSpec first, second;
  first.inputs = {x};
  first.outputs = {y};
  first.params = {make.param(331), make.param(57, GSEL_PARAM_FROZEN), make.param(41, 0, GSEL_BF16)};
  second.inputs = {y};
  second.outputs = {z};
  second.params = {make.param(600), make.param(21, GSEL_PARAM_FROZEN, GSEL_F16)};
  make.layer(first);
  make.layer(second);
  const auto model = make.finish({z});
  char folder[128];
  assert_true(make_scratch(folder, sizeof folder, "offloaded"));
  for (const char* rule : {"adamw", "adamw_8bit", "sgd", "sign_sgd"})
    for (uint64_t offload : {uint64_t{0}, uint64_t{GSEL_BUCKET_OFFLOAD_STATE},
                             uint64_t{GSEL_BUCKET_OFFLOAD_STATE | GSEL_BUCKET_OFFLOAD_PARAM}}) {
      const Config config =
          made::config(fmt::format("[train]\noptimizer = \"{}\"\nbatch = 16\noffload_folder = \"{}\"\n", rule, folder));
      const Optimizer optimizer(config, *model, nullptr);
      for (int32_t rank = 0; rank < 5; ++rank) {
        const Program program = kept_as(*model, config, 5, rank, kSharded[3] | offload);
        const MemoryPartBytes parts = forecast_memory(*model, program, optimizer);
        const uint64_t shards = 4 * 187 + 2 * 9;  // f32: ceil(931 / 5); bf16: ceil(41 / 5)
        const uint64_t frozen = 4 * 57 + 2 * 21;
        const bool moved = offload & GSEL_BUCKET_OFFLOAD_PARAM;
        assert_int_equal(of(parts, MemoryPart::params), frozen + (moved ? 0 : shards));
        assert_int_equal(of(parts, MemoryPart::offload_params), moved ? shards : 0);
        if (offload) assert_int_equal(of(parts, MemoryPart::state) + of(parts, MemoryPart::master), 0);
        expect_storage_takes(*model, program, config, optimizer, parts);
      }
    }
  assert_true(std::filesystem::is_empty(folder));
  assert_int_equal(remove_scratch(folder), 0);
}

void a_rank_that_does_not_own_a_bucket_keeps_nothing_of_it(void**) {
  const auto model = made::chain({100, 11});
  const Config config = made::config("[train]\nbatch = 4\n");
  const Optimizer optimizer(config, *model, nullptr);
  for (int32_t rank = 0; rank < 3; ++rank) {
    Program program = kept_as(*model, config, 3, rank, 0);
    program.buckets[0].owner = 1;
    const std::vector<BucketLayout> layouts = layouts_of(program, optimizer);
    const bool owner = rank == 1;
    assert_int_equal(layouts[0].param_bytes, owner ? 4 * 111 : 0);
    assert_int_equal(layouts[0].gradient_bytes, owner ? 4 * 111 : 0);
    assert_int_equal(layouts[0].state_bytes, owner ? 8 * 111 : 0);
    assert_int_equal(layouts[0].param_window_bytes, owner ? 0 : 4 * 111);
    assert_int_equal(layouts[0].gradient_window_bytes, owner ? 0 : 4 * 111);
    Ledger ledger(0);
    ParamStorage storage(DeviceContext::open_host(), *model, program, config, optimizer, 0, ledger);
    storage.initialise(7);
    assert_int_equal(storage.param(0) != nullptr, owner);
    if (owner) continue;
    float window[111];
    storage.open_params(0, window);
    assert_ptr_equal(storage.param(1), window + 100);
    storage.close_params(0);
    storage.open_gradient(0, window);
    assert_ptr_equal(storage.gradient(1), window + 100);
    storage.close_gradient(0);
    assert_null(storage.param(1));
    assert_null(storage.gradient(1));
    assert_null(storage.own_gradient(0));
  }
}

// Every rank's shard, put together, is what one rank alone makes; master copies are unrounded; padding is zero.
void shards_are_initialised_as_the_whole_model_would_be(void**) {
  const auto model = made::chain({70000, 3, 1});
  const uint64_t seed = 11;
  for (const char* precision : {"f32", "bf16", "fp16"}) {
    const Config config = made::config(fmt::format("[train]\nprecision = \"{}\"\nbatch = 16\n", precision));
    const Config plain = made::config("[train]\nbatch = 16\n");
    const Optimizer optimizer(config, *model, nullptr);
    Ledger ledger(0);
    ParamStorage whole(DeviceContext::open_host(), *model, kept_as(*model, plain, 1, 0, 0), plain, optimizer, 0,
                       ledger);
    whole.initialise(seed);
    const auto* expected = static_cast<const float*>(whole.whole_params(0));
    for (int stage = 0; stage <= 3; ++stage)
      for (int32_t rank = 0; rank < 7; ++rank) {
        Program program = kept_as(*model, config, 7, rank, kSharded[stage]);
        if (stage == 2) program.buckets[0].flags |= GSEL_BUCKET_WHOLE_PARAMS;
        ParamStorage storage(DeviceContext::open_host(), *model, program, config, optimizer, 0, ledger);
        storage.initialise(seed);
        const BucketLayout& layout = storage.layout(0);
        const BucketShard shard = storage.shard(0);
        assert_int_equal(shard.count, layout.own_elems());
        for (int64_t i = 0; i < shard.count; ++i) {
          const int64_t at = layout.own.begin + i;
          const float want = at < 70004 ? expected[at] : 0;
          assert_true(shard.values[i] == want);
          if (!shard.rounded) continue;
          const uint16_t got = static_cast<const uint16_t*>(shard.rounded)[i];
          assert_int_equal(got, layout.dtype == GSEL_BF16 ? BF16::narrow(want).bits : F16::narrow(want).bits);
        }
        storage.done_with(0, false);
        if (stage == 3 || layout.dtype != GSEL_F32) continue;
        for (int64_t i = 0; i < layout.padded; ++i)
          assert_true(static_cast<const float*>(storage.whole_params(0))[i] == (i < 70004 ? expected[i] : 0));
      }
  }
}

void runs_name_the_parameters_of_a_shard(void**) {
  const auto model = made::chain({10, 3, 7});  // 20 elements, shards of 7: [0, 7) [7, 14) [14, 21)
  const Config config = made::config("[train]\nbatch = 4\n");
  const Optimizer optimizer(config, *model, nullptr);
  auto runs = [&](int32_t rank) {
    std::string text;
    const std::vector<BucketLayout> layouts = layouts_of(kept_as(*model, config, 3, rank, kSharded[1]), optimizer);
    for (const ParamRun& run : layouts[0].runs)
      text += fmt::format("p{}[{}..{}]@{} ", run.param, run.param_first, run.param_first + run.count, run.first);
    return text;
  };
  assert_string_equal(runs(0).c_str(), "p0[0..7]@0 ");
  assert_string_equal(runs(1).c_str(), "p0[7..10]@0 p1[0..3]@3 p2[0..1]@6 ");
  assert_string_equal(runs(2).c_str(), "p2[1..7]@0 ");
}

void a_shard_is_placed_in_its_window_and_padding_of_gradients_is_zero(void**) {
  const auto model = made::chain({10, 3, 7});
  const Config config = made::config("[train]\nbatch = 4\n");
  const Optimizer optimizer(config, *model, nullptr);
  Ledger ledger(0);
  ParamStorage storage(DeviceContext::open_host(), *model, kept_as(*model, config, 3, 1, kSharded[3]), config,
                       optimizer, 0, ledger);
  storage.initialise(3);
  const BucketShard shard = storage.shard(0);
  float window[21], gradient[21];
  std::fill(std::begin(window), std::end(window), 9.f);
  std::fill(std::begin(gradient), std::end(gradient), 9.f);
  assert_null(storage.param(2));
  storage.open_params(0, window);
  storage.place_shard(0, nullptr);
  assert_memory_equal(window + 7, shard.values, 7 * sizeof(float));
  assert_true(window[6] == 9 && window[14] == 9);
  assert_ptr_equal(storage.param(2), window + 13);
  storage.open_gradient(0, gradient);
  assert_true(gradient[19] == 9 && gradient[20] == 0);
  assert_ptr_equal(storage.own_gradient(0), shard.gradient);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_ledger_counts_each_part_and_refuses_beyond_the_budget),
      cmocka_unit_test(counted_memory_stands_in_the_ledger_while_it_lives),
      cmocka_unit_test(model_state_is_what_zero_says_to_the_byte),
      cmocka_unit_test(model_state_in_sixteen_bits_sums_up_to_the_closed_forms),
      cmocka_unit_test(other_optimizers_frozen_parameters_and_offload_are_forecast_to_the_byte),
      cmocka_unit_test(a_rank_that_does_not_own_a_bucket_keeps_nothing_of_it),
      cmocka_unit_test(shards_are_initialised_as_the_whole_model_would_be),
      cmocka_unit_test(runs_name_the_parameters_of_a_shard),
      cmocka_unit_test(a_shard_is_placed_in_its_window_and_padding_of_gradients_is_zero),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
