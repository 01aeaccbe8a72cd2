/* unit/test_cli_mesh.c: `gsel mesh` and `gsel program --placements`: what they print and what they refuse. */
#include <stdio.h>
#include <stdlib.h>

#include "support/command.h"

#define MESH \
  "[mesh]\ntensor = 2\npipeline = 2\n[strategy.tensor]\nplugin = \"tp\"\n[strategy.pipeline]\nplugin = \"pp\"\n"

static void a_mesh_is_shown_with_groups_and_coordinates(void** state) {
  (void)state;
  write_file("mesh.toml", MESH);
  check_gsel("mesh mesh.toml --ranks 8", 0);
  assert_string_equal(out,
                      "8 ranks, axes from inner to outer\n\n"
                      "axis      size  plugin  groups of ranks\n"
                      "tensor    2     tp      0 1 | 2 3 | 4 5 | 6 7\n"
                      "data      2     -       0 2 | 1 3 | 4 6 | 5 7\n"
                      "pipeline  2     pp      0 4 | 1 5 | 2 6 | 3 7\n\n"
                      "rank  tensor  data  pipeline\n"
                      "0     0       0     0\n"
                      "1     1       0     0\n"
                      "2     0       1     0\n"
                      "3     1       1     0\n"
                      "4     0       0     1\n"
                      "5     1       0     1\n"
                      "6     0       1     1\n"
                      "7     1       1     1\n");
}

static void the_number_of_ranks_follows_where_no_size_is_auto(void** state) {
  (void)state;
  write_file("four.toml", "[mesh]\ntensor = 4\ndata = 1\n");
  check_gsel("mesh four.toml", 0);
  check_part(out, "4 ranks,");
  check_part(out, "data      1     -       each rank by itself\n");
  write_file("context.toml", "[mesh]\ncontext = 2\ndata = 2\n");
  check_gsel("mesh context.toml", 0);
  check_part(out,
             "axis      size  plugin  groups of ranks\n"
             "tensor    1     -       each rank by itself\n"
             "context   2     -       0 1 | 2 3\n"
             "data      2     -       0 2 | 1 3\n"
             "pipeline  1     -       each rank by itself\n");
  write_file("many.toml", "[mesh]\ntensor = 9223372036854775807\ndata = 3\npipeline = 9223372036854775807\n");
  check_gsel("mesh many.toml", 2);
  check_part(err, "the sizes of the mesh multiply to more than 65536 ranks");
  check_gsel("mesh", 2);
  check_part(err, "mesh.data is \"auto\", which follows from the number of ranks; give it with --ranks");
}

static void a_mesh_is_told_as_json(void** state) {
  (void)state;
  write_file("mesh.toml", MESH);
  check_gsel("mesh mesh.toml --ranks 4 --json", 0);
  check_part(out, "\"ranks\": 4");
  check_part(out, "\"plugin\": \"tp\"");
  check_part(out, "\"rank\": 3,\n      \"tensor\": 1,\n      \"data\": 0,\n      \"pipeline\": 1");
  check_gsel("mesh mesh.toml --ranks 6 --json", 2);
  check_part(out, "\"kind\": \"CONFIG\"");
  check_part(out, "does not divide 6 ranks");
}

static void placements_of_values_are_a_table(void** state) {
  (void)state;
  char command[512];
  snprintf(command, sizeof command, "program --verify %s/programs/tensor.0 %s/programs/tensor.1",
           getenv("GSEL_TEST_DATA"), getenv("GSEL_TEST_DATA"));
  check_gsel(command, 0);
  snprintf(command, sizeof command, "program --placements %s/programs/tensor.1", getenv("GSEL_TEST_DATA"));
  check_gsel(command, 0);
  check_part(out, "rank 1: coordinate 1 of 2 on the tensor axis; bytes sent are those of micro-batch 0, 4 samples\n");
  check_part(out, "\ndown             32  0:4-8/8  of its part\n");
  check_part(out, "\n  x@copy          32  copy       all      -              0  all-reduce   128\n");
  check_part(out, "\n  y@replicate     32  replicate  all      all-reduce   128  -              0\n");
  check_gsel("program --placements ./nosuch", 2);
  check_part(err, "./nosuch: cannot be opened");
}

static int set_up(void** state) {
  (void)state;
  unsetenv("GSEL_CONFIG");
  return command_set_up("cli_mesh");
}

static int tear_down(void** state) {
  (void)state;
  return command_tear_down();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_mesh_is_shown_with_groups_and_coordinates),
      cmocka_unit_test(the_number_of_ranks_follows_where_no_size_is_auto),
      cmocka_unit_test(a_mesh_is_told_as_json),
      cmocka_unit_test(placements_of_values_are_a_table),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
