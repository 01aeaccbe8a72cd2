// The verifier against damaged programs: every instruction of good programs in turn is dropped, doubled, exchanged with
// its neighbour or moved elsewhere, on one rank or on all. Whether the damage matters is judged here, from what each
// instruction reads and writes, and the verifier must come to the same verdict: a mutant that matters is refused, one
// that does not is accepted.
#include <gsel/model.h>

#include "program/forward_programs.h"
#include "program/text/text.h"
#include "program/words/words.h"
#include "support/program_judge.h"
#include "support/program_maker.h"
#include "support/share.h"
#include "support/verdict.h"

namespace {

using namespace gsel;
using test::Footprint;
using test::Judge;
using test::Strategy;
using test::Wanted;

std::vector<Wanted> all_kinds() {
  std::vector<Wanted> all;
  for (Strategy strategy : test::kStrategies)
    for (int32_t ranks = 1; ranks <= 4; ++ranks)
      for (int32_t microbatches = 1; microbatches <= 3; ++microbatches)
        for (int bits = 0; bits < 32; ++bits) {
          if (!in_share()) continue;
          all.push_back({strategy, ranks, microbatches, bool(bits & 1), bool(bits & 2), bool(bits & 4), bool(bits & 8),
                         bool(bits & 16), bits & 1 ? 2 : 7});
        }
  return all;
}

std::string text_of(const Wanted& w) {
  return fmt::format("{} on {} ranks, {} micro-batches{}{}{}{}{}", name_of(w.strategy), w.ranks, w.microbatches,
                     w.recompute ? ", recompute" : "", w.clip ? ", clip" : "", w.overflow ? ", overflow" : "",
                     w.split ? ", split" : "", w.phases ? ", phases" : "");
}

void good_programs_are_accepted(void**) {
  for (const Wanted& wanted : all_kinds()) {
    const std::string why = test::refusal_of_a_rank(test::make_programs(wanted));
    if (!why.empty()) fail_msg("%s: %s", text_of(wanted).c_str(), why.c_str());
  }
}

void an_evaluation_is_left_of_each(void**) {
  for (const Wanted& wanted : all_kinds()) {
    std::vector<Program> programs = test::make_programs(wanted);
    for (Program& p : programs) p = forward_only(p);
    const std::string why = test::refusal_of_a_rank(programs, Purpose::evaluation);
    if (!why.empty()) fail_msg("%s: %s", text_of(wanted).c_str(), why.c_str());
    for (const Program& p : programs)
      for (const gsel_instr& instr : p.step)
        assert_true(instr.kind == GSEL_INPUT || instr.kind == GSEL_FORWARD || instr.kind == GSEL_INSTR_ALLGATHER ||
                    instr.kind == GSEL_INSTR_WAIT || instr.kind == GSEL_INSTR_RELEASE ||
                    instr.kind == GSEL_INSTR_BROADCAST || instr.kind == GSEL_INSTR_SCATTER ||
                    instr.kind == GSEL_INSTR_GATHER || instr.kind == GSEL_INSTR_LOSS_ALLREDUCE);
  }
}

// ---- damage ----

// Harmless when dropped: the replicas of a master keep memory they could give back; a recomputation saves memory
// alone. Without norm on all ranks nothing is clipped, without overflow nothing is looked for: programs of another
// configuration. One that meets others must be missing on all ranks, if at all.
bool may_be_missing(const gsel_instr& instr, const Footprint& footprint, Strategy strategy, bool everywhere) {
  if (instr.kind == GSEL_INSTR_RELEASE) return strategy == Strategy::dp;
  if (instr.kind == GSEL_INSTR_RECOMPUTE) return everywhere || !footprint.meets;
  return (instr.kind == GSEL_INSTR_NORM || instr.kind == GSEL_INSTR_OVERFLOW) && everywhere;
}

struct Trial {
  const Wanted& wanted;
  const std::vector<Program>& good;
  std::vector<Judge> judges = {};
  size_t n_refused = 0, n_accepted = 0;

  // Damages one rank, or all where their lists are alike; `expected`: whether it must be accepted.
  template <class Damage>
  void run(const char* what, int32_t rank, size_t at, bool expected, Damage&& damage) {
    std::vector<Program> programs = good;
    for (Program& p : programs)
      if (rank < 0 || p.rank == rank) damage(p.step);
    const std::string why = test::refusal_of_a_rank(programs);
    ++(expected ? n_accepted : n_refused);
    if (why.empty() == expected) return;
    const Program& p = good[std::max(rank, 0)];
    fail_msg("%s, %s on %s: %s\n  %s\n%s", text_of(wanted).c_str(), what,
             rank < 0 ? "all ranks" : fmt::format("rank {}", rank).c_str(),
             expected ? "harmless, but refused" : "it matters, but was accepted", where(p, false, at).c_str(),
             expected ? why.c_str() : to_text(programs[std::max(rank, 0)]).c_str());
  }

  bool commutes(size_t a, size_t b, int32_t rank) const {
    if (rank >= 0) return judges[rank].commute(a, b, wanted.ranks == 1);
    for (const Judge& judge : judges)
      if (!judge.commute(a, b, true)) return false;
    return true;
  }

