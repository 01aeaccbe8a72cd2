// api/state.cc: gsel/state.h.
#include <gsel/state.h>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "checkpoint/rebind.h"
#include "train/query/state_dict.h"

struct gsel_state {
  gsel_trainer& of;
  gsel::StateDict dict;
  uint64_t version;                       // of the trainer, when it was opened
  std::vector<std::vector<size_t>> held;  // by tensor: its pieces, as indices in dict.held()
  std::vector<gsel::UserState> own;

  gsel::Trainer& trainer() const { return of.impl(); }
};

namespace {

gsel_state& current(gsel_state* given) {
  gsel_state& state = gsel::required(given, "state");
  state.trainer().refuse_lost_state();
  if (state.trainer().version() != state.version)
    gsel::fail(GSEL_ERR_STATE, "the trainer has gone on since gsel_state_open; open its state again");
  return state;
}
const gsel_state& current(const gsel_state* given) {
  return current(const_cast<gsel_state*>(given));
}

const gsel::StateTensor& tensor_of(const gsel_state& state, int32_t i) {
  gsel::check_index(i, state.dict.tensors().size(), "i");
  return state.dict.tensors()[static_cast<size_t>(i)];
}

const gsel::StatePiece& piece_of(const gsel_state& state, int32_t i, int32_t piece) {
  tensor_of(state, i);
  const std::vector<size_t>& pieces = state.held[static_cast<size_t>(i)];
  gsel::check_index(piece, pieces.size(), "piece");
  return state.dict.held()[pieces[static_cast<size_t>(piece)]];
}

void check_range(int64_t first, int64_t count, int64_t all) {
  if (first < 0 || count < 0 || first > all - count)
    gsel::fail(GSEL_ERR_ARG, "{} elements from {} on were asked for; there are {}", count, first, all);
}

int64_t elems_of(const gsel::StateTensor& tensor) {
  return gsel::Region(tensor.shape).count();
}

}  // namespace

extern "C" {

void gsel_state_entry_init(gsel_state_entry* entry, size_t struct_size) {
  gsel::init_struct(entry, struct_size);
}
void gsel_state_own_init(gsel_state_own* own, size_t struct_size) {
  gsel::init_struct(own, struct_size);
}
void gsel_training_numbers_init(gsel_training_numbers* numbers, size_t struct_size) {
  gsel::init_struct(numbers, struct_size);
}

gsel_status gsel_state_open(gsel_trainer* trainer, gsel_state** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::Trainer& impl = gsel::required(trainer, "trainer").impl();
    gsel::StateDict dict = impl.begin_state(gsel::JointCall::read_state);
    std::unique_ptr<gsel_state> state(
        new gsel_state{*trainer, std::move(dict), impl.version(), {}, impl.user_states()});
    state->held.resize(state->dict.tensors().size());
    for (size_t p = 0; p < state->dict.held().size(); ++p)
      if (const gsel::StatePiece& held = state->dict.held()[p]; !held.is_rounded)
        state->held[static_cast<size_t>(held.tensor)].push_back(p);
    *out = state.release();
  });
}

void gsel_state_free(gsel_state* state) {
  delete state;
}

int32_t gsel_state_count(const gsel_state* state) {
  return state ? static_cast<int32_t>(state->dict.tensors().size()) : 0;
}

gsel_status gsel_state_entry_at(const gsel_state* state, int32_t i, gsel_state_entry* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel_state& of = current(state);
    const gsel::StateTensor& tensor = tensor_of(of, i);
    gsel_state_entry entry{};
    entry.name = gsel::borrow(tensor.name);
    entry.role = {tensor.name.data(), tensor.name.find(':')};
    entry.param = tensor.param;
    entry.dtype = GSEL_F32;
    entry.n_dims = static_cast<int32_t>(tensor.shape.size());
    entry.n_pieces = static_cast<int32_t>(of.held[static_cast<size_t>(i)].size());
    std::ranges::copy(tensor.shape, entry.shape);
    gsel::write_struct(out, entry, "gsel_state_entry");
  });
}

gsel_status gsel_state_runs(const gsel_state* state, int32_t i, int32_t piece, gsel_state_run* runs, int64_t capacity,
                            int64_t* total, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (capacity < 0) gsel::fail(GSEL_ERR_ARG, "capacity is {}", capacity);
    if (capacity > 0) gsel::required(runs, "runs");
    int64_t n = 0;
    gsel::Region::Cursor cursor(piece_of(current(state), i, piece).region);
    for (auto run = cursor.next(); run; run = cursor.next(), ++n)
      if (n < capacity) runs[n] = {run->whole, run->local, run->count};
    if (total) *total = n;
  });
}

gsel_status gsel_state_read_piece(gsel_state* state, int32_t i, int32_t piece, int64_t first, int64_t count, float* dst,
                                  gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_state& of = current(state);
    const gsel::StatePiece& held = piece_of(of, i, piece);
    check_range(first, count, held.region.count());
    if (count > 0) of.dict.read(held.some(first, count), &gsel::required(dst, "dst"));
  });
}

gsel_status gsel_state_read(gsel_state* state, int32_t i, int64_t first, int64_t count, float* dst, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_state& of = current(state);
    check_range(first, count, elems_of(tensor_of(of, i)));
    gsel::read_together(of.trainer().comm(), of.dict, i, first, count, dst);
  });
}

gsel_status gsel_state_write(gsel_state* state, int32_t i, int64_t first, int64_t count, const float* src,
                             int64_t* written, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_state& of = current(state);
    check_range(first, count, elems_of(tensor_of(of, i)));
    if (count > 0) gsel::required(src, "src");
    of.trainer().mark_written();
    const int64_t n = of.dict.write_whole(i, first, count, src);
    if (written) *written = n;
  });
}

