// Programs of pipelines: random cuts, stages and orders are accepted, and damaged programs are refused; how far ahead
// their messages must be posted; where sums of tied gradients go.

#include <map>
#include <set>

#include "program/stages.h"
#include "program/text/text.h"
#include "program/traffic.h"
#include "program/verify/verify.h"
#include "program/words/words.h"
#include "support/pipeline_damage.h"
#include "support/pipeline_maker.h"
#include "support/program_cases.h"
#include "support/share.h"
#include "support/transfers.h"
#include "support/verdict.h"
#include "train/compile/exchange_programs.h"

namespace {

using namespace gsel;
using namespace gsel::test;

constexpr uint32_t kPrograms = SANITIZED ? 60 : 300, kDamaged = SANITIZED ? 36 : 180;

std::vector<const Program*> pointers_to(const std::vector<Program>& programs) {
  std::vector<const Program*> pointers;
  for (const Program& p : programs) pointers.push_back(&p);
  return pointers;
}

const std::vector<Program>& drawn(uint32_t seed) {
  static std::vector<std::vector<Program>> all(kPrograms);
  if (all[seed].empty()) {
    Draw draw(seed);
    const PipelineShape shape = PipelineShape::drawn(draw);
    all[seed] = make_pipeline(shape, draw);
  }
  return all[seed];
}

void any_cuts_stages_and_orders_are_accepted(void**) {
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const std::vector<Program>& programs = drawn(seed);
    if (const std::string why = refusal(programs); !why.empty())
      fail_msg("seed %u: %s\n%s", seed, why.c_str(), all_text(programs).c_str());
    std::vector<Program> forwards;
    for (const Program& p : programs) {
      forwards.push_back(forward_only(p));
      assert_true(equal(parse_program(to_text(p), "p.txt"), p));
    }
    if (const std::string why = refusal(forwards, Purpose::evaluation); !why.empty())
      fail_msg("seed %u, evaluation: %s\n%s", seed, why.c_str(), all_text(forwards).c_str());
  }
}

// ---- damage ----

void no_damage_is_accepted(void**) {
  check_damage_is_refused(all_damages(), kDamaged, drawn);
}

// ---- transfers ----

// Messages of programs as they are posted and leave, one by one, without any rule of what they mean: whether all ranks
// come to their loss with so many transfers under way. Collectives that stand between messages are left out.
class Rendezvous {
 public:
  Rendezvous(const std::vector<Program>& programs, int32_t transfers) : transfers_(transfers) {
    for (const Program& p : programs) {
      std::vector<gsel_instr> messages;
      for (const gsel_instr& i : p.step)
        if (i.kind == GSEL_INSTR_SEND || i.kind == GSEL_INSTR_RECV) messages.push_back(i);
      lists_.push_back(std::move(messages));
    }
    at_.resize(lists_.size());
  }

  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int32_t r = 0; r < static_cast<int32_t>(lists_.size()); ++r)
        while (at_[r] < lists_[r].size() && pass(r, lists_[r][at_[r]])) {
          ++at_[r];
          moved = true;
        }
    }
    for (size_t r = 0; r < lists_.size(); ++r)
      if (at_[r] < lists_[r].size()) return false;
    for (const auto& [pair, n] : sent_)
      if (!has_left(pair, n - 1)) return false;
    return true;
  }

 private:
  using Pair = std::pair<int32_t, int32_t>;

  bool is_posted(const Pair& pair, int64_t k) { return k - transfers_ < taken_[pair]; }
  bool has_left(const Pair& pair, int64_t k) { return k < 0 || (k < sent_[pair] && is_posted(pair, k)); }

  bool pass(int32_t rank, const gsel_instr& i) {
    if (i.kind == GSEL_INSTR_SEND) {
      const Pair pair{rank, i.peer};
      if (!has_left(pair, sent_[pair] - transfers_)) return false;
      ++sent_[pair];
    } else {
      const Pair pair{i.peer, rank};
      if (!has_left(pair, taken_[pair])) return false;
      ++taken_[pair];
    }
    return true;
  }

  const int64_t transfers_;
  std::vector<std::vector<gsel_instr>> lists_;
  std::vector<size_t> at_;
  std::map<Pair, int64_t> sent_, taken_;
};

