// See program_maker.h.
#include "support/program_maker.h"

#include <algorithm>

namespace gsel::test {

const char* name_of(Strategy strategy) {
  static const char* const names[] = {"ddp", "zero1", "zero2", "zero3", "dp"};
  return names[static_cast<int>(strategy)];
}

namespace {

class ProgramMaker {
 public:
  explicit ProgramMaker(const Wanted& wanted) : wanted_(wanted) {}

  std::vector<Program> all() {
    std::vector<Program> programs;
    for (int32_t rank = 0; rank < wanted_.ranks; ++rank) programs.push_back(one(rank));
    return programs;
  }

 private:
  bool is(Strategy s) const { return wanted_.strategy == s; }
  bool is_master() const { return p_.rank == 0; }

  Program one(int32_t rank) {
    p_ = {};
    under_way_.assign(3, false);
    p_.rank = rank;
    p_.mesh.size = {1, wanted_.ranks, 1, 1};
    make_model();
    make_buckets();
    make_microbatches();
    if (!is(Strategy::dp))
      for (int32_t b = 0; b < 3; ++b)
        if (!p_.buckets[b].shards_param()) {
          bucket(p_.setup, GSEL_INSTR_BROADCAST, b);
          bucket(p_.setup, GSEL_INSTR_WAIT, b);
        }
    make_step();
    return std::move(p_);
  }

  void make_model() {
    p_.params = {{"table", 12}, {"w1", 9}, {"b1", 3}, {"w2", 5}, {"fixed", 4, GSEL_F32, false}};
    p_.values = {{"tokens", 8, true},
                 {"targets", 4, true},
                 {"x0", 16, false, false, true},
                 {"x1", 16, false, false, true},
                 {"x2", 16, false, false, true},
                 {"logits", 24, false, false, true},
                 {"loss", 8, false, true},
                 {"weight", 8, false, true}};
    p_.layers.resize(5);
    auto set = [&](int32_t l, const char* name, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
                   std::vector<int32_t> params, bool backward_input, bool backward_weight, uint64_t unread) {
      ProgramLayer& layer = p_.layers[l];
      layer.name = name;
      layer.inputs = std::move(inputs);
      layer.outputs = std::move(outputs);
      layer.params = std::move(params);
      layer.is_loss = l == LOSS_LAYER;
      layer.needs_backward_input = backward_input;
      layer.needs_backward_weight = backward_weight;
      layer.backward_unread_params = unread;
    };
    set(EMBED, "embed", {TOKENS}, {X0}, {TABLE, FIXED}, false, true, 1);
    set(FC1, "fc1", {X0}, {X1}, {W1, B1}, true, true, 2);
    set(MIX, "mix", {X0, X1}, {X2}, {}, true, false, 0);
    set(HEAD, "head", {X2}, {LOGITS}, {W2, TABLE}, true, true, 0);
    set(LOSS_LAYER, "loss", {LOGITS, TARGETS}, {LOSS, WEIGHT}, {}, true, false, 0);
    if (wanted_.phases) {
      p_.layers[FC1].forward_phases = {{GSEL_AXIS_DATA, 16, 0, GSEL_F64}, {GSEL_AXIS_DATA, 12}};
      p_.layers[FC1].backward_phases = {{GSEL_AXIS_DATA, 8, 0, GSEL_F64}};
    }
  }

  void make_buckets() {
    constexpr uint32_t flags[] = {0, GSEL_BUCKET_SHARD_STATE, GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT,
                                  GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT | GSEL_BUCKET_SHARD_PARAM, 0};
    for (const std::vector<int32_t>& params : std::vector<std::vector<int32_t>>{{TABLE}, {W1, B1}, {W2}}) {
      ProgramBucket b;
      b.params = params;
      b.flags = flags[static_cast<int>(wanted_.strategy)];
      if (is(Strategy::zero3) && params[0] == W2) b.flags &= ~GSEL_BUCKET_SHARD_PARAM;
      if (is(Strategy::dp)) b.owner = 0;
      if (b.flags || is(Strategy::dp)) b.axis = GSEL_AXIS_DATA;
      p_.buckets.push_back(std::move(b));
    }
  }

