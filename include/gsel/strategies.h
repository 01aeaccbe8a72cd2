/* gsel/strategies.h: the contents of libgsel_plugins.a, for programs that link it. Naming a plugin links it, and no
 * other, into the program; it must be registered before it is found (gsel/registry.h). libgsel.so has none of these
 * names.
 *
 *     for (int i = 0; gsel_strategies_v1[i]; ++i)
 *       if (gsel_plugin_register(gsel_strategies_v1[i], &err)) ... */
#ifndef GSEL_STRATEGIES_H
#define GSEL_STRATEGIES_H

#include <gsel/plugin.h>

GSEL_EXTERN_C_BEGIN

/* The strategies of docs/strategies.md. */
extern const struct gsel_plugin_v1 gsel_plugin_v1_cp;
extern const struct gsel_plugin_v1 gsel_plugin_v1_ddp;
extern const struct gsel_plugin_v1 gsel_plugin_v1_dp;
extern const struct gsel_plugin_v1 gsel_plugin_v1_pp;
extern const struct gsel_plugin_v1 gsel_plugin_v1_tp;
extern const struct gsel_plugin_v1 gsel_plugin_v1_zero;

/* All of the above; NULL ends the list. */
extern const struct gsel_plugin_v1* const gsel_strategies_v1[];

/* Devices, and transports for their memory, which open the vendor's driver and NCCL or RCCL at run time; cuda_ipc is for
 * ranks that share a device. */
extern const struct gsel_plugin_v1 gsel_plugin_v1_cuda;
extern const struct gsel_plugin_v1 gsel_plugin_v1_cuda_ipc;
extern const struct gsel_plugin_v1 gsel_plugin_v1_nccl;
extern const struct gsel_plugin_v1 gsel_plugin_v1_rccl;
extern const struct gsel_plugin_v1 gsel_plugin_v1_rocm;

GSEL_EXTERN_C_END

#endif