void transfers_are_enough_and_half_of_them_are_not(void**) {
  int more_than_least = 0;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    std::vector<Program> programs = drawn(seed);
    set_transfers(programs);
    const int32_t transfers = programs.front().transfers;
    for (const Program& p : programs) assert_int_equal(p.transfers, transfers);
    if (!Rendezvous(programs, transfers).ends()) fail_msg("seed %u: %d transfers block", seed, int(transfers));
    std::vector<Program> forwards;
    for (const Program& p : programs) forwards.push_back(forward_only(p));
    if (!Rendezvous(forwards, transfers).ends()) fail_msg("seed %u: %d transfers block forwards", seed, int(transfers));
    if (transfers == kLeastTransfers) continue;
    ++more_than_least;
    if (Rendezvous(programs, transfers / 2).ends()) fail_msg("seed %u: %d would be enough", seed, int(transfers / 2));
  }
  assert_true(more_than_least > 0);
}

// Two ranks that send each other n values, and receive n before that or after it.
std::vector<Program> crossing(int32_t n, bool receive_first) {
  std::vector<Program> programs;
  for (int32_t rank = 0; rank < 2; ++rank) {
    std::string text = fmt::format(
        "gsel-program 1\nrank {}\nmesh pipeline=2\nstages 0 1 0\nvalue x bytes=4\nvalue y bytes=4\nvalue l scalar\n"
        "value n scalar\nlayer a writes=x\nlayer b writes=y stage=1\nlayer loss reads=y writes=l,n loss stage=2\n",
        rank);
    for (int32_t m = 0; m < n; ++m) text += fmt::format("microbatch {} 1\n", m);
    text += "step\n";
    for (const bool receive : {receive_first, !receive_first})
      for (int32_t m = 0; m < n; ++m)
        text += receive ? fmt::format("recv value={} mb={} from={}\n", rank ? "x" : "y", m, 1 - rank)
                        : fmt::format("forward layer={} mb={}\nsend value={} mb={} to={}\n", rank ? "b" : "a", m,
                                      rank ? "y" : "x", m, 1 - rank);
    programs.push_back(parse_program(text + "loss_allreduce axis=pipeline\nloss_allreduce axis=data\nend\n", "p.txt"));
  }
  return programs;
}

// A send leaves when its receive is posted, and the next waits for the one so many before it.
void who_sends_much_before_it_receives_needs_as_many(void**) {
  for (const auto& [n, transfers] : std::vector<std::pair<int32_t, int32_t>>{{4, 2}, {5, 4}, {8, 4}, {9, 8}, {17, 16}})
    assert_int_equal(enough_transfers(whole_job(pointers_to(crossing(n, false)))), transfers);
}

void what_waits_for_ever_is_named(void**) {
  const std::vector<Program> programs = crossing(3, true);
  try {
    enough_transfers(whole_job(pointers_to(programs)));
    fail_msg("two ranks that both receive first were accepted");
  } catch (const Error& e) {
    check_verdict(e.what(),
                  "rank 0, step instruction 0 (line 16): recv value=y mb=0 from=1: waits without end for a send",
                  "both receive first");
  }
}

// ---- bytes ----

uint64_t sent(const Program& p, gsel_instr_kind kind) {
  const Traffic traffic = step_traffic(p, 0);
  const auto found = traffic.find({GSEL_AXIS_PIPELINE, kind});
  return found == traffic.end() ? 0 : found->second.bytes_sent;
}

