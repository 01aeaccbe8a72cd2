/* fuzz_timeline: files of steps, recordings and simulations. What is taken must be drawn, as a picture that is
 * well-formed, and the same way twice. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "support/xml.h"

static void check_refusal(gsel_status status, const gsel_error* err, size_t size) {
  const gsel_str message = gsel_error_message(err);
  CLAIM(status == GSEL_ERR_PARSE, "%s: %s", gsel_status_name(status), message.data);
  for (size_t i = 0; i < message.len; ++i)
    CLAIM((unsigned char)message.data[i] >= 0x20, "a line break in: %s", message.data);
  CLAIM(message.len > 0 && message.len < 65536, "a message of %zu bytes", message.len);
  CLAIM(gsel_error_line(err) >= 0 && gsel_error_column(err) >= 0 && (size_t)gsel_error_column(err) <= size + 1,
        "line %d, column %d", gsel_error_line(err), gsel_error_column(err));
}

static gsel_str drawn(gsel_timeline* timeline, int32_t format) {
  gsel_str text = {NULL, 0};
  gsel_error* err = NULL;
  const gsel_status status = gsel_timeline_draw(timeline, format, &text, &err);
  CLAIM(status == GSEL_OK && text.len > 0, "format %d: %s", format, gsel_error_message(err).data);
  return text;
}

static void check_pictures(gsel_timeline* timeline, gsel_timeline* again) {
  const gsel_str svg = drawn(timeline, GSEL_TIMELINE_SVG), twin = drawn(again, GSEL_TIMELINE_SVG);
  CLAIM(svg.len == twin.len && !memcmp(svg.data, twin.data, svg.len), "two pictures of one input");
  const char* fault = xml_fault(svg.data, svg.len);
  CLAIM(!fault, "not well-formed at byte %zu: %.60s", (size_t)(fault - svg.data), fault);
  CLAIM(!strstr(svg.data, "\"nan") && !strstr(svg.data, "\"inf") && !strstr(svg.data, "\"-nan"),
        "a place is no number");
  drawn(timeline, GSEL_TIMELINE_CHROME);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gsel_str text = {(const char*)data, size};
  gsel_timeline *timeline = NULL, *again = NULL;
  gsel_error* err = NULL;
  CLAIM(gsel_timeline_create(&timeline, NULL) == GSEL_OK && gsel_timeline_create(&again, NULL) == GSEL_OK, "no memory");
  const gsel_status status = gsel_timeline_add(timeline, text, gsel_str_from("input"), &err);
  if (status == GSEL_OK) {
    CLAIM(gsel_timeline_add(again, text, gsel_str_from("input"), NULL) == GSEL_OK, "refused the second time");
    check_pictures(timeline, again);
  } else {
    check_refusal(status, err, size);
  }
  gsel_error_free(err);
  gsel_timeline_free(timeline);
  gsel_timeline_free(again);
  return 0;
}
