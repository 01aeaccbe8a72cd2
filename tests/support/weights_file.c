/* See weights_file.h. */
#include "support/weights_file.h"

#include <inttypes.h>
#include <stdlib.h>

#include "support/check.h"
#include "support/started.h"

static size_t elem_bytes(gsel_dtype dtype) {
  return dtype == GSEL_F32 ? 4 : 2;
}

/* Of numbers that are not subnormal in the type and need no rounding. */
static uint16_t narrow(float value, gsel_dtype dtype) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == GSEL_BF16) {
    assert_int_equal(bits & 0xffff, 0);
    return (uint16_t)(bits >> 16);
  }
  const uint32_t sign = bits >> 16 & 0x8000;
  if ((bits & 0x7fffffff) == 0) return (uint16_t)sign;
  const int exponent = (int)(bits >> 23 & 0xff) - 127 + 15;
  assert_true(exponent > 0 && exponent < 31 && (bits & 0x1fff) == 0);
  return (uint16_t)(sign | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
}

void weights_file_add(weights_file* file, const char* name, const int64_t* dims, int n_dims, const float* values) {
  static const char* const types[] = {[GSEL_F32] = "F32", [GSEL_BF16] = "BF16", [GSEL_F16] = "F16"};
  char shape[200] = "", entry[600];
  size_t count = 1, used = 0;
  for (int d = 0; d < n_dims; ++d) {
    count *= (size_t)dims[d];
    used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRId64, d ? "," : "", dims[d]);
  }
  const size_t bytes = count * elem_bytes(file->dtype);
  snprintf(entry, sizeof entry, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
           file->n++ ? "," : "{", name, types[file->dtype], shape, file->bytes, file->bytes + bytes);
  const size_t before = file->header ? strlen(file->header) : 0;
  file->header = (char*)realloc(file->header, before + strlen(entry) + 1);
  strcpy(file->header + before, entry);
  file->data = (unsigned char*)realloc(file->data, file->bytes + bytes);
  for (size_t i = 0; i < count; ++i) {
    unsigned char* to = file->data + file->bytes + i * elem_bytes(file->dtype);
    const uint16_t half = file->dtype == GSEL_F32 ? 0 : narrow(values[i], file->dtype);
    memcpy(to, file->dtype == GSEL_F32 ? (const void*)&values[i] : (const void*)&half, elem_bytes(file->dtype));
  }
  file->bytes += bytes;
}

/* Of the tensor's entry in a header: the text after `field`. */
static const char* field_of(const char* header, const char* name, const char* field) {
  char key[200];
  snprintf(key, sizeof key, "\"%s\":{", name);
  const char* at = strstr(header, key);
  return at ? strstr(at, field) + strlen(field) : NULL;
}

static int bounds_of(const char* header, const char* name, size_t* begin, size_t* end) {
  const char* at = field_of(header, name, "\"data_offsets\":[");
  return at && sscanf(at, "%zu,%zu", begin, end) == 2;
}

void weights_file_last_value(weights_file* file, const char* name, float value) {
  size_t begin, end;
  assert_true(bounds_of(file->header, name, &begin, &end));
  memcpy(file->data + end - sizeof value, &value, sizeof value);
}

static void write_whole(const weights_file* file, const char* path) {
  FILE* out = fopen(path, "wb");
  assert_non_null(out);
  const uint64_t length = strlen(file->header) + 1;
  for (int i = 0; i < 8; ++i) putc((int)(length >> 8 * i & 0xff), out);
  fprintf(out, "%s}", file->header);
  assert_int_equal(fwrite(file->data, 1, file->bytes, out), file->bytes);
  assert_int_equal(fclose(out), 0);
}

void weights_file_write(const weights_file* file, const char* path) {
  BY_FIRST_PROCESS(write_whole(file, path));
}

void weights_file_free(weights_file* file) {
  free(file->header);
  free(file->data);
  memset(file, 0, sizeof *file);
}

/* header: NUL-terminated. data: behind it. */
struct read_file {
  char *header, *data;
  size_t bytes; /* of the data */
};

static struct read_file read_whole(const char* path) {
  struct read_file file;
  unsigned char length[8];
  uint64_t n = 0;
  FILE* in = fopen(path, "rb");
  assert_non_null(in);
  assert_int_equal(fread(length, 1, sizeof length, in), sizeof length);
  for (int i = 7; i >= 0; --i) n = n << 8 | length[i];
  file.header = (char*)calloc(n + 1, 1);
  assert_int_equal(fread(file.header, 1, n, in), n);
  const long at = ftell(in);
  fseek(in, 0, SEEK_END);
  file.bytes = (size_t)(ftell(in) - at);
  fseek(in, at, SEEK_SET);
  file.data = (char*)malloc(file.bytes + 1);
  assert_int_equal(fread(file.data, 1, file.bytes, in), file.bytes);
  fclose(in);
  return file;
}

static void compare_one(const struct read_file* file, const struct read_file* other, const char* name,
                        const char* prefix) {
  char prefixed[200];
  size_t begin, end, other_begin, other_end;
  snprintf(prefixed, sizeof prefixed, "%s%s", prefix, name);
  const char* named = field_of(other->header, name, "\"dtype\"") ? name : prefixed;
  const char *entry = field_of(file->header, name, "{\"dtype\""), *its = field_of(other->header, named, "{\"dtype\"");
  if (!its) fail_msg("%s is not in the other file", name);
  const size_t same = (size_t)(strstr(entry, "\"data_offsets\"") - entry);
  if (strncmp(entry, its, same) != 0) fail_msg("%s: expected %.*s, got %.*s", name, (int)same, its, (int)same, entry);
  assert_true(bounds_of(file->header, name, &begin, &end) && bounds_of(other->header, named, &other_begin, &other_end));
  assert_true(end <= file->bytes && other_end <= other->bytes);
  assert_int_equal(end - begin, other_end - other_begin);
  if (memcmp(file->data + begin, other->data + other_begin, end - begin) != 0) fail_msg("%s has other bytes", name);
}

int weights_file_compare(const char* path, const char* other_path, const char* prefix) {
  const struct read_file file = read_whole(path), other = read_whole(other_path);
  int n = 0;
  for (const char* at = file.header; (at = strstr(at, "\":{\"dtype\"")); ++at) {
    char name[100];
    const char* begin = at;
    while (begin[-1] != '"') --begin;
    snprintf(name, sizeof name, "%.*s", (int)(at - begin), begin);
    compare_one(&file, &other, name, prefix);
    ++n;
  }
  free(file.header), free(file.data), free(other.header), free(other.data);
  return n;
}