// A value comes to each pipeline rank that touches it once, and its gradient goes back as often.
uint64_t crossing_bytes(const std::vector<Program>& programs) {
  const Program& p = programs.front();
  uint64_t bytes = 0;
  for (size_t v = 0; v < p.values.size(); ++v) {
    if (p.values[v].is_input) continue;
    std::set<int32_t> ranks;
    for (const ProgramLayer& l : p.layers)
      if (std::ranges::count(l.inputs, v) || std::ranges::count(l.outputs, v)) ranks.insert(p.rank_of_stage[l.stage]);
    const uint64_t ways = (ranks.size() - 1) * (p.values[v].needs_gradient ? 2 : 1);
    for (int32_t d = 0; d < p.mesh.size[GSEL_AXIS_DATA]; ++d)
      for (const Microbatch& mb : programs[d].microbatches)
        if (mb.count > 0)
          bytes += ways * static_cast<uint64_t>(p.values[v].sample_bytes * (p.values[v].is_scalar ? 1 : mb.count));
  }
  return bytes;
}

void bytes_that_cross_are_those_of_live_values(void**) {
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    uint64_t bytes = 0;
    for (const Program& p : drawn(seed)) bytes += sent(p, GSEL_INSTR_SEND);
    if (bytes != crossing_bytes(drawn(seed)))
      fail_msg("seed %u: expected %llu bytes, got %llu", seed,
               static_cast<unsigned long long>(crossing_bytes(drawn(seed))), static_cast<unsigned long long>(bytes));
  }
}

// 10 f32 that each of n pipeline ranks holds: all of them, or the shard of 5.
Program tied_over(int32_t n, const char* how_kept) {
  std::string text = fmt::format("gsel-program 1\nrank 0\nmesh data=2 pipeline={}\nstages", n);
  for (int32_t s = 0; s < n; ++s) text += fmt::format(" {}", s);
  text += "\nparam w 10\nvalue l scalar\nvalue n scalar\n";
  for (int32_t s = 0; s < n; ++s)
    text += fmt::format("layer a{} {} params=w backward_weight stage={}\n", s, s + 1 == n ? "writes=l,n loss" : "", s);
  return parse_program(text + fmt::format("microbatch 0 1\nbucket params=w{}\nstep\nallreduce_tied bucket=0\nnorm\n"
                                          "overflow axis=pipeline\nloss_allreduce axis=pipeline\nend\n",
                                          how_kept),
                       "p.txt");
}

// S + (n - 2) * slice, of the whole and of a shard.
void sums_over_the_pipeline_send_as_an_all_reduce_does(void**) {
  const char* const shards = " shard=state axis=data";
  assert_int_equal(sent(tied_over(2, ""), GSEL_INSTR_ALLREDUCE_TIED), 40);
  assert_int_equal(sent(tied_over(3, ""), GSEL_INSTR_ALLREDUCE_TIED), (10 + 4) * 4);
  assert_int_equal(sent(tied_over(5, ""), GSEL_INSTR_ALLREDUCE_TIED), (10 + 3 * 2) * 4);
  assert_int_equal(sent(tied_over(2, shards), GSEL_INSTR_ALLREDUCE_TIED), 20);
  assert_int_equal(sent(tied_over(3, shards), GSEL_INSTR_ALLREDUCE_TIED), (5 + 2) * 4);
  assert_int_equal(sent(tied_over(3, ""), GSEL_INSTR_NORM), 8 + 8);
  assert_int_equal(sent(tied_over(3, ""), GSEL_INSTR_OVERFLOW), 8 + 8);
}

// Rank 0 receives the loss; the pipeline rank that has it sends it to each other one.
void the_rank_of_the_loss_tells_the_others(void**) {
  assert_int_equal(sent(tied_over(2, ""), GSEL_INSTR_LOSS_ALLREDUCE), 0);
  Program last = tied_over(3, "");
  last.rank = 2 * 2;
  assert_int_equal(sent(last, GSEL_INSTR_LOSS_ALLREDUCE), 2 * 16);
}

// ---- sums of tied gradients ----

