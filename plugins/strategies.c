/* strategies.c: the list of strategies in libgsel_plugins.a; in a file of its own, since whoever refers to it links
 * them all. */
#include <gsel/strategies.h>

const struct gsel_plugin_v1* const gsel_strategies_v1[] = {
    &gsel_plugin_v1_cp,
    &gsel_plugin_v1_ddp,
    &gsel_plugin_v1_dp,
    &gsel_plugin_v1_pp,
    &gsel_plugin_v1_tp,
    &gsel_plugin_v1_zero,
    NULL,
};
