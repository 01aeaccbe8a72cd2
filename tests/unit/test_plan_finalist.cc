// Configurations priced by their programs: memory and bytes are those that ranks then take and count, to the byte; a
// described transformer has those of the program that it describes; what a run would refuse is refused.
#include "api/handles.h"
#include "base/config.h"
#include "plan/candidate_durations.h"
#include "plan/config_layout.h"
#include "plan/describe.h"
#include "plan/finalist.h"
#include "support/gpt_shape.h"
#include "support/ranks.h"

extern "C" {
#include "layers.h"
#include "model.h"
}

namespace {

using namespace gsel;
using namespace gsel::plan;

constexpr gpt_sizes kSizes = {4, 32, 4, 16, GPT_WHOLE, GSEL_F32, GPT_PLAIN, 0};

struct Setup {
  const char* toml;
  int32_t ranks;
};
constexpr const char* kTrain = "[train]\nbatch = 8\nclip_norm = 1.0\n";
#define PIPELINE(schedule) "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"" schedule "\"\n"
constexpr Setup kSetups[] = {
    {"", 1},
    {"[strategy.data]\nplugin = \"dp\"\n", 3},
    {"[strategy.data]\nplugin = \"ddp\"\n", 2},
    {"[strategy.data]\nplugin = \"ddp\"\nfirst_bucket_bytes = 9000\nbucket_bytes = 20000\n", 4},
    {"[strategy.data]\nplugin = \"zero\"\nstage = 1\n", 2},
    {"[strategy.data]\nplugin = \"zero\"\nstage = 2\nbucket_bytes = 20000\n", 3},
    {"[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 100\nbucket_bytes = 20000\n", 4},
    {"[strategy.data]\nplugin = \"zero\"\nstage = 3\noffload = \"all\"\n", 2},
    {"[mesh]\ndata = 1\npipeline = 2\n" PIPELINE("1f1b"), 2},
    {"[mesh]\ndata = 1\npipeline = 4\n" PIPELINE("gpipe"), 4},
    {"[mesh]\ndata = 1\npipeline = 2\n" PIPELINE("interleaved-1f1b"), 2},
    {"[mesh]\ndata = 2\npipeline = 2\n" PIPELINE("zb-h1") "[strategy.data]\nplugin = \"zero\"\nstage = 1\n", 4},
    {"[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n", 4},
    {"[mesh]\ntensor = 2\ndata = 1\n[strategy.tensor]\nplugin = \"tp\"\nsequence_parallel = true\n", 2},
    {"[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\nexclude = \"h*.mlp.*, embed.token, head, loss\"\n", 4},
    {"[mesh]\ntensor = 2\ndata = 1\n[strategy.tensor]\nplugin = \"tp\"\nsequence_parallel = true\n"
     "exclude = \"h*.mlp.*\"\n",
     2},
    {"[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n", 4},
    {"[mesh]\ntensor = 2\npipeline = 2\ndata = 1\n[strategy.tensor]\nplugin = \"tp\"\n" PIPELINE("1f1b"), 4},
};

std::string toml_of_setup(const Setup& setup) {
  const bool pipeline = std::string_view(setup.toml).find("pipeline") != std::string_view::npos;
  return std::string(setup.toml) + kTrain + (pipeline ? "microbatches = 4\n" : "microbatch = 2\n");
}

struct Live {
  gpt_model gpt{};
  Live() {
    gsel_error* err = nullptr;
    check_ok(gpt_model_create(&kSizes, &gpt_layers, &gpt, &err), err);
  }
  ~Live() { gpt_model_free(&gpt); }
  const Model& model() const { return *gpt.model->impl; }
};

// ---- what ranks do -----------------------------------------------------------------------------------------------

constexpr int kKinds = GSEL_INSTR_POST_VALIDATE + 1;
struct Seen {
  uint64_t peak[kMemoryParts];
  gsel_comm_count counts[kAxes][kKinds];  // of the second step
  uint64_t bytes_sent;
};
struct Trial {
  std::string toml;
  std::vector<Seen> seen;
};

gsel_status fill(const gsel_data_request* request, void*) {
  for (int64_t i = 0; i < request->dst.n_elems; ++i)
    static_cast<uint8_t*>(request->dst.data)[i] = static_cast<uint8_t>(request->sample_ids[0] * 31 + i * 7);
  return GSEL_OK;
}

void read_counts(gsel_trainer* trainer, gsel_comm_count (&counts)[kAxes][kKinds]) {
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (gsel_instr_kind kind = 1; kind < kKinds; ++kind) {
      counts[axis][kind] = GSEL_COMM_COUNT_INIT;
      gsel_trainer_counts(trainer, kind, axis, &counts[axis][kind], nullptr);
    }
}

void train(rank_run* run) {
  auto* trial = static_cast<Trial*>(run->user);
  Seen& seen = trial->seen[static_cast<size_t>(run->rank)];
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  gsel_config* config = nullptr;
  gpt_model gpt{};
  gsel_trainer* trainer = nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_config_parse({trial->toml.c_str(), GSEL_NUL}, GSEL_STR("test"), &config, &err), err);
  rank_ok(run, gpt_model_create(&kSizes, &gpt_layers, &gpt, &err), err);
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.config = config;
  options.data = fill;
  rank_ok(run, gsel_trainer_create(comm, gpt.model, &options, &trainer, &err), err);
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  gsel_comm_count before[kAxes][kKinds];
  rank_ok(run, gsel_trainer_step(trainer, &report, &err), err);
  read_counts(trainer, before);
  rank_ok(run, gsel_trainer_step(trainer, &report, &err), err);
  read_counts(trainer, seen.counts);
  for (size_t axis = 0; axis < kAxes; ++axis)
    for (size_t kind = 0; kind < kKinds; ++kind) {
      seen.counts[axis][kind].calls -= before[axis][kind].calls;
      seen.counts[axis][kind].bytes_sent -= before[axis][kind].bytes_sent;
    }
  seen.bytes_sent = report.bytes_sent;
  for (int32_t i = 0; i < gsel_trainer_memory_count(trainer); ++i) {
    gsel_memory_part part = GSEL_MEMORY_PART_INIT;
    rank_ok(run, gsel_trainer_memory(trainer, i, &part, &err), err);
    seen.peak[i] = part.peak_bytes;
  }
  gsel_trainer_free(trainer);
  gpt_model_free(&gpt);
  gsel_config_free(config);
  gsel_comm_free(comm);
}

