// api/timeline.cc: gsel/timeline.h.
#include "program/timeline/timeline.h"

#include <gsel/timeline.h>

#include "base/guard.h"
#include "base/text.h"

struct gsel_timeline {
  gsel::Timeline impl;
  std::string drawn;
};

extern "C" {

gsel_status gsel_timeline_create(gsel_timeline** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_timeline{};
  });
}

gsel_status gsel_timeline_add(gsel_timeline* timeline, gsel_str json, gsel_str name, gsel_error** err) {
  return gsel::guard(
      err, [&] { gsel::add_document(gsel::required(timeline, "timeline").impl, gsel::view(json), gsel::text(name)); });
}

gsel_status gsel_timeline_draw(gsel_timeline* timeline, int32_t format, gsel_str* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_timeline& t = gsel::required(timeline, "timeline");
    gsel::required(out, "out") = {nullptr, 0};
    if (format != GSEL_TIMELINE_SVG && format != GSEL_TIMELINE_CHROME)
      gsel::fail(GSEL_ERR_ARG, "format {} does not exist; GSEL_TIMELINE_SVG and GSEL_TIMELINE_CHROME do", format);
    t.drawn = format == GSEL_TIMELINE_SVG ? gsel::to_svg(t.impl) : gsel::to_chrome(t.impl);
    *out = gsel::borrow(t.drawn);
  });
}

void gsel_timeline_free(gsel_timeline* timeline) {
  delete timeline;
}

}  // extern "C"
