/* record.h: what a run leaves behind for comparison: losses, hashes of the parameters, bytes sent. */
#ifndef GPT_RECORD_H
#define GPT_RECORD_H

#include <stddef.h>
#include <stdint.h>

struct record {
  int32_t ranks;
  int64_t steps;
  int64_t elements;     /* over all parameters */
  double tokens_per_s;  /* over all ranks */
  double* losses;       /* [steps] nats per byte */
  uint64_t* hashes;     /* [ranks] FNV-1a of the rank's parameters */
  uint64_t* bytes_sent; /* [ranks] for gradients */
};

/* An empty record with room for `ranks`, and one more step. 0, or -1 when there is no memory. */
int record_init(struct record* record, int32_t ranks);
int record_add_step(struct record* record, double loss);
void record_free(struct record* record);

/* JSON, one record per line. 0; or -1 with one line of explanation in message[capacity]. After a failed read there is
 * nothing to free. */
int record_write(const struct record* record, const char* path, char* message, size_t capacity);
int record_read(struct record* record, const char* path, char* message, size_t capacity);

/* Bytes a rank sends for gradients in the whole run, by the ring's closed form: 2 (n - 1) / n * elements * 4 a step. */
double record_closed_form(const struct record* record);

#endif
