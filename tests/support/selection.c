/* See selection.h. */
#include "support/selection.h"

#include <stdlib.h>

/* A machine of `count` equal cards: uuid GPU-<i><i><i>..., bus order. */
static gsel_inventory* equal_cards(const char* vendor, int count) {
  const char* name = strcmp(vendor, "amd") == 0 ? "AMD Instinct MI250X" : "NVIDIA A100-SXM4-80GB";
  const size_t capacity = 256 + (size_t)count * 256;
  char* json = (char*)malloc(capacity);
  size_t n =
      (size_t)snprintf(json, capacity, "{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"local\", \"devices\": [");
  for (int i = 0; i < count; ++i)
    n +=
        (size_t)snprintf(json + n, capacity - n,
                         "%s{\"vendor\": \"%s\", \"name\": \"%s\", \"uuid\": \"GPU-%016x\", \"pci\": \"%08x:01:00.0\"}",
                         i ? ", " : "", vendor, name, (unsigned)i + 1, (unsigned)i);
  snprintf(json + n, capacity - n, "]}]}");
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_inventory_parse(gsel_str_from(json), gsel_str_from("equal cards"), &inventory, &err);
  free(json);
  check_ok(status, err);
  return inventory;
}

gsel_inventory* machine(const char* name) {
  const char* colon = strchr(name, ':');
  if (colon) {
    char vendor[16];
    snprintf(vendor, sizeof vendor, "%.*s", (int)(colon - name), name);
    return equal_cards(vendor, atoi(colon + 1));
  }
  char path[1024];
  snprintf(path, sizeof path, "%s/inventory/%s.json", getenv("GSEL_TEST_DATA"), name);
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_inventory_load(gsel_str_from(path), &inventory, &err);
  check_ok(status, err);
  return inventory;
}

gsel_status resolve_row(const struct selection_row* row, const gsel_inventory* inventory, gsel_selection** selection,
                        gsel_error** err) {
  gsel_env_var env[16];
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = inventory;
  options.env = env;
  for (const char* line = row->env; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
    const size_t name = strcspn(line, "="), all = strcspn(line, "\n");
    assert_true(name < all && options.n_env < 16);
    env[options.n_env++] = (gsel_env_var){{line, name}, {line + name + 1, all - name - 1}};
  }
  if (options.n_env == 0) options.flags = GSEL_RESOLVE_NO_ENV;
  options.devices = gsel_str_from(row->devices);
  options.accelerator = gsel_str_from(row->accelerator);
  options.compat = gsel_str_from(row->compat);
  options.order = gsel_str_from(row->order);
  options.include = gsel_str_from(row->include);
  options.exclude = gsel_str_from(row->exclude);
  options.hostfile_text = gsel_str_from(row->hostfile);
  return gsel_resolve(&options, selection, err);
}

void chosen_text(const gsel_selection* selection, int several_hosts, char* text, size_t capacity) {
  size_t length = 0;
  text[0] = '\0';
  for (int32_t i = 0; i < gsel_selection_device_count(selection) && length < capacity; ++i) {
    gsel_device_info info = GSEL_DEVICE_INFO_INIT;
    assert_int_equal(gsel_selection_device(selection, i, &info, NULL), GSEL_OK);
    length += (size_t)snprintf(text + length, capacity - length, "%s", i ? "," : "");
    if (several_hosts)
      length += (size_t)snprintf(text + length, capacity - length, "%.*s/", (int)info.host.len, info.host.data);
    length += (size_t)snprintf(text + length, capacity - length, "%d", info.index);
    if (info.partition >= 0) length += (size_t)snprintf(text + length, capacity - length, ":%d", info.partition);
    if (info.tile >= 0) length += (size_t)snprintf(text + length, capacity - length, ".%d", info.tile);
  }
}

void print_row(const struct selection_row* row) {
  const char* const fields[][2] = {{"machine", row->machine}, {"compat", row->compat},
                                   {"devices", row->devices}, {"accelerator", row->accelerator},
                                   {"order", row->order},     {"include", row->include},
                                   {"exclude", row->exclude}, {"hostfile", row->hostfile},
                                   {"env", row->env},         {"source", row->source}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i)
    if (fields[i][1]) print_error("%s=\"%s\" ", fields[i][0], fields[i][1]);
  print_error("\n");
}

static int warned_as(const struct selection_row* row, const gsel_selection* selection) {
  if (!row->warning) return 1;
  const int none = gsel_selection_warning_count(selection) == 0;
  if (strcmp(row->warning, "-") == 0) return none;
  for (int32_t i = 0; i < gsel_selection_warning_count(selection); ++i)
    if (strstr(gsel_selection_warning(selection, i).data, row->warning)) return 1;
  return 0;
}

static int is_as_expected(const struct selection_row* row) {
  gsel_inventory* inventory = machine(row->machine);
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  const gsel_status status = resolve_row(row, inventory, &selection, &err);
  char chosen[512] = "", message[2048] = "";
  if (selection) chosen_text(selection, gsel_inventory_host_count(inventory) > 1, chosen, sizeof chosen);
  if (err) gsel_error_format(err, message, sizeof message);
  int good = row->chosen ? status == GSEL_OK && strcmp(chosen, row->chosen) == 0 && warned_as(row, selection)
                         : status != GSEL_OK && (!row->code || status == row->code) &&
                               (!row->token || strcmp(gsel_error_token(err).data, row->token) == 0) &&
                               (!row->column || gsel_error_column(err) == row->column) &&
                               (!row->message || strstr(message, row->message)) &&
                               (!row->input || strcmp(gsel_error_file(err).data, row->input) == 0) &&
                               !strchr(message, '\n') && !selection;
  if (!good) {
    print_row(row);
    print_error("  expected %s%s %s%s%s\n  got %s \"%s\" %s (token \"%s\", column %d)\n", row->chosen ? "ok " : "",
                row->chosen ? row->chosen : gsel_status_name(row->code), row->warning ? "warning " : "",
                row->warning ? row->warning : "", row->message ? row->message : "", gsel_status_name(status), chosen,
                message, err ? gsel_error_token(err).data : "", err ? gsel_error_column(err) : 0);
    if (selection) print_error("%s\n", gsel_selection_json(selection).data);
  }
  gsel_error_free(err);
  gsel_selection_free(selection);
  gsel_inventory_free(inventory);
  return good;
}

void check_rows(const struct selection_row* rows, size_t count) {
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += !is_as_expected(&rows[i]);
  if (wrong) fail_msg("%zu of %zu rows are not as expected", wrong, count);
}
