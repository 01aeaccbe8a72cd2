// unit/test_traffic_notes.cc: what people are told before the first step about what one sends.
#include "base/error.h"
#include "program/program.h"
#include "program/text/text.h"
#include "support/check.h"
#include "train/report/traffic_notes.h"

namespace {

using namespace gsel;

// Two micro-batches of a bucket of 64 KiB, kept in halves; the other pipeline rank is told the loss.
Program program_of(const std::string& mesh, const std::string& shard) {
  return parse_program("gsel-program 1\nrank 0\nmesh " + mesh +
                           "\nparam w 16384\nvalue x input\nvalue sum bytes=8 scalar\nvalue weight bytes=8 scalar\n"
                           "layer loss reads=x writes=sum,weight params=w loss backward_weight\n"
                           "microbatch 0 4\nmicrobatch 4 4\nbucket params=w shard=" +
                           shard +
                           " axis=data\nsetup\nstep\n"
                           "backward_weight layer=loss mb=0\nreduce_scatter bucket=0 axis=data\nwait bucket=0\n"
                           "backward_weight layer=loss mb=1\nreduce_scatter bucket=0 axis=data\nwait bucket=0\n"
                           "step bucket=0\nallgather bucket=0 axis=data\nwait bucket=0\nend\n",
                       "test");
}

void one_rank_sends_nothing_and_is_told_nothing(void**) {
  assert_true(traffic_notes(program_of("tensor=1 data=1 pipeline=1", "state,gradient")).empty());
}

// Two reductions and a gather of a half each.
void what_a_step_sends_is_told_by_axis(void**) {
  const auto notes = traffic_notes(program_of("tensor=2 data=2 pipeline=1", "state,gradient"));
  assert_int_equal(notes.size(), 1);
  assert_string_equal(notes[0].c_str(),
                      "forecast: a step of rank 0 sends 0 bytes along the tensor axis, 96.0 KiB along the data axis");
}

void shards_of_gradients_over_a_pipeline_are_set_beside_whole_gradients(void**) {
  const std::string mesh = "tensor=1 data=2 pipeline=1";
  Program program = program_of(mesh, "state,gradient");
  program.mesh.size[GSEL_AXIS_PIPELINE] = 2;
  const auto notes = traffic_notes(program);
  assert_int_equal(notes.size(), 2);
  assert_string_equal(notes[1].c_str(),
                      "forecast: gradients in shards over a pipeline are reduced for each micro-batch; whole gradients "
                      "would be reduced once per step and send 64.0 KiB along the data axis");
  Program whole = program_of(mesh, "state");
  whole.mesh.size[GSEL_AXIS_PIPELINE] = 2;
  assert_int_equal(traffic_notes(whole).size(), 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(one_rank_sends_nothing_and_is_told_nothing),
      cmocka_unit_test(what_a_step_sends_is_told_by_axis),
      cmocka_unit_test(shards_of_gradients_over_a_pipeline_are_set_beside_whole_gradients),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
