/* data.h: the training text, and which piece of it a sample is. Any file will do: it is read as bytes. */
#ifndef GPT_DATA_H
#define GPT_DATA_H

#include <stddef.h>
#include <stdint.h>

struct text {
  uint8_t* bytes;
  size_t n_bytes;
  int64_t context; /* bytes a sample is long */
  uint64_t key;    /* of the random choice of pieces */
};

/* Reads a whole file. Returns 0; or -1 with one line of explanation in message[capacity] and nothing to free. */
int text_load(struct text* text, const char* path, int64_t context, uint64_t key, char* message, size_t capacity);

/* Start of the context + 1 bytes that sample `id` stands for. The same id is the same piece on every rank and under
 * every layout, which is why one rank and eight train on the same data. */
const uint8_t* text_sample(const struct text* text, int64_t id);

void text_free(struct text* text);

#endif
