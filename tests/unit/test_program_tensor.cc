// Programs with a tensor axis: random ones are accepted, wherever parts lie and whatever is redistributed, and damaged
// ones are not; their text; what they send, by closed form.
#include <algorithm>
#include <cstring>

#include "program/forward_programs.h"
#include "program/text/text.h"
#include "program/traffic.h"
#include "support/pipeline_damage.h"
#include "support/pipeline_maker.h"
#include "support/share.h"
#include "support/tensor_maker.h"
#include "support/transfers.h"
#include "support/verdict.h"

namespace {

using namespace gsel;
using namespace gsel::test;

constexpr uint32_t kPrograms = SANITIZED ? 60 : 300, kDamaged = SANITIZED ? 36 : 180;

const std::vector<Program>& drawn(uint32_t seed) {
  static std::vector<std::vector<Program>> all(kPrograms);
  if (all[seed].empty()) {
    Draw draw(seed);
    PipelineShape shape = PipelineShape::drawn(draw);
    shape.pipeline = draw.from(1, 3);
    shape.data = draw.from(1, 2);
    if (shape.data == 1) shape.sharding = Sharding::none;
    all[seed] = divide_by_tensor(make_pipeline(shape, draw), draw.from(2, 4), draw);
  }
  return all[seed];
}

void any_parts_and_redistributions_are_accepted(void**) {
  uint32_t partial = 0, redistributions = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const std::vector<Program>& programs = drawn(seed);
    if (const std::string why = refusal(programs); !why.empty())
      fail_msg("seed %u: %s\n%s", seed, why.c_str(), all_text(programs).c_str());
    std::vector<Program> forwards;
    for (const Program& p : programs) {
      forwards.push_back(forward_only(p));
      assert_true(equal(parse_program(to_text(p), "p.txt"), p));
      for (const gsel_instr& i : p.step) {
        partial += i.kind == GSEL_INSTR_ALLREDUCE_PARTIAL;
        redistributions += i.kind == GSEL_BACKWARD_INPUT && p.layers[i.layer].redistributes;
      }
    }
    if (const std::string why = refusal(forwards, Purpose::evaluation); !why.empty())
      fail_msg("seed %u, evaluation: %s\n%s", seed, why.c_str(), all_text(forwards).c_str());
  }
  assert_true(partial > kPrograms / 3 && redistributions > kPrograms * 10 / 3);
}

void no_damage_is_accepted(void**) {
  check_damage_is_refused(tensor_damages(), kDamaged, drawn);
}

void messages_of_parts_end_with_enough_transfers(void**) {
  for (uint32_t seed = 0; seed < kPrograms; seed += 4) {
    std::vector<Program> programs = drawn(seed);
    set_transfers(programs);
    if (const std::string why = refusal(programs); !why.empty()) fail_msg("seed %u: %s", seed, why.c_str());
  }
}

// ---- traffic, on an axis of 4 ranks unless said ----

// A layer is a row of redistributions, whose values all have `bytes` as a whole, and what stands for the computation is
// left out; forward and backward of each, one micro-batch.
struct Step {
  std::string from, to;  // placements, of a shard with its dimension
};
std::string value_line(const std::string& name, const std::string& placement, int64_t bytes, int32_t rank,
                       int32_t ranks) {
  const bool is_part = placement.starts_with("shard");
  return fmt::format("value {} bytes={} gradient placement={}{}\n", name, is_part ? bytes / ranks : bytes,
                     is_part ? "shard" : placement,
                     is_part ? fmt::format(" shard={}:{}-{}/{}", placement.substr(5), rank, rank + 1, ranks) : "");
}

Program redistributing(const std::vector<Step>& steps, int64_t bytes, int64_t samples, int32_t rank = 0,
                       int32_t ranks = 4) {
  std::string values, layers, forward, backward;
  for (size_t i = 0; i < steps.size(); ++i) {
    values += value_line(fmt::format("a{}", i), steps[i].from, bytes, rank, ranks) +
              value_line(fmt::format("b{}", i), steps[i].to, bytes, rank, ranks);
    layers += fmt::format("layer c{0} reads=a{0} writes=b{0} backward_input redistributes\n", i);
    forward += fmt::format("forward layer=c{} mb=0\n", i);
    backward += fmt::format("backward_input layer=c{} mb=0\n", i);
  }
  return parse_program(
      fmt::format("gsel-program 1\nrank {}\nmesh tensor={}\n{}{}microbatch 0 {}\nsetup\nstep\n{}{}end\n", rank, ranks,
                  values, layers, samples, forward, backward),
      "t.txt");
}

gsel_comm_count sent(const Program& p, gsel_instr_kind kind) {
  const Traffic traffic = step_traffic(p);
  const auto found = traffic.find({GSEL_AXIS_TENSOR, kind});
  return found == traffic.end() ? gsel_comm_count{} : found->second;
}
uint64_t sent_both_ways(const Program& p) {
  return sent(p, GSEL_FORWARD).bytes_sent + sent(p, GSEL_BACKWARD_INPUT).bytes_sent;
}

