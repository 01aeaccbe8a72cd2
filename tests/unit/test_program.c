/* The program as data: its text form read back, and what the verifier accepts and refuses. Each refusal starts from a
 * good pair of programs in which one line is changed. */
#include <stdlib.h>

#include "support/check.h"
#include "support/counts.h"

/* Two layers, one bucket each, data-parallel on two ranks; rank 1 differs in its rank and its samples alone. */
static const char* const kLines[] = {
    /* 1 */ "gsel-program 1",
    /* 2 */ "rank 0",
    /* 3 */ "mesh tensor=1 data=2 pipeline=1",
    /* 4 */ "param w 8",
    /* 5 */ "param b 4",
    /* 6 */ "param table 16 frozen",
    /* 7 */ "value tokens input",
    /* 8 */ "value x gradient",
    /* 9 */ "value loss",
    /* 10 */ "value weight",
    /* 11 */ "layer embed reads=tokens writes=x params=w,table backward_weight",
    /* 12 */ "layer loss reads=x,tokens writes=loss,weight params=b loss backward_input backward_weight",
    /* 13 */ "microbatch 0 3",
    /* 14 */ "bucket params=b",
    /* 15 */ "bucket params=w",
    /* 16 */ "setup",
    /* 17 */ "broadcast bucket=0 axis=data root=0",
    /* 18 */ "wait bucket=0",
    /* 19 */ "step",
    /* 20 */ "input value=tokens mb=0",
    /* 21 */ "forward layer=embed mb=0",
    /* 22 */ "forward layer=loss mb=0",
    /* 23 */ "backward layer=loss mb=0",
    /* 24 */ "allreduce bucket=0 axis=data",
    /* 25 */ "backward_weight layer=embed mb=0",
    /* 26 */ "allreduce bucket=1 axis=data",
    /* 27 */ "loss_allreduce axis=data",
    /* 28 */ "wait bucket=0",
    /* 29 */ "wait bucket=1",
    /* 30 */ "norm",
    /* 31 */ "step bucket=0",
    /* 32 */ "step bucket=1",
    /* 33 */ "end",
};
enum { N_LINES = sizeof kLines / sizeof *kLines };

static gsel_error* err;

static const char* line_of(int rank, int i) {
  if (rank == 1 && i == 1) return "rank 1";
  if (rank == 1 && i == 12) return "microbatch 3 3";
  return kLines[i];
}

/* A rank's program with line `changed` (from 1, 0 none) replaced; NULL drops it. */
static const char* text_of(int rank, int changed, const char* replacement) {
  static char text[4096];
  text[0] = '\0';
  for (int i = 0; i < N_LINES; ++i) {
    const char* line = i + 1 == changed ? replacement : line_of(rank, i);
    strcat(strcat(text, line ? line : ""), "\n");
  }
  return text;
}

static gsel_program* parse(const char* text) {
  gsel_program* program = NULL;
  check_ok(gsel_program_parse(gsel_str_from(text), gsel_str_from("p.txt"), &program, &err), err);
  return program;
}

/* Verifies the pair with a line changed on both ranks, or on one (-1: both). */
static gsel_status verify_changed(int on_rank, int changed, const char* replacement) {
  gsel_program* programs[2];
  for (int rank = 0; rank < 2; ++rank)
    programs[rank] = parse(text_of(rank, on_rank < 0 || on_rank == rank ? changed : 0, replacement));
  const gsel_status status = gsel_program_verify((const gsel_program* const*)programs, 2, &err);
  for (int rank = 0; rank < 2; ++rank) gsel_program_free(programs[rank]);
  return status;
}

static void the_printed_text_reads_back_to_the_same_text(void** state) {
  (void)state;
  gsel_program* first = parse(text_of(0, 0, NULL));
  gsel_program* second = parse(gsel_program_text(first).data);
  assert_string_equal(gsel_program_text(first).data, gsel_program_text(second).data);
  assert_string_equal(gsel_program_text(first).data, text_of(0, 0, NULL));
  gsel_program_free(first);
  gsel_program_free(second);
}

static void instructions_can_be_read_one_by_one(void** state) {
  (void)state;
  gsel_program* program = parse(text_of(0, 0, NULL));
  assert_int_equal(gsel_program_length(program), 13);
  gsel_instr instr;
  check_ok(gsel_program_instr(program, 4, &instr, &err), err);
  assert_int_equal(instr.kind, GSEL_INSTR_ALLREDUCE);
  assert_int_equal(instr.bucket, 0);
  assert_int_equal(instr.axis, GSEL_AXIS_DATA);
  assert_int_equal(instr.layer, -1);
  check_fails(gsel_program_instr(program, 13, &instr, &err), err, GSEL_ERR_ARG, "instruction 13 was asked for");
  gsel_program_free(program);
}

