/* See emission.h. */
#include "support/emission.h"

/* Whether a line NAME=VALUE is among the variables. */
static int emits_line(const gsel_env_var* env, size_t n, const char* line, size_t length) {
  for (size_t i = 0; i < n; ++i)
    if (length == env[i].name.len + 1 + env[i].value.len && strncmp(line, env[i].name.data, env[i].name.len) == 0 &&
        line[env[i].name.len] == '=' && strncmp(line + env[i].name.len + 1, env[i].value.data, env[i].value.len) == 0)
      return 1;
  return 0;
}

static int emits_as_expected(const struct emission_row* row) {
  gsel_inventory* inventory = machine(row->asked.machine);
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  const gsel_status status = resolve_row(&row->asked, inventory, &selection, &err);
  check_ok(status, err);
  const gsel_env_var* env = NULL;
  size_t n = 0;
  assert_int_equal(gsel_selection_env(selection, -1, &env, &n, NULL), GSEL_OK);
  int good = !row->warning || strstr(gsel_selection_json(selection).data, row->warning);
  for (const char* line = row->lines; *line; line += strcspn(line, "\n"), line += *line == '\n')
    good = good && emits_line(env, n, line, strcspn(line, "\n"));
  if (!good) {
    print_row(&row->asked);
    print_error("  expected\n%s\n  warning %s\n  got\n%s\n", row->lines, row->warning ? row->warning : "(any)",
                gsel_selection_json(selection).data);
  }
  gsel_selection_free(selection);
  gsel_inventory_free(inventory);
  return good;
}

void check_emission(const struct emission_row* rows, size_t count) {
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += !emits_as_expected(&rows[i]);
  if (wrong) fail_msg("%zu of %zu rows are not as expected", wrong, count);
}