constexpr int64_t kBatch = 3, kPositions = 8, kHidden = 16, kBytes = 4 * kPositions * kHidden;
constexpr uint64_t kWhole = kBatch * kBytes;  // b * s * h * e

// Shoeybi et al., section 3: 4 all-reduces of a layer, 2 of them forward: 8 (t - 1) / t * bshe.
void a_transformer_layer_sends_8_parts(void**) {
  const Program p =
      redistributing({{"replicate", "copy"}, {"partial", "replicate"}, {"replicate", "copy"}, {"partial", "replicate"}},
                     kBytes, kBatch);
  assert_int_equal(sent_both_ways(p), 8 * 3 * kWhole / 4);
  assert_int_equal(sent(p, GSEL_FORWARD).calls, 2);
  assert_int_equal(sent(p, GSEL_BACKWARD_INPUT).calls, 2);
  assert_int_equal(sent(p, GSEL_FORWARD).bytes_sent, 4 * 3 * kWhole / 4);
}

// Korthikanti et al., section 4.2.2: the same bytes, as all-gathers and reduce-scatters.
void sequence_parallelism_sends_as_much(void**) {
  const Program p = redistributing(
      {{"shard1", "copy"}, {"partial", "shard1"}, {"shard1", "copy"}, {"partial", "shard1"}}, kBytes, kBatch);
  assert_int_equal(sent_both_ways(p), 8 * 3 * kWhole / 4);
  assert_int_equal(sent(p, GSEL_FORWARD).calls, 4);
}

// Four all-to-alls of an attention by heads, each of (t - 1) / t of what a rank has, and as many back.
void context_parallelism_by_heads_sends_four_exchanges(void**) {
  const Program p = redistributing(
      {{"shard1", "shard2"}, {"shard1", "shard2"}, {"shard1", "shard2"}, {"shard2", "shard1"}}, kBytes, kBatch);
  assert_int_equal(sent(p, GSEL_FORWARD).bytes_sent, 4 * 3 * kWhole / 16);
  assert_int_equal(sent_both_ways(p), 8 * 3 * kWhole / 16);
}

// What is sliced is not sent; its gradient is gathered.
void a_slice_is_free_and_its_gradient_gathered(void**) {
  const Program p = redistributing({{"replicate", "shard1"}}, kBytes, kBatch);
  assert_int_equal(sent(p, GSEL_FORWARD).calls, 0);
  assert_int_equal(sent(p, GSEL_BACKWARD_INPUT).bytes_sent, 3 * kWhole / 4);
}

Program with_phases(const std::string& phases) {
  return parse_program(fmt::format("gsel-program 1\nrank 1\nmesh tensor=4\nlayer l forward_phases={} divided\n"
                                   "microbatch 0 {}\nsetup\nstep\nforward layer=l mb=0\nend\n",
                                   phases, kBatch),
                       "t.txt");
}

// Three all-reduces of a number per position instead of gathering V logits of each: 6 / V of the bytes.
void a_vocabulary_parallel_loss_sends_6_of_v(void**) {
  constexpr uint64_t kVocabulary = 32;
  const std::string one = fmt::format("tensor:f32:0+{}", 4 * kPositions);
  const uint64_t by_phases = sent(with_phases(one + "," + one + "," + one), GSEL_FORWARD).bytes_sent;
  const uint64_t gathered =
      sent(redistributing({{"shard2", "replicate"}}, 4 * kPositions * kVocabulary, kBatch), GSEL_FORWARD).bytes_sent;
  assert_int_equal(by_phases * kVocabulary, gathered * 6);
}

// Ring attention: t - 1 blocks of a rank's own keys and values.
void what_goes_round_is_sent_once_a_phase(void**) {
  const std::string block = fmt::format("tensor:f32:0+{}:ring_shift", 2 * kBytes / 4);
  const Program p = with_phases(block + "," + block + "," + block);
  assert_int_equal(sent(p, GSEL_FORWARD).calls, 3);
  assert_int_equal(sent(p, GSEL_FORWARD).bytes_sent, 3 * 2 * kWhole / 4);
}

