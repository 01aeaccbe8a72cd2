/* support/weights_file.h: safetensors files as another program writes them, and whether two have the same tensors. It
 * shares nothing with the library's own reader and writer. */
#ifndef GSEL_TESTS_WEIGHTS_FILE_H
#define GSEL_TESTS_WEIGHTS_FILE_H

#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

/* Begins as {.dtype = GSEL_F32, GSEL_BF16 or GSEL_F16}. */
typedef struct weights_file {
  gsel_dtype dtype;
  int n;
  char* header; /* JSON so far */
  unsigned char* data;
  size_t bytes;
} weights_file;

/* Appends a tensor. values: as f32; must be numbers that the file's type has. */
void weights_file_add(weights_file* file, const char* name, const int64_t* dims, int n_dims, const float* values);

/* Replaces the last element of a tensor of f32. */
void weights_file_last_value(weights_file* file, const char* name, float value);

void weights_file_write(const weights_file* file, const char* path);
void weights_file_free(weights_file* file);

/* How many tensors of the file at `path` have the type, shape and bytes that the file at `other` has under the same
 * name, or under this prefix and the name. Fails the test where one has not. */
int weights_file_compare(const char* path, const char* other, const char* prefix);

GSEL_EXTERN_C_END

#endif
