// api/checkpoint.cc: gsel/checkpoint.h.
#include "checkpoint/checkpoint.h"

#include <gsel/checkpoint.h>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"

extern "C" {

void gsel_checkpoint_report_init(gsel_checkpoint_report* report, size_t struct_size) {
  gsel::init_struct(report, struct_size);
}

gsel_status gsel_trainer_save(gsel_trainer* trainer, gsel_str folder, gsel_checkpoint_report* report,
                              gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel_checkpoint_report done =
        gsel::checkpoint::save(gsel::required(trainer, "trainer").impl, gsel::text(folder));
    if (report) gsel::write_struct(report, done, "gsel_checkpoint_report");
  });
}

gsel_status gsel_trainer_load(gsel_trainer* trainer, gsel_str path, gsel_checkpoint_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel_checkpoint_report done =
        gsel::checkpoint::load(gsel::required(trainer, "trainer").impl, gsel::text(path));
    if (report) gsel::write_struct(report, done, "gsel_checkpoint_report");
  });
}

}  // extern "C"
