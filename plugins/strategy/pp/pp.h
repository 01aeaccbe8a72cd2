/* pp/pp.h: shared by the pipeline strategy's files: the schedule, the stages, and the step being rewritten. */
#ifndef GSEL_STRATEGY_PP_H
#define GSEL_STRATEGY_PP_H

#include "common/rewrite.h"

struct pp {
  struct rewrite w;
  const gsel_schedule* schedule;
  gsel_value_info* values; /* [n_values] */
  int32_t n_values;
  int32_t n_microbatches;
  int32_t n_stages;
  int32_t n_ranks;
  int32_t* rank_of_stage;  /* [n_stages] */
  int32_t* begin;          /* [n_stages] first layer */
  int32_t* stage_of_layer; /* [n_layers] */
  int32_t* run_of_layer;   /* [n_layers] layers recomputed together have equal numbers; -1: not recomputed */
  int post_validates;      /* norm and overflow of all ranks are validated in the next step */
};

/* Action i of a rank's row of the schedule. */
gsel_action action_of(const struct pp* pp, int32_t rank, int32_t i);
int32_t end_of_stage(const struct pp* pp, int32_t stage);
/* A note for the user; printf-like. */
void note(struct pp* pp, const char* format, ...) __attribute__((format(printf, 2, 3)));

/* cuts.c: fills begin and stage_of_layer by the options, with notes. */
void choose_cuts(struct pp* pp);

/* lower.c: writes the new step, in the schedule's order. */
void write_step(struct pp* pp);

#endif