static void a_good_pair_is_accepted(void** state) {
  (void)state;
  check_ok(verify_changed(-1, 0, NULL), err);
}

static void what_it_sends_is_told_by_kind_and_axis(void** state) {
  (void)state;
  gsel_program* program = parse(text_of(0, 0, NULL));
  const gsel_comm_count broadcast = program_traffic(program, -1, GSEL_INSTR_BROADCAST, GSEL_AXIS_DATA);
  assert_int_equal(broadcast.calls, 1);
  assert_int_equal(broadcast.bytes_sent, 4 * 4);
  const gsel_comm_count reduce = program_traffic(program, 0, GSEL_INSTR_ALLREDUCE, GSEL_AXIS_DATA);
  assert_int_equal(reduce.calls, 2);
  assert_int_equal(reduce.bytes_sent, (4 + 8) * 4);
  assert_int_equal(program_traffic(program, 0, GSEL_INSTR_LOSS_ALLREDUCE, GSEL_AXIS_DATA).bytes_sent, 16);
  assert_int_equal(program_traffic(program, 0, GSEL_INSTR_BROADCAST, GSEL_AXIS_DATA).calls, 0);
  assert_int_equal(program_traffic(program, 0, GSEL_INSTR_ALLREDUCE, GSEL_AXIS_TENSOR).calls, 0);
  assert_int_equal(program_traffic(program, 0, 99, 99).calls, 0);
  assert_int_equal(program_traffic(NULL, 0, GSEL_INSTR_ALLREDUCE, GSEL_AXIS_DATA).calls, 0);
  gsel_program_free(program);
}

struct refusal {
  int on_rank; /* -1: both */
  int line;
  const char* replacement;
  const char* message;
};

