/* gsel/reserve.h: selects and locks devices in one step. Finding a free device and then using it is a race: two
 * processes that look at the same time take the same device. A reservation is a lock that every process of the machine
 * sees. The operating system releases it when its holder dies, so nothing stays locked.
 *
 *     gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
 *     options.devices = gsel_str_from("count:2 & free>=20GiB");
 *     gsel_reservation *held;
 *     if (gsel_reserve(&options, NULL, &held, &err)) ...
 *     const gsel_selection *selection = gsel_reservation_selection(held);
 */
#ifndef GSEL_RESERVE_H
#define GSEL_RESERVE_H

#include <gsel/select.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_reservation gsel_reservation;

/* How to reserve.
 *   folder  folder of the locks, shared by all processes that reserve, such as one mounted into containers. Not given:
 *           the variable GSEL_RESERVE_FOLDER, else /run/lock/gsel, else /tmp/gsel-lock; created if it does not exist
 *   wait_s  seconds to wait for devices to become free; 0: do not wait                                             */
typedef struct gsel_reserve_options {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str folder;
  double wait_s;
} gsel_reserve_options;
#define GSEL_RESERVE_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_reserve_options)
GSEL_API void gsel_reserve_options_init(gsel_reserve_options *options, size_t struct_size);

/* Selects as gsel_resolve does, among the devices on which no process computes and that are not reserved, and locks the
 * result. The CPU is never locked. A tile is locked together with its card. Two reservations of one process exclude
 * each other.
 *   options  NULL: the defaults
 *   out      given to the caller, free with gsel_reservation_free; NULL on error
 * Errors: those of gsel_resolve; GSEL_ERR_BUSY when too few are free (the message names the holders), or when
 * another process has kept the folder locked for 10 s; GSEL_ERR_PERMISSION, GSEL_ERR_IO (the folder); GSEL_ERR_ARG.
 * Any thread. Since 0.1. */
GSEL_API gsel_status gsel_reserve(const gsel_resolve_options *resolve, const gsel_reserve_options *options,
                                  gsel_reservation **out, gsel_error **err);

/* The reserved devices. Borrowed until gsel_reservation_free. Any thread. Since 0.1. */
GSEL_API const gsel_selection *gsel_reservation_selection(const gsel_reservation *reservation);

/* Releases the devices; NULL is fine. In a forked child it has no effect on the parent's devices. A child started by
 * exec holds nothing. A child that only forked keeps the devices locked until it also ends, unless the parent frees
 * them first. Any thread. Since 0.1. */
GSEL_API void gsel_reservation_free(gsel_reservation *reservation);

GSEL_EXTERN_C_END

#endif
