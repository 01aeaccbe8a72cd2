/* unit/test_cli_mesh.c: `gsel mesh`, also on hosts, and `gsel program --placements`: what they print and refuse. */
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

static void ranks_fill_hosts_in_order(void** state) {
  (void)state;
  write_file("mesh.toml", MESH);
  check_gsel("mesh mesh.toml --hosts a:4,b:4", 0);
  assert_string_equal(out,
                      "8 ranks on 2 hosts, axes from inner to outer\n\n"
                      "host  slots  ranks\n"
                      "a     4      0-3\n"
                      "b     4      4-7\n\n"
                      "axis      size  plugin  groups of ranks        across hosts\n"
                      "tensor    2     tp      0 1 | 2 3 | 4 5 | 6 7  none\n"
                      "data      2     -       0 2 | 1 3 | 4 6 | 5 7  none\n"
                      "pipeline  2     pp      0 4 | 1 5 | 2 6 | 3 7  4 of 4\n\n"
                      "axis      group  hosts\n"
                      "tensor    0 1    a\n"
                      "tensor    2 3    a\n"
                      "tensor    4 5    b\n"
                      "tensor    6 7    b\n"
                      "data      0 2    a\n"
                      "data      1 3    a\n"
                      "data      4 6    b\n"
                      "data      5 7    b\n"
                      "pipeline  0 4    a b\n"
                      "pipeline  1 5    a b\n"
                      "pipeline  2 6    a b\n"
                      "pipeline  3 7    a b\n\n"
                      "rank  host  tensor  data  pipeline\n"
                      "0     a     0       0     0\n"
                      "1     a     1       0     0\n"
                      "2     a     0       1     0\n"
                      "3     a     1       1     0\n"
                      "4     b     0       0     1\n"
                      "5     b     1       0     1\n"
                      "6     b     0       1     1\n"
                      "7     b     1       1     1\n");
  check_gsel("mesh mesh.toml --hosts 2x4", 0);
  check_part(out, "\nhost1  4      4-7\n");
  check_gsel("mesh mesh.toml --hosts one.site,[fe80::1]:2,2x1:1", 0); /* 4 ranks, the third host is named so */
  check_part(out, "\none.site   1      0\n[fe80::1]  2      1-2\n2x1        1      3\n");
  check_gsel("mesh --hosts alone:3 --json", 0);
  check_part(out, "\"ranks\": 3,\n  \"hosts\": [\n    {\n      \"host\": \"alone\",\n      \"slots\": 3,");
  check_part(out, "\"warnings\": []");
}

