/* fuzz_program: the text of a program. A text is a program whose own text reads back to itself, which can be asked what
 * it sends and be checked, or one mistake whose place is inside the text. */
#include <string.h>

#include "fuzz/fuzz.h"

static int32_t lines_of(gsel_str text) {
  int32_t lines = 1;
  for (size_t i = 0; i < text.len; ++i) lines += text.data[i] == '\n';
  return lines;
}

static void check_message(const gsel_error* err) {
  const gsel_str message = gsel_error_message(err);
  CLAIM(message.len > 0 && message.len < 65536, "a message of %zu bytes", message.len);
  for (size_t i = 0; i < message.len; ++i)
    CLAIM((unsigned char)message.data[i] >= 0x20 && message.data[i] != 0x7f, "a control character in: %s",
          message.data);
}

static void check_refusal(gsel_status status, const gsel_error* err, gsel_str text) {
  CLAIM(status == GSEL_ERR_PARSE, "%s: %s", gsel_status_name(status), gsel_error_message(err).data);
  check_message(err);
  CLAIM(gsel_error_line(err) >= 0 && gsel_error_line(err) <= lines_of(text), "line %d", gsel_error_line(err));
  CLAIM(gsel_error_column(err) >= 0 && (size_t)gsel_error_column(err) <= text.len, "column %d", gsel_error_column(err));
}

static void check_program(const gsel_program* program) {
  gsel_error* err = NULL;
  gsel_program* again = NULL;
  const gsel_str text = gsel_program_text(program);
  CLAIM(gsel_program_parse(text, gsel_str_from("again"), &again, &err) == GSEL_OK, "%s\n%s",
        gsel_error_message(err).data, text.data);
  CLAIM(!strcmp(text.data, gsel_program_text(again).data), "another text:\n%s\n%s", text.data,
        gsel_program_text(again).data);
  CLAIM(gsel_program_length(program) == gsel_program_length(again), "another length");
  for (gsel_instr_kind kind = 0; kind < 25; ++kind)
    for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis) {
      gsel_comm_count count = GSEL_COMM_COUNT_INIT;
      CLAIM(gsel_program_traffic(program, kind % 3 - 1, kind, axis, &count, NULL) == GSEL_OK, "no traffic");
    }
  CLAIM(gsel_program_placements(program).len > 0, "no table of placements");
  const gsel_program* pair[] = {program, again};
  for (int32_t n = 1; n <= 2; ++n)
    if (gsel_program_verify(pair, n, &err) != GSEL_OK) {
      CLAIM(gsel_error_code(err) == GSEL_ERR_PROGRAM, "%s", gsel_error_message(err).data);
      check_message(err);
      gsel_error_free(err);
      err = NULL;
    }
  gsel_program_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gsel_str text = {(const char*)data, size};
  gsel_program* program = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_program_parse(text, gsel_str_from("input"), &program, &err);
  CLAIM((status == GSEL_OK) == (program != NULL) && (status == GSEL_OK) == (err == NULL), "status %d", status);
  if (program)
    check_program(program);
  else
    check_refusal(status, err, text);
  gsel_program_free(program);
  gsel_error_free(err);
  return 0;
}
