/* common/advice.h: suggestions that strategies make when asked for advice. */
#ifndef GSEL_STRATEGY_ADVICE_H
#define GSEL_STRATEGY_ADVICE_H

#include <gsel/plugin.h>

/* Reports an option, or "plugin", that has no effect; `why` is printf-like. */
__attribute__((format(printf, 4, 5))) gsel_status advise_idle(const gsel_pass_api_v1* api, gsel_pass* pass,
                                                              const char* key, const char* why, ...);

/* Suggestions to need less memory: ZeRO stages above `stage`, then these with offload memory. None on an axis of one
 * rank, which has nothing to shard. */
gsel_status advise_zero(const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis, int64_t stage);

#endif
