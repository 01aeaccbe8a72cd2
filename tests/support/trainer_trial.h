/* support/trainer_trial.h: one trial of the trainer on ranks: the exact model, or the small transformer, which all axes
 * can divide, under a configuration, trained for a few steps by pushing or pulling. The outcome is in memory that all
 * ranks share, and can be compared bit for bit with that of another trial. */
#ifndef GSEL_TESTS_TRAINER_TRIAL_H
#define GSEL_TESTS_TRAINER_TRIAL_H

#include "support/counts.h"
#include "support/exact_model.h"
#include "support/ranks.h"
#include "support/small_transformer.h"

GSEL_EXTERN_C_BEGIN

enum { STEPS = 4, KINDS = GSEL_INSTR_OVERFLOW + 1, MOST_ELEMS = TM_ELEMS };

typedef struct outcome {
  float params[MOST_ELEMS]; /* one after the other */
  double loss[STEPS];       /* sums */
  double weight[STEPS];
  int32_t skipped[STEPS];
  double norm[STEPS];
  double largest;
  gsel_comm_count counts[KINDS]; /* on the data axis, of setup and steps */
  gsel_step_report report;       /* of the last step */
} outcome;

typedef struct trial {
  const char* config;
  int without_comm; /* the trainer is made without a communicator */
  int pull;
  int steps;
  int count_all;
  int random;
  int loss_factor;
  int wide_on_rank; /* this rank describes another model; -1 none */
  const char* other_config_on_1;
  const gsel_optimizer_options* optimizer; /* NULL: the configuration's */
  gsel_data_fn data;                       /* NULL: exact_data */
  int fail_at_step;                        /* -1 never */
  int fail_on_rank;
  int overflow_at_step; /* -1 never */
  int batch;            /* for that */
  void (*at_failure)(void);
  void (*vary)(gsel_layer_options* layer); /* as that of the model */
  const small_transformer* transformer;    /* the model; NULL: the exact one, with the fields above */
  const outcome* expected;                 /* NULL: record into `out` */
  outcome* out;                            /* shared memory, [world_size] */
} trial;

/* Pushes STEPS steps of integers, with nothing that fails, differs or overflows. */
trial plain(const char* config, outcome* out);
outcome* shared_outcomes(void);
void free_outcomes(outcome* o);

/* The pulling side's own table of kernels, by layer id. */
gsel_status call_layer(const gsel_work* work, exact_model* m);

/* All work of a step or of an evaluation, by pulling it: what Go and Rust do. */
gsel_status pull_works(gsel_trainer* trainer, exact_model* m, gsel_error** err);
gsel_status pull_step(gsel_trainer* trainer, exact_model* m, gsel_step_report* report, gsel_error** err);
void read_params(rank_run* run, gsel_trainer* trainer, float* out);

/* Everything a rank owns in a trial; released in reverse. */
typedef struct session {
  exact_model m;
  small_transformer* transformer; /* NULL: m is the model */
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
} session;

/* Of the trial that is the run's user data. */
gsel_status open_session(rank_run* run, session* s, gsel_error** err);
void close_session(session* s);
/* What a step of the session's model hands out, and its inputs. */
gsel_status session_work(session* s, const gsel_work* work);
gsel_data_fn session_data(const session* s);
/* Parameters of the session's model, [session_elems]. */
int session_elems(const session* s);
void read_session_params(rank_run* run, const session* s, float* out);
void compare_outcomes(rank_run* run, const outcome* out, const outcome* expected);
void train_in(rank_run* run, session* s);
void train(rank_run* run);

#define TRAIN(batch, more) \
  "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = " batch "\nseed = 5\n" more
#define SGD(rate, batch, more) \
  "[train]\noptimizer = \"sgd\"\nlearning_rate = " rate "\nweight_decay = 0.0\nbatch = " batch "\nseed = 5\n" more

/* The single rank without any strategy, on integers: f32 must hold every sum exactly, or equality would prove nothing.
 */
outcome* exact_reference(const trial* like, const char* train_section);

/* ---- the strategies under test ---- */

struct strategy_row {
  const char *name, *section;
};
#define DP(more) "[strategy.data]\nplugin = \"dp\"\n" more
#define DDP(more) "[strategy.data]\nplugin = \"ddp\"\n" more
#define ZERO(stage, more) "[strategy.data]\nplugin = \"zero\"\nstage = " stage "\n" more
#define ALL_SHARDED "persist_elems = 0\n"
enum { N_STRATEGIES = 23 };
extern struct strategy_row kStrategies[N_STRATEGIES];

/* Whether a row is to be tried; GSEL_TEST_STRATEGY, a part of its name, picks some while one is looking for a mistake.
 */
int is_tried(int strategy);

GSEL_EXTERN_C_END

#endif
