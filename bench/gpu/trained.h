/* trained.h: examples/gpt on this machine's first card, in a trainer of one rank, for benches. */
#ifndef BENCH_TRAINED_H
#define BENCH_TRAINED_H

#include "data.h"
#include "hand.h"

struct trained {
  struct text text;
  struct gpt_sizes sizes;
  struct gpt_model gpt;
  struct device_text on_device;
  gsel_config* config;
  gsel_comm* comm;
  gsel_trainer* trainer;
};

/* LAYERS,WIDTH,HEADS,CONTEXT. 0 on success. */
int trained_sizes(struct gpt_sizes* sizes, const char* text);

/* Loads the configuration and the text, and makes the trainer. Ends the program with the reason where something fails;
 * exits with 77 where there is no card. */
void trained_open(struct trained* t, const char* config_path, const char* text_path);
void trained_close(struct trained* t);

/* A number of the configuration. */
double trained_number(const struct trained* t, const char* key);

/* Seconds of a step, of n in a row; their losses: [n], or NULL. */
double trained_steps(struct trained* t, int n, double* losses);

#endif
