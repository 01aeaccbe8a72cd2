/* common/advice.c: see advice.h. */
#include "common/advice.h"

#include <stdarg.h>
#include <stdio.h>

gsel_status advise_idle(const gsel_pass_api_v1* api, gsel_pass* pass, const char* key, const char* why, ...) {
  char reason[512];
  const gsel_setting setting = {key, NULL};
  const gsel_suggestion suggestion = {
      .struct_size = sizeof suggestion, .settings = &setting, .n_settings = 1, .reason = reason};
  va_list args;
  va_start(args, why);
  vsnprintf(reason, sizeof reason, why, args);
  va_end(args);
  return api->suggest(pass, &suggestion);
}

static gsel_status suggest_stage(const gsel_pass_api_v1* api, gsel_pass* pass, int32_t ranks, int64_t stage,
                                 const char* offload) {
  char number[24], reason[128];
  const gsel_setting settings[] = {{"plugin", "zero"}, {"stage", number}, {"offload", offload}};
  const gsel_suggestion suggestion = {.struct_size = sizeof suggestion,
                                      .flags = offload ? GSEL_SUGGESTION_OFFLOADS : 0,
                                      .settings = settings,
                                      .n_settings = offload ? 3 : 2,
                                      .reason = reason};
  snprintf(number, sizeof number, "%d", (int)stage);
  snprintf(reason, sizeof reason, "ZeRO stage %d on %d rank%s%s", (int)stage, (int)ranks, ranks == 1 ? "" : "s",
           !offload            ? ""
           : offload[0] == 'a' ? " with optimizer state and parameters in offload memory"
                               : " with optimizer state in offload memory");
  return api->suggest(pass, &suggestion);
}

gsel_status advise_zero(const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis, int64_t stage) {
  const int32_t ranks = api->axis_size(pass, axis);
  gsel_status status = GSEL_OK;
  while (ranks > 1 && !status && ++stage <= 3) status = suggest_stage(api, pass, ranks, stage, NULL);
  if (!status) status = suggest_stage(api, pass, ranks, 3, "state");
  return status ? status : suggest_stage(api, pass, ranks, 3, "all");
}
