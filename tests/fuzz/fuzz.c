/* fuzz/fuzz.c: see fuzz.h. */
#include "fuzz/fuzz.h"

#include <string.h>

static const char* const kMachines[] = {"a100x8", "amd4",     "arc3", "ascend8", "beside",    "cpu",     "exclusive4",
                                        "gaudi8", "guarded4", "l4x4", "laptop",  "linked8",   "mac",     "mi300x8",
                                        "mig",    "mixed4",   "pvc4", "torch8",  "two_hosts", "unlike7", "vulkan"};
enum { MACHINES = sizeof kMachines / sizeof *kMachines };

/* ---- reading an input ---- */

gsel_str take(struct rest* rest, char end) {
  const char* found = rest->left ? memchr(rest->at, end, rest->left) : NULL;
  const gsel_str text = {rest->at, found ? (size_t)(found - rest->at) : rest->left};
  const size_t gone = text.len + (found ? 1 : 0);
  rest->at += gone;
  rest->left -= gone;
  return text;
}

gsel_str take_all(struct rest* rest) {
  const gsel_str text = {rest->at, rest->left};
  rest->at += rest->left;
  rest->left = 0;
  return text;
}

gsel_str unless_empty(gsel_str text) {
  return text.len ? text : (gsel_str){NULL, 0};
}

int is_text(gsel_str text, const char* word) {
  return text.len == strlen(word) && !memcmp(text.data, word, text.len);
}

const gsel_inventory* machine_named(gsel_str name) {
  static gsel_inventory* machines[MACHINES];
  size_t which = 0, sum = 0;
  while (which < MACHINES && !is_text(name, kMachines[which])) ++which;
  for (size_t i = 0; i < name.len; ++i) sum += (unsigned char)name.data[i];
  if (which == MACHINES) which = sum % MACHINES;
  if (!machines[which]) {
    char path[1024];
    snprintf(path, sizeof path, "%s/inventory/%s.json", GSEL_TEST_DATA, kMachines[which]);
    gsel_error* err = NULL;
    const gsel_status status = gsel_inventory_load(gsel_str_from(path), &machines[which], &err);
    CLAIM(status == GSEL_OK, "%s", gsel_error_message(err).data);
  }
  return machines[which];
}

/* ---- what must hold ---- */

static int is_documented(gsel_status status) {
  switch (status) {
    case GSEL_ERR_ARG:
    case GSEL_ERR_SYNTAX:
    case GSEL_ERR_TYPE:
    case GSEL_ERR_OUT_OF_RANGE:
    case GSEL_ERR_DUPLICATE:
    case GSEL_ERR_UNKNOWN_DEVICE:
    case GSEL_ERR_AMBIGUOUS:
    case GSEL_ERR_UNKNOWN_HOST:
    case GSEL_ERR_CONFLICT:
    case GSEL_ERR_NO_DEVICES:
    case GSEL_ERR_BUSY:
    case GSEL_ERR_UNSUPPORTED:
    case GSEL_ERR_PERMISSION:
    case GSEL_ERR_RANK_OVERFLOW:
      return 1;
    default:
      return 0;
  }
}

static int is_line(gsel_str text) {
  for (size_t i = 0; i < text.len; ++i)
    if ((unsigned char)text.data[i] < 0x20 || text.data[i] == 0x7f) return 0;
  return text.len > 0;
}

/* The text that an error's place is in, by the name it gives. */
static gsel_str input_named(const gsel_resolve_options* options, gsel_str name) {
  const struct {
    const char* name;
    gsel_str text;
  } fields[] = {{"devices", options->devices},       {"accelerator", options->accelerator},
                {"compat", options->compat},         {"order", options->order},
                {"include", options->include},       {"exclude", options->exclude},
                {"hostfile", options->hostfile_text}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i)
    if (is_text(name, fields[i].name)) return fields[i].text;
  for (size_t i = 0; i < options->n_env; ++i)
    if (options->env[i].name.len == name.len && !memcmp(options->env[i].name.data, name.data, name.len))
      return options->env[i].value;
  return (gsel_str){NULL, 0};
}

/* Line `number`, from 1, of a text. */
static gsel_str line_of(gsel_str text, int32_t number) {
  struct rest rest = {text.data, text.len};
  gsel_str line = take(&rest, '\n');
  while (--number > 0) line = take(&rest, '\n');
  return line;
}