static void each_broken_pair_is_refused_with_its_place(void** state) {
  (void)state;
  static const struct refusal cases[] = {
      {-1, 20, NULL,
       "step instruction 0 (line 21): forward layer=embed mb=0: it reads value \"tokens\" before it is written"},
      {-1, 21, NULL, "it reads value \"x\" before it is written"},
      {-1, 22, "forward layer=embed mb=0", "this forward has run already"},
      {-1, 23, "backward_weight layer=loss mb=0",
       "step instruction 5 (line 25): backward_weight layer=embed mb=0: the gradient of value \"x\" has 0 of 1"},
      {-1, 23, NULL, "the gradient of parameter \"b\" still lacks 1 contribution"},
      {-1, 24, NULL, "no collective of this bucket is under way"},
      {-1, 25, NULL, "the gradient of parameter \"w\" still lacks 1"},
      {-1, 25, "allreduce bucket=0 axis=data", "last collective was not waited for"},
      {-1, 26, "backward_weight layer=embed mb=0", "already produced"},
      {-1, 29, "allreduce bucket=0 axis=data", "already reduced on this axis"},
      {-1, 27, NULL, "the loss weight is not reduced yet"},
      {-1, 29, NULL, "norm: the last collective of bucket 1 was not waited for"},
      {-1, 31, NULL, "end of step: bucket 0 is never stepped"},
      {-1, 32, "step bucket=0", "already stepped"},
      {-1, 18, NULL, "last collective was not waited for"},
      {-1, 15, "bucket params=w,b", "parameter \"b\" is in 2 buckets"},
      {1, 17, "broadcast bucket=1 axis=data root=0", "call 0 is rank 0, setup instruction 0"},
      {1, 26, NULL, "rank 1"},
      {1, 27, "recv value=x mb=0 from=0",
       "rank 1, step instruction 7 (line 27): recv value=x mb=0 from=0: waits without end for a send of rank 0"},
      {1, 4, "param w 9", "different models"},
      {0, 32, "send value=x mb=0 to=1", "the gradient of the value was used before"},
      {0, 21, "recv value=x mb=0 from=0", "cannot receive from itself"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    check_fails(verify_changed(cases[i].on_rank, cases[i].line, cases[i].replacement), err, GSEL_ERR_PROGRAM,
                cases[i].message);
}

/* All that computes is dropped, all that communicates and steps is kept. */
static void programs_that_compute_nothing_are_refused(void** state) {
  (void)state;
  gsel_program* pair[2];
  for (int rank = 0; rank < 2; ++rank) {
    char text[4096] = "";
    for (int i = 0; i < N_LINES; ++i) {
      const char* line = line_of(rank, i);
      const int computes = i >= 19 && (strstr(line, "mb=") != NULL);
      if (!computes) strcat(strcat(text, line), "\n");
    }
    pair[rank] = parse(text);
  }
  check_fails(gsel_program_verify((const gsel_program* const*)pair, 2, &err), err, GSEL_ERR_PROGRAM,
              "no rank runs the forward of layer \"embed\" on samples 0 to 5 of the batch");
  gsel_program_free(pair[0]);
  gsel_program_free(pair[1]);
}

static void one_program_per_rank_is_wanted(void** state) {
  (void)state;
  gsel_program* program = parse(text_of(0, 0, NULL));
  const gsel_program* list[] = {program, NULL};
  check_fails(gsel_program_verify(list, 1, &err), err, GSEL_ERR_PROGRAM,
              "the mesh has 2 ranks and 1 program was given");
  check_fails(gsel_program_verify(list, 2, &err), err, GSEL_ERR_ARG, "programs[i] is NULL");
  check_fails(gsel_program_verify(NULL, 2, &err), err, GSEL_ERR_ARG, "programs is NULL");
  gsel_program_free(program);
}

/* A two-stage pipeline whose second stage gets its value and gives the gradient back. */
static const char* const kStage[] = {
    "gsel-program 1\nrank 0\nmesh tensor=1 data=1 pipeline=2\nstages 0 1\nparam w 8\nvalue t input\nvalue x "
    "gradient\nvalue "
    "l\nvalue n\n"
    "layer a reads=t writes=x params=w backward_weight\nlayer loss reads=x writes=l,n loss backward_input stage=1\n"
    "microbatch 0 1\nbucket params=w\nstep\n"
    "input value=t mb=0\nforward layer=a mb=0\nsend value=x mb=0 to=1\nrecv value=x mb=0 from=1 gradient\n"
    "backward_weight layer=a mb=0\nloss_allreduce axis=pipeline\nloss_allreduce axis=data\nstep bucket=0\nend\n",
    "gsel-program 1\nrank 1\nmesh tensor=1 data=1 pipeline=2\nstages 0 1\nparam w 8\nvalue t input\nvalue x "
    "gradient\nvalue "
    "l\nvalue n\n"
    "layer a reads=t writes=x params=w backward_weight\nlayer loss reads=x writes=l,n loss backward_input stage=1\n"
    "microbatch 0 1\nstep\n"
    "recv value=x mb=0 from=0\nforward layer=loss mb=0\nbackward layer=loss mb=0\nsend value=x mb=0 to=0%s\n"
    "loss_allreduce axis=pipeline\nloss_allreduce axis=data\nend\n"};

static gsel_status verify_stages(const char* flag) {
  char second[2048];
  snprintf(second, sizeof second, kStage[1], flag);
  gsel_program* stages[] = {parse(kStage[0]), parse(second)};
  const gsel_status status = gsel_program_verify((const gsel_program* const*)stages, 2, &err);
  gsel_program_free(stages[0]);
  gsel_program_free(stages[1]);
  return status;
}

/* Buckets of equal size whose parameters stand in another order would be summed crosswise. */
static void buckets_must_hold_the_same_parameters_in_the_same_order(void** state) {
  (void)state;
  static const char form[] =
      "gsel-program 1\nrank %d\nmesh data=2\nparam a 4\nparam b 4\nvalue t input\nvalue l\nvalue n\n"
      "layer loss reads=t writes=l,n params=a,b loss backward_weight\nmicrobatch %d 1\nbucket params=%s\nstep\n"
      "input value=t mb=0\nforward layer=loss mb=0\nbackward layer=loss mb=0\nallreduce bucket=0 axis=data\n"
      "loss_allreduce axis=data\nwait bucket=0\nstep bucket=0\nend\n";
  char text[2][1024];
  for (int swapped = 0; swapped < 2; ++swapped) {
    gsel_program* pair[2];
    for (int rank = 0; rank < 2; ++rank) {
      snprintf(text[rank], sizeof text[rank], form, rank, rank, swapped && rank ? "b,a" : "a,b");
      pair[rank] = parse(text[rank]);
    }
    const gsel_status status = gsel_program_verify((const gsel_program* const*)pair, 2, &err);
    if (swapped)
      check_fails(status, err, GSEL_ERR_PROGRAM, "the bucket holds other parameters, or in another order");
    else
      check_ok(status, err);
    gsel_program_free(pair[0]);
    gsel_program_free(pair[1]);
  }
}

static void sends_and_receives_must_pair(void** state) {
  (void)state;
  check_ok(verify_stages(" gradient"), err);
  check_fails(verify_stages(""), err, GSEL_ERR_PROGRAM, "what arrives next is from rank 1");
}

static void text_that_is_no_program_is_refused_with_line_and_token(void** state) {
  (void)state;
  static const struct {
    int line;
    const char *replacement, *token, *message;
  } cases[] = {
      {1, "gsel-program 2", "gsel-program", "p.txt:1: the first line is not"},
      {3, "mesh data=zwei", "data=zwei", "p.txt:3: \"data=zwei\" is no number"},
      {4, "param w", "w", "a number is missing"},
      {5, "param w 4", "w", "param \"w\" is declared twice"},
      {11, "layer embed reads=tok", "reads=tok", "value \"tok\" is not declared above"},
      {14, "bucket", "bucket", "a bucket has no params="},
      {20, "inpt value=tokens mb=0", "inpt", "\"inpt\" is no instruction"},
      {20, "input value=tokens mb=7", "input", "input has micro-batch 7"},
      {20, "input value=tokens", "input", "input has micro-batch -1"},
      {21, "forward layer=embed mb=0 bucket=0", "forward", "forward has bucket 0; it takes none"},
      {24, "allreduce bucket=0 axis=time", "axis=time", "none of tensor, context, data, pipeline"},
      {24, "allreduce bucket=99999999999999999999 axis=data", "bucket=99999999999999999999", "is no number"},
      {33, NULL, "", "ends without \"end\""},
      {2, "rank 0 junk", "junk", "one word too many"},
      {13, "microbatch 0 3 junk", "junk", "\"junk\" is not of="},
      {14, "bucket params=b junk", "junk", "\"junk\" is none of shard=, whole_params"},
      {3, "mesh data=2\nmesh data=2", "mesh", "a second \"mesh\" line"},
      {19, "end", "end", "\"end\" comes before \"step\""},
      {3, "mesh tensor=1 data=2 pipeline=1\nrank 0", "rank", "a second \"rank\" line"},
      {2, "rank 2", "", "rank 2 does not fit a mesh of 2 ranks"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    gsel_program* program = NULL;
    const gsel_status status = gsel_program_parse(gsel_str_from(text_of(0, cases[i].line, cases[i].replacement)),
                                                  gsel_str_from("p.txt"), &program, &err);
    assert_null(program);
    assert_string_equal(gsel_error_token(err).data, cases[i].token);
    check_fails(status, err, GSEL_ERR_PARSE, cases[i].message);
  }
}

static void damaged_text_never_crashes(void** state) {
  (void)state;
  const char* good = text_of(0, 0, NULL);
  const size_t length = strlen(good);
  char* text = malloc(length + 1);
  uint64_t counter = 0;
  for (int round = 0; round < 4000; ++round) {
    memcpy(text, good, length + 1);
    const size_t cut = round % 2 ? length : (size_t)(gsel_random_uniform(7, counter++) * (float)length);
    for (int k = 0; k < 1 + round % 4; ++k) {
      const size_t at = (size_t)(gsel_random_uniform(7, counter++) * (float)length);
      text[at] = (char)(gsel_random_uniform(7, counter++) * 256.0f);
    }
    gsel_program* program = NULL;
    const gsel_str damaged = {text, cut};
    if (gsel_program_parse(damaged, gsel_str_from("p.txt"), &program, &err) == GSEL_OK) {
      gsel_program* other = parse(text_of(1, 0, NULL));
      const gsel_program* pair[] = {program, other};
      (void)gsel_program_verify(pair, 2, &err);
      gsel_program_free(other);
    }
    gsel_error_free(err);
    err = NULL;
    gsel_program_free(program);
  }
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_printed_text_reads_back_to_the_same_text),
      cmocka_unit_test(instructions_can_be_read_one_by_one),
      cmocka_unit_test(a_good_pair_is_accepted),
      cmocka_unit_test(what_it_sends_is_told_by_kind_and_axis),
      cmocka_unit_test(each_broken_pair_is_refused_with_its_place),
      cmocka_unit_test(programs_that_compute_nothing_are_refused),
      cmocka_unit_test(one_program_per_rank_is_wanted),
      cmocka_unit_test(buckets_must_hold_the_same_parameters_in_the_same_order),
      cmocka_unit_test(sends_and_receives_must_pair),
      cmocka_unit_test(text_that_is_no_program_is_refused_with_line_and_token),
      cmocka_unit_test(damaged_text_never_crashes),
  };
  return cmocka_run_group_tests_name("program", tests, NULL, NULL);
}
