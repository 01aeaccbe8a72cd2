/* common/advice.h: what strategies suggest when they are asked for advice. */
#ifndef GSEL_STRATEGY_ADVICE_H
#define GSEL_STRATEGY_ADVICE_H

#include <gsel/plugin.h>

/* Says that an option, or "plugin", changes nothing; `why` is printf-like. */
__attribute__((format(printf, 4, 5))) gsel_status advise_idle(const gsel_pass_api_v1* api, gsel_pass* pass,
                                                              const char* key, const char* why, ...);

/* To need less memory: the stages of ZeRO above `stage`, then with offload memory. Alone on its axis a rank has
 * nothing to share. */
gsel_status advise_zero(const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis, int64_t stage);

#endif