constexpr char kTied[] =
    "gsel-program 1\nrank 0\nmesh data=2 pipeline=2\nstages 0 1\nparam e 8\nparam w 4\nparam v 4\nvalue t input\n"
    "value x gradient\nvalue l scalar\nvalue n scalar\nlayer a reads=t writes=x params=e,w,v backward_weight\n"
    "layer loss reads=x writes=l,n params=e,v loss backward_input backward_weight stage=1\nmicrobatch 0 1\n"
    "bucket params=v\nbucket params=w\nbucket params=e\nstep\n";

void check_inserted(const std::string& before, const std::string& after) {
  Program p = parse_program(kTied + before + "end\n", "p.txt");
  insert_tied_reductions(p);
  std::string text;
  for (const gsel_instr& instr : p.step) text += to_text(p, instr) + "\n";
  assert_string_equal(text.c_str(), after.c_str());
}

void tied_sums_stand_behind_reductions_and_before_what_looks(void**) {
  const std::string started =
      "allreduce bucket=0 axis=data\nallreduce bucket=1 axis=data\nallreduce bucket=2 axis=data\n"
      "loss_allreduce axis=pipeline\nloss_allreduce axis=data\n";
  check_inserted(started + "wait bucket=0\nwait bucket=1\nwait bucket=2\nnorm\nstep bucket=0\n",
                 started +
                     "wait bucket=0\nwait bucket=1\nwait bucket=2\nallreduce_tied bucket=2\nallreduce_tied bucket=0\n"
                     "norm\nstep bucket=0\n");
  // Each is stepped as soon as it is there: waits that stood later come before it.
  check_inserted(started + "wait bucket=1\nstep bucket=1\nwait bucket=0\nstep bucket=0\nwait bucket=2\nstep bucket=2\n",
                 started +
                     "wait bucket=1\nstep bucket=1\nwait bucket=0\nwait bucket=2\nallreduce_tied bucket=2\n"
                     "allreduce_tied bucket=0\nstep bucket=0\nstep bucket=2\n");
  check_inserted("overflow axis=pipeline\nstep bucket=1\n",
                 "allreduce_tied bucket=2\nallreduce_tied bucket=0\noverflow axis=pipeline\nstep bucket=1\n");
}

void holders_ties_and_ways_follow_from_the_stages(void**) {
  const Program p = parse_program(std::string(kTied) + "end\n", "p.txt");
  assert_true(holders(p, 0) == (std::vector<int32_t>{0, 1}));
  assert_true(holders(p, 1) == std::vector<int32_t>{0});
  assert_true(ties(p) == (std::vector<std::vector<int32_t>>{{0, 1}}));
  assert_int_equal(tie_of(p, 1), -1);
  assert_int_equal(tie_of(p, 2), 0);
  assert_true(chain(p, 1) == (std::vector<int32_t>{0, 1}));
  assert_true(tied_ranks(p, 0) == (std::vector<int32_t>{0, 2}));
  assert_true(counts_for_tie(p, 0));
  const std::vector<ProgramBucket> plain = plain_buckets(p);
  assert_int_equal(plain.size(), 2);
  assert_true(plain[0].params == std::vector<int32_t>{1});
  assert_true(plain[1].params == (std::vector<int32_t>{0, 2}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(any_cuts_stages_and_orders_are_accepted),
      cmocka_unit_test(no_damage_is_accepted),
      cmocka_unit_test(transfers_are_enough_and_half_of_them_are_not),
      cmocka_unit_test(who_sends_much_before_it_receives_needs_as_many),
      cmocka_unit_test(what_waits_for_ever_is_named),
      cmocka_unit_test(bytes_that_cross_are_those_of_live_values),
      cmocka_unit_test(sums_over_the_pipeline_send_as_an_all_reduce_does),
      cmocka_unit_test(the_rank_of_the_loss_tells_the_others),
      cmocka_unit_test(tied_sums_stand_behind_reductions_and_before_what_looks),
      cmocka_unit_test(holders_ties_and_ways_follow_from_the_stages),
  };
  return cmocka_run_group_tests_name("programs of pipelines", tests, nullptr, nullptr);
}