void check_error(gsel_status status, const gsel_error* err, const gsel_resolve_options* options) {
  const gsel_str message = gsel_error_message(err), token = gsel_error_token(err), file = gsel_error_file(err);
  const int32_t column = gsel_error_column(err), line = gsel_error_line(err);
  CLAIM(err && gsel_error_code(err) == status, "status %d, code %d", status, gsel_error_code(err));
  CLAIM(is_documented(status), "%s: %.*s", gsel_status_name(status), (int)message.len, message.data);
  CLAIM(is_line(message), "%.*s", (int)message.len, message.data);
  CLAIM(message.len <= 65536, "a message of %zu bytes", message.len);
  if (!column) return;
  gsel_str text = input_named(options, file);
  if (line && text.data) text = line_of(text, line);
  const size_t from = (size_t)column - 1;
  if (!text.data) { /* a default that was not given is named as if it was: devices=auto */
    CLAIM(from < token.len || column == 1, "column %d of %.*s, which was not given", column, (int)file.len, file.data);
    return;
  }
  CLAIM(column > 0 && from <= text.len, "column %d of %.*s, which has %zu bytes: %.*s", column, (int)file.len,
        file.data, text.len, (int)message.len, message.data);
  CLAIM(token.len <= text.len - from && !memcmp(text.data + from, token.data, token.len),
        "token \"%.*s\" is not at column %d of %.*s: %.*s", (int)token.len, token.data, column, (int)file.len,
        file.data, (int)message.len, message.data);
}

static void check_devices(const gsel_selection* selection) {
  const int32_t count = gsel_selection_device_count(selection);
  for (int32_t i = 0; i < count; ++i) {
    gsel_device_info info = GSEL_DEVICE_INFO_INIT;
    CLAIM(gsel_selection_device(selection, i, &info, NULL) == GSEL_OK, "device %d of %d", i, count);
    CLAIM(info.vendor.len > 0 && info.index >= 0, "device %d: index %d", i, info.index);
    CLAIM(info.partition < 0 || info.partition_uuid.len > 0, "device %d: partition %d", i, info.partition);
  }
}

static void check_candidates(const gsel_selection* selection) {
  const int32_t selected = gsel_selection_device_count(selection);
  for (int32_t i = 0; i < gsel_selection_candidate_count(selection); ++i) {
    gsel_candidate candidate = GSEL_CANDIDATE_INIT;
    CLAIM(gsel_selection_candidate(selection, i, &candidate, NULL) == GSEL_OK, "candidate %d", i);
    CLAIM(candidate.position < selected, "position %d of %d", candidate.position, selected);
    CLAIM(candidate.position >= 0 || is_line(candidate.reason), "candidate %d (device %d) left out without a reason", i,
          candidate.index);
  }
}

static void check_notes(const gsel_selection* selection) {
  for (int32_t i = 0; i < gsel_selection_decision_count(selection); ++i) {
    gsel_decision step = GSEL_DECISION_INIT;
    CLAIM(gsel_selection_decision(selection, i, &step, NULL) == GSEL_OK, "step %d", i);
    CLAIM(step.column >= 1 && is_line(step.layer) && is_line(step.became) && is_line(step.rule),
          "step %d: %.*s: %.*s: %.*s", i, (int)step.layer.len, step.layer.data, (int)step.became.len, step.became.data,
          (int)step.rule.len, step.rule.data);
  }
  for (int32_t i = 0; i < gsel_selection_warning_count(selection); ++i) {
    const gsel_str warning = gsel_selection_warning(selection, i);
    CLAIM(is_line(warning) && warning.len <= 65536, "warning %d: %.*s", i, (int)warning.len, warning.data);
  }
}

static void check_emission(const gsel_selection* selection) {
  static const int32_t ranks[] = {-1, 0, 1, 1000};
  for (size_t r = 0; r < sizeof ranks / sizeof *ranks; ++r) {
    const gsel_env_var* env = NULL;
    size_t n_env = 0;
    gsel_error* err = NULL;
    const gsel_status status = gsel_selection_env(selection, ranks[r], &env, &n_env, &err);
    CLAIM(status == GSEL_OK || status == GSEL_ERR_RANK_OVERFLOW || status == GSEL_ERR_NO_DEVICES, "rank %d: %s",
          ranks[r], gsel_error_message(err).data);
    for (size_t i = 0; i < n_env; ++i) CLAIM(is_line(env[i].name), "variable %zu of rank %d", i, ranks[r]);
    gsel_error_free(err);
  }
}

static void check_selection(const gsel_selection* selection) {
  check_devices(selection);
  check_candidates(selection);
  check_notes(selection);
  check_emission(selection);
  CLAIM(gsel_selection_text(selection).len > 0, "no text");
  CLAIM(gsel_selection_json(selection).len > 0, "no json");
}

void check_resolve(const gsel_resolve_options* options) {
  gsel_selection *selection = NULL, *again = NULL;
  gsel_error *err = NULL, *err_again = NULL;
  const gsel_status status = gsel_resolve(options, &selection, &err);
  const gsel_status status_again = gsel_resolve(options, &again, &err_again);
  CLAIM(status == status_again, "%d, then %d", status, status_again);
  if (status == GSEL_OK) {
    check_selection(selection);
    CLAIM(!strcmp(gsel_selection_json(selection).data, gsel_selection_json(again).data), "two answers");
  } else {
    CLAIM(!selection && !again, "a selection with an error");
    CLAIM(!strcmp(gsel_error_message(err).data, gsel_error_message(err_again).data), "two answers");
    check_error(status, err, options);
  }
  gsel_error_free(err);
  gsel_error_free(err_again);
  gsel_selection_free(selection);
  gsel_selection_free(again);
}
