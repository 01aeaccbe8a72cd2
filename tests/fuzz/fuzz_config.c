/* fuzz_config: the text of gsel.toml. A text is a configuration of which every key can be asked, or one mistake whose
 * place is inside the text. */
#include <string.h>

#include "fuzz/fuzz.h"

static int32_t lines_of(gsel_str text) {
  int32_t lines = 1;
  for (size_t i = 0; i < text.len; ++i) lines += text.data[i] == '\n';
  return lines;
}

static void check_refusal(gsel_status status, const gsel_error* err, gsel_str text) {
  const gsel_str message = gsel_error_message(err);
  CLAIM(status == GSEL_ERR_PARSE || status == GSEL_ERR_CONFIG, "%s: %s", gsel_status_name(status), message.data);
  CLAIM(message.len > 0 && message.len < 65536, "a message of %zu bytes", message.len);
  for (size_t i = 0; i < message.len; ++i)
    CLAIM((unsigned char)message.data[i] >= 0x20 && message.data[i] != 0x7f, "a control character in: %s",
          message.data);
  CLAIM(gsel_error_line(err) >= 0 && gsel_error_line(err) <= lines_of(text) + 1, "line %d: %s", gsel_error_line(err),
        message.data);
  CLAIM(gsel_error_column(err) >= 0 && (size_t)gsel_error_column(err) <= text.len + 1, "column %d: %s",
        gsel_error_column(err), message.data);
}

static void check_keys(const gsel_config* config) {
  static const char* const keys[] = {"select.devices", "comm.timeout_s", "mesh.data", "train.optimizer",
                                     "train.total_steps"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i)
    CLAIM(gsel_config_get(config, gsel_str_from(keys[i])).data, "%s", keys[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gsel_str text = {(const char*)data, size};
  gsel_config *config = NULL, *again = NULL;
  gsel_error *err = NULL, *err_again = NULL;
  const gsel_status status = gsel_config_parse(text, gsel_str_from("input"), &config, &err);
  const gsel_status status_again = gsel_config_parse(text, gsel_str_from("input"), &again, &err_again);
  CLAIM(status == status_again, "%d, then %d", status, status_again);
  CLAIM(!strcmp(gsel_error_message(err).data, gsel_error_message(err_again).data), "two answers");
  CLAIM((status == GSEL_OK) == (config != NULL) && (status == GSEL_OK) == (err == NULL), "status %d", status);
  if (config)
    check_keys(config);
  else
    check_refusal(status, err, text);
  gsel_config_free(config);
  gsel_config_free(again);
  gsel_error_free(err);
  gsel_error_free(err_again);
  return 0;
}
