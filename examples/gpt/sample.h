/* sample.h: lets the model write. */
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

#include <stdio.h>

#include "model.h"

/* Writes n bytes of text after `prompt` to `out`; NULL: nowhere. All ranks call it alike and get the same bytes: where
 * no rank has all parameters, each call gathers them.
 *   context      bytes the model looks at, as in its description
 *   temperature  above 0; small: the likeliest text, 1: as varied as the model believes
 *   key          of the random choice */
gsel_status sample_text(gsel_trainer* trainer, const struct gpt_model* model, int64_t context, const char* prompt,
                        int64_t n, double temperature, uint64_t key, FILE* out, gsel_error** err);

#endif