// S + (n - 2) * slice, where 5 elements in 3 slices are 2, 2 and 1.
void uneven_slices_and_parts_are_counted_as_they_are(void**) {
  for (const auto& [rank, slice] : {std::pair{0, 2}, {1, 2}, {2, 1}}) {
    const Program p = redistributing({{"partial", "replicate"}}, 20, 1, rank, 3);
    assert_int_equal(sent(p, GSEL_FORWARD).bytes_sent, 20 + 4 * slice);
  }
  const Program p = parse_program(
      "gsel-program 1\nrank 1\nmesh tensor=3\nparam b 5 partial_gradient\n"
      "value a bytes=28 gradient placement=partial\nvalue b bytes=12 gradient placement=shard shard=1:2-5/7\n"
      "layer c reads=a writes=b backward_input redistributes\nmicrobatch 0 2\nbucket params=b\nsetup\nstep\n"
      "forward layer=c mb=0\nbackward_input layer=c mb=0\nallreduce_partial bucket=0 axis=tensor\nend\n",
      "t.txt");
  assert_int_equal(sent(p, GSEL_FORWARD).bytes_sent, 2 * (28 - 12));
  assert_int_equal(sent(p, GSEL_BACKWARD_INPUT).bytes_sent, 2 * 2 * 12);
  assert_int_equal(sent(p, GSEL_INSTR_ALLREDUCE_PARTIAL).bytes_sent, 20 + 4 * 2);
}

// ---- the table ----

void the_table_has_placements_collectives_and_bytes(void**) {
  const std::string table = placements_table(parse_program(
      "gsel-program 1\nrank 1\nmesh tensor=2\nparam w 8 shard=1:2-4/4\nparam b 4 partial_gradient\n"
      "param f 3 frozen\nvalue x bytes=16 gradient\nvalue y bytes=16 gradient placement=partial\n"
      "value x@copy bytes=16 gradient placement=copy\nvalue y@shard bytes=8 gradient placement=shard shard=1:2-4/4\n"
      "layer x@copy reads=x writes=x@copy backward_input redistributes\n"
      "layer y@shard reads=y writes=y@shard backward_input redistributes\nmicrobatch 0 3\nsetup\nstep\nend\n",
      "t.txt"));
  const char* const expected =
      "rank 1: coordinate 1 of 2 on the tensor axis; bytes sent are those of micro-batch 0, 3 samples\n\n"
      "parameter  elements  here     gradient\n"
      "w                 8  1:2-4/4  of its shard\n"
      "b                 4  all      partial: allreduce_partial\n"
      "f                 3  all      none\n\n"
      "value      bytes  placement  here     forward         sent  backward    sent\n"
      "x             16  replicate  all\n"
      "  x@copy      16  copy       all      -                  0  all-reduce    48\n"
      "y             16  partial    all\n"
      "  y@shard      8  shard      1:2-4/4  reduce-scatter    24  all-gather    24\n";
  if (table != expected) fail_msg("got\n%s", table.c_str());
}

// Nothing of it is verified.
void a_table_of_nonsense_ends(void**) {
  const std::string table = placements_table(parse_program(
      "gsel-program 1\nrank 0\nmesh tensor=2\nvalue x bytes=8\nvalue y bytes=4 placement=shard shard=1:0-1/2\n"
      "layer a reads=x writes=y redistributes\nlayer b reads=y writes=x redistributes\nsetup\nstep\nend\n",
      "t.txt"));
  assert_non_null(std::strstr(table.c_str(), "no micro-batch"));
  assert_non_null(std::strstr(table.c_str(), "y "));
}

// Nor is this one, whose values are made of one another in a long row.
void a_table_of_a_deep_chain_is_no_larger_than_its_program(void**) {
  constexpr int kValues = 4000;
  std::string values, layers;
  for (int v = 0; v < kValues; ++v) {
    values += fmt::format("value v{} bytes={}\n", v, v % 2 ? "4 placement=shard shard=1:0-1/2" : "8");
    if (v > 0) layers += fmt::format("layer l{} reads=v{} writes=v{} redistributes\n", v, v - 1, v);
  }
  const std::string table = placements_table(
      parse_program("gsel-program 1\nrank 0\nmesh tensor=2\n" + values + layers + "setup\nstep\nend\n", "t.txt"));
  assert_int_equal(std::count(table.begin(), table.end(), '\n'), kValues + 3);
  if (table.size() > 120 * kValues) fail_msg("the table has %zu bytes", table.size());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(any_parts_and_redistributions_are_accepted),
      cmocka_unit_test(no_damage_is_accepted),
      cmocka_unit_test(messages_of_parts_end_with_enough_transfers),
      cmocka_unit_test(a_transformer_layer_sends_8_parts),
      cmocka_unit_test(sequence_parallelism_sends_as_much),
      cmocka_unit_test(context_parallelism_by_heads_sends_four_exchanges),
      cmocka_unit_test(a_slice_is_free_and_its_gradient_gathered),
      cmocka_unit_test(a_vocabulary_parallel_loss_sends_6_of_v),
      cmocka_unit_test(what_goes_round_is_sent_once_a_phase),
      cmocka_unit_test(uneven_slices_and_parts_are_counted_as_they_are),
      cmocka_unit_test(the_table_has_placements_collectives_and_bytes),
      cmocka_unit_test(a_table_of_nonsense_ends),
      cmocka_unit_test(a_table_of_a_deep_chain_is_no_larger_than_its_program),
  };
  return cmocka_run_group_tests_name("programs with a tensor axis", tests, nullptr, nullptr);
}
