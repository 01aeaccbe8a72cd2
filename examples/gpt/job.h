/* job.h: one training of the GPT, with its ranks as threads of this process or as the processes of a launcher, and what
 * came of it. */
#ifndef GPT_JOB_H
#define GPT_JOB_H

#include <gsel/gsel.h>

#include "data.h"
#include "layers.h"
#include "model.h"

enum { JOB_RANKS = 8, JOB_AXES = 4 };

struct job {
  const char* config; /* the text of a gsel.toml */
  int32_t ranks;      /* 1 to JOB_RANKS */
  int32_t steps;
  struct gpt_sizes sizes;
  const struct layer_kinds* kinds;
  const struct text* text;
  const char *load_from, *save_to; /* a checkpoint before the steps, one after them; NULL: none */
  const char*
      accelerator;   /* such as "cuda": rank i has device i, and kinds are &device_layers; NULL: memory of the host */
  int on_one_device; /* all ranks have device 0 */
  gsel_comm*
      world; /* of the processes of a launcher, which are the ranks of every job of more than one; NULL: threads are */
};

struct job_result {
  gsel_status status; /* the first rank's that failed */
  char message[512];  /* of the failure */
  float* params;      /* [n_elems] as rank 0 reads them; free() */
  int64_t n_elems;
  int alike;                          /* all ranks read the same, bit for bit */
  double loss;                        /* of the last step, mean */
  uint64_t sent[JOB_RANKS][JOB_AXES]; /* bytes of all steps, by rank and GSEL_AXIS_* */
  uint64_t peak_bytes[JOB_RANKS];     /* of the trainer */
};

void job_run(const struct job* job, struct job_result* result);

#endif
