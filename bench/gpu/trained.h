/* trained.h: examples/gpt in a trainer for benches: of one rank, on this machine's first card, or of a rank of a job.
 */
#ifndef BENCH_TRAINED_H
#define BENCH_TRAINED_H

#include "data.h"
#include "hand.h"

struct trained {
  int in_job; /* of `gsel run`, a card for each rank; 0: alone */
  struct text text;
  struct gpt_sizes sizes;
  struct gpt_model gpt;
  struct device_text on_device;
  gsel_config* config;
  gsel_comm* comm;
  gsel_trainer* trainer;
};

/* LAYERS,WIDTH,HEADS,CONTEXT and, for products of matrices by cuBLASLt, ",cublaslt". 0 on success. */
int trained_sizes(struct gpt_sizes* sizes, const char* text);

/* Loads the configuration and the text, and makes the trainer. With train.precision "bf16" the layers compute in it.
 * Ends the program with the reason where something fails; exits with 77 where there is no card, or no cuBLASLt. */
void trained_open(struct trained* t, const char* config_path, const char* text_path);
void trained_close(struct trained* t);

/* A number of the configuration. */
double trained_number(const struct trained* t, const char* key);

/* Seconds of a step, of n in a row; their losses: [n], or NULL. */
double trained_steps(struct trained* t, int n, double* losses);

#endif
