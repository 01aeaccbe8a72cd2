// api/reserve.cc: gsel/reserve.h.
#include "select/reserve/reserve.h"

#include <gsel/reserve.h>

#include <memory>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"

struct gsel_reservation {
  gsel_reservation(const gsel::FullRequest& full, const gsel::Reservation::Options& options)
      : impl(full.inventory, full.environment, full.request, options), selection(impl.take_selection()) {}
  gsel::Reservation impl;
  gsel_selection selection;
};

namespace gsel {
namespace {

Reservation::Options read_reserve_options(const gsel_reserve_options* given_options) {
  Reservation::Options out;
  if (!given_options) return out;
  const gsel_reserve_options full = read_struct(given_options, "gsel_reserve_options");
  if (given(full.folder)) out.folder = text(full.folder);
  if (!out.folder.empty() && out.folder.front() != '/')
    fail(GSEL_ERR_ARG, "folder is {}, an absolute path is needed", in_quotes(out.folder));
  if (!(full.wait_s >= 0) || full.wait_s > 1e9) fail(GSEL_ERR_ARG, "wait_s is {}, 0 to 1e9 s are needed", full.wait_s);
  out.wait_s = full.wait_s;
  return out;
}

}  // namespace
}  // namespace gsel

extern "C" {

void gsel_reserve_options_init(gsel_reserve_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}

gsel_status gsel_reserve(const gsel_resolve_options* resolve, const gsel_reserve_options* options,
                         gsel_reservation** out, gsel_error** err) {
  if (out) *out = nullptr;
  return gsel::guard(err, [&] {
    gsel::required(out, "out");
    const gsel::Reservation::Options how = gsel::read_reserve_options(options);
    const gsel::FullRequest full(resolve);
    auto made = std::make_unique<gsel_reservation>(full, how);
    full.check(made->selection.impl);
    *out = made.release();
  });
}

const gsel_selection* gsel_reservation_selection(const gsel_reservation* reservation) {
  return reservation ? &reservation->selection : nullptr;
}

void gsel_reservation_free(gsel_reservation* reservation) {
  delete reservation;
}

}  // extern "C"