// ---- tests -------------------------------------------------------------------------------------------------------

void test_memory_and_bytes_are_those_that_ranks_take_and_count(void**) {
  const Live live;
  const GivenDurations durations;
  for (const Setup& setup : kSetups) {
    Trial trial{toml_of_setup(setup), std::vector<Seen>(static_cast<size_t>(setup.ranks))};
    as_threads(setup.ranks, train, &trial);
    const Finalist f = price(live.model(), parse_config(trial.toml, "test"), setup.ranks, {durations});
    assert_int_equal(f.ranks.size(), setup.ranks);
    for (const RankForecast& rank : f.ranks) {
      const Seen& seen = trial.seen[static_cast<size_t>(rank.rank)];
      for (size_t part = 0; part < kMemoryParts; ++part)
        if (seen.peak[part] != rank.memory[part])
          fail_msg("%s: rank %d, %s: forecast %llu bytes, taken %llu", trial.toml.c_str(), rank.rank,
                   memory_part_name(static_cast<MemoryPart>(part)), static_cast<unsigned long long>(rank.memory[part]),
                   static_cast<unsigned long long>(seen.peak[part]));
      for (gsel_axis axis = 0; axis < kAxes; ++axis)
        for (gsel_instr_kind kind = 1; kind < kKinds; ++kind) {
          const auto found = rank.traffic.find({axis, kind});
          const gsel_comm_count forecast = found == rank.traffic.end() ? gsel_comm_count{} : found->second;
          const gsel_comm_count& counted = seen.counts[axis][kind];
          if (forecast.calls != counted.calls || forecast.bytes_sent != counted.bytes_sent)
            fail_msg("%s: rank %d, axis %d, kind %d: forecast %llu calls of %llu bytes, counted %llu of %llu",
                     trial.toml.c_str(), rank.rank, axis, kind, static_cast<unsigned long long>(forecast.calls),
                     static_cast<unsigned long long>(forecast.bytes_sent),
                     static_cast<unsigned long long>(counted.calls),
                     static_cast<unsigned long long>(counted.bytes_sent));
        }
      assert_int_equal(seen.bytes_sent, rank.bytes_sent);
    }
  }
}

// Shape and sequence of the live model.
Transformer shape_of_gpt() {
  Transformer shape = gpt("gpt", kSizes.layers, kSizes.width, kSizes.heads, GPT_VOCAB, kSizes.context);
  shape.tied = false;
  return shape;
}

void test_a_described_transformer_is_forecast_as_the_program_that_it_describes(void**) {
  const Live live;
  const GivenDurations durations;
  const auto described = describe(shape_of_gpt(), {.sequence = kSizes.context, .fused_attention = false});
  for (const Setup& setup : kSetups) {
    const Config config = parse_config(toml_of_setup(setup), "test");
    const Finalist expected = price(live.model(), config, setup.ranks, {durations});
    const Finalist found = price(*described, config, setup.ranks, {durations});
    for (size_t i = 0; i < expected.ranks.size(); ++i) {
      if (expected.ranks[i].memory != found.ranks[i].memory)
        fail_msg("%s: rank %zu needs %llu bytes, its description %llu", setup.toml, i,
                 static_cast<unsigned long long>(total_bytes(expected.ranks[i].memory)),
                 static_cast<unsigned long long>(total_bytes(found.ranks[i].memory)));
      assert_int_equal(expected.ranks[i].bytes_sent, found.ranks[i].bytes_sent);
    }
  }
}