  // As even as can be; the last of them without samples when the batch is small. dp: parts, then their wholes.
  void make_microbatches() {
    const int64_t m = wanted_.microbatches, n = wanted_.ranks;
    auto even = [](int64_t count, int64_t parts, int64_t i) {
      return i * (count / parts) + std::min(i, count % parts);
    };
    std::vector<Microbatch> wholes;
    for (int64_t i = 0; i < m; ++i) {
      const int64_t first = even(wanted_.batch, m, i), count = even(wanted_.batch, m, i + 1) - first;
      const int64_t begin = even(count, n, p_.rank), end = even(count, n, p_.rank + 1);
      const int32_t whole = is(Strategy::dp) ? static_cast<int32_t>(m + i) : -1;
      p_.microbatches.push_back({first + begin, end - begin, whole});
      wholes.push_back({first, count, -1});
    }
    if (is(Strategy::dp)) p_.microbatches.insert(p_.microbatches.end(), wholes.begin(), wholes.end());
  }

  // ---- instructions ----

  void layer(gsel_instr_kind kind, int32_t l, int32_t mb) {
    gsel_instr instr = make_instr(kind);
    instr.layer = l;
    instr.microbatch = mb;
    p_.step.push_back(instr);
  }
  void value(gsel_instr_kind kind, int32_t v, int32_t mb, uint32_t flags = 0) {
    gsel_instr instr = make_instr(kind);
    instr.value = v;
    instr.microbatch = mb;
    instr.flags = flags;
    if (kind != GSEL_INPUT) {
      instr.axis = GSEL_AXIS_DATA;
      instr.peer = 0;
    }
    p_.step.push_back(instr);
  }
  void bucket(std::vector<gsel_instr>& list, gsel_instr_kind kind, int32_t b) {
    gsel_instr instr = make_instr(kind);
    const InstrRow* row = find_instr_row(kind);
    instr.bucket = b;
    if (row->axis) instr.axis = GSEL_AXIS_DATA;
    if (row->peer) instr.peer = 0;
    list.push_back(instr);
    if (row->axis) under_way_[b] = true;
    if (kind == GSEL_INSTR_WAIT) under_way_[b] = false;
  }
  void bucket(gsel_instr_kind kind, int32_t b) { bucket(p_.step, kind, b); }
  void plain(gsel_instr_kind kind) {
    gsel_instr instr = make_instr(kind);
    if (kind != GSEL_INSTR_NORM) instr.axis = GSEL_AXIS_DATA;
    p_.step.push_back(instr);
  }
  void settle(int32_t b) {
    if (under_way_[b]) bucket(GSEL_INSTR_WAIT, b);
  }

  // ---- the step ----

  int32_t bucket_of(int32_t param) const {
    for (int32_t b = 0; b < 3; ++b)
      if (std::ranges::count(p_.buckets[b].params, param)) return b;
    return -1;
  }

  // A callback between the gathers and releases that it needs.
  void callback(gsel_instr_kind kind, int32_t l, int32_t mb) {
    const ProgramLayer& layer_ = p_.layers[l];
    const bool forward = kind == GSEL_FORWARD || kind == GSEL_INSTR_RECOMPUTE;
    std::vector<int32_t> windows;
    for (size_t i = 0; i < layer_.params.size(); ++i) {
      const int32_t b = bucket_of(layer_.params[i]);
      const bool reads = kind != GSEL_BACKWARD_WEIGHT && (forward || !(layer_.backward_unread_params >> i & 1));
      if (b >= 0 && p_.buckets[b].shards_param() && reads && !std::ranges::count(windows, b)) windows.push_back(b);
    }
    for (int32_t b : windows) {
      settle(b);
      bucket(GSEL_INSTR_ALLGATHER, b);
    }
    for (int32_t b : windows) settle(b);
    layer(kind, l, mb);
    for (int32_t b : windows) bucket(GSEL_INSTR_RELEASE, b);
  }