/* The tensor axis across hosts: what is said and what is not. */
static void a_tensor_axis_across_hosts_is_warned_of(void** state) {
  (void)state;
  static const struct {
    const char *mesh, *hosts, *said; /* NULL: no warning */
  } rows[] = {
      {"tensor = 4\ndata = 2", "a:4,b:4", NULL},
      {"tensor = 1\ndata = 8", "a:3,b:5", NULL},
      {"tensor = 4\ndata = 2", "a:8", NULL},
      {"tensor = 4\ndata = 2", "4x2",
       "across hosts: 2 of 2; their ranks wait for each other in every layer, and a network is slower than memory; "
       "set tensor = 2 with data = 4, or give each host a multiple of 4 slots, to keep them inside\n"},
      {"tensor = 3\ndata = 8", "6x4",
       "across hosts: 4 of 8; their ranks wait for each other in every layer, and a network is slower than memory; "
       "set tensor = 2 with data = 12, or tensor = 4 with data = 6, or give each host a multiple of 3 "
       "slots, to keep them inside\n"},
      {"tensor = 2\ndata = 4", "a:3,b:5", "no other size above 1 fits these hosts: give each host a multiple of 2"},
      {"tensor = 4\ndata = 2", "a:2,b:4,c:2", "; the order b:4,a:2,c:2 leaves 1 across hosts\n"},
      {"tensor = 4\ndata = 3", "a:1,b:4,c:3,d:4", "; the order b:4,d:4,a:1,c:3 leaves 1 across hosts\n"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    char text[256];
    snprintf(text, sizeof text, "[mesh]\n%s\n", rows[i].mesh);
    write_file("tensor.toml", text);
    snprintf(text, sizeof text, "mesh tensor.toml --hosts %s", rows[i].hosts);
    check_gsel(text, 0);
    if (rows[i].said) {
      check_part(out, "\nwarning: groups of the tensor axis across hosts: ");
      check_part(out, rows[i].said);
    } else if (strstr(out, "warning")) {
      fail_msg("gsel %s: expected no warning in: %s", text, out);
    }
  }
}

static void programs_tell_what_groups_send(void** state) {
  (void)state;
  const char* data = getenv("GSEL_TEST_DATA");
  char command[1024];
  write_file("tp.toml", "[mesh]\ntensor = 2\n");
  snprintf(command, sizeof command, "mesh tp.toml --hosts a,b --programs %s/programs/tp.0 %s/programs/tp.1", data,
           data);
  check_gsel(command, 0);
  check_part(out, "axis    group  hosts  sent in a step\ntensor  0 1    a b    5280 B\n");
  check_part(out, "groups inside a host send 0 B in a step, groups across hosts 5280 B\n");
  check_part(out, "warning: groups of the tensor axis across hosts: 1 of 1;");
  write_file("dp.toml", "[mesh]\ndata = 2\n");
  snprintf(command, sizeof command, "mesh dp.toml --hosts a:2 --programs %s/programs/zero1.0 %s/programs/zero1.1", data,
           data);
  check_gsel(command, 0);
  check_part(out, "groups inside a host send 672 B in a step, groups across hosts 0 B\n");
  snprintf(command, sizeof command, "mesh dp.toml --hosts a:2 --programs %s/programs/tp.0 %s/programs/tp.1", data,
           data);
  check_gsel(command, 2);
  check_part(err, "/programs/tp.0: the programs have 2 ranks on the tensor axis, and the config 1;");
  snprintf(command, sizeof command, "mesh dp.toml --hosts a:2 --programs %s/programs/zero1.0", data);
  check_gsel(command, 2);
  snprintf(command, sizeof command, "mesh dp.toml --ranks 2 --programs %s/programs/zero1.0", data);
  check_gsel(command, 2);
  check_part(err, "--programs tells what groups send inside of hosts and across; add --hosts");
}

static void hosts_that_cannot_be_used_are_refused_with_their_place(void** state) {
  (void)state;
  static const struct {
    const char *hosts, *token;
    int column;
    const char *kind, *words;
  } rows[] = {
      {"a:2,b:1", "b:1", 5, "OUT_OF_RANGE",
       "4 ranks need a slot each, and up to here there are 3; add a host, or slots"},
      {"a:2,b:2,c:2", "c:2", 9, "OUT_OF_RANGE", "4 ranks leave 2 of the slots of c without a rank"},
      {"a:2,b:3", "b:3", 5, "OUT_OF_RANGE", "4 ranks leave 1 of the slots of b without a rank"},
      {"a:2,b:1,a:1", "a", 9, "DUPLICATE", "this host is named before"},
      {"a:4,b:0", "0", 7, "OUT_OF_RANGE", "a host needs a slot; leave the host out instead"},
      {"a:2,b:x", "x", 7, "SYNTAX", "a number of slots in decimal digits is needed, such as a:2"},
      {"a:2,b:", "", 7, "SYNTAX", "a number of slots"},
      {"a:2,b:-1", "-1", 7, "SYNTAX", "a number of slots"},
      {"a:2,,b:2", "", 5, "SYNTAX", "a host's name is missing; a list of hosts is NAME[:SLOTS],..."},
      {"", "", 1, "SYNTAX", "a host's name is missing"},
      {":4", ":4", 1, "SYNTAX", "a host's name is missing"},
      {"a:2, b:2", " b", 5, "SYNTAX", "a host's name has letters, digits, dots, - and _"},
      {"fe80::1:2", ":1:2", 6, "SYNTAX", "a number of slots"},
      {"a:99999999999999999999", "99999999999999999999", 3, "OUT_OF_RANGE", "more than 65536 slots in all"},
      {"a:65536,b", "b", 9, "OUT_OF_RANGE", "more than 65536 slots in all"},
      {"0x4", "0", 1, "OUT_OF_RANGE", "from 1 to 65536 hosts are allowed"},
      {"2x0", "0", 3, "OUT_OF_RANGE", "from 1 to 65536 on each host are allowed"},
      {"1024x1024", "1024x1024", 1, "OUT_OF_RANGE", "more than 65536 slots in all"},
  };
  write_file("four.toml", "[mesh]\ntensor = 2\ndata = 2\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    char command[256], part[256];
    snprintf(command, sizeof command, "mesh four.toml --json --hosts '%s'", rows[i].hosts);
    check_gsel(command, 2);
    snprintf(part, sizeof part, "\"kind\": \"%s\"", rows[i].kind);
    check_part(out, part);
    snprintf(part, sizeof part, "\"message\": \"--hosts %s: \\\"%s\\\" at column %d: ", rows[i].hosts, rows[i].token,
             rows[i].column);
    check_part(out, part);
    check_part(out, rows[i].words);
    snprintf(part, sizeof part, "\"token\": \"%s\",\n  \"column\": %d\n", rows[i].token, rows[i].column);
    check_part(out, part);
  }
  check_gsel("mesh four.toml --hosts a:4 --ranks 8", 2); /* the config and the number of ranks disagree */
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
  check_part(out, "\ndown             32  0:4-8/8  of its shard\n");
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
      cmocka_unit_test(ranks_fill_hosts_in_order),
      cmocka_unit_test(a_tensor_axis_across_hosts_is_warned_of),
      cmocka_unit_test(programs_tell_what_groups_send),
      cmocka_unit_test(hosts_that_cannot_be_used_are_refused_with_their_place),
      cmocka_unit_test(placements_of_values_are_a_table),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
