/* support/step_model.h: the smallest model a step can be watched on: one layer, y = a * x + b for each of three numbers
 * of a sample, and a loss, half the sum of squares. A test replaces its subject: callbacks, phases, saved bytes,
 * types, the optimizer. All numbers are small integers. */
#ifndef GSEL_TESTS_STEP_MODEL_H
#define GSEL_TESTS_STEP_MODEL_H

#include "support/ranks.h"

enum { STEP_WIDTH = 3 };
enum { STEP_A, STEP_B, STEP_PARAMS };
enum { STEP_X, STEP_Y, STEP_LOSS, STEP_WEIGHT, STEP_VALUES };

typedef struct step_model {
  const char* config;
  gsel_layer_fn forward, backward; /* of the layer; NULL: step_forward, step_backward */
  gsel_layer_fn loss_forward, loss_backward;
  const gsel_phase *forward_phases, *backward_phases;
  int32_t n_forward_phases, n_backward_phases;
  uint64_t saved_bytes_per_sample;
  gsel_dtype dtype;  /* of the parameters; 0: f32 */
  gsel_dtype output; /* of y, which the loss reads; 0: f32 */
  gsel_init_fn init; /* NULL: step_initial; gets the model */
  gsel_data_fn data; /* NULL: step_data */
  const gsel_optimizer_options* optimizer;
  /* Changes a description before it is added: one of the three is not NULL. NULL: nothing. */
  void (*vary)(gsel_param_options* param, gsel_value_options* value, gsel_layer_options* layer, const void* model);
  void* user; /* the test's */
  int rank, world_size;
} step_model;

/* Callbacks of the model as it is when a test replaces nothing. */
gsel_status step_forward(const gsel_call* c, void* user);

/* The same with parameters in bf16. */
gsel_status step_forward_bf16(const gsel_call* c, void* user);
void step_clear(const gsel_call* c, int p);
gsel_status step_backward(const gsel_call* c, void* user);
gsel_status step_loss_forward(const gsel_call* c, void* user);
gsel_status step_loss_backward(const gsel_call* c, void* user);

/* By sample id alone: -2 to 2. */
float step_sample(int64_t id, int i);
gsel_status step_data(const gsel_data_request* r, void* user);
gsel_status step_initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* user);
gsel_status step_describe(gsel_model* model, const step_model* m, gsel_error** err);

/* Everything one rank holds; freed by step_close also where step_open failed. */
typedef struct step_session {
  step_model m;
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
} step_session;

gsel_status step_open(const rank_run* run, const step_model* m, step_session* s, gsel_error** err);
void step_close(step_session* s);

/* Both parameters, one after the other. */
gsel_status step_params(gsel_trainer* trainer, float* out, gsel_error** err);

#define STEP_SIGN(batch, more) \
  "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = " batch "\n" more
#define STEP_SGD(rate, batch, more) \
  "[train]\noptimizer = \"sgd\"\nlearning_rate = " rate "\nweight_decay = 0.0\nbatch = " batch "\n" more
#define STEP_DDP "[strategy.data]\nplugin = \"ddp\"\n"
#define STEP_ZERO(stage) "[strategy.data]\nplugin = \"zero\"\nstage = " stage "\npersist_elems = 0\n"

/* Strategies that what a test is about must not depend on. */
enum { N_STEP_STRATEGIES = 4 };
extern const char* const kStepStrategies[N_STEP_STRATEGIES];

/* None, and each of the data axis, and from STEP_FIRST_PIPELINE on those of a pipeline of two ranks. */
enum { STEP_DP = 1, STEP_FIRST_PIPELINE = 6, N_STEP_EACH_STRATEGY = 8 };
extern const char* const kStepEachStrategy[N_STEP_EACH_STRATEGY];

#endif
