// unit/test_step_pipeline.cc: the executor on programs with messages: every rank of a pipeline computes its stages,
// and parameters, losses and answers to questions are those of one rank, bit for bit.
#include <atomic>
#include <cmath>

#include "api/handles.h"
#include "support/exact_model.h"
#include "support/pipeline_lowering.h"
#include "support/ranks.h"
#include "train/compile/base_program.h"
#include "train/query/inference.h"
#include "train/query/whole_params.h"

namespace {

using namespace gsel;

constexpr int kSteps = 3;

struct Outcome {
  std::vector<float> params[N_PARAMS];
  double losses[kSteps] = {}, weights[kSteps] = {}, norms[kSteps] = {};
  double evaluated = 0;
  std::vector<float> logits;
  gsel_comm_count sent{}, received{}, tied{};
  double largest = 0;  // magnitude of a sum: f32 is exact below 2^24
};

struct Trial {
  std::string config;
  int32_t data = 1, pipeline = 1, transfers = 2;
  made::Cut cut{{}, {0}};
  bool halves = false;
  int fail_at_step = -1, fail_on_rank = -1;
  int32_t other_values_on = -1;  // this rank's initial values are others
  Outcome* out = nullptr;        // by rank
};

std::string text(int32_t batch, int32_t microbatch, const char* more = "") {
  return fmt::format(
      "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = {}\nmicrobatch = {}\n{}",
      batch, microbatch, more);
}

Program lowered(const Trial& t, const Model& model, const Config& config, int32_t rank) {
  const Mesh mesh = made::pipeline_mesh(t.data, t.pipeline);
  const int32_t pipeline_rank = mesh.coordinate(rank, GSEL_AXIS_PIPELINE);
  const auto m = static_cast<int32_t>(base_program(model, config, mesh, rank).microbatches.size());
  Program program = made::lower_pipeline(model, config, mesh, rank, t.cut,
                                         t.halves ? made::all_forward_all_backward(t.cut, pipeline_rank, m)
                                                  : made::one_forward_one_backward(pipeline_rank, t.pipeline, m));
  program.transfers = t.transfers;
  return program;
}

void run_program(const Model& model, Executor& executor) {
  for (gsel_work work = executor.next(); work.kind != GSEL_WORK_DONE; work = executor.next()) {
    gsel_status status = GSEL_OK;
    if (work.kind == GSEL_INPUT) {
      status = exact_data(work.input, nullptr);
    } else {
      const Layer& layer = model.layers()[work.call->layer];
      const gsel_layer_fn call = work.kind == GSEL_FORWARD           ? layer.forward
                                 : work.kind == GSEL_BACKWARD_INPUT  ? layer.backward_input
                                 : work.kind == GSEL_BACKWARD_WEIGHT ? layer.backward_weight
                                                                     : layer.backward;
      status = call(work.call, layer.user_data);
    }
    executor.complete(work.ticket, status, executor.callback_message());
  }
}

void ask(const Model& model, const Program& program, Executor& executor, Outcome& out) {
  WholeParams whole(executor, model, program);
  for (int p = 0; p < N_PARAMS; ++p) {
    out.params[p].resize(kExactElems[p]);
    whole.read(p, out.params[p].data());
  }
  out.logits.resize(2 * TOKENS * VOCAB);
  Inference inference(executor, model, model, program, V_LOGITS, 2);
  inference.run({exact_data, nullptr}, 1, out.logits.data());
}

void train(const Trial& t, gsel_comm* comm, int32_t rank) {
  exact_model m{};
  m.fail_at_step = t.fail_at_step;
  m.fail_on_rank = t.fail_on_rank;
  m.random = rank == t.other_values_on;
  m.rank = rank;
  m.overflow_at_step = -1;
  gsel_model described;
  gsel_error* err = nullptr;
  const gsel_status status = exact_describe(&described, &m, &err);
  throw_if_failed(status, err);
  Model& model = *described.impl;
  model.finish();
  const Config config = made::config(t.config);
  const Optimizer optimizer(config, model, nullptr);
  const Program program = lowered(t, model, config, rank);
  Executor executor(model, program, config, optimizer, comm->impl);
  executor.params().initialise(5);
  executor.run_setup();
  Outcome& out = t.out[rank];
  for (int i = 0; i < kSteps; ++i) {
    run_program(model, executor);
    const gsel_step_report& report = executor.last_step()->report;
    out.losses[i] = report.loss_sum;
    out.weights[i] = report.weight;
    out.norms[i] = report.gradient_norm;
  }
  executor.begin_evaluation(100);
  run_program(model, executor);
  out.evaluated = executor.last_evaluation()->loss_sum;
  out.sent = executor.counts(GSEL_INSTR_SEND, GSEL_AXIS_PIPELINE);
  out.received = executor.counts(GSEL_INSTR_RECV, GSEL_AXIS_PIPELINE);
  out.tied = executor.counts(GSEL_INSTR_ALLREDUCE_TIED, GSEL_AXIS_PIPELINE);
  const MemoryPartBytes forecast = executor.forecast(), peak = executor.ledger().peak();
  for (size_t i = 0; i < kMemoryParts; ++i)
    if (forecast[i] != peak[i])
      throw Error(GSEL_ERR_INTERNAL, fmt::format("{}: forecast {} bytes, taken {}",
                                                 memory_part_name(static_cast<MemoryPart>(i)), forecast[i], peak[i]));
  out.largest = m.largest;
  ask(model, program, executor, out);
}

void train_rank(rank_run* run) {
  const Trial& t = *static_cast<const Trial*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->timeout_s = 20;
  rank_ok(run, rank_join(run, &comm, &err), err);
  try {
    train(t, comm, run->rank);
  } catch (const Error& e) {
    snprintf(run->failure, sizeof run->failure, "rank %d: %s", run->rank, e.what());
  }
  gsel_comm_free(comm);
}

std::vector<Outcome> outcomes(Trial t) {
  const int32_t world = t.data * t.pipeline;
  std::vector<Outcome> out(world);
  t.out = out.data();
  as_threads(world, train_rank, &t);
  return out;
}

void expect_equal(const Outcome& got, const Outcome& expected, const std::string& what) {
  for (int p = 0; p < N_PARAMS; ++p)
    if (got.params[p] != expected.params[p]) fail_msg("%s: parameter %d differs", what.c_str(), p);
  for (int i = 0; i < kSteps; ++i)
    if (got.losses[i] != expected.losses[i] || got.weights[i] != expected.weights[i] ||
        std::abs(got.norms[i] - expected.norms[i]) > 1e-12 * expected.norms[i])
      fail_msg("%s: step %d reports loss %g, weight %g, norm %g; %g, %g, %g on one rank", what.c_str(), i,
               got.losses[i], got.weights[i], got.norms[i], expected.losses[i], expected.weights[i], expected.norms[i]);
  if (got.evaluated != expected.evaluated) fail_msg("%s: the evaluation differs", what.c_str());
  if (got.logits != expected.logits) fail_msg("%s: inferred logits differ", what.c_str());
}

const made::Cut kCuts[] = {
    {{L_FC2}, {0, 1}},                        // x skips into the second stage, the table is tied
    {{L_FC1, L_ADD}, {0, 1, 2}},              // x passes a rank that reads it
    {{L_CLIP, L_FC2, L_HEAD}, {0, 1, 2, 3}},  // x is relayed to where it is read
    {{L_FC1, L_CLIP, L_FC2, L_ADD, L_HEAD, L_LOSS}, {0, 1, 2, 3, 4, 5, 6}},
    {{L_FC1, L_FC2, L_ADD}, {0, 1, 0, 1}},  // two stages on a rank
    {{L_FC1, L_FC2, L_ADD}, {0, 1, 1, 0}},  // a V: nothing is sent where it turns
    {{L_FC1, L_CLIP, L_FC2, L_ADD, L_HEAD}, {0, 1, 2, 2, 1, 0}},
};

int32_t pipeline_size(const made::Cut& cut) {
  return 1 + std::ranges::max(cut.rank_of_stage);
}

Outcome alone(const std::string& config) {
  return outcomes({.config = config})[0];
}

void pipelines_compute_what_one_rank_does(void**) {
  for (int32_t microbatches : {1, 2, 4, 7}) {
    const std::string config = text(28, 28 / microbatches, "clip_norm = 1e9\n");
    const Outcome expected = alone(config);
    assert_true(expected.norms[0] > 0);
    for (size_t c = 0; c < std::size(kCuts); ++c)
      for (bool halves : {false, true}) {
        const made::Cut& cut = kCuts[c];
        if (!halves && static_cast<size_t>(pipeline_size(cut)) != cut.rank_of_stage.size()) continue;
        for (int32_t transfers : {1, 2, 8}) {
          // Ranks that send to each other and have two stages need room for what crosses.
          if (transfers < 8 && static_cast<size_t>(pipeline_size(cut)) != cut.rank_of_stage.size()) continue;
          const auto got = outcomes(
              {.config = config, .pipeline = pipeline_size(cut), .transfers = transfers, .cut = cut, .halves = halves});
          for (size_t r = 0; r < got.size(); ++r)
            expect_equal(got[r], expected,
                         fmt::format("{} micro-batches, cut {}, {}, {} transfers, rank {}", microbatches, c,
                                     halves ? "halves" : "1f1b", transfers, r));
        }
      }
  }
}

// Messages that do not fit the communicator's buffers: in slots, and read where they stand.
void large_messages_are_under_way_beside_the_computation(void**) {
  for (int32_t microbatch : {112, 1400}) {
    const std::string config = text(4 * microbatch, microbatch);
    const Outcome expected = alone(config);
    assert_true(expected.largest < 1 << 24);
    for (size_t c : {size_t{0}, size_t{2}, size_t{5}})
      for (int32_t transfers : {1, 2, 8}) {
        if (c == 5 && transfers < 8) continue;
        const auto got = outcomes({.config = config,
                                   .pipeline = pipeline_size(kCuts[c]),
                                   .transfers = transfers,
                                   .cut = kCuts[c],
                                   .halves = c == 5});
        for (size_t r = 0; r < got.size(); ++r)
          expect_equal(got[r], expected, fmt::format("micro-batches of {}, cut {}, rank {}", microbatch, c, r));
      }
  }
}

// Pipeline rank 1 has the tied table alone, and begins with another one.
void tied_parameters_begin_alike_wherever_they_are(void**) {
  const std::string config = text(12, 3);
  const Outcome expected = alone(config);
  const auto got = outcomes({.config = config, .pipeline = 2, .cut = {{L_HEAD}, {0, 1}}, .other_values_on = 1});
  for (const Outcome& out : got) expect_equal(out, expected, "another table on pipeline rank 1");
}

void pipelines_on_a_data_axis_compute_what_one_rank_does(void**) {
  const std::string config = text(24, 2, "clip_norm = 1e9\n");
  const Outcome expected = alone(config);
  for (size_t c = 0; c < 3; ++c) {
    const auto got = outcomes(
        {.config = text(24, 2, "clip_norm = 1e9\n"), .data = 2, .pipeline = pipeline_size(kCuts[c]), .cut = kCuts[c]});
    for (size_t r = 0; r < got.size(); ++r) expect_equal(got[r], expected, fmt::format("cut {}, rank {}", c, r));
  }
}

// One cut between clip and fc2: r and x go, their gradients come back; the table is summed.
void what_is_sent_is_counted_under_the_pipeline(void**) {
  const auto got = outcomes({.config = text(28, 7), .pipeline = 2, .cut = kCuts[0]});
  const uint64_t one_way = 2 * 28 * TOKENS * WIDTH * sizeof(float);
  for (const Outcome& out : got) {
    assert_int_equal(out.sent.bytes_sent, kSteps * one_way);
    assert_int_equal(out.sent.calls, kSteps * 2 * 4);
    assert_int_equal(out.received.calls, kSteps * 2 * 4);
    assert_int_equal(out.received.bytes_sent, 0);
    assert_int_equal(out.tied.calls, kSteps);
    assert_int_equal(out.tied.bytes_sent, kSteps * sizeof(float) * VOCAB * WIDTH);
  }
}

// ---- failures -----------------------------------------------------------------------------------------------

struct FaultTrial {
  Trial trial;
  int32_t failing;
};

void fail_rank(rank_run* run) {
  FaultTrial fault = *static_cast<const FaultTrial*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  std::vector<Outcome> out(fault.trial.data * fault.trial.pipeline);
  fault.trial.out = out.data();
  run->timeout_s = 50;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const double began = os::now_seconds();
  gsel_status code = GSEL_OK;
  std::string message;
  int32_t about = -1;
  try {
    train(fault.trial, comm, run->rank);
  } catch (const Error& e) {
    code = e.code();
    message = e.message();
    about = e.rank();
  }
  gsel_comm_free(comm);
  const bool failed_here = run->rank == fault.failing;
  const bool as_it_should = code == (failed_here ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED) && about == fault.failing &&
                            message.find("layer \"head\" failed in forward on rank") != std::string::npos &&
                            message.find("the numbers were not right") != std::string::npos &&
                            os::now_seconds() - began < 20;
  if (!as_it_should)
    snprintf(run->failure, sizeof run->failure, "rank %d: %s about %d: %s", run->rank, gsel_status_name(code), about,
             message.c_str());
}

// Ranks of other stages and of other replicas hear the same reason, whoever they wait for.
void a_failing_stage_ends_the_step_everywhere_with_its_reason(void**) {
  for (int32_t data : {1, 2, 3})
    for (size_t c : {size_t{0}, size_t{1}, size_t{5}})
      for (int step : {0, 1}) {
        const int32_t pipeline = pipeline_size(kCuts[c]);
        const int32_t pipeline_rank = c == 5 ? 0 : pipeline - 1;  // of the head
        for (int32_t replica = 0; replica < data; ++replica) {
          FaultTrial fault{{.config = text(24, 2),
                            .data = data,
                            .pipeline = pipeline,
                            .transfers = 16,
                            .cut = kCuts[c],
                            .halves = c == 5,
                            .fail_at_step = step,
                            .fail_on_rank = pipeline_rank * data + replica},
                           pipeline_rank * data + replica};
          as_threads(data * pipeline, fail_rank, &fault);
        }
      }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(pipelines_compute_what_one_rank_does),
      cmocka_unit_test(large_messages_are_under_way_beside_the_computation),
      cmocka_unit_test(tied_parameters_begin_alike_wherever_they_are),
      cmocka_unit_test(pipelines_on_a_data_axis_compute_what_one_rank_does),
      cmocka_unit_test(what_is_sent_is_counted_under_the_pipeline),
      cmocka_unit_test(a_failing_stage_ends_the_step_everywhere_with_its_reason),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