  void damage_rank(int32_t rank, uint64_t& counter) {
    const std::vector<gsel_instr>& step = good[std::max(rank, 0)].step;
    const Judge& judge = judges[std::max(rank, 0)];
    const bool everywhere = rank < 0 || wanted.ranks == 1;
    for (size_t i = 0; i < step.size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      const bool missing = may_be_missing(step[i], judge.footprint(i), wanted.strategy, everywhere);
      run("drop", rank, i, missing, [&](auto& list) { list.erase(list.begin() + at); });
      run("double", rank, i, false, [&](auto& list) { list.insert(list.begin() + at, list[i]); });
      if (i + 1 < step.size()) move(rank, i, i + 1);
      const auto to = static_cast<size_t>(gsel_random_uniform(5, counter++) * static_cast<float>(step.size()));
      move(rank, i, std::min(to, step.size() - 1));
    }
  }

  // Harmless when it may change places with all that it passes.
  void move(int32_t rank, size_t from, size_t to) {
    bool fine = true;
    for (size_t k = std::min(from, to); k <= std::max(from, to); ++k)
      if (k != from) fine = fine && commutes(from, k, rank);
    auto damage = [&](std::vector<gsel_instr>& list) {
      const gsel_instr instr = list[from];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(from));
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(to), instr);
    };
    for (const Program& p : good) {
      if (rank >= 0 && p.rank != rank) continue;
      std::vector<gsel_instr> list = p.step;
      damage(list);
      fine = fine && judges[p.rank].reductions_are_sound(list) && judges[p.rank].windows_are_sound(list);
    }
    run(from < to ? "move to later" : "move to earlier", rank, from, fine, damage);
  }
};

// What is left out shows nothing that the others do not: three micro-batches, and most pairs of options.
bool is_telling(const Wanted& w) {
  const int options = w.recompute + w.clip + w.overflow + w.split + w.phases;
  return w.microbatches < 3 && (options < 2 || options == 5 || (options == 2 && w.clip && w.overflow));
}

void damage_is_refused_where_it_matters_and_only_there(void**) {
  uint64_t counter = 0;
  size_t n_refused = 0, n_accepted = 0;
  for (const Wanted& wanted : all_kinds()) {
    if (!is_telling(wanted)) continue;
    const std::vector<Program> good = test::make_programs(wanted);
    Trial trial{wanted, good};
    for (const Program& p : good) trial.judges.emplace_back(p);
    bool alike = true;
    for (const Program& p : good) alike = alike && p.step.size() == good[0].step.size();
    trial.damage_rank(0, counter);
    if (wanted.ranks > 1) trial.damage_rank(wanted.ranks - 1, counter);
    if (wanted.ranks > 1 && alike) trial.damage_rank(-1, counter);
    n_refused += trial.n_refused;
    n_accepted += trial.n_accepted;
  }
  print_message("%zu mutants refused, %zu accepted\n", n_refused, n_accepted);
  assert_true(n_refused > 10000 && n_accepted > 1000);
}

void damage_of_setup_is_refused(void**) {
  for (Strategy strategy : test::kStrategies)
    for (int32_t ranks = 2; ranks <= 4; ++ranks) {
      const std::vector<Program> good = test::make_programs({.strategy = strategy, .ranks = ranks});
      for (size_t i = 0; i < good[0].setup.size(); ++i)
        for (bool doubled : {false, true}) {
          std::vector<Program> programs = good;
          const auto at = programs[1].setup.begin() + static_cast<std::ptrdiff_t>(i);
          if (doubled)
            programs[1].setup.insert(at, *at);
          else
            programs[1].setup.erase(at);
          assert_false(test::refusal_of_a_rank(programs).empty());
        }
    }
}

void damage_of_an_evaluation_is_refused(void**) {
  for (Strategy strategy : test::kStrategies) {
    std::vector<Program> good = test::make_programs({.strategy = strategy, .ranks = 3, .phases = true});
    for (Program& p : good) p = forward_only(p);
    for (size_t i = 0; i < good[1].step.size(); ++i) {
      const gsel_instr instr = good[1].step[i];
      std::vector<Program> programs = good;
      programs[1].step.erase(programs[1].step.begin() + static_cast<std::ptrdiff_t>(i));
      const bool harmless = instr.kind == GSEL_INSTR_RELEASE && strategy == Strategy::dp;
      if (test::refusal_of_a_rank(programs, Purpose::evaluation).empty() != harmless)
        fail_msg("%s without %s", name_of(strategy), where(good[1], false, i).c_str());
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(good_programs_are_accepted),
      cmocka_unit_test(an_evaluation_is_left_of_each),
      cmocka_unit_test(damage_is_refused_where_it_matters_and_only_there),
      cmocka_unit_test(damage_of_setup_is_refused),
      cmocka_unit_test(damage_of_an_evaluation_is_refused),
  };
  return cmocka_run_group_tests_name("program mutations", tests, nullptr, nullptr);
}
