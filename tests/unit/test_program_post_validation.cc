// Programs that step before they know whether they may: what the verifier says to each way of getting it wrong, and how
// far forward POST_VALIDATE is moved so that no message crosses it.
#include "program/optimistic.h"
#include "program/text/text.h"
#include "program/traffic.h"
#include "support/program_cases.h"
#include "train/compile/exchange_programs.h"

namespace {

using namespace gsel;
using namespace gsel::test;

// Two pipeline ranks, two data ranks: rank = data + 2 * pipeline. Pipeline rank 0 runs ahead by one forward.
std::string outline(int32_t rank) {
  return fmt::format(
      "gsel-program 1\nrank {}\nmesh data=2 pipeline=2\nstages 0 1\nparam u 8\nparam w 4\nvalue t input\n"
      "value x bytes=16 gradient\nvalue l scalar\nvalue n scalar\nlayer a reads=t writes=x params=u backward_weight\n"
      "layer loss reads=x writes=l,n params=w loss backward_input backward_weight stage=1\nmicrobatch {} 1\n"
      "microbatch {} 1\nmicrobatch {} 1\nbucket params={} shard=state axis=data\nstep\n",
      rank, 3 * (rank % 2), 3 * (rank % 2) + 1, 3 * (rank % 2) + 2, rank < 2 ? "u" : "w");
}

std::string end_of_step() {
  return "reduce_scatter bucket=0 axis=data\nloss_allreduce axis=pipeline\nloss_allreduce axis=data\nwait bucket=0\n"
         "overflow axis=data\noverflow axis=pipeline optimistic\nnorm optimistic\nstep bucket=0\nallgather bucket=0 "
         "axis=data\n"
         "wait bucket=0\nend\n";
}

std::string text_of(int32_t rank) {
  const int32_t peer = (rank + 2) % 4;
  std::string text = outline(rank);
  auto forward = [&](int32_t m) {
    text += rank < 2 ? fmt::format("input value=t mb={0}\nforward layer=a mb={0}\n", m)
                     : fmt::format("recv value=x mb={0} from={1}\nforward layer=loss mb={0}\n", m, peer);
  };
  auto send = [&](int32_t m) { text += fmt::format("send value=x mb={} to={}\n", m, peer); };
  auto backward = [&](int32_t m) {
    text += rank < 2 ? fmt::format("recv value=x mb={0} from={1} gradient\nbackward_weight layer=a mb={0}\n", m, peer)
                     : fmt::format("backward layer=loss mb={0}\nsend value=x mb={0} to={1} gradient\n", m, peer);
  };
  if (rank < 2) {
    forward(0), send(0), forward(1);
    text += "post_validate\n";
    send(1), backward(0), forward(2), send(2), backward(1), backward(2);
  } else {
    forward(0);
    text += "post_validate\n";
    backward(0), forward(1), backward(1), forward(2), backward(2);
  }
  return text + end_of_step();
}

Texts all_texts() {
  Texts texts;
  for (int32_t rank = 0; rank < 4; ++rank) texts.push_back(text_of(rank));
  return texts;
}

struct Wrong {
  int32_t rank;  // -1: all; -2: those of pipeline rank 0; -3: of pipeline rank 1
  const char *lines, *replacement, *message;
};

bool is_of(const Wrong& wrong, int32_t rank) {
  return wrong.rank == rank || wrong.rank == -1 || (wrong.rank == -2 && rank < 2) || (wrong.rank == -3 && rank >= 2);
}

const Wrong kWrongs[] = {
    {-1, "", "", nullptr},
    {0, "post_validate", "",
     "rank 0, step instruction 20 (line 38): overflow axis=pipeline optimistic: its number is optimistic, and no "
     "post_validate "
     "of "
     "the next step would take it"},
    {1, "post_validate", "post_validate\npost_validate",
     "rank 1, step instruction 6 (line 24): post_validate: the step before is already "
     "validated"},
    {0, "norm optimistic", "norm", "all ranks of a group make the same calls in the same order"},
    {-1, "norm optimistic", "norm",
     "norm: it comes after \"overflow axis=pipeline optimistic\", whose result is not known "
     "yet"},
    {-1, "overflow axis=pipeline optimistic", "overflow axis=pipeline",
     "overflow axis=pipeline: \"norm optimistic\" is optimistic; then it must be, too"},
    {-1, "overflow axis=pipeline optimistic\nnorm optimistic", "overflow axis=pipeline\nnorm",
     "post_validate: no norm or overflow is optimistic, so there is nothing to validate"},
    {-1, "overflow axis=data", "overflow axis=data optimistic",
     "an overflow check can be optimistic only over the pipeline axis"},
    {-1, "overflow axis=data\noverflow axis=pipeline optimistic",
     "overflow axis=pipeline optimistic\noverflow axis=data",
     "overflow axis=data: it comes after \"overflow axis=pipeline optimistic\", whose result is not known yet"},
    // Later than anything of backward, or of the loss.
    {-3, "post_validate\nbackward layer=loss mb=0", "backward layer=loss mb=0\npost_validate",
     "post_validate: \"backward layer=loss mb=0\" comes before it and would use a result that may still be undone"},
    {-1, "post_validate", "loss_allreduce axis=pipeline\npost_validate", ""},
    // A message on both sides.
    {-2, "post_validate\nsend value=x mb=1 to=2", "send value=x mb=1 to=2\npost_validate", ""},
    {-2, "send value=x mb=0 to=2\ninput value=t mb=1\nforward layer=a mb=1\npost_validate",
     "post_validate\nsend value=x mb=0 to=2\ninput value=t mb=1\nforward layer=a mb=1", ""},
    {0, "post_validate\nsend value=x mb=1 to=2", "send value=x mb=1 to=2\npost_validate",
     "rank 0, step instruction 5 (line 23): send value=x mb=1 to=2: it comes before this rank's post_validate, but "
     "the other end comes after that of rank 2; a repeated step would leave the message unfinished"},
    {2, "recv value=x mb=0 from=0\nforward layer=loss mb=0\npost_validate",
     "post_validate\nrecv value=x mb=0 from=0\nforward layer=loss mb=0",
     "rank 0, step instruction 2 (line 20): send value=x mb=0 to=2: it comes before"},
    // Where nothing crosses, any position will do.
    {-2, "input value=t mb=1\nforward layer=a mb=1\npost_validate",
     "post_validate\ninput value=t mb=1\nforward layer=a mb=1", nullptr},
};

void each_way_of_getting_it_wrong_is_named(void**) {
  for (const Wrong& wrong : kWrongs) {
    Texts texts = all_texts();
    bool fits = *wrong.lines == 0;
    for (int32_t rank = 0; rank < 4; ++rank)
      if (is_of(wrong, rank) && *wrong.lines &&
          texts[rank].find(fmt::format("\n{}\n", wrong.lines)) != std::string::npos) {
        change(texts[rank], wrong.lines, 1, wrong.replacement);
        fits = true;
      }
    if (!fits) fail_msg("no \"%s\"", wrong.lines);
    const std::string why = verdict(texts);
    if (wrong.message && why.empty()) fail_msg("\"%s\" for \"%s\": accepted", wrong.replacement, wrong.lines);
    check_verdict(why, wrong.message, fmt::format("\"{}\" for \"{}\"", wrong.replacement, wrong.lines));
  }
}

void an_evaluation_validates_nothing(void**) {
  assert_string_equal(verdict(all_texts(), Purpose::evaluation).c_str(), "");
  for (const std::string& text : all_texts())
    assert_int_equal(post_validate_position(forward_only(parse_program(text, "p.txt"))), -1);
}

void it_is_read_back_as_printed(void**) {
  for (const std::string& text : all_texts()) {
    const Program p = parse_program(text, "p.txt");
    assert_true(has_optimistic_steps(p) && post_validate_position(p) >= 0 && is_optimistic(p.step[last_optimistic(p)]));
    assert_true(p.step[last_optimistic(p)].kind == GSEL_INSTR_NORM);
    assert_true(equal(parse_program(to_text(p), "p.txt"), p));
  }
  for (const char* line : {"step bucket=0 optimistic", "post_validate optimistic", "forward layer=a mb=0 optimistic"}) {
    std::string text = text_of(0);
    change(text, "post_validate", 1, line);
    try {
      parse_program(text, "p.txt");
      fail_msg("\"%s\" was accepted", line);
    } catch (const Error& e) {
      check_verdict(e.what(), "has unknown flags 0x2", line);
    }
  }
}

// From the first instruction that is not of forward to where no message crosses.
void post_validate_moves_forward_until_no_message_crosses(void**) {
  std::vector<Program> programs, expected;
  for (int32_t rank = 0; rank < 4; ++rank) {
    std::string text = text_of(rank);
    expected.push_back(parse_program(text, "p.txt"));
    if (rank < 2)
      change(text, fmt::format("post_validate\nsend value=x mb=1 to={}", rank + 2), 1,
             fmt::format("send value=x mb=1 to={}\npost_validate", rank + 2));
    programs.push_back(parse_program(text, "p.txt"));
  }
  place_post_validations(programs);
  for (int32_t rank = 0; rank < 4; ++rank) assert_true(equal(programs[rank], expected[rank]));
  place_post_validations(programs);
  for (int32_t rank = 0; rank < 4; ++rank) assert_true(equal(programs[rank], expected[rank]));
  // A pipeline rank that cannot take even the first message pulls the other to its begin.
  const auto post_validate = programs[2].step.begin() + post_validate_position(programs[2]);
  std::rotate(programs[2].step.begin(), post_validate, post_validate + 1);
  place_post_validations(programs);
  assert_int_equal(post_validate_position(programs[0]), 2);
  assert_int_equal(post_validate_position(programs[1]), 5);
}

// What is optimistic is sent all the same.
void optimistic_numbers_are_counted_as_others(void**) {
  for (std::string text : all_texts()) {
    const Traffic optimistic = step_traffic(parse_program(text, "p.txt"), 0);
    change(text, "post_validate", 1, "");
    change(text, "overflow axis=pipeline optimistic\nnorm optimistic", 1, "overflow axis=pipeline\nnorm");
    const Traffic awaited = step_traffic(parse_program(text, "p.txt"), 0);
    assert_int_equal(optimistic.size(), awaited.size());
    for (const auto& [key, count] : awaited) {
      assert_true(optimistic.contains(key));
      assert_int_equal(optimistic.at(key).bytes_sent, count.bytes_sent);
      assert_int_equal(optimistic.at(key).calls, count.calls);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_way_of_getting_it_wrong_is_named),
      cmocka_unit_test(an_evaluation_validates_nothing),
      cmocka_unit_test(it_is_read_back_as_printed),
      cmocka_unit_test(post_validate_moves_forward_until_no_message_crosses),
      cmocka_unit_test(optimistic_numbers_are_counted_as_others),
  };
  return cmocka_run_group_tests_name("program_validation", tests, nullptr, nullptr);
}
