// The verifier's rules one by one, in the order of docs/program.md: values, samples, messages, groups, parameters.
// Programs that keep a rule are accepted, each that breaks it is refused with rank, instruction and reason.
#include "program/text/text.h"
#include "support/program_cases.h"

namespace {

using namespace gsel;
using namespace gsel::test;

void values_are_written_once_and_read_after(void**) {
  const Case cases[] = {
      {kDdp, 0, 1, "input value=tokens mb=0", "",
       "rank 0, step instruction 1 (line 35): forward layer=embed mb=0: it reads value \"tokens\" before it is "
       "written"},
      {kDdp, 1, 1, "input value=targets mb=0", "input value=tokens mb=0", "the value is already written"},
      {kDdp, 0, 1, "input value=targets mb=0", "input value=x0 mb=0", "the value is not an input"},
      {kDdp, 0, 1, "forward layer=fc1 mb=0", "forward layer=embed mb=0", "this forward has run already"},
      {kDdp, 0, 1, "backward_input layer=mix mb=0", "", "the gradient of value \"x1\" has 0 of 1 contributions"},
      {kDdp, 0, 1, "backward layer=fc1 mb=0", "", "the gradient of parameter \"w1\" still lacks 1 contribution"},
      {kDdp, 0, 1, "backward layer=head mb=0", "backward_weight layer=embed mb=0", "of value \"x0\" has 0 of 2"},
      {kDdp, 0, 1, "backward_input layer=mix mb=0", "backward_weight layer=mix mb=0", "no such gradient to produce"},
      {kDdp, 0, 1, "backward_input layer=mix mb=0", "backward layer=head mb=0", "its inputs is already produced"},
      {kDdp, 0, 1, "forward layer=loss mb=0\nbackward layer=loss mb=0", "backward layer=loss mb=0", "has not run"},
  };
  check_cases(cases);
}

void each_layer_sees_each_sample_once(void**) {
  const Case cases[] = {
      {kDdp, 1, 1, "microbatch 4 3", "microbatch 3 4",
       "rank 1, end of step: layer \"embed\" runs forward on samples 3 to 6 in micro-batch 0; rank 0 runs it on some"},
      {kDdp, 1, 1, "microbatch 4 3", "microbatch 5 2",
       "rank 0, end of step: no rank runs the forward of layer \"embed\" on samples 4 to 4 of the batch"},
      {kDdp, 0, 1, "microbatch 0 4", "microbatch 1 3", "on samples 0 to 0 of the batch"},
      {kDdp, 1, 1, "microbatch 4 3", "microbatch 4 0", nullptr},  // a batch of 4 samples
      {kDdp, 0, 1, "microbatch 0 4", "microbatch 0 4\nmicrobatch 7 0", "it has 1 micro-batch and rank 0 has 2"},
      {kDdp, 0, 1, "microbatch 0 4", "microbatch 0 4\nmicrobatch 0 7", "it has 1 micro-batch"},
      {kDp, 0, 1, "forward layer=loss mb=1", "", "backward layer=loss mb=1: its forward has not run"},
  };
  check_cases(cases);
}

// Two stages of a pipeline.
constexpr char kFirst[] =
    "input value=t mb=0\nforward layer=a mb=0\nsend value=x mb=0 to=1\nrecv value=x mb=0 from=1 gradient\n"
    "backward_weight layer=a mb=0\n";
constexpr char kSecond[] =
    "recv value=x mb=0 from=0\nforward layer=loss mb=0\nbackward layer=loss mb=0\nsend value=x mb=0 to=0 gradient\n";

Texts stages(const char* first, const char* second) {
  Texts texts;
  for (int rank = 0; rank < 2; ++rank)
    texts.push_back(
        fmt::format("gsel-program 1\nrank {}\nmesh pipeline=2\nstages 0 1\nparam w 8\nvalue t bytes=4 input\nvalue x "
                    "bytes=6 gradient\n"
                    "value l scalar\nvalue n scalar\nlayer a reads=t writes=x params=w backward_weight\n"
                    "layer loss reads=x writes=l,n loss backward_input stage=1\nmicrobatch 0 3\n{}step\n"
                    "{}loss_allreduce axis=pipeline\nloss_allreduce axis=data\n{}end\n",
                    rank, rank ? "" : "bucket params=w\n", rank ? second : first, rank ? "" : "step bucket=0\n"));
  return texts;
}

void messages_pair_up(void**) {
  check_verdict(verdict(stages(kFirst, kSecond)), nullptr, "stages");
  Texts texts = stages(kFirst, kSecond);
  change(texts[1], "microbatch 0 3", 1, "microbatch 0 4");
  check_verdict(verdict(texts), "rank 1: its micro-batches differ from those of rank 0", "samples");
  const struct {
    const char *first, *second, *message;
  } cases[] = {
      {kFirst, "recv value=x mb=0 from=0\nforward layer=loss mb=0\nbackward layer=loss mb=0\n",
       "rank 0, step instruction 3 (line 18): recv value=x mb=0 from=1 gradient: waits without end for a send of rank "
       "1"},
      {kFirst, "recv value=x mb=0 from=0 gradient\n", "what arrives next is from rank 0, step instruction 2 (line 17)"},
      {"input value=t mb=0\nforward layer=a mb=0\nsend value=t mb=0 to=1\nrecv value=x mb=0 from=1 gradient\n", kSecond,
       "rank 0, step instruction 2 (line 17): send value=t mb=0 to=1: an input is filled on the ranks that read it"},
      {"send value=x mb=0 to=1\n", kSecond, "the value is not written"},
      {"send value=x mb=0 to=0\n", kSecond, "a rank cannot send to itself"},
      {kFirst, "recv value=x mb=0 from=0\nforward layer=loss mb=0\nsend value=x mb=0 to=0 gradient\n",
       "the gradient has 0 of 1 contributions"},
  };
  for (const auto& c : cases) check_verdict(verdict(stages(c.first, c.second)), c.message, c.message);

  const std::string extra = std::string("input value=t mb=0\nforward layer=a mb=0\nsend value=x mb=0 to=1\n") +
                            "send value=x mb=0 to=1\nrecv value=x mb=0 from=1 gradient\n" +
                            "recv value=x mb=0 from=1 gradient\nbackward_weight layer=a mb=0\n";
  check_verdict(verdict(stages(extra.c_str(), kSecond)), "recv value=x mb=0 from=1 gradient: waits without end",
                "a send too many");
}

void an_evaluation_of_a_pipeline_sends_forward_alone(void**) {
  check_verdict(verdict(stages(kFirst, kSecond), Purpose::evaluation), nullptr, "stages");
  const Program cut = forward_only(parse_program(stages(kFirst, kSecond)[0], "p.txt"));
  const gsel_instr_kind kinds[] = {GSEL_INPUT, GSEL_FORWARD, GSEL_INSTR_SEND, GSEL_INSTR_LOSS_ALLREDUCE,
                                   GSEL_INSTR_LOSS_ALLREDUCE};
  assert_int_equal(cut.step.size(), 5);
  for (size_t i = 0; i < 5; ++i) assert_int_equal(cut.step[i].kind, kinds[i]);
  assert_int_equal(cut.lines[2], 17);
  assert_int_equal(cut.lines[3], 20);
}

void groups_make_the_same_calls(void**) {
  Wanted phases = kDdp;
  phases.phases = true;
  const Case cases[] = {
      {kDdp, 1, 1, "bucket params=w2", "bucket params=w2 offload=state",
       "the bucket is kept in another way than in rank"},
      {kDdp, 1, 1, "bucket params=w1,b1", "bucket params=b1,w1", "other parameters, or in another order, than in rank"},
      {clipped(kDdp), 1, 1, "norm", "", "norm: rank 1 never joins it"},
      {clipped(kDdp), 1, 1, "overflow axis=data", "", "all ranks of a group make the same calls in the same order"},
      {clipped(kZero1), 0, 1, "norm", "", "all ranks of a group make the same calls in the same order"},
      {phases, 1, 1, "backward layer=fc1 mb=0", "backward_input layer=fc1 mb=0\nbackward_weight layer=fc1 mb=0",
       "all ranks of a group make the same calls in the same order"},
      {phases, -1, 1,
       "layer fc1 reads=x0 writes=x1 params=w1,b1 backward_input backward_weight unread=b1 "
       "forward_phases=data:f64:16,data:f32:12 backward_phases=data:f64:8",
       "layer fc1 reads=x0 writes=x1 params=w1,b1 backward_input backward_weight forward_phases=data:f32:16+4",
       "rank 0: layer \"fc1\" has a phase over the data axis whose size depends on the number of samples"},
      {kDdp, 1, 1, "loss_allreduce axis=data", "",
       "rank 1, step instruction 18 (line 52): step bucket=0: the loss weight is not reduced yet"},
      {kDdp, -1, 2, "wait bucket=1", "", "the last collective of bucket 1 was not waited for"},
      {kDdp, -1, 2, "wait bucket=1", "wait bucket=0", "no collective of this bucket is under way"},
      {kDdp, -1, 1, "step bucket=0\nstep bucket=1", "step bucket=1\nstep bucket=0", nullptr},
      {kDdp, 1, 1, "step bucket=0\nstep bucket=1", "step bucket=1\nstep bucket=0", nullptr},  // each by itself
      {kZero3, 1, 1, "step bucket=0\nstep bucket=1", "step bucket=1\nstep bucket=0", "all ranks of a group"},
      {kZero3, -1, 1, "allgather bucket=0 axis=data", "allgather bucket=0 axis=data\nallgather bucket=0 axis=data",
       "the bucket's last collective was not waited for"},
      {kZero3, -1, 1, "wait bucket=2\nstep", "step", "end of setup: bucket 2's last collective was not waited for"},
  };
  check_cases(cases);
}

void parameters_are_read_while_they_are_whole_and_fresh(void**) {
  const Case cases[] = {
      {kZero3, -1, 1, "allgather bucket=0 axis=data\nwait bucket=0", "",
       "parameter \"table\" of bucket 0, which is not gathered"},
      {kZero3, -1, 1, "wait bucket=0", "", "which is under way and was not waited for"},
      {kZero3, 0, 1, "forward layer=embed mb=0\nrelease bucket=0", "release bucket=0\nforward layer=embed mb=0",
       "it reads parameter \"table\" of bucket 0, which is released"},
      {kZero3, -1, 1, "backward layer=fc1 mb=0\nrelease bucket=1", "release bucket=1\nbackward layer=fc1 mb=0",
       "backward layer=fc1 mb=0: it reads parameter \"w1\" of bucket 1, which is released"},
      {kZero3, -1, 2, "release bucket=1", "", "the gathered parameters of bucket 1 are never released"},
      {kZero3, -1, 1, "release bucket=1", "", "the bucket's parameters are already gathered"},
      {kZero3, -1, 1, "release bucket=1", "release bucket=1\nrelease bucket=1", "already released"},
      {kZero3, -1, 1, "wait bucket=1\nforward layer=fc1 mb=0", "release bucket=1\nforward layer=fc1 mb=0",
       "the bucket's parameters are under way and were not waited for"},
      {kZero3, -1, 1, "step bucket=1", "step bucket=1\nallgather bucket=1 axis=data",
       "the bucket is already stepped; the next step gathers its parameters"},
      {kZero3, -1, 1, "step", "step\nrelease bucket=1", "the bucket's parameters are not here"},
      {kZero3, -1, 1, "setup", "setup\nbroadcast bucket=1 axis=data root=0", "kept in shards; allgather brings them"},
      {kZero3, -1, 1, "setup", "setup\nallgather bucket=1 axis=data", "setup has broadcast and wait alone"},
      {kZero2, -1, 1, "step", "step\nrelease bucket=1", "this rank keeps the bucket's whole parameters"},
      {kZero1, -1, 1, "step", "step\nallgather bucket=1 axis=data", "parameters are whole; allgather comes after step"},
      {kDdp, -1, 1, "step", "step\nallgather bucket=1 axis=data", "the bucket has no shards to gather"},
      {kZero2, -1, 1,
       "allgather bucket=1 axis=data\nstep bucket=2\nallgather bucket=2 axis=data\nwait bucket=0\nwait bucket=1",
       "step bucket=2\nallgather bucket=2 axis=data\nwait bucket=0",
       "end of step: the parameters of bucket 1 are stale since its step; an allgather after it is missing"},
      {kZero1, -1, 1, "wait bucket=2\nend", "end", "end of step: the last collective of bucket 2 is never waited for"},
  };
  check_cases(cases);
}

// The input half of a layer behind the step of its parameters would read those of the next step.
void nothing_reads_parameters_behind_their_step(void**) {
  for (const bool reads : {true, false}) {
    Wanted split = kDdp;
    split.split = true;
    const std::string
        early =
            "backward_weight layer=fc1 mb=0\nallreduce bucket=1 axis=data\nloss_allreduce axis=data\n"
            "wait bucket=1\nwait bucket=2\n",
        first =
            reads ? "step bucket=1\nbackward_input layer=fc1 mb=0\n" : "backward_input layer=fc1 mb=0\nstep bucket=1\n",
        late = "backward_weight layer=embed mb=0\nallreduce bucket=0 axis=data\nwait bucket=0\nstep bucket=0";
    const std::string replacement = early + first + late;
    const Case cases[] = {
        {split, -1, 1,
         "backward_input layer=fc1 mb=0\nbackward_weight layer=fc1 mb=0\nallreduce bucket=1 axis=data\n"
         "backward_weight layer=embed mb=0\nallreduce bucket=0 axis=data\nloss_allreduce axis=data\nwait bucket=0\n"
         "wait bucket=1\nwait bucket=2\nstep bucket=0\nstep bucket=1",
         replacement.c_str(), reads ? "it reads parameter \"w1\" of bucket 1, which is already stepped" : nullptr},
    };
    check_cases(cases);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(values_are_written_once_and_read_after),
      cmocka_unit_test(each_layer_sees_each_sample_once),
      cmocka_unit_test(messages_pair_up),
      cmocka_unit_test(an_evaluation_of_a_pipeline_sends_forward_alone),
      cmocka_unit_test(groups_make_the_same_calls),
      cmocka_unit_test(parameters_are_read_while_they_are_whole_and_fresh),
      cmocka_unit_test(nothing_reads_parameters_behind_their_step),
  };
  return cmocka_run_group_tests_name("program rules", tests, nullptr, nullptr);
}