  void forwards(int32_t mb) {
    if (!is(Strategy::dp)) {
      for (int32_t v : {TOKENS, TARGETS}) value(GSEL_INPUT, v, mb);
      for (int32_t l = EMBED; l <= LOSS_LAYER; ++l) callback(GSEL_FORWARD, l, mb);
      return;
    }
    const int32_t whole = p_.microbatches[mb].whole;
    if (is_master())
      for (int32_t v : {TOKENS, TARGETS}) value(GSEL_INPUT, v, whole);
    value(GSEL_INSTR_SCATTER, TOKENS, mb);
    for (int32_t l = EMBED; l < LOSS_LAYER; ++l) callback(GSEL_FORWARD, l, mb);
    value(GSEL_INSTR_GATHER, LOGITS, mb);
    if (is_master()) callback(GSEL_FORWARD, LOSS_LAYER, whole);
  }

  // The reduction that follows the last contribution to a bucket of this micro-batch.
  void reduce(int32_t b, int32_t mb) {
    const bool every = p_.buckets[b].shards_gradient();
    if (!every && mb + 1 < wanted_.microbatches) return;
    settle(b);
    bucket(is(Strategy::dp)    ? GSEL_INSTR_REDUCE
           : is(Strategy::ddp) ? GSEL_INSTR_ALLREDUCE
                               : GSEL_INSTR_REDUCE_SCATTER,
           b);
    if (every) settle(b);
  }

  void backwards(int32_t mb) {
    const int32_t whole = is(Strategy::dp) ? p_.microbatches[mb].whole : mb;
    if (!is(Strategy::dp) || is_master()) callback(GSEL_BACKWARD, LOSS_LAYER, whole);
    if (is(Strategy::dp)) value(GSEL_INSTR_SCATTER, LOGITS, mb, GSEL_INSTR_GRADIENT);
    halves(HEAD, mb);
    reduce(2, mb);
    if (wanted_.recompute) {
      callback(GSEL_INSTR_RECOMPUTE, FC1, mb);
      callback(GSEL_INSTR_RECOMPUTE, MIX, mb);
    }
    callback(GSEL_BACKWARD_INPUT, MIX, mb);
    halves(FC1, mb);
    reduce(1, mb);
    callback(GSEL_BACKWARD_WEIGHT, EMBED, mb);
    reduce(0, mb);
  }

  void halves(int32_t l, int32_t mb) {
    if (!wanted_.split) return callback(GSEL_BACKWARD, l, mb);
    callback(GSEL_BACKWARD_INPUT, l, mb);
    callback(GSEL_BACKWARD_WEIGHT, l, mb);
  }

  void make_step() {
    if (is(Strategy::dp)) {
      for (int32_t b = 0; b < 3; ++b) bucket(GSEL_INSTR_BROADCAST, b);
      for (int32_t b = 0; b < 3; ++b) settle(b);
    }
    for (int32_t mb = 0; mb < wanted_.microbatches; ++mb) {
      forwards(mb);
      backwards(mb);
    }
    plain(GSEL_INSTR_LOSS_ALLREDUCE);
    for (int32_t b = 0; b < 3; ++b) settle(b);
    if (wanted_.overflow) plain(GSEL_INSTR_OVERFLOW);
    if (wanted_.clip) plain(GSEL_INSTR_NORM);
    for (int32_t b = 0; b < 3; ++b) {
      bucket(is(Strategy::dp) && !is_master() ? GSEL_INSTR_RELEASE : GSEL_INSTR_STEP, b);
      if (p_.buckets[b].shards_state() && !p_.buckets[b].shards_param()) bucket(GSEL_INSTR_ALLGATHER, b);
    }
    for (int32_t b = 0; b < 3; ++b) settle(b);
  }

  const Wanted wanted_;
  Program p_;
  std::vector<bool> under_way_;
};

}  // namespace

std::vector<Program> make_programs(const Wanted& wanted) {
  return ProgramMaker(wanted).all();
}

}  // namespace gsel::test
