// The verifier's rules one by one, continued: gradients, owners, parts, recomputation, the end of the step; and the
// example of docs/program.md, which keeps them all.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "program/text/text.h"
#include "program/traffic.h"
#include "support/program_cases.h"

namespace {

using namespace gsel;
using namespace gsel::test;

void each_contribution_is_reduced_once(void**) {
  const Case cases[] = {
      {kDdp, -1, 1, "allreduce bucket=0 axis=data\nloss_allreduce axis=data\nwait bucket=0", "loss_allreduce axis=data",
       "step bucket=0: the gradients of bucket 0 are not reduced yet"},
      {kDdp, -1, 1, "backward layer=fc1 mb=0\nallreduce bucket=1 axis=data",
       "allreduce bucket=1 axis=data\nbackward layer=fc1 mb=0",
       "the gradient of parameter \"w1\" still lacks 1 contribution"},
      {kDdp, -1, 2, "wait bucket=0", "wait bucket=0\nallreduce bucket=0 axis=data", "already reduced on this axis"},
      {kDdp, -1, 1, "step bucket=0", "step bucket=0\nallreduce bucket=0 axis=data", "the bucket is already stepped"},
      {kDdp, -1, 1, "allreduce bucket=1 axis=data", "reduce_scatter bucket=1 axis=data",
       "as the bucket is kept its gradients are reduced by allreduce"},
      {kZero1, -1, 1, "reduce_scatter bucket=1 axis=data", "allreduce bucket=1 axis=data",
       "are reduced by reduce_scatter"},
      {kDp, -1, 1, "reduce bucket=1 axis=data root=0", "allreduce bucket=1 axis=data", "are reduced by reduce"},
      {kZero1, -1, 2, "wait bucket=1", "wait bucket=1\nreduce_scatter bucket=1 axis=data",
       "already reduced on this axis"},
      {kZero1, -1, 1, "bucket params=w2 shard=state axis=data", "bucket params=w2 shard=state axis=tensor",
       "rank 0: bucket 2 is kept along the tensor axis"},
      {kZero1, -1, 1, "reduce_scatter bucket=1 axis=data", "reduce_scatter bucket=1 axis=tensor",
       "the bucket is kept along the data axis"},
      // Stage 2: the embedding's contribution to the table comes behind the reduction that took the head's.
      {kZero2, -1, 1, "backward_weight layer=embed mb=0\nreduce_scatter bucket=0 axis=data\nwait bucket=0",
       "reduce_scatter bucket=0 axis=data\nbackward_weight layer=embed mb=0\nwait bucket=0",
       "it writes the gradient of parameter \"table\", whose reduce_scatter was not waited for"},
      {kZero2, -1, 1, "backward_weight layer=embed mb=0\nreduce_scatter bucket=0 axis=data\nwait bucket=0",
       "reduce_scatter bucket=0 axis=data\nwait bucket=0\nbackward_weight layer=embed mb=0",
       "step bucket=0: the gradients of bucket 0 have 1 contribution that no reduction has taken"},
      {kZero2, -1, 1, "backward_weight layer=embed mb=0",
       "reduce_scatter bucket=0 axis=data\nwait bucket=0\nbackward_weight layer=embed mb=0", nullptr},
      {kZero2, -1, 2, "wait bucket=1", "wait bucket=1\nreduce_scatter bucket=1 axis=data",
       "no backward has written the bucket's gradients since its last reduction"},
      {kZero2, -1, 1, "reduce_scatter bucket=1 axis=data\nwait bucket=1", "",
       "the gradients of bucket 1 are not reduced yet"},
  };
  check_cases(cases);
}

void a_bucket_of_no_layer_is_reduced_all_the_same(void**) {
  for (Strategy strategy : test::kStrategies) {
    std::vector<Program> programs = test::make_programs(on_two(strategy));
    for (Program& p : programs) {
      p.layers[test::HEAD].params = {test::TABLE};  // nobody reads w2
      p.layers[test::HEAD].backward_unread_params = 0;
    }
    Texts texts;
    for (const Program& p : programs) texts.push_back(to_text(p));
    check_verdict(verdict(texts), nullptr, name_of(strategy));
  }
}

void an_owner_alone_steps(void**) {
  const Case cases[] = {
      {kDp, 1, 1, "broadcast bucket=2 axis=data root=0\nwait bucket=0\nwait bucket=1\nwait bucket=2",
       "wait bucket=0\nwait bucket=1", "all ranks of a group make the same calls"},
      {kDp, -1, 1, "broadcast bucket=2 axis=data root=0", "broadcast bucket=2 axis=data root=1",
       "coordinate 0 owns the bucket"},
      {kDp, -1, 1, "reduce bucket=2 axis=data root=0", "reduce bucket=2 axis=data root=1", "coordinate 0 owns"},
      {kDp, 1, 1, "wait bucket=2\nscatter value=tokens mb=0 axis=data root=0",
       "scatter value=tokens mb=0 axis=data root=0", "which is under way and was not waited for"},
      {kDp, 1, 1, "release bucket=1", "step bucket=1", "coordinate 0 owns the bucket and steps it"},
      {kDp, 1, 1, "release bucket=1", "", nullptr},
      {kDp, 0, 1, "step bucket=1", "", "bucket 1 is never stepped"},
      {kDp, 0, 1, "step bucket=1", "release bucket=1", "this rank keeps the bucket's whole parameters"},
      {kDp, 1, 1, "forward layer=embed mb=0", "release bucket=0\nforward layer=embed mb=0",
       "bucket 0, which is released"},
      {kDp, -1, 1, "loss_allreduce axis=data\nwait bucket=0", "loss_allreduce axis=data", "was not waited for"},
  };
  check_cases(cases);
  Texts texts;
  for (Program& p : test::make_programs(kDp)) {
    std::erase_if(p.step, [](const gsel_instr& i) {
      return i.bucket == 2 && (i.kind == GSEL_INSTR_BROADCAST || (i.kind == GSEL_INSTR_RELEASE));
    });
    const auto at =
        std::ranges::find_if(p.step, [](const gsel_instr& i) { return i.kind == GSEL_INSTR_WAIT && i.bucket == 2; });
    p.step.erase(at);
    texts.push_back(to_text(p));
  }
  check_verdict(verdict(texts),
                "rank 1, step instruction 8 (line 37): forward layer=head mb=0: it reads parameter \"w2\" of bucket 2, "
                "which was not broadcast in this step",
                "no broadcast");
}

void shards_make_up_their_whole(void**) {
  const Case cases[] = {
      {kDp, 1, 1, "microbatch 4 3 of=1", "microbatch 3 4 of=1",
       "rank 1: micro-batch 0 is 4 samples from 3; shard 1 of 2 of micro-batch 1 is 3 samples from 4"},
      {kDp, 0, 1, "microbatch 0 7", "microbatch 0 8", "micro-batch 1 is the whole of 0 and is another one on rank 0"},
      {kDp, 1, 1, "microbatch 4 3 of=1", "microbatch 4 3", "a shard of another one than on rank 0"},
      {kDp, 0, 1, "scatter value=tokens mb=0 axis=data root=0", "scatter value=tokens mb=1 axis=data root=0",
       "the micro-batch is no shard of another one"},
      {kDp, -1, 1, "scatter value=tokens mb=0 axis=data root=0", "scatter value=tokens mb=0 axis=tensor root=0",
       "scatter and gather are over the data axis"},
      {kDp, -1, 1, "scatter value=tokens mb=0 axis=data root=0", "scatter value=loss mb=0 axis=data root=0",
       "one number per micro-batch, which has no shards"},
      {kDp, -1, 1, "scatter value=tokens mb=0 axis=data root=0", "scatter value=x0 mb=0 axis=data root=0",
       "the value needs a gradient, which no instruction would bring back"},
      {kDp, 0, 1, "input value=tokens mb=1", "",
       "scatter value=tokens mb=0 axis=data root=0: the value is not written"},
      {kDp, -1, 1, "scatter value=tokens mb=0 axis=data root=0", "scatter value=tokens mb=0 axis=data root=1",
       "rank 1, step instruction 6 (line 35): scatter value=tokens mb=0 axis=data root=1: the value is not written"},
      {kDp, -1, 1, "gather value=logits mb=0 axis=data root=0", "",
       "forward layer=loss mb=1: it reads value \"logits\" before it is written"},
      {kDp, -1, 1, "scatter value=logits mb=0 axis=data root=0 gradient", "", "of value \"logits\" has 0 of 1"},
      {kDp, 0, 1, "backward layer=loss mb=1\nscatter value=logits mb=0 axis=data root=0 gradient",
       "scatter value=logits mb=0 axis=data root=0 gradient\nbackward layer=loss mb=1", "has 0 of 1 contributions"},
      {kDp, -1, 1, "gather value=logits mb=0 axis=data root=0", "gather value=x1 mb=0 axis=data root=0",
       "it reads value \"logits\" before it is written"},
  };
  check_cases(cases);
}

void recomputation_stands_between_forward_and_backward(void**) {
  const Case cases[] = {
      {kAgain, -1, 1, "recompute layer=mix mb=0", "", nullptr},
      {kAgain, -1, 1, "recompute layer=mix mb=0", "recompute layer=fc1 mb=0", "it is already recomputed"},
      {kAgain, -1, 1, "recompute layer=mix mb=0", "recompute layer=loss mb=0", "a loss is never recomputed"},
      {kAgain, -1, 1, "recompute layer=mix mb=0", "recompute layer=head mb=0", "its backward has run already"},
      {kAgain, -1, 1, "forward layer=fc1 mb=0", "recompute layer=fc1 mb=0", "its forward has not run"},
      {on_two(Strategy::zero3, true), -1, 1, "wait bucket=1\nrecompute layer=fc1 mb=0", "recompute layer=fc1 mb=0",
       "recompute layer=fc1 mb=0: it reads parameter \"w1\" of bucket 1, which is under way"},
  };
  check_cases(cases);
}

void the_end_sees_what_is_complete(void**) {
  const Case cases[] = {
      {clipped(kDdp), -1, 1, "overflow axis=data\nnorm", "norm\noverflow axis=data", nullptr},
      {clipped(kDdp), -1, 1, "norm", "norm\nnorm", "the norm is already computed"},
      {clipped(kDdp), -1, 1, "overflow axis=data", "overflow axis=data\noverflow axis=data", "already looked for"},
      {clipped(kDdp), -1, 1, "norm\nstep bucket=0", "step bucket=0\nnorm",
       "a bucket is already stepped; the norm comes before"},
      {clipped(kDdp), -1, 1, "overflow axis=data\nnorm\nstep bucket=0", "norm\nstep bucket=0\noverflow axis=data",
       "a bucket is already stepped; the look for overflow comes before"},
      {clipped(kDdp), -1, 1, "allreduce bucket=0 axis=data", "overflow axis=data\nallreduce bucket=0 axis=data",
       "overflow axis=data: the gradients of bucket 0 are not reduced yet"},
      {clipped(kZero2), -1, 1, "reduce_scatter bucket=0 axis=data", "norm\nreduce_scatter bucket=0 axis=data",
       "norm: the loss weight is not reduced yet"},
      {clipped(kZero2), -1, 1, "reduce_scatter bucket=0 axis=data",
       "overflow axis=data\nreduce_scatter bucket=0 axis=data",
       "overflow axis=data: the gradients of bucket 0 are not reduced yet"},
      {kDdp, -1, 1, "loss_allreduce axis=data", "", "the loss weight is not reduced yet"},
      {kDdp, -1, 1, "loss_allreduce axis=data", "loss_allreduce axis=data\nloss_allreduce axis=data",
       "the loss is already reduced"},
      {kDdp, -1, 1, "input value=tokens mb=0", "loss_allreduce axis=data\ninput value=tokens mb=0",
       "forward layer=loss mb=0: the loss is already reduced; this contribution would be lost"},
      {kDdp, -1, 1, "step bucket=0", "step bucket=1", "the bucket is already stepped"},
      {kDdp, -1, 1, "step bucket=0", "", "end of step: bucket 0 is never stepped"},
      {kDdp, -1, 1, "bucket params=table", "bucket params=table,w2", "parameter \"w2\" is in 2 buckets"},
      {kDdp, -1, 1, "param fixed 4 frozen", "param fixed 4", "parameter \"fixed\" is in 0 buckets; expected one"},
  };
  check_cases(cases);
}

// ---- the example of docs/program.md ----

std::string read_document() {
  const char* data = std::getenv("GSEL_TEST_DATA");
  std::ifstream file(fmt::format("{}/../../docs/program.md", data ? data : "tests/data"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void the_example_of_the_document_is_a_good_program(void**) {
  const std::string document = read_document();
  const size_t begin = document.find("```text\ngsel-program 1") + 8, end = document.find("```", begin);
  assert_true(begin > 8 && end != std::string::npos);
  Texts texts(2, document.substr(begin, end - begin));
  change(texts[1], "rank 0", 1, "rank 1");
  change(texts[1], "microbatch 0 4", 1, "microbatch 4 3");
  check_verdict(verdict(texts), nullptr, "the example");
  check_verdict(verdict(texts, Purpose::evaluation), nullptr, "its evaluation");
  // The table of bytes that stands below it.
  uint64_t sum = 0;
  for (const auto& [key, count] : step_traffic(parse_program(texts[0], "p.txt"))) {
    sum += count.bytes_sent;
    const std::string row = fmt::format("\nstep   {:10}{:19}{:8}{:15}\n", "data", find_instr_row(key.second)->word,
                                        count.calls, count.bytes_sent);
    if (document.find(row) == std::string::npos) fail_msg("docs/program.md has no row \"%s\"", row.c_str());
  }
  assert_true(document.find(fmt::format("\nstep   {:10}{:19}{:8}{:15}\n", "all", "", "", sum)) != std::string::npos);
  // Every instruction has its row.
  for (gsel_instr_kind kind = GSEL_INPUT; kind <= GSEL_INSTR_OVERFLOW; ++kind)
    if (document.find(fmt::format("`{}`", find_instr_row(kind)->word)) == std::string::npos)
      fail_msg("docs/program.md does not tell of %s", find_instr_row(kind)->word);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_contribution_is_reduced_once),
      cmocka_unit_test(a_bucket_of_no_layer_is_reduced_all_the_same),
      cmocka_unit_test(an_owner_alone_steps),
      cmocka_unit_test(shards_make_up_their_whole),
      cmocka_unit_test(recomputation_stands_between_forward_and_backward),
      cmocka_unit_test(the_end_sees_what_is_complete),
      cmocka_unit_test(the_example_of_the_document_is_a_good_program),
  };
  return cmocka_run_group_tests_name("program step rules", tests, nullptr, nullptr);
}