gsel_status gsel_state_numbers(const gsel_state* state, gsel_training_numbers* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel::TrainingNumbers numbers = current(state).trainer().numbers();
    gsel_training_numbers all{};
    all.step = numbers.step;
    all.updates = numbers.updates;
    all.first_sample = numbers.first_sample;
    all.seed = numbers.seed;
    all.loss_scale = numbers.loss_scale;
    all.good_steps = numbers.good_steps;
    all.overflows_left = numbers.overflows_left;
    all.learning_rate = numbers.learning_rate.value_or(-1);
    gsel::write_struct(out, all, "gsel_training_numbers");
  });
}

gsel_status gsel_state_set_numbers(gsel_state* state, const gsel_training_numbers* numbers, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_state& of = current(state);
    const auto given = gsel::read_struct(numbers, "gsel_training_numbers");
    if (given.step < 0 || given.updates < 0 || given.updates > given.step || given.first_sample < 0 || given.seed < 0 ||
        given.good_steps < 0 || given.overflows_left < 0)
      gsel::fail(GSEL_ERR_ARG,
                 "step {}, updates {}, first_sample {}, seed {}, good_steps {}, overflows_left {}; expected none below "
                 "0, and updates of step at most",
                 given.step, given.updates, given.first_sample, given.seed, given.good_steps, given.overflows_left);
    if (given.step > gsel::kMostSteps || given.good_steps > gsel::kMostSteps ||
        given.first_sample > gsel::kMostFirstSample)
      gsel::fail(GSEL_ERR_ARG, "step {}, good_steps {}, first_sample {}; expected at most {}, {} and {}", given.step,
                 given.good_steps, given.first_sample, gsel::kMostSteps, gsel::kMostSteps, gsel::kMostFirstSample);
    if (!(given.loss_scale > 0) || !std::isfinite(given.loss_scale) || !std::isfinite(given.learning_rate))
      gsel::fail(GSEL_ERR_ARG, "loss_scale is {} and learning_rate {}; expected finite numbers, the first positive",
                 given.loss_scale, given.learning_rate);
    gsel::TrainingNumbers all;
    all.step = given.step;
    all.updates = given.updates;
    all.first_sample = given.first_sample;
    all.seed = given.seed;
    all.loss_scale = given.loss_scale;
    all.good_steps = given.good_steps;
    all.overflows_left = given.overflows_left;
    if (given.learning_rate >= 0) all.learning_rate = given.learning_rate;
    of.trainer().go_on_from(all);
  });
}

gsel_status gsel_trainer_add_state(gsel_trainer* trainer, gsel_str name, void* data, size_t bytes, int32_t scope,
                                   gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_trainer& of = gsel::required(trainer, "trainer");
    if (scope != GSEL_STATE_SHARED && scope != GSEL_STATE_OF_RANK)
      gsel::fail(GSEL_ERR_ARG, "scope is {}; use GSEL_STATE_SHARED or GSEL_STATE_OF_RANK", scope);
    of.impl().add_state({gsel::text(name), data, bytes, scope == GSEL_STATE_OF_RANK});
  });
}

int32_t gsel_state_own_count(const gsel_state* state) {
  return state ? static_cast<int32_t>(state->own.size()) : 0;
}

gsel_status gsel_state_own_at(const gsel_state* state, int32_t i, gsel_state_own* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const std::vector<gsel::UserState>& all = current(state).own;
    gsel::check_index(i, all.size(), "i");
    const gsel::UserState& of = all[static_cast<size_t>(i)];
    gsel_state_own own{};
    own.scope = of.is_of_rank ? GSEL_STATE_OF_RANK : GSEL_STATE_SHARED;
    own.name = gsel::borrow(of.name);
    own.data = of.data;
    own.bytes = of.bytes;
    gsel::write_struct(out, own, "gsel_state_own");
  });
}

// ---- a change of ranks ----------------------------------------------------------------------------------------------

void gsel_rebind_options_init(gsel_rebind_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_rebind_report_init(gsel_rebind_report* report, size_t struct_size) {
  gsel::init_struct(report, struct_size);
}

gsel_status gsel_trainer_rebind(gsel_trainer* trainer, gsel_comm* comm, const gsel_rebind_options* options,
                                gsel_rebind_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_trainer& of = gsel::required(trainer, "trainer");
    gsel::required(comm, "comm");
    if (report) gsel::stated_size(report, "gsel_rebind_report");
    gsel_rebind_options given{};
    if (options) given = gsel::read_struct(options, "gsel_rebind_options");
    of.end_background_save();
    gsel::checkpoint::Rebound rebound = gsel::checkpoint::rebind(
        of.impl(), comm->impl, given.config ? &given.config->impl : nullptr, gsel::text(given.folder));
    of.replace(std::move(rebound.trainer));
    if (report) gsel::write_struct(report, rebound.report, "gsel_rebind_report");
  });
}

gsel_status gsel_trainer_join(gsel_comm* comm, gsel_model* model, const gsel_trainer_options* trainer_options,
                              const gsel_rebind_options* rebind, gsel_trainer** out, gsel_rebind_report* report,
                              gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::required(comm, "comm");
    if (report) gsel::stated_size(report, "gsel_rebind_report");
    gsel_rebind_options given{};
    if (rebind) given = gsel::read_struct(rebind, "gsel_rebind_options");
    auto made = gsel::make_trainer(comm, model, trainer_options);
    const gsel_rebind_report joined = gsel::checkpoint::join(made->impl(), gsel::text(given.folder));
    if (report) gsel::write_struct(report, joined, "gsel_rebind_report");
    *out = made.release();
  });
}

}  // extern "C"
