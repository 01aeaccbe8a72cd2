/* support/plugin_folder.h: a fresh folder with copies of fixture modules in it, and GSEL_PLUGIN_PATH set to it. */
#ifndef GSEL_TESTS_PLUGIN_FOLDER_H
#define GSEL_TESTS_PLUGIN_FOLDER_H

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/check.h"
#include "support/scratch.h"

typedef struct {
  char path[160];
} Folder;

static inline Folder fresh_folder(void) {
  Folder folder;
  assert_true(make_scratch(folder.path, sizeof folder.path, "plugins"));
  assert_int_equal(setenv("GSEL_PLUGIN_PATH", folder.path, 1), 0);
  return folder;
}

/* The same, searched before what GSEL_PLUGIN_PATH names already. */
static inline Folder fresh_folder_before_others(void) {
  char others[1024] = "", all[2048];
  const char* path = getenv("GSEL_PLUGIN_PATH");
  if (path) snprintf(others, sizeof others, "%s", path);
  const Folder folder = fresh_folder();
  snprintf(all, sizeof all, "%s:%s", folder.path, others);
  if (path) assert_int_equal(setenv("GSEL_PLUGIN_PATH", all, 1), 0);
  return folder;
}

/* Path of a file in the folder; static, until the next call. */
static inline const char* path_in(const Folder* folder, const char* name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder->path, name);
  return path;
}

static inline void write_into(const Folder* folder, const char* name, const void* bytes, size_t n) {
  FILE* file = fopen(path_in(folder, name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(chmod(path_in(folder, name), 0644), 0);
}

/* Copies the fixture `name` (without .so) under the name `as`. */
static inline void copy_fixture_as(const Folder* folder, const char* name, const char* as) {
  static char bytes[8 << 20];
  char path[512];
  const char* build = getenv("GSEL_TEST_BIN");
  assert_non_null(build);
  snprintf(path, sizeof path, "%s/tests/fixtures/%s.so", build, name);
  FILE* file = fopen(path, "rb");
  if (!file) fail_msg("%s is missing", path);
  const size_t n = fread(bytes, 1, sizeof bytes, file);
  assert_true(n > 0 && n < sizeof bytes);
  fclose(file);
  write_into(folder, as, bytes, n);
}

static inline void copy_fixture(const Folder* folder, const char* name) {
  char as[128];
  snprintf(as, sizeof as, "%s.so", name);
  copy_fixture_as(folder, name, as);
}

static inline void remove_folder(const Folder* folder) {
  chmod(folder->path, 0700);
  DIR* dir = opendir(folder->path);
  if (!dir) return;
  for (struct dirent* entry = readdir(dir); entry; entry = readdir(dir))
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) unlink(path_in(folder, entry->d_name));
  closedir(dir);
  rmdir(folder->path);
}

#endif
