// The text row of a program: any program that is printed reads back to an equal one, and what is no program is refused
// where the fault stands.
#include <gsel/model.h>

#include <cstring>
#include <functional>

#include "program/program.h"
#include "program/stages.h"
#include "program/text/text.h"
#include "support/check.h"
#include "support/program_maker.h"

namespace {

using namespace gsel;

// ---- random programs ----

class Dice {
 public:
  explicit Dice(uint64_t key) : key_(key) {}
  // From low to high, both included.
  int64_t roll(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(gsel_random_uniform(key_, counter_++) * static_cast<double>(high - low + 1));
  }
  bool coin() { return roll(0, 1) == 1; }
  std::vector<int32_t> some(size_t n, size_t most) {
    std::vector<int32_t> all(n), chosen;
    for (size_t i = 0; i < n; ++i) all[i] = static_cast<int32_t>(i);
    for (auto k = static_cast<size_t>(roll(0, static_cast<int64_t>(std::min(n, most)))); k > 0; --k) {
      const auto at = roll(0, static_cast<int64_t>(all.size()) - 1);
      chosen.push_back(all[at]);
      all.erase(all.begin() + at);
    }
    return chosen;
  }

 private:
  uint64_t key_, counter_ = 0;
};

std::vector<ProgramPhase> random_phases(Dice& dice) {
  std::vector<ProgramPhase> phases(dice.roll(0, 2));
  for (ProgramPhase& phase : phases)
    phase = {static_cast<gsel_axis>(dice.roll(0, 2)), dice.roll(0, 9) * 8, dice.roll(0, 3) * 8,
             dice.coin() ? GSEL_F64 : GSEL_F32};
  return phases;
}

ProgramBucket random_bucket(Dice& dice, std::vector<int32_t> params) {
  ProgramBucket b;
  b.params = std::move(params);
  const int64_t stage = dice.roll(0, 3);
  for (uint32_t flag : {GSEL_BUCKET_SHARD_STATE, GSEL_BUCKET_SHARD_GRADIENT, GSEL_BUCKET_SHARD_PARAM})
    if (stage >= (flag == GSEL_BUCKET_SHARD_STATE ? 1 : flag == GSEL_BUCKET_SHARD_GRADIENT ? 2 : 3)) b.flags |= flag;
  if (stage == 3 && dice.coin()) b.flags |= GSEL_BUCKET_OFFLOAD_PARAM;
  if (dice.coin()) b.flags |= GSEL_BUCKET_OFFLOAD_STATE;
  if (dice.coin()) b.flags |= GSEL_BUCKET_WHOLE_PARAMS;
  if (stage > 0 || dice.coin()) b.axis = static_cast<gsel_axis>(dice.roll(0, 2));
  if (stage > 0) return b;
  if (b.axis >= 0 && dice.coin()) {
    b.owner = 0;
    return b;
  }
  b.compression = static_cast<int32_t>(dice.roll(0, 3));
  if (b.compression == GSEL_COMPRESS_LOW_RANK) b.compression_rank = static_cast<int32_t>(dice.roll(1, 9));
  if (b.compression) b.compression_start = dice.roll(0, 2);
  return b;
}

void random_model(Dice& dice, Program& p) {
  const gsel_dtype kept = std::array{GSEL_F32, GSEL_BF16, GSEL_F16}[dice.roll(0, 2)];
  for (int64_t i = dice.roll(1, 70); i > 0; --i) {
    const int64_t rows = dice.roll(1, 3);
    p.params.push_back({fmt::format("p{}", i), rows * dice.roll(1, 99), kept, dice.coin(), rows});
  }
  for (int64_t i = dice.roll(1, 6); i > 0; --i)
    p.values.push_back({fmt::format("v{}", i), dice.roll(0, 50), dice.coin(), dice.coin(), dice.coin()});
  const int32_t n_ranks = p.mesh.size[GSEL_AXIS_PIPELINE];
  const int64_t n_layers = dice.roll(n_ranks, n_ranks + 4);
  int32_t stage = 0;
  for (int64_t i = n_layers; i > 0; --i) {
    ProgramLayer l;
    // A stage begins by chance, and where as many layers are left as pipeline ranks without one.
    if (i < n_layers && (i <= n_ranks - 1 - stage || dice.coin())) ++stage;
    l.stage = stage;
    l.name = fmt::format("l{}", i);
    l.inputs = dice.some(p.values.size(), 3);
    l.outputs = dice.some(p.values.size(), 3);
    l.params = dice.some(p.params.size(), 70);
    l.is_loss = dice.coin();
    l.needs_backward_input = dice.coin();
    l.needs_backward_weight = dice.coin();
    for (size_t k = 0; k < l.params.size() && k < 64; ++k) l.backward_unread_params |= uint64_t(dice.coin()) << k;
    l.forward_phases = random_phases(dice);
    l.backward_phases = random_phases(dice);
    p.layers.push_back(std::move(l));
  }
  p.rank_of_stage.clear();
  for (int32_t s = 0; s <= stage; ++s) p.rank_of_stage.push_back(s % n_ranks);
  p.transfers = static_cast<int32_t>(dice.roll(1, 9));
}

// Of the first of them alone where others are held by other pipeline ranks.
std::vector<int32_t> held_alike(const Program& p, const std::vector<int32_t>& params) {
  std::vector<int32_t> alike;
  for (int32_t param : params)
    if (holders(p, param) == holders(p, params.front())) alike.push_back(param);
  return alike;
}

gsel_instr random_instr(Dice& dice, const Program& p, gsel_instr_kind kind) {
  gsel_instr instr = make_instr(kind);
  const InstrRow& row = *find_instr_row(kind);
  auto pick = [&](size_t n) { return static_cast<int32_t>(dice.roll(0, static_cast<int64_t>(n) - 1)); };
  if (row.layer) instr.layer = pick(p.layers.size());
  if (row.value) instr.value = pick(p.values.size());
  if (row.microbatch) instr.microbatch = pick(p.microbatches.size());
  if (row.bucket) instr.bucket = pick(p.buckets.size());
  if (row.axis) instr.axis = pick(kAxes);
  if (row.peer) instr.peer = pick(row.axis ? p.mesh.size[instr.axis] : p.mesh.world_size());
  const bool may = kind == GSEL_INSTR_SEND || kind == GSEL_INSTR_RECV || kind == GSEL_INSTR_SCATTER;
  if (may && dice.coin()) instr.flags = GSEL_INSTR_GRADIENT;
  return instr;
}

Program random_program(uint64_t key) {
  Dice dice(key);
  Program p;
  for (int32_t& size : p.mesh.size) size = static_cast<int32_t>(dice.roll(1, 4));
  p.rank = static_cast<int32_t>(dice.roll(0, p.mesh.world_size() - 1));
  random_model(dice, p);
  for (int64_t i = dice.roll(1, 4); i > 0; --i) p.microbatches.push_back({dice.roll(0, 9), dice.roll(0, 9)});
  if (dice.coin()) p.microbatches.push_back({dice.roll(0, 9), dice.roll(0, 9), 0});
  for (int64_t i = dice.roll(1, 4); i > 0; --i) {
    std::vector<int32_t> params = dice.some(p.params.size(), 5);
    if (params.empty()) params.push_back(0);
    p.buckets.push_back(random_bucket(dice, held_alike(p, params)));
  }
  for (int32_t repeat = 0; repeat < 3; ++repeat)
    for (gsel_instr_kind kind = GSEL_INPUT; kind <= GSEL_INSTR_ALLREDUCE_TIED; ++kind) {
      p.step.push_back(random_instr(dice, p, kind));
      if (dice.coin()) p.setup.push_back(random_instr(dice, p, kind));
    }
  return p;
}

void any_program_reads_back_from_its_text(void**) {
  for (uint64_t key = 0; key < 500; ++key) {
    const Program p = random_program(key);
    const std::string text = to_text(p);
    try {
      const Program back = parse_program(text, "p.txt");
      if (!equal(p, back) || to_text(back) != text)
        fail_msg("program %d is another one read back:\n%s\n%s", int(key), text.c_str(), to_text(back).c_str());
      assert_int_equal(back.lines.size(), p.setup.size() + p.step.size());
    } catch (const Error& e) {
      fail_msg("program %d: %s\n%s", int(key), e.what(), text.c_str());
    }
  }
}

void each_attribute_stands_in_the_text(void**) {
  Program p = test::make_programs({.strategy = test::Strategy::zero3, .phases = true})[1];
  p.params[test::W1].rows = 3;
  p.params[test::W1].dtype = p.params[test::B1].dtype = GSEL_BF16;
  p.buckets[0].flags |= GSEL_BUCKET_OFFLOAD_STATE | GSEL_BUCKET_OFFLOAD_PARAM;
  p.buckets[1].flags |= GSEL_BUCKET_WHOLE_PARAMS;
  p.buckets[2] = {{test::W2}};
  p.buckets[2].compression = GSEL_COMPRESS_LOW_RANK;
  p.buckets[2].compression_rank = 4;
  p.buckets[2].compression_start = 10;
  p.microbatches[1].whole = 0;
  p.mesh.size[GSEL_AXIS_PIPELINE] = 2;
  p.rank_of_stage = {0, 1, 0};
  p.layers[test::MIX].stage = p.layers[test::HEAD].stage = 1;
  p.layers[test::LOSS_LAYER].stage = 2;
  p.transfers = 4;
  p.notes = {"cut before mix\nand loss"};
  const std::string text = to_text(p);
  for (const char* line :
       {"param w1 9 rows=3 dtype=bf16", "param fixed 4 frozen", "value tokens bytes=8 input",
        "value loss bytes=8 scalar", "value x0 bytes=16 gradient",
        "layer fc1 reads=x0 writes=x1 params=w1,b1 backward_input backward_weight unread=b1 "
        "forward_phases=data:f64:16,data:f32:12 backward_phases=data:f64:8",
        "bucket params=table shard=state,gradient,param axis=data offload=state,param",
        "bucket params=w1,b1 shard=state,gradient,param whole_params axis=data",
        "bucket params=w2 compress=low_rank:4@10", "microbatch 6 1 of=0", "stages 0 1 0", "transfers 4",
        "# cut before mix and loss", "layer mix reads=x0,x1 writes=x2 backward_input stage=1"})
    if (!std::strstr(text.c_str(), fmt::format("\n{}\n", line).c_str()))
      fail_msg("no line \"%s\" in\n%s", line, text.c_str());
}

// What ranks of a tensor axis share, of a rank between others.
const char kTensor[] =
    "gsel-program 1\nrank 1\nmesh tensor=3 data=1 pipeline=1\nparam qkv 96 rows=24 shard=0:2-4/6x3\n"
    "param o 32 rows=4 shard=1:2-4/6\nparam b 8 partial_gradient\nvalue t bytes=4 dtype=i32 input\n"
    "value x bytes=32 gradient\nvalue x@copy bytes=32 gradient placement=copy\n"
    "value h bytes=48 dtype=bf16 gradient placement=shard shard=2:2-4/6x3\nvalue y bytes=32 gradient "
    "placement=partial\n"
    "layer e reads=t writes=x backward_weight params=b\n"
    "layer x@copy reads=x writes=x@copy backward_input redistributes\n"
    "layer qkv reads=x@copy writes=h params=qkv backward_input backward_weight "
    "forward_phases=tensor:f32:0+8:ring_shift,tensor:f64:16 divided\n"
    "microbatch 0 4\nbucket params=qkv,o\nbucket params=b\nsetup\nstep\n"
    "allreduce_partial bucket=1 axis=tensor\nend\n";

void parts_and_forms_are_read_back(void**) {
  std::string text = kTensor;
  const Program p = parse_program(text, "p.txt");
  const std::string again = to_text(p);
  assert_true(equal(parse_program(again, "p.txt"), p));
  for (const char* line :
       {"param qkv 96 rows=24 shard=0:2-4/6x3", "param o 32 rows=4 shard=1:2-4/6", "param b 8 partial_gradient",
        "value t bytes=4 dtype=i32 input", "value x@copy bytes=32 gradient placement=copy",
        "value h bytes=48 dtype=bf16 gradient placement=shard shard=2:2-4/6x3",
        "value y bytes=32 gradient placement=partial",
        "layer x@copy reads=x writes=x@copy backward_input redistributes",
        "layer qkv reads=x@copy writes=h params=qkv backward_input backward_weight "
        "forward_phases=tensor:f32:0+8:ring_shift,tensor:f64:16 divided",
        "allreduce_partial bucket=1 axis=tensor"})
    if (!std::strstr(again.c_str(), fmt::format("\n{}\n", line).c_str()))
      fail_msg("no line \"%s\" in\n%s", line, again.c_str());
  assert_true(p.params[0].shard == (Shard{0, 3, 2, 4, 6}));
  assert_true(p.values[3].placement == Placement::shard && p.values[3].shard == (Shard{2, 3, 2, 4, 6}));
  assert_true(p.layers[1].redistributes && p.layers[1].divided && p.layers[2].divided && !p.layers[2].redistributes);
  assert_true(p.layers[2].forward_phases[0].ring_shifts && !p.layers[2].forward_phases[1].ring_shifts);
}

void faults_of_parts_are_refused_where_they_stand(void**) {
  struct Case {
    const char *found, *replacement, *token, *message;
  };
  const Case cases[] = {
      {"shard=0:2-4/6x3", "shard=0:2-4", "shard=0:2-4", "expected DIM:BEGIN-END/WHOLE"},
      {"shard=0:2-4/6x3", "shard=0:2-7/6x3", "shard=0:2-7/6x3", "is no number from 3 to 6"},
      {"shard=0:2-4/6x3", "shard=0:2-2/6x3", "shard=0:2-2/6x3", "is no number from 3 to 6"},
      {"shard=0:2-4/6x3", "shard=6:2-4/6x3", "shard=6:2-4/6x3", "is no number from 0 to 5"},
      {"shard=0:2-4/6x3", "shard=0:2-4/6x0", "shard=0:2-4/6x0", "is no number from 1 to"},
      {"shard=0:2-4/6x3", "shard=0:2-4/6x900000000000000", "shard=0:2-4/6x900000000000000", "is no number from 1 to"},
      {"shard=0:2-4/6x3", "shard=0:2-4/6x5", "shard=0:2-4/6x5",
       "96 elements are not divisible by 10, the number of indices"},
      {"shard=2:2-4/6x3", "shard=0:2-4/6x3", "shard=0:2-4/6x3", "is no number from 1 to 5"},
      {"shard=2:2-4/6x3", "shard=2:2-4/6x5", "shard=2:2-4/6x5",
       "48 bytes of a sample are not divisible by 10, the number of indices"},
      {" placement=shard shard=2:2-4/6x3", " shard=2:2-4/6x3", "shard=2:2-4/6x3",
       "placement=shard and shard= go together"},
      {" placement=shard shard=2:2-4/6x3", " placement=shard", "placement=shard",
       "placement=shard and shard= go together"},
      {"placement=copy", "placement=wide", "placement=wide", "\"wide\" is none of replicate, copy, shard, partial"},
      {"dtype=i32", "dtype=i33", "dtype=i33", "\"i33\" is no element type"},
      {"writes=x@copy backward_input", "writes=x@copy,y", "x@copy", "one input and one output"},
      {"writes=x@copy backward_input", "writes=y backward_input", "x@copy", "which is replicate, to \"y\", which is"},
      {"writes=x@copy backward_input", "writes=x@copy", "x@copy", "whose gradient it does not bring back"},
      {"value x bytes=32", "value x bytes=36", "x@copy", "another size or element type"},
      {"bucket params=qkv,o\nbucket params=b", "bucket params=qkv,b\nbucket params=o", "bucket",
       "gradients with two placements"},
      {"axis=tensor\nend", "axis=time\nend", "axis=time", "is none of tensor, context, data, pipeline"},
  };
  for (const Case& c : cases) {
    std::string text = kTensor;
    const size_t at = text.find(c.found);
    assert_true(at != text.npos);
    text.replace(at, std::strlen(c.found), c.replacement);
    try {
      parse_program(text, "p.txt");
      fail_msg("%s: accepted", c.replacement);
    } catch (const Error& e) {
      if (e.code() != GSEL_ERR_PARSE || e.place().token != c.token || !std::strstr(e.what(), c.message))
        fail_msg("%s: got \"%s\" at \"%s\"", c.replacement, e.what(), e.place().token.c_str());
    }
  }
}

// ---- refusals ----

const char kGood[] =
    "gsel-program 1\nrank 0\nmesh data=2\nparam w 8\nparam h 8 dtype=f16\nvalue t bytes=4 input\nvalue x gradient\n"
    "value n scalar\nlayer a reads=t writes=x params=w,h backward_weight\nmicrobatch 0 4\nmicrobatch 4 0\n"
    "bucket params=w\nbucket params=h shard=state axis=data\nstep\nend\n";

void faults_are_refused_where_they_stand(void**) {
  struct Case {
    const char *found, *replacement, *token, *message;
    int line;
  };
  const Case cases[] = {
      {"param w 8", "param w 0", "0", "\"0\" is no number from 1 to", 4},
      {"param w 8", "param w,v 8", "w,v", "\"w,v\" is no name", 4},
      {"param w 8", "param w\x01 8", "w\x01", "\"w \" is no name", 4},
      {"param w 8", "param w 8 dtype=f64", "dtype=f64", "\"f64\" is none of f32, bf16, f16", 4},
      {"param w 8", "param w 8 rows=3", "rows=3", "8 elements cannot be cut into 3 equal rows", 4},
      {"param w 8", "param w 8 rows=9", "rows=9", "is no number from 1 to 8", 4},
      {"param w 8", "param w 8 rows=2 rows=4", "rows=4", "\"rows=\" is given twice", 4},
      {"param w 8", "param w 1125899906842624", "8", "1125899906842632 elements so far", 5},
      {"param w 8", "param w 99999999999999999999", "99999999999999999999", "is no number", 4},
      {"bytes=4", "bytes=-1", "bytes=-1", "is no number", 6},
      {"bytes=4", "bytes=1000000000000000", "4", "1000000000000000 bytes for each of 4 samples", 10},
      {"value n scalar", "value n skalar", "skalar",
       "is none of bytes=, dtype=, scalar, input, gradient, placement=, shard=", 8},
      {"params=w,h", "params=w,h unread=w,q", "unread=w,q", "param \"q\" is not declared above", 9},
      {"params=w,h", "params=w unread=h", "unread=h", "param \"h\" is not among the first 64 of params=", 9},
      {"params=w,h", "params=w,h forward_phases=data:f32", "forward_phases=data:f32", "is not axis:dtype:bytes", 9},
      {"params=w,h", "params=w,h forward_phases=time:f32:8", "forward_phases=time:f32:8",
       "none of tensor, context, data", 9},
      {"params=w,h", "params=w,h backward_phases=data:f16:8", "backward_phases=data:f16:8", "none of f32, f64", 9},
      {"params=w,h", "params=w,h backward_phases=data:f64:12", "backward_phases=data:f64:12", "whole number of", 9},
      {"params=w,h", "params=w,h backward_phases=data:f64:8+", "backward_phases=data:f64:8+", "is no number", 9},
      {"microbatch 4 0", "microbatch 4 0 of=2", "of=2", "micro-batch 1 is a shard of 2; use another of 0 to 1", 11},
      {"microbatch 4 0", "microbatch 4 0 of=1", "of=1", "micro-batch 1 is a shard of 1", 11},
      {"microbatch 0 4\nmicrobatch 4 0", "microbatch 0 4 of=1\nmicrobatch 4 0 of=0", "of=1", "itself a shard", 10},
      {"microbatch 4 0", "microbatch 4 -1", "-1", "is no number", 11},
      {"microbatch 4 0", "microbatch 4", "4", "a number is missing", 11},
      {"params=w\n", "params=w,h\n", "bucket", "kept in two dtypes", 12},
      {"params=w\n", "params=w shard=param\n", "bucket", "bucket 0: parameters in shards need gradients", 12},
      {"params=w\n", "params=w shard=gradient axis=data\n", "bucket", "gradients in shards need state in shards", 12},
      {"params=w\n", "params=w shard=state\n", "bucket", "shards and an owner need an axis", 12},
      {"params=w\n", "params=w shard=half\n", "shard=half", "\"half\" is none of what shard lists: ", 12},
      {"params=w\n", "params=w offload=param\n", "bucket", "whole parameters cannot live in offload", 12},
      {"params=w\n", "params=w owner=0\n", "bucket", "shards and an owner need an axis", 12},
      {"params=w\n", "params=w owner=2 axis=data\n", "bucket", "owner 2 is no coordinate on an axis of 2", 12},
      {"params=w\n", "params=w owner=0 shard=state axis=data\n", "bucket", "it has an owner and shards", 12},
      {"params=w\n", "params=w compress=f8\n", "compress=f8", "none of f16, bf16, low_rank:COLUMNS", 12},
      {"params=w\n", "params=w compress=none\n", "compress=none", "none of f16, bf16, low_rank:COLUMNS", 12},
      {"params=w\n", "params=w compress=low_rank\n", "compress=low_rank", "none of f16", 12},
      {"params=w\n", "params=w compress=bf16:3\n", "compress=bf16:3", "none of f16", 12},
      {"params=w\n", "params=w compress=f16@x\n", "compress=f16@x", "is no number", 12},
      {"params=w\n", "params=w compress=low_rank:0\n", "compress=low_rank:0", "is no number", 12},
      {"shard=state", "shard=state compress=f16", "bucket", "only the allreduce of a bucket without shards", 13},
      {"mesh data=2", "mesh data=2\nstages 0 1", "stages", "stage 1 is on pipeline rank 1; 0 to 0 exist", 4},
      {"mesh data=2", "mesh data=2\nstages 0 0", "stages", "stage 1 has no layer", 4},
      {"mesh data=2", "mesh data=2 pipeline=2", "mesh", "pipeline rank 1 has no stage", 3},
      {"mesh data=2", "mesh data=2\nstages", "stages", "the pipeline ranks of the stages are missing", 4},
      {"mesh data=2", "mesh data=2\nstages 0 x", "x", "\"x\" is no number", 4},
      {"mesh data=2", "mesh data=2\ntransfers 0", "0", "\"0\" is no number from 1", 4},
      {"mesh data=2", "mesh data=2\ntransfers 2 4", "4", "one word too many", 4},
      {"params=w,h", "params=w,h stage=1", "stage=1", "has no pipeline rank; the stages line above gives one to 0 to 0",
       9},
      {"step\n", "step\nallreduce_tied bucket=0 axis=data\n", "allreduce_tied",
       "allreduce_tied has axis 1; it takes none", 15},
      {"step\n", "step\nbroadcast bucket=0 axis=data root=2\n", "broadcast", "broadcast has peer 2; 0 to 1 exist", 15},
      {"step\n", "step\ngather value=t mb=0 axis=data root=0 gradient\n", "gather", "unknown flags 0x1", 15},
      {"step\n", "step\nwait bucket=0 bucket=1\n", "bucket=1", "\"bucket=\" is given twice", 15},
      {"step\n", "step\nwait a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g\n", "f",
       "the line has too many words", 15},
  };
  for (const Case& c : cases) {
    std::string text = kGood;
    const size_t at = text.find(c.found);
    assert_true(at != std::string::npos);
    text.replace(at, std::strlen(c.found), c.replacement);
    try {
      (void)parse_program(text, "p.txt");
      fail_msg("\"%s\" was read", c.replacement);
    } catch (const Error& e) {
      if (e.code() != GSEL_ERR_PARSE || e.place().token != c.token || e.place().line != c.line ||
          !std::strstr(e.what(), c.message))
        fail_msg("\"%s\"\n  expected line %d, \"%s\": %s\n  got line %d, \"%s\": %s", c.replacement, c.line, c.token,
                 c.message, int(e.place().line), e.place().token.c_str(), e.what());
    }
  }
  (void)parse_program(kGood, "p.txt");
}

void old_texts_still_read(void**) {
  const Program p = parse_program(
      "gsel-program 1\r\nrank 0\nmesh tensor=1 data=1 pipeline=1 # one rank\nparam w 8\nvalue t input\nvalue l\n"
      "value n\nlayer loss reads=t writes=l,n params=w loss backward_weight\nmicrobatch 0 3\nbucket params=w\nstep\n"
      "input value=t mb=0\nend\n",
      "p.txt");
  assert_int_equal(p.params[0].dtype, GSEL_F32);
  assert_int_equal(p.params[0].rows, 1);
  assert_int_equal(p.microbatches[0].whole, -1);
  assert_int_equal(p.buckets[0].axis, -1);
  assert_int_equal(p.buckets[0].owner, -1);
  assert_int_equal(p.values[1].sample_bytes, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(any_program_reads_back_from_its_text),
      cmocka_unit_test(each_attribute_stands_in_the_text),
      cmocka_unit_test(faults_are_refused_where_they_stand),
      cmocka_unit_test(parts_and_forms_are_read_back),
      cmocka_unit_test(faults_of_parts_are_refused_where_they_stand),
      cmocka_unit_test(old_texts_still_read),
  };
  return cmocka_run_group_tests_name("program text", tests, nullptr, nullptr);
}
