/* The memory layout of public structs: other languages spell it out by hand, so what moves breaks them. layout.inc is
 * the promise; the compiler's view of the headers is compared with it. */
#include <dirent.h>
#include <gsel/plugin.h>
#include <stdlib.h>

#include "support/check.h"

struct entry {
  const char* type;
  const char* field; /* NULL: the struct itself */
  size_t offset, bytes;
  size_t actual_offset, actual_bytes;
};

static const struct entry entries[] = {
#define STRUCT(type, bytes) {#type, NULL, 0, bytes, 0, sizeof(type)},
#define FIELD(type, field, offset, bytes) \
  {#type, #field, offset, bytes, offsetof(type, field), sizeof(((type*)NULL)->field)},
#include "layout.inc"
#undef STRUCT
#undef FIELD
};
static const size_t n_entries = sizeof entries / sizeof *entries;

static void every_struct_and_field_is_where_other_languages_expect_it(void** state) {
  (void)state;
  int moved = 0;
  if (sizeof(long) != 8 || sizeof(void*) != 8) skip(); /* layout.inc is of LP64 alone */
  for (const struct entry* e = entries; e < entries + n_entries; ++e) {
    if (e->offset == e->actual_offset && e->bytes == e->actual_bytes) continue;
    print_error("%s%s%s moved: expected offset %zu and %zu bytes, got offset %zu and %zu bytes\n", e->type,
                e->field ? "." : "", e->field ? e->field : "", e->offset, e->bytes, e->actual_offset, e->actual_bytes);
    ++moved;
  }
  assert_int_equal(moved, 0);
}

/* No padding: a hole would be filled with rubbish by some languages, and a field that is missing in layout.inc shows
 * as one. */
static void every_byte_of_a_struct_belongs_to_a_listed_field(void** state) {
  (void)state;
  if (sizeof(long) != 8 || sizeof(void*) != 8) skip(); /* layout.inc is of LP64 alone */
  for (size_t i = 0; i < n_entries;) {
    const struct entry* type = &entries[i];
    size_t end = 0;
    for (++i; i < n_entries && entries[i].field; ++i) {
      if (entries[i].actual_offset != end)
        fail_msg("%s: %zu bytes before %s belong to no listed field", type->type, entries[i].actual_offset - end,
                 entries[i].field);
      end += entries[i].actual_bytes;
    }
    if (end != type->actual_bytes)
      fail_msg("%s: its last %zu bytes belong to no listed field", type->type, type->actual_bytes - end);
  }
}

static int is_listed(const char* type) {
  for (size_t i = 0; i < n_entries; ++i) {
    const char* name = strncmp(entries[i].type, "struct ", 7) == 0 ? entries[i].type + 7 : entries[i].type;
    if (!entries[i].field && strcmp(name, type) == 0) return 1;
  }
  return 0;
}

/* Number of structs defined in a header; each must be listed. */
static int look_into(const char* path) {
  char line[512], type[128];
  int defined = 0;
  FILE* header = fopen(path, "r");
  if (!header) fail_msg("%s cannot be read", path);
  while (fgets(line, sizeof line, header)) {
    char open = 0;
    if (sscanf(line, "typedef struct %127[a-z0-9_] %c", type, &open) != 2 &&
        sscanf(line, "struct %127[a-z0-9_] %c", type, &open) != 2)
      continue;
    if (open != '{') continue;
    ++defined;
    if (!is_listed(type)) fail_msg("%s defines %s, which tests/abi/layout.inc does not list", path, type);
  }
  fclose(header);
  return defined;
}

static void every_struct_of_the_headers_is_listed(void** state) {
  (void)state;
  const char* data = getenv("GSEL_TEST_DATA");
  char folder[512], path[1024];
  assert_non_null(data);
  snprintf(folder, sizeof folder, "%s/../../include/gsel", data);
  DIR* dir = opendir(folder);
  if (!dir) fail_msg("%s cannot be read", folder);
  int defined = 0, listed = 0;
  for (struct dirent* file = readdir(dir); file; file = readdir(dir)) {
    const size_t length = strlen(file->d_name);
    if (length < 2 || strcmp(file->d_name + length - 2, ".h") != 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
    defined += look_into(path);
  }
  closedir(dir);
  for (size_t i = 0; i < n_entries; ++i) listed += !entries[i].field;
  assert_int_equal(defined, listed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_struct_and_field_is_where_other_languages_expect_it),
      cmocka_unit_test(every_byte_of_a_struct_belongs_to_a_listed_field),
      cmocka_unit_test(every_struct_of_the_headers_is_listed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
