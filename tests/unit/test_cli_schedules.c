/* unit/test_cli_schedules.c: `gsel program --schedule`: what it prints and writes, and what it refuses.
 * docs/pipeline.md shows the tables whole. */
#include <stdio.h>
#include <stdlib.h>

#include "support/command.h"
#include "support/xml.h"

static void a_schedule_is_a_short_table(void** state) {
  (void)state;
  check_gsel("program --schedule 1f1b --stages 4 --microbatches 8", 0);
  check_part(out, "1f1b, 4 stages x 8 micro-batches\nmakespan            33\nideal               24 ");
  check_part(out, "bubble of makespan  27.3 %");
  check_part(out, "bubble of ideal     37.5 %");
  check_part(out, "\n0     24    4                 4\n");
  check_part(out, "\nstage 0 to 1  16        8        8\n");
  check_gsel("program --schedule zb-v --stages 2 --microbatches 4", 0);
  check_part(out, "both on rank 1\n");
}

static void several_are_a_row_each(void** state) {
  (void)state;
  check_gsel("program --schedule gpipe interleaved-1f1b --stages 4 --microbatches 8 --chunks 2", 2);
  check_part(err, "gpipe");
  check_gsel("program --schedule gpipe 1f1b --stages 4 --microbatches 8 --times 2,2,2 --hop 1", 0);
  check_part(out, "\ngpipe     1       72        48 ");
  check_gsel("program --schedule gpipe 1f1b --stages 2 --microbatches 2 --json", 0);
  check_part(out, "\"schedule\": \"gpipe\"");
  check_part(out, "\"schedule\": \"1f1b\"");
}

static void json_is_what_the_library_says(void** state) {
  (void)state;
  check_gsel("program --schedule zb-v --stages 4 --microbatches 8 --json", 0);
  assert_int_equal(strncmp(out, "{\n  \"schedules\": [\n    {\n      \"gsel-simulation\": 1,\n", 53), 0);
  check_part(out, "\"makespan\": 25.5");
  check_part(out, "\"longest_rank_span\": 24");
}

static void a_timeline_is_drawn_with_letters(void** state) {
  (void)state;
  check_gsel("program --schedule 1f1b --stages 2 --microbatches 3 --text", 0);
  assert_string_equal(out,
                      "1f1b, 2 stages x 3 micro-batches: bubble 25.0 % of makespan\n"
                      "rank 0  F0 F1 ......B0--- F2 B1--- ...B2---\n"
                      "rank 1  ...F0 B0--- F1 B1--- F2 B2--- ......\n");
  check_gsel("program --schedule zb-h1 --stages 64 --microbatches 1024 --text", 0); /* squeezed */
  check_part(out, "\nrank 63  ");
  for (const char *line = out, *end; (end = strchr(line, '\n')); line = end + 1) assert_true(end - line <= 180);
}

static void rows_are_read_back(void** state) {
  (void)state;
  check_gsel("program --schedule zb-h1 --stages 2 --microbatches 3 --rows", 0);
  check_part(out, "0F0,0F1,");
  write_file("rows.csv", out);
  check_gsel("program --schedule rows.csv --json", 0);
  check_part(out, "\"schedule\": \"rows.csv\"");
  check_gsel("program --schedule rows.csv --stages 2 --microbatches 3 --chunks 1", 0);
  check_gsel("program --schedule rows.csv --stages 3", 2);
  check_part(err, "rows.csv: has 2 of what --stages 3 asks for; leave --stages out");
}

static void pictures_are_files(void** state) {
  (void)state;
  check_gsel("program --schedule 1f1b zb-v --stages 2 --microbatches 4 --svg both.svg --chrome both.chrome", 0);
  assert_string_equal(out, "");
  char path[512], text[1 << 16];
  snprintf(path, sizeof path, "%s/both.svg", dir);
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  const size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = 0;
  assert_null(xml_fault(text, n));
  check_part(text, "1f1b, 2 stages x 4 micro-batches: bubble 20.0 % of makespan");
  check_gsel("program --schedule 1f1b --stages 2 --microbatches 4 --svg no/such/folder.svg", 2);
  check_part(err, "no/such/folder.svg: cannot be written");
}

static void what_cannot_be_is_refused(void** state) {
  (void)state;
  static const struct {
    const char *options, *words;
  } cases[] = {
      {"--schedule zbv --stages 4 --microbatches 8", "did you mean zb-v?"},
      {"--schedule 1f1b --stages 4", "--stages and --microbatches are needed; only a file has its own"},
      {"--schedule 1f1b --stages x --microbatches 8", "--stages x: a whole number is needed"},
      {"--schedule 1f1b --stages 0 --microbatches 8", "--stages 0: 1 to 1000000 are allowed"},
      {"--schedule 1f1b --stages 4 --microbatches 8 --times 1,2", "--times 1,2: three numbers from 0 are needed"},
      {"--schedule 1f1b --stages 4 --microbatches 8 --times 1,2,3,4", "three numbers from 0 are needed"},
      {"--schedule 1f1b --stages 4 --microbatches 8 --times 1,2,nan", "three numbers from 0 are needed"},
      {"--schedule 1f1b --stages 4 --microbatches 8 --hop -1", "--hop -1: a number from 0 is needed"},
      {"--schedule 1f1b --stages 4 --microbatches 8 --rows --text", "one of them is possible"},
      {"--schedule ./nosuch.csv", "./nosuch.csv: cannot be opened"},
      {"--print x --svg y", "--schedule"},
  };
  char command[256];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    snprintf(command, sizeof command, "program %s", cases[i].options);
    check_gsel(command, 2);
    check_part(err, cases[i].words);
  }
  check_gsel("program --schedule zbv --stages 4 --microbatches 8 --json", 2);
  check_part(out, "\"status\": \"error\"");
  write_file("stuck.csv", "0F0,0B0\n1B0,1F0\n");
  check_gsel("program --schedule stuck.csv", 2);
  check_part(err, "stuck.csv");
  check_part(err, "1B0");
}

static int set_up(void** state) {
  (void)state;
  return command_set_up("cli_schedules");
}

static int tear_down(void** state) {
  (void)state;
  return command_tear_down();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_schedule_is_a_short_table),
      cmocka_unit_test(several_are_a_row_each),
      cmocka_unit_test(json_is_what_the_library_says),
      cmocka_unit_test(a_timeline_is_drawn_with_letters),
      cmocka_unit_test(rows_are_read_back),
      cmocka_unit_test(pictures_are_files),
      cmocka_unit_test(what_cannot_be_is_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
