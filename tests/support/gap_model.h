/* support/gap_model.h: a model whose evaluation needs a larger arena than its training step, found by a search. The
 * buffers of both are nearly the same, and the few that a step has more make a tighter packing possible. One parameter,
 * in the last layer; all numbers are small integers. One sample for each rank. */
#ifndef GSEL_TESTS_GAP_MODEL_H
#define GSEL_TESTS_GAP_MODEL_H

#include "support/ranks.h"

GSEL_EXTERN_C_BEGIN

enum { GAP_VALUES = 13, GAP_LAST = GAP_VALUES - 1, GAP_LAST_ELEMS = 176 };

typedef struct gap_session {
  gsel_comm* comm;
  gsel_model* model;
  gsel_config* config;
  gsel_trainer* trainer;
} gap_session;

/* more: of [train]. Without a communicator for a world of one. */
gsel_status gap_open(const rank_run* run, const char* more, gap_session* s, gsel_error** err);
void gap_close(gap_session* s);

/* "values and windows": forecast and peak. Others: the sum of the forecasts in the device's memory. */
typedef struct gap_memory {
  uint64_t arena, peak_arena, all;
} gap_memory;
gap_memory gap_memory_of(const gsel_trainer* trainer);

gsel_status gap_data(const gsel_data_request* request, void* user);

GSEL_EXTERN_C_END

#endif
