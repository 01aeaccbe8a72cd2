/* data.c: the text stays in memory whole; a sample begins at a random number keyed by its id, so there is no list
 * to shuffle, no position to keep and nothing for ranks to agree on. */
#include "data.h"

#include <errno.h>
#include <gsel/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads to the end, also from what has no size, such as a pipe. Returns 0 or an errno. */
static int read_all(FILE* file, struct text* text) {
  size_t capacity = 0;
  while (!feof(file)) {
    if (text->n_bytes == capacity) {
      capacity = capacity ? 2 * capacity : (size_t)1 << 20;
      uint8_t* larger = realloc(text->bytes, capacity);
      if (!larger) return ENOMEM;
      text->bytes = larger;
    }
    errno = 0;
    text->n_bytes += fread(text->bytes + text->n_bytes, 1, capacity - text->n_bytes, file);
    if (ferror(file)) return errno ? errno : EIO;
  }
  return 0;
}

int text_load(struct text* text, const char* path, int64_t context, uint64_t key, char* message, size_t capacity) {
  *text = (struct text){.context = context, .key = key};
  FILE* file = fopen(path, "rb");
  const int error = file ? read_all(file, text) : errno;
  if (file) fclose(file);
  if (error)
    snprintf(message, capacity, "data file %s: %s", path, strerror(error));
  else if (text->n_bytes < (size_t)context + 1)
    snprintf(message, capacity, "data file %s has %zu bytes, one sample needs %lld; give a longer text", path,
             text->n_bytes, (long long)context + 1);
  else
    return 0;
  text_free(text);
  return -1;
}

const uint8_t* text_sample(const struct text* text, int64_t id) {
  const uint64_t counter = 2 * (uint64_t)id;
  const size_t n_positions = text->n_bytes - (size_t)text->context;
  /* Two draws of 24 bits, so that large texts are reached everywhere. */
  const double high = gsel_random_uniform(text->key, counter), low = gsel_random_uniform(text->key, counter + 1);
  return text->bytes + (size_t)((high + low / (1 << 24)) * (double)n_positions);
}

void text_free(struct text* text) {
  free(text->bytes);
  *text = (struct text){0};
}