void test_one_pipeline_is_priced_as_the_whole_job(void**) {
  const auto model = describe(shape_of_gpt(), {.sequence = 16});
  GivenDurations durations;
  durations.links.fill({1e-6, 1e-9});
  durations.step_seconds_per_element = 1e-9;
  for (const char* strategy :
       {"plugin = \"ddp\"\n", "plugin = \"zero\"\nstage = 1\n", "plugin = \"zero\"\nstage = 3\n"}) {
    const Config config = parse_config(
        std::string("[mesh]\ntensor = 2\npipeline = 2\ndata = 2\n[strategy.tensor]\nplugin = \"tp\"\n" PIPELINE(
            "1f1b") "[strategy.data]\n") +
            strategy + "[train]\nbatch = 8\nmicrobatches = 4\n",
        "test");
    const CompiledJob whole(*model, config, 8), one(*model, config, 8, nullptr, 1);
    assert_true(whole.is_whole());
    assert_false(one.is_whole());
    durations.layers.assign(whole.programs().front().layers.size(), {1, 1, 1});
    const Finalist all = price(whole, {durations}), some = price(one, {durations});
    assert_int_equal(some.ranks.size(), 2);
    for (const RankForecast& rank : some.ranks) {
      const RankForecast& same = all.ranks[static_cast<size_t>(rank.rank)];
      assert_true(rank.memory == same.memory && rank.bytes_sent == same.bytes_sent);
    }
    assert_true(std::abs(all.step_s - some.step_s) <= 1e-9 * all.step_s);
  }
}

template <class Refused>
Error refusal(Refused&& refused) {
  try {
    refused();
  } catch (const Error& e) {
    return e;
  }
  fail_msg("it was not refused");
  throw std::logic_error("not reached");
}

void test_what_does_not_fit_or_compile_is_refused(void**) {
  const auto model = describe(shape_of_gpt(), {.sequence = 16});
  const GivenDurations durations;
  const Config config = parse_config("[train]\nbatch = 8\n", "test");
  const Finalist fits = price(*model, config, 2, {durations});
  price(*model, config, 2, {durations, {}, fits.most_bytes()});
  const Error small = refusal([&] { price(*model, config, 2, {durations, {}, fits.most_bytes() - 1}); });
  assert_int_equal(small.code(), GSEL_ERR_NOMEM);
  assert_non_null(strstr(small.message().c_str(), "rank 0 of 2 needs"));
  const Config stages = parse_config(
      "[mesh]\ndata = 1\npipeline = 64\n" PIPELINE("1f1b") "[train]\nbatch = 64\nmicrobatches = 64\n", "test");
  refusal([&] { price(*model, stages, 64, {durations}); });
}

// Everything that the search finds for a small transformer on a few devices.
void test_candidates_of_a_search_compile_fit_and_take_what_was_forecast(void**) {
  const Transformer shape = gpt("small", 8, 256, 8, 512, 128);
  const auto model = describe(shape, {.sequence = 128, .dtype = GSEL_BF16});
  gsel::plan::Request request;
  request.workload = workload_of(shape, 128);
  request.cluster = cluster_of("8xA100", {});
  request.recipe = *find_recipe("gsel-bf16");
  request.batch = 32;
  request.constants = constants_for(request.cluster.kinds.front().device_class, runtime_of(request.recipe));
  const Plan plan(request, {});
  assert_true(plan.candidates().size() > 8);
  for (const Candidate& candidate : plan.candidates()) {
    const Finalist f = price(plan.input(), candidate, toml_of(request, candidate), *model);
    assert_int_equal(f.mesh.world_size(), candidate.layout.ranks());
    assert_int_equal(f.mesh.size[GSEL_AXIS_PIPELINE], candidate.layout.pipeline);
    assert_int_equal(f.mesh.size[GSEL_AXIS_TENSOR], candidate.layout.tensor);
    assert_true(f.step_s > 0 && f.bubble > -1e-9 && f.exposed > -1e-9 && f.bubble + f.exposed < 1);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_and_bytes_are_those_that_ranks_take_and_count),
      cmocka_unit_test(test_a_described_transformer_is_forecast_as_the_program_that_it_describes),
      cmocka_unit_test(test_one_pipeline_is_priced_as_the_whole_job),
      cmocka_unit_test(test_what_does_not_fit_or_compile_is_refused),
      cmocka_unit_test(test_candidates_of_a_search_compile_fit_and_take_what_was_forecast),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
