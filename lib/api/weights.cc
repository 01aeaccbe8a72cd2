// api/weights.cc: gsel/weights.h.
#include "checkpoint/weights.h"

#include <gsel/weights.h>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"

extern "C" {

void gsel_weights_report_init(gsel_weights_report* report, size_t struct_size) {
  gsel::init_struct(report, struct_size);
}

gsel_status gsel_trainer_load_weights(gsel_trainer* trainer, gsel_str path, const gsel_config* map,
                                      gsel_weights_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel_weights_report done = gsel::checkpoint::load_weights(gsel::required(trainer, "trainer").impl(),
                                                                    gsel::text(path), map ? &map->impl : nullptr);
    if (report) gsel::write_struct(report, done, "gsel_weights_report");
  });
}

gsel_status gsel_trainer_export_weights(gsel_trainer* trainer, gsel_str path, const gsel_config* map, gsel_dtype dtype,
                                        gsel_weights_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel_weights_report done = gsel::checkpoint::export_weights(
        gsel::required(trainer, "trainer").impl(), gsel::text(path), map ? &map->impl : nullptr, dtype);
    if (report) gsel::write_struct(report, done, "gsel_weights_report");
  });
}

}  // extern "C"
