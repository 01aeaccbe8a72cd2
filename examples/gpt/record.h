/* record.h: what a run leaves behind for comparison: losses and times of the steps, and of each rank a hash of its
 * parameters, bytes sent by kind of instruction, and memory by part. */
#ifndef GPT_RECORD_H
#define GPT_RECORD_H

#include <stddef.h>
#include <stdint.h>

/* Kinds of instruction whose bytes are counted, in the order of their names in record.c. */
enum sent {
  SENT_ALLREDUCE,
  SENT_REDUCE_SCATTER,
  SENT_REDUCE,
  SENT_ALLGATHER,
  SENT_BROADCAST,
  SENT_SCATTER,
  SENT_GATHER,
  SENT_LOSS_ALLREDUCE,
  SENT_NORM,
  SENT_OVERFLOW,
  SENT_SEND,
  SENT_ALLREDUCE_TIED,
  SENT_FORWARD,
  SENT_BACKWARD,
  SENT_ALLREDUCE_PARTIAL,
  SENT_KINDS
};
extern const char* const sent_names[SENT_KINDS];

/* Times are rank 0's. */
struct step_record {
  double loss;    /* nats per byte */
  double seconds; /* of the whole step */
  double cpu_s;   /* of it, the processor's, over all threads of the process */
  double compute_s, exposed_comm_s, optimizer_s;
  double allgather_s, exposed_allgather_s; /* gathers of parameters: how long they took, and what of it was waited for */
};

/* A part of a rank's memory, as forecast and as taken at most. */
struct memory_part {
  char name[64];
  int64_t offloaded; /* 1: offload memory */
  uint64_t forecast_bytes, peak_bytes;
};
enum { RECORD_PARTS = 16 };

/* Without padding: it is sent from rank to rank as it lies in memory. */
struct rank_record {
  uint64_t hash;                          /* FNV-1a of all parameters as this rank reads them */
  uint64_t peak_bytes, peak_rss_bytes;    /* of the trainer; of the whole process */
  uint64_t bytes_sent[SENT_KINDS];        /* in all steps */
  struct memory_part parts[RECORD_PARTS]; /* those without a name are none */
};

struct record {
  int32_t ranks;
  int64_t steps;
  int64_t elements;            /* over all parameters */
  double tokens_per_s;         /* over all ranks */
  char strategy[32];           /* "ddp", "zero 3"; without quotes in it */
  struct step_record* of_step; /* [steps] */
  struct rank_record* of_rank; /* [ranks] */
};

/* An empty record with room for `ranks`, and one more step. 0, or -1 when there is no memory. */
int record_init(struct record* record, int32_t ranks);
int record_add_step(struct record* record, const struct step_record* step);
void record_free(struct record* record);

/* JSON, one thing per line. 0; or -1 with one line of explanation in message[capacity]. After a failed read there is
 * nothing to free. */
int record_write(const struct record* record, const char* path, char* message, size_t capacity);
int record_read(struct record* record, const char* path, char* message, size_t capacity);

uint64_t record_bytes_sent(const struct record* record, int32_t rank);

/* FNV-1a, 64 bits, of more bytes behind `hash`; begin with RECORD_HASH_BEGIN. */
#define RECORD_HASH_BEGIN UINT64_C(0xcbf29ce484222325)
uint64_t record_hash(uint64_t hash, const void* bytes, size_t n_bytes);

/* Most this process has had in memory. */
uint64_t record_peak_rss(void);

#endif
