// The model of one rank of a tensor axis: which redistributions stand between layers that leave and find a value in
// different placements, what is refused and with which words, and what becomes of sizes, names, flags, phases and
// costs.
#include <stdexcept>

#include "support/divided_model.h"
// cmocka's macros come last.
#include "support/check.h"

using divided::as_declared;
using divided::Description;
using divided::kSum;
using divided::named;
using gsel::Division;
using gsel::Layer;
using gsel::Model;
using gsel::Placement;
using gsel::Redistribution;
using gsel::Shard;
using gsel::Value;

namespace {

constexpr uint32_t kInput = GSEL_VALUE_INPUT;
const gsel::PlacementInLayer kReplicated{GSEL_PLACEMENT_REPLICATE, 0}, kColumns{GSEL_PLACEMENT_SHARD, 2},
    kRows{GSEL_PLACEMENT_SHARD, 1}, kPartial{GSEL_PLACEMENT_PARTIAL, 0};

// Redistributions of a divided model, in order.
std::vector<const Layer*> redistributions(const Model& model) {
  std::vector<const Layer*> result;
  for (const Layer& layer : model.layers())
    if (layer.redistributes) result.push_back(&layer);
  return result;
}

std::string names_of(const Model& model) {
  std::string result;
  for (const Layer& layer : model.layers()) result += (result.empty() ? "" : " ") + layer.name;
  return result;
}

#define assert_refused(call, status, part)                                                                 \
  do {                                                                                                     \
    std::string said = "(nothing)";                                                                        \
    try {                                                                                                  \
      static_cast<void>(call);                                                                             \
    } catch (const gsel::Error& e) {                                                                       \
      said = e.message();                                                                                  \
      assert_int_equal(e.code(), status);                                                                  \
    }                                                                                                      \
    if (said.find(part) == std::string::npos) fail_msg("expected \"%s\", got \"%s\"", part, said.c_str()); \
  } while (0)

// ---- what stands between two placements ----

// x -> write -> v -> read -> w -> loss. Both have a parameter that is split or not.
Description writer_and_reader() {
  Description d;
  d.param({"wp", {8, 12}, 1}).param({"rp", {12, 8}, 0});
  d.value({"x", {4, 8}, 0, 0, 1, 1, 1, kInput}).value({"v", {4, 12}}).value({"w", {4, 8}});
  d.layer({"write", {"x"}, {"v"}, {"wp"}}).layer({"read", {"v"}, {"w"}, {"rp"}}).loss({"w"});
  return d;
}

struct Pair {
  const char* name;
  bool writer_split;
  gsel::PlacementInLayer left;
  bool reader_split;
  gsel::PlacementInLayer found, then;  // w as read leaves it
  std::vector<Placement> placements;   // of v and of what is made of it, up to what read reads
  std::vector<Redistribution> forward, backward;
};

void between_each_two_placements_stands_a_redistribution(void**) {
  using enum Redistribution;
  using enum Placement;
  // An undivided layer writes replicated values; so does one whose phases sum.
  const Pair pairs[] = {
      {"replicate, replicate", false, kReplicated, false, kReplicated, kReplicated, {replicate}, {}, {}},
      {"replicate, read by a divided layer",
       false,
       kReplicated,
       true,
       kReplicated,
       kPartial,
       {replicate, copy},
       {none},
       {allreduce}},
      {"replicate, columns", false, kReplicated, true, kColumns, kPartial, {replicate, shard}, {slice}, {allgather}},
      {"replicate, rows", false, kReplicated, true, kRows, kPartial, {replicate, shard}, {slice}, {allgather}},
      {"columns, replicate", true, kColumns, false, kReplicated, kReplicated, {shard, replicate}, {allgather}, {slice}},
      {"columns, read replicated by a divided layer",
       true,
       kColumns,
       true,
       kReplicated,
       kPartial,
       {shard, copy},
       {allgather},
       {reduce_scatter}},
      {"columns, columns", true, kColumns, true, kColumns, kPartial, {shard}, {}, {}},
      {"columns, rows", true, kColumns, true, kRows, kPartial, {shard, shard}, {alltoall}, {alltoall}},
      {"partial, replicate",
       true,
       kPartial,
       false,
       kReplicated,
       kReplicated,
       {partial, replicate},
       {allreduce},
       {none}},
      {"partial, read by a divided layer",
       true,
       kPartial,
       true,
       kReplicated,
       kPartial,
       {partial, replicate, copy},
       {allreduce, none},
       {none, allreduce}},
      {"partial, columns", true, kPartial, true, kColumns, kPartial, {partial, shard}, {reduce_scatter}, {allgather}},
      {"partial, rows", true, kPartial, true, kRows, kPartial, {partial, shard}, {reduce_scatter}, {allgather}},
  };
  for (const Pair& pair : pairs)
    for (size_t ranks : {2, 3, 4}) {
      print_message("  %s, on %zu\n", pair.name, ranks);
      const Description d = writer_and_reader();
      Division division = Division::none(d.model, std::vector<double>(ranks, 1.0));
      division.split = {pair.writer_split, pair.reader_split};
      division.layers[0] = {{kReplicated}, {pair.left}};
      division.layers[1] = {{pair.found}, {pair.then}};
      const Model m = gsel::divide(d.model, division, 0);
      // Back from the reader to what was described.
      const Layer& read = named(m.layers(), "read");
      std::vector<Placement> placements;
      std::vector<Redistribution> forward, backward;
      for (int32_t v = read.inputs[0];;) {
        const Value& value = m.values()[v];
        placements.insert(placements.begin(), value.placement);
        const Layer& producer = m.layers()[value.producer];
        if (!producer.redistributes) break;
        assert_int_equal(producer.origin, -1);
        v = producer.inputs[0];
        forward.insert(forward.begin(), gsel::forward_redistribution(m.values()[v].placement, value.placement));
        backward.insert(backward.begin(), gsel::backward_redistribution(m.values()[v].placement, value.placement));
      }
      assert_true(placements == pair.placements);
      assert_true(forward == pair.forward);
      assert_true(backward == pair.backward);
      // Behind w there is a sum where it is partial, and no other redistribution anywhere.
      assert_int_equal(redistributions(m).size(), pair.forward.size() + (pair.then.kind == GSEL_PLACEMENT_PARTIAL));
    }
}

void an_input_that_needs_no_gradient_is_not_redistributed_for_a_divided_layer(void**) {
  const Description d = writer_and_reader();
  Division division = Division::none(d.model, {1, 1});
  division.split = {true, false};
  division.layers[0] = {{kReplicated}, {kColumns}};
  assert_string_equal(names_of(gsel::divide(d.model, division, 0)).c_str(), "write v@replicate read loss");
}

// Megatron's block: the sum of partial values is made once for all who read it, right behind who leaves it; what
// divided layers read of it shares one reduction of the gradient.
void readers_share_redistributions(void**) {
  Description d;
  d.param({"w0", {8, 8}, 0}).param({"wa", {8, 4}, 1}).param({"wb", {8, 4}, 1}).param({"g", {8}});
  d.value({"x", {8}, 0, 0, 1, 1, 0, kInput});
  d.value({"s", {8}, GSEL_PLACEMENT_PARTIAL})
      .value({"a", {4}, GSEL_PLACEMENT_SHARD, 1})
      .value({"b", {4}, GSEL_PLACEMENT_SHARD, 1});
  d.value({"n", {8}});
  d.layer({"sum", {"x"}, {"s"}, {"w0"}}).layer({"norm", {"s"}, {"n"}, {"g"}});
  d.layer({"a", {"s"}, {"a"}, {"wa"}}).layer({"b", {"s"}, {"b"}, {"wb"}}).loss({"n", "a", "b"});
  const Model m = gsel::divide(d.model, as_declared(d.model, {1, 1}), 1);
  assert_string_equal(names_of(m).c_str(), "sum s@replicate norm s@copy a b a@replicate b@replicate loss");
  assert_int_equal(named(m.layers(), "a").inputs[0], named(m.layers(), "b").inputs[0]);
  assert_int_equal(named(m.layers(), "s@copy").inputs[0], named(m.layers(), "norm").inputs[0]);
}

// ---- what is refused ----

Description linear_pair(int64_t hidden, uint32_t value_flags = 0, uint32_t param_flags = 0, int32_t unit = 1) {
  Description d;
  d.param({"up", {8, hidden}, 1, 1, unit, param_flags}).param({"down", {hidden, 8}, 0, 1, unit, param_flags});
  d.value({"x", {8}, 0, 0, 1, 1, 0, kInput}).value({"h", {hidden}, GSEL_PLACEMENT_SHARD, 1, unit, 1, 0, value_flags});
  d.value({"y", {8}, GSEL_PLACEMENT_PARTIAL});
  return d.layer({"up", {"x"}, {"h"}, {"up"}}).layer({"down", {"h"}, {"y"}, {"down"}}).loss({"y"});
}

void a_split_that_is_too_fine_is_refused_with_what_would_do(void**) {
  const Description few = linear_pair(6, 0, 0, 2);
  assert_refused(gsel::divide(few.model, as_declared(few.model, {1, 1, 1, 1}), 0), GSEL_ERR_CONFIG,
                 "parameter \"up\" cannot be split over 4 ranks of the tensor axis: its dimension 1 of 6 elements can "
                 "be cut in 3 at most, with a granularity of 2; set mesh.tensor = 3 or less");
  Description one;
  one.param({"w", {8, 6}, 1, 3, 2}).value({"x", {8}, 0, 0, 1, 1, 0, kInput}).value({"y", {6}});
  one.layer({"l", {"x"}, {"y"}, {"w"}}).loss({"y"});
  assert_refused(gsel::divide(one.model, as_declared(one.model, {1, 1}), 1), GSEL_ERR_CONFIG,
                 "its dimension 1 of 6 elements can be cut in 1 at most in each of 3 blocks, with a granularity of 2");
  Description value = linear_pair(6);
  Division division = as_declared(value.model, std::vector<double>(8, 1.0));
  division.split = {false, false};
  assert_refused(gsel::divide(value.model, division, 0), GSEL_ERR_CONFIG,
                 "value \"h\" cannot be split over 8 ranks of the tensor axis: its dimension 1 of 6 elements can be "
                 "cut in 6 at most, with a granularity of 1; set mesh.tensor = 6 or less");
}

void a_replicated_output_of_a_divided_layer_is_refused_unless_it_reduces(void**) {
  for (const bool reduces : {false, true}) {
    Description d;
    d.param({"w", {8, 6}, 1}).value({"x", {8}, 0, 0, 1, 1, 0, kInput}).value({"y", {6}});
    d.layer({"l", {"x"}, {"y"}, {"w"}, 0, 0, reduces ? std::vector{kSum} : std::vector<gsel_phase>{}}).loss({"y"});
    if (reduces)
      assert_string_equal(names_of(gsel::divide(d.model, as_declared(d.model, {1, 1}), 0)).c_str(), "l loss");
    else
      assert_refused(gsel::divide(d.model, as_declared(d.model, {1, 1}), 0), GSEL_ERR_MODEL,
                     "layer \"l\" has a shard of an input or parameter and writes value \"y\" whole; declare the value "
                     "GSEL_PLACEMENT_SHARD or GSEL_PLACEMENT_PARTIAL, or reduce in phases over the tensor axis");
  }
}

void a_bias_that_each_rank_would_add_is_refused(void**) {
  Description d;
  d.param({"w", {8, 6}, 0})
      .param({"b", {6}})
      .value({"x", {8}, 0, 0, 1, 1, 0, kInput})
      .value({"y", {6}, GSEL_PLACEMENT_PARTIAL});
  d.layer({"l", {"x"}, {"y"}, {"w", "b"}}).loss({"y"});
  assert_refused(gsel::divide(d.model, as_declared(d.model, {1, 1}), 0), GSEL_ERR_MODEL,
                 "layer \"l\" writes partial sums of value \"y\" and has all of parameter \"b\": it would be added on "
                 "each of 2 ranks; use it in a layer that reads the sum");
}

void a_part_that_nothing_makes_is_refused(void**) {
  Description d;
  d.param({"w", {8, 6}}).value({"x", {8}, 0, 0, 1, 1, 0, kInput}).value({"y", {6}, GSEL_PLACEMENT_SHARD, 1});
  d.layer({"l", {"x"}, {"y"}, {"w"}}).loss({"y"});
  assert_refused(
      gsel::divide(d.model, as_declared(d.model, {1, 1}), 0), GSEL_ERR_MODEL,
      "layer \"l\" is to write a shard of value \"y\", and has all of its inputs and parameters; give one of "
      "its parameters a shard rule, or flag the value with GSEL_VALUE_REPLICATE_IF_FEW");
}

void a_whole_parameter_of_divided_and_undivided_layers_is_refused(void**) {
  for (const bool frozen : {false, true}) {
    Description d;
    d.param({"w", {8, 6}, 1}).param({"b", {6}, -1, 1, 1, frozen ? GSEL_PARAM_FROZEN : 0u});
    d.value({"x", {8}, 0, 0, 1, 1, 0, kInput}).value({"y", {6}, GSEL_PLACEMENT_SHARD, 1}).value({"z", {6}});
    d.layer({"l", {"x"}, {"y"}, {"w", "b"}}).layer({"k", {"y"}, {"z"}, {"b"}});
    d.loss({"z"});
    Division division = as_declared(d.model, {1, 1});
    division.layers[1] = {};
    if (frozen)
      assert_false(named(gsel::divide(d.model, division, 0).params(), "b").partial_gradient);
    else
      assert_refused(
          gsel::divide(d.model, division, 0), GSEL_ERR_MODEL,
          "parameter \"b\" is used by layer \"l\", of which each rank of the tensor axis has a shard, and by "
          "layer \"k\", which all run alike; their gradients cannot be summed as one");
  }
}

void a_dimension_that_is_not_there_is_refused(void**) {
  const Description d = writer_and_reader();
  Division division = Division::none(d.model, {1, 1});
  division.split = {true, false};
  for (int32_t dim : {0, 3, -1}) {
    division.layers[0] = {{kReplicated}, {{GSEL_PLACEMENT_SHARD, dim}}};
    assert_refused(gsel::divide(d.model, division, 0), GSEL_ERR_MODEL, "value \"v\" is to be split along dimension");
  }
}

// ---- what becomes of the pieces ----

void parts_tile_what_was_described(void**) {
  Description d;
  d.param({"qkv", {8, 36}, 1, 3, 4}).param({"out", {12, 8}, 0, 1, 4});
  d.value({"x", {5, 8}, 0, 0, 1, 1, 1, kInput}).value({"q", {5, 36}, GSEL_PLACEMENT_SHARD, 2, 4, 3, 1});
  d.value({"y", {5, 8}, GSEL_PLACEMENT_PARTIAL});
  d.layer({"in", {"x"}, {"q"}, {"qkv"}}).layer({"out", {"q"}, {"y"}, {"out"}}).loss({"y"});
  for (const std::vector<double>& weights : {std::vector<double>{1, 1}, {1, 1, 1}, {2, 1}, {1}}) {
    int64_t at = 0;
    for (size_t rank = 0; rank < weights.size(); ++rank) {
      const Model m = gsel::divide(d.model, as_declared(d.model, weights), static_cast<int32_t>(rank));
      const gsel::Param &qkv = named(m.params(), "qkv"), &out = named(m.params(), "out");
      const Value& q = named(m.values(), "q");
      assert_true(qkv.shard.dim == 1 && qkv.shard.blocks == 3 && qkv.shard.whole == 12);
      assert_int_equal(qkv.shard.begin, at);
      at = qkv.shard.end;
      assert_true((q.shard == Shard{2, 3, qkv.shard.begin, qkv.shard.end, 12}));
      assert_true((out.shard == Shard{0, 1, qkv.shard.begin, qkv.shard.end, 12}));
      assert_true((qkv.dims == std::vector<int64_t>{8, 3 * qkv.shard.size()}));
      assert_true((q.dims == std::vector<int64_t>{5, 3 * qkv.shard.size()}));
      assert_true((qkv.whole_dims == std::vector<int64_t>{8, 36}));
      assert_true((q.whole_dims == std::vector<int64_t>{5, 36}));
      assert_int_equal(qkv.n_elems, 24 * qkv.shard.size());
      assert_int_equal(q.sample_elems, 15 * qkv.shard.size());
      assert_int_equal(out.n_elems, 8 * qkv.shard.size());
      assert_true(named(m.values(), "y").placement == Placement::partial);
      assert_int_equal(named(m.layers(), "out").origin, 1);
      assert_int_equal(named(m.layers(), "loss").origin, 2);
      assert_int_equal(m.loss_layer(), 3);
      assert_false(qkv.partial_gradient || out.partial_gradient);
    }
    assert_int_equal(at, 12);
  }
}

// Keys have fewer heads than there are ranks: they stay whole, their layer is undivided, and their gradient is summed.
Description grouped_queries() {
  Description d;
  d.param({"wq", {8, 16}, 1, 1, 4})
      .param({"wk", {8, 8}, 1, 1, 4, GSEL_PARAM_REPLICATE_IF_FEW})
      .param({"wo", {16, 8}, 0, 1, 4});
  d.value({"x", {8}, 0, 0, 1, 1, 0, kInput});
  d.value({"q", {16}, GSEL_PLACEMENT_SHARD, 1, 4})
      .value({"k", {8}, GSEL_PLACEMENT_SHARD, 1, 4, 1, 0, GSEL_VALUE_REPLICATE_IF_FEW});
  d.value({"a", {16}, GSEL_PLACEMENT_SHARD, 1, 4}).value({"y", {8}, GSEL_PLACEMENT_PARTIAL});
  d.layer({"queries", {"x"}, {"q"}, {"wq"}}).layer({"keys", {"x"}, {"k"}, {"wk"}});
  return d.layer({"attend", {"q", "k"}, {"a"}}).layer({"project", {"a"}, {"y"}, {"wo"}}).loss({"y"});
}
void fewer_heads_of_keys_than_ranks_stay_whole(void**) {
  const Description d = grouped_queries();
  const Model two = gsel::divide(d.model, as_declared(d.model, {1, 1}), 1);
  assert_string_equal(names_of(two).c_str(), "queries keys attend project y@replicate loss");
  assert_true((named(two.params(), "wk").shard == Shard{1, 1, 4, 8, 8}));
  const Model four = gsel::divide(d.model, as_declared(d.model, {1, 1, 1, 1}), 1);
  assert_string_equal(names_of(four).c_str(), "queries keys k@copy attend project y@replicate loss");
  assert_true(named(four.params(), "wk").shard.is_whole());
  assert_false(named(four.params(), "wk").partial_gradient);
  assert_false(named(four.layers(), "keys").divided);
  assert_true(named(four.values(), "k").placement == Placement::replicate);
  assert_true(named(four.values(), "k@copy").placement == Placement::copy);
}

// Norm, and the bias behind a sum, work on a shard of the positions each; their whole parameters have partial
// gradients.
Description with_positions(uint32_t residual_flags = GSEL_LAYER_POSITIONWISE) {
  Description d;
  d.param({"g", {8}}).param({"up", {8, 12}, 1}).param({"down", {12, 8}, 0}).param({"b", {8}});
  d.value({"x", {6, 8}, 0, 0, 1, 1, 1, kInput}).value({"n", {6, 8}, 0, 0, 1, 1, 1});
  d.value({"h", {6, 12}, GSEL_PLACEMENT_SHARD, 2, 1, 1, 1}).value({"y", {6, 8}, GSEL_PLACEMENT_PARTIAL, 0, 1, 1, 1});
  d.value({"r", {6, 8}, 0, 0, 1, 1, 1});
  d.layer({"norm", {"x"}, {"n"}, {"g"}, GSEL_LAYER_POSITIONWISE | GSEL_LAYER_RECOMPUTABLE, 10});
  d.layer({"up", {"n"}, {"h"}, {"up"}, GSEL_LAYER_RECOMPUTABLE, 100});
  d.layer({"down", {"h"}, {"y"}, {"down"}, GSEL_LAYER_SAVES_WHOLE, 100});
  return d.layer({"residual", {"n", "y"}, {"r"}, {"b"}, residual_flags}).loss({"r"}, GSEL_LAYER_POSITIONWISE);
}
void sequence_parallel_layers_have_a_part_of_the_positions(void**) {
  const Description d = with_positions();
  const Model m = gsel::divide(d.model, as_declared(d.model, {1, 1, 1}, true), 2);
  assert_string_equal(names_of(m).c_str(), "x@shard norm n@copy up down y@shard residual loss");
  assert_true((named(m.values(), "n").shard == Shard{1, 1, 4, 6, 6}));
  assert_true((named(m.values(), "n").dims == std::vector<int64_t>{2, 8}));
  assert_true(named(m.layers(), "residual").some_positions);
  assert_false(named(m.layers(), "up").some_positions);
  for (const char* name : {"g", "b"}) assert_true(named(m.params(), name).partial_gradient);
  for (const char* name : {"up", "down"}) assert_false(named(m.params(), name).partial_gradient);
  assert_true(named(m.values(), "loss.sum").placement == Placement::partial);
  // A layer in between that looks across positions gets all of them, and its parameter's gradient is whole.
  const Description across = with_positions(0);
  const Model n = gsel::divide(across.model, as_declared(across.model, {1, 1, 1}, true), 0);
  assert_string_equal(names_of(n).c_str(), "x@shard norm n@copy up down y@replicate n@replicate residual r@shard loss");
  assert_false(named(n.params(), "b").partial_gradient);
}

// Every layer by position and attention by heads: what cp says.
void context_parallel_exchanges_positions_for_heads(void**) {
  Description d;
  d.param({"w", {8, 12}, 1, 3, 2}).param({"o", {4, 8}, 0});
  d.value({"x", {6, 8}, 0, 0, 1, 1, 1, kInput}).value({"q", {6, 12}, GSEL_PLACEMENT_SHARD, 2, 2, 3, 1});
  d.value({"a", {6, 4}, GSEL_PLACEMENT_SHARD, 2, 2, 1, 1}).value({"y", {6, 8}, GSEL_PLACEMENT_PARTIAL, 0, 1, 1, 1});
  d.layer({"in", {"x"}, {"q"}, {"w"}}).layer({"attend", {"q"}, {"a"}}).layer({"out", {"a"}, {"y"}, {"o"}}).loss({"y"});
  Division division = Division::none(d.model, {1, 1});
  division.layers[0] = {{kRows}, {kRows}};
  division.layers[1] = {{kColumns}, {kColumns}};
  division.layers[2] = {{kRows}, {kRows}};
  division.layers[3] = {{kRows}, {kPartial, kPartial}};
  const Model m = gsel::divide(d.model, division, 0);
  assert_string_equal(names_of(m).c_str(), "x@shard in q@shard attend a@shard out loss");
  for (const char* name : {"q@shard", "a@shard"}) {
    const Layer& exchange = named(m.layers(), name);
    assert_true(m.values()[exchange.inputs[0]].shard.dim != m.values()[exchange.outputs[0]].shard.dim);
  }
  assert_true((named(m.values(), "q@shard").shard == Shard{2, 3, 0, 2, 4}));
  for (const gsel::Param& p : m.params()) assert_true(p.shard.is_whole() && p.partial_gradient);
}

void names_of_redistributions_are_not_taken_from_anybody(void**) {
  Description d;
  d.param({"w", {8, 6}, 0})
      .value({"x", {8}, 0, 0, 1, 1, 0, kInput})
      .value({"y", {6}, GSEL_PLACEMENT_PARTIAL})
      .value({"y@replicate", {6}});
  d.layer({"l", {"x"}, {"y"}, {"w"}}).layer({"y@replicate+", {"y"}, {"y@replicate"}}).loss({"y@replicate"});
  const Model m = gsel::divide(d.model, as_declared(d.model, {1, 1}), 0);
  assert_string_equal(names_of(m).c_str(), "l y@replicate++ y@replicate+ loss");
}

void cuts_and_recomputation_keep_redistributions_with_their_layers(void**) {
  const Description d = with_positions();
  const Model m = gsel::divide(d.model, as_declared(d.model, {1, 1}, true), 0);
  auto flags = [&](const char* name) { return named(m.layers(), name).flags; };
  // The sum stays with who leaves its terms, what a reader needs with the reader.
  assert_true(flags("down") & GSEL_LAYER_NO_CUT_AFTER);
  assert_false(flags("y@shard") & GSEL_LAYER_NO_CUT_AFTER);
  assert_true(flags("n@copy") & GSEL_LAYER_NO_CUT_AFTER);
  assert_false(flags("norm") & GSEL_LAYER_NO_CUT_AFTER);
  // n is read by residual too, which may not run again.
  assert_false(flags("n@copy") & GSEL_LAYER_RECOMPUTABLE);
  const Description all = with_positions(GSEL_LAYER_POSITIONWISE | GSEL_LAYER_RECOMPUTABLE);
  const Model n = gsel::divide(all.model, as_declared(all.model, {1, 1}, true), 0);
  assert_true(named(n.layers(), "n@copy").flags & GSEL_LAYER_RECOMPUTABLE);
  assert_false(named(n.layers(), "x@shard").flags & GSEL_LAYER_RECOMPUTABLE);
  assert_false(named(n.layers(), "y@shard").flags & GSEL_LAYER_RECOMPUTABLE);
}

void costs_shrink_with_the_parts(void**) {
  const Description d = with_positions();
  for (int32_t rank : {0, 1}) {  // 8 of 12 columns, 4 of 6 positions; then the rest
    const Model m = gsel::divide(d.model, as_declared(d.model, {2, 1}, true), rank);
    const double share = rank ? 1.0 / 3 : 2.0 / 3;
    for (const char* name : {"norm", "up", "down", "residual"})
      assert_float_equal(named(m.layers(), name).flop_per_sample, 1200 * share, 1e-6);
    assert_int_equal(named(m.layers(), "norm").saved_bytes_per_sample, rank ? 4 : 7);
    assert_int_equal(named(m.layers(), "up").saved_bytes_per_sample, rank ? 34 : 67);
    assert_int_equal(named(m.layers(), "down").saved_bytes_per_sample, 100);  // it saves whole
  }
}

void phases_are_as_many_as_there_are_ranks_to_pass_on_to(void**) {
  const gsel_phase rotate{sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, 0, GSEL_F32, GSEL_PHASE_RING_SHIFT, 4, 0},
      home{sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, 0, GSEL_F32, GSEL_PHASE_RING_SHIFT | GSEL_PHASE_HOME, 4, 0},
      data{sizeof(gsel_phase), 0, GSEL_AXIS_DATA, GSEL_SUM, GSEL_F32, 0, 4, 0};
  Description d;
  d.param({"w", {6, 6}})
      .value({"x", {4, 6}, 0, 0, 1, 1, 1, kInput})
      .value({"y", {4, 6}, GSEL_PLACEMENT_SHARD, 2, 1, 1, 1});
  d.layer({"l", {"x"}, {"y"}, {"w"}, 0, 0, {rotate, kSum, data}, {home, kSum}}).loss({"y"});
  auto axes = [](const std::vector<gsel_phase>& phases) {
    std::string result;
    for (const gsel_phase& p : phases)
      result += p.axis < 0 ? '-' : p.axis == GSEL_AXIS_DATA ? 'd' : p.flags ? 'r' : 't';
    return result;
  };
  for (size_t ranks : {1, 2, 4}) {
    Division division = Division::none(d.model, std::vector<double>(ranks, 1.0));
    division.layers[0] = {{kRows}, {kRows}};  // positions: it reduces nothing
    const Model by_position = gsel::divide(d.model, division, 0);
    assert_string_equal(axes(named(by_position.layers(), "l").forward_phases).c_str(),
                        (std::string(ranks - 1, 'r') + "-d").c_str());
    assert_string_equal(axes(named(by_position.layers(), "l").backward_phases).c_str(),
                        (std::string(ranks, 'r') + "-").c_str());
    division.layers[0] = {{kColumns}, {kColumns}};
    const Model by_column = gsel::divide(d.model, division, 0);
    assert_string_equal(axes(named(by_column.layers(), "l").forward_phases).c_str(),
                        (std::string(ranks - 1, 'r') + "td").c_str());
    division.layers[0] = {};  // undivided: nobody else has a part
    const Model whole = gsel::divide(d.model, division, 0);
    assert_string_equal(axes(named(whole.layers(), "l").forward_phases).c_str(), "-d");
  }
}

// A layer that reduces its gradient itself reads the value as it is.
void a_layer_that_reduces_backward_gets_its_input_without_redistribution(void**) {
  Description d = writer_and_reader();
  Description own;
  own.param({"wp", {8, 12}}).param({"rp", {12, 8}, 0}).value({"x", {8}, 0, 0, 1, 1, 0, kInput}).value({"v", {12}});
  own.value({"w", {8}, GSEL_PLACEMENT_PARTIAL}).layer({"write", {"x"}, {"v"}, {"wp"}});
  own.layer({"read", {"v"}, {"w"}, {"rp"}, 0, 0, {}, {kSum}}).loss({"w"});
  assert_string_equal(names_of(gsel::divide(own.model, as_declared(own.model, {1, 1}), 0)).c_str(),
                      "write read w@replicate loss");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(between_each_two_placements_stands_a_redistribution),
      cmocka_unit_test(an_input_that_needs_no_gradient_is_not_redistributed_for_a_divided_layer),
      cmocka_unit_test(readers_share_redistributions),
      cmocka_unit_test(a_split_that_is_too_fine_is_refused_with_what_would_do),
      cmocka_unit_test(a_replicated_output_of_a_divided_layer_is_refused_unless_it_reduces),
      cmocka_unit_test(a_bias_that_each_rank_would_add_is_refused),
      cmocka_unit_test(a_part_that_nothing_makes_is_refused),
      cmocka_unit_test(a_whole_parameter_of_divided_and_undivided_layers_is_refused),
      cmocka_unit_test(a_dimension_that_is_not_there_is_refused),
      cmocka_unit_test(parts_tile_what_was_described),
      cmocka_unit_test(fewer_heads_of_keys_than_ranks_stay_whole),
      cmocka_unit_test(sequence_parallel_layers_have_a_part_of_the_positions),
      cmocka_unit_test(context_parallel_exchanges_positions_for_heads),
      cmocka_unit_test(names_of_redistributions_are_not_taken_from_anybody),
      cmocka_unit_test(cuts_and_recomputation_keep_redistributions_with_their_layers),
      cmocka_unit_test(costs_shrink_with_the_parts),
      cmocka_unit_test(phases_are_as_many_as_there_are_ranks_to_pass_on_to),
      cmocka_unit_test(a_layer_that_reduces_backward_gets_its_input_without_redistribution),
  };
  return cmocka_run_group_tests_name("divide", tests, nullptr, nullptr);
}
