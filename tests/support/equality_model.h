/* support/equality_model.h: a model of real numbers, whose sums depend on their order, with a table that its first and
 * its last layer share. The kernels are functions apart from the callbacks, so that a reference loop can call them.
 *
 *   embed   h0 <- table[token]          up    h1 = h0 wu        act   h2 = tanh(h1)
 *   down    h3 = h2 wd                  head  y = (h3 + h0) table^T
 *   loss    sum of w (y - onehot)^2 / 2, sum of w
 *
 * On a tensor axis wu is split by columns and wd by rows. */
#ifndef GSEL_TESTS_EQUALITY_MODEL_H
#define GSEL_TESTS_EQUALITY_MODEL_H

#include "support/ranks.h"

enum { EQ_WORDS = 5, EQ_WIDTH = 4, EQ_HIDDEN = 6, EQ_MOST_SAMPLES = 48 };
enum { EQ_TABLE, EQ_UP, EQ_DOWN, EQ_PARAMS };
enum { EQ_TABLE_ELEMS = EQ_WORDS * EQ_WIDTH, EQ_MATRIX_ELEMS = EQ_WIDTH * EQ_HIDDEN };
enum { EQ_ELEMS = EQ_TABLE_ELEMS + 2 * EQ_MATRIX_ELEMS };

extern const int64_t kEqElems[EQ_PARAMS];

/* ---- data and initial values, by sample and element alone ---- */

int32_t eq_token(int64_t id);
gsel_status eq_initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* param);

/* ---- kernels: n samples; matrices [a][b] by rows; with `add` a kernel adds to its output, else it overwrites ---- */

void eq_embed(int64_t n, const int32_t* token, const float* table, float* h);
void eq_embed_weight(int64_t n, const int32_t* token, const float* dh, int add, float* dtable);
void eq_linear(int64_t n, int64_t a, int64_t b, const float* x, const float* w, float* y);
void eq_linear_input(int64_t n, int64_t a, int64_t b, const float* dy, const float* w, float* dx);
void eq_linear_weight(int64_t n, int64_t a, int64_t b, const float* x, const float* dy, int add, float* dw);
void eq_act(int64_t elems, const float* x, float* y);
void eq_act_input(int64_t elems, const float* y, const float* dy, float* dx);
/* The head is a linear by the table's rows, applied to the sum of the embedding and the layers after it. */
void eq_sum(int64_t elems, const float* a, const float* b, float* sum);
void eq_head(int64_t n, const float* h3, const float* h0, const float* table, float* y);
void eq_head_input(int64_t n, const float* dy, const float* table, float* dh3, float* dh0);
void eq_head_weight(int64_t n, const float* h3, const float* h0, const float* dy, int add, float* dtable);
void eq_loss(int64_t n, const int64_t* ids, const float* y, double* loss, double* weight);
void eq_loss_input(int64_t n, const int64_t* ids, const float* y, float* dy);

/* ---- callbacks ---- */

/* The sample that makes the gradient of wd NaN; -1: none. Set before ranks begin. */
extern int64_t eq_poisoned;

/* Options of a trainer. */
gsel_status eq_data(const gsel_data_request* r, void* user);

/* ---- description ---- */

gsel_status eq_describe(gsel_model* model, gsel_error** err);

/* Everything one rank holds; freed by eq_close also where eq_open failed. */
typedef struct eq_session {
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
} eq_session;

gsel_status eq_open(const rank_run* run, const char* config, eq_session* s, gsel_error** err);
void eq_close(eq_session* s);

/* All parameters, one after the other: [EQ_ELEMS]. */
gsel_status eq_params(gsel_trainer* trainer, float* out, gsel_error** err);

#endif
