/* See plugin_folder.h. */
#include "support/plugin_folder.h"

#include <dirent.h>

Folder fresh_folder(void) {
  Folder folder;
  assert_true(make_scratch(folder.path, sizeof folder.path, "plugins"));
  assert_int_equal(setenv("GSEL_PLUGIN_PATH", folder.path, 1), 0);
  return folder;
}

Folder fresh_folder_before_others(void) {
  char others[1024] = "", all[2048];
  const char* path = getenv("GSEL_PLUGIN_PATH");
  if (path) snprintf(others, sizeof others, "%s", path);
  const Folder folder = fresh_folder();
  snprintf(all, sizeof all, "%s:%s", folder.path, others);
  if (path) assert_int_equal(setenv("GSEL_PLUGIN_PATH", all, 1), 0);
  return folder;
}

const char* path_in(const Folder* folder, const char* name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder->path, name);
  return path;
}

void write_into(const Folder* folder, const char* name, const void* bytes, size_t n) {
  FILE* file = fopen(path_in(folder, name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(chmod(path_in(folder, name), 0644), 0);
}

void copy_fixture_as(const Folder* folder, const char* name, const char* as) {
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

void copy_fixture(const Folder* folder, const char* name) {
  char as[128];
  snprintf(as, sizeof as, "%s.so", name);
  copy_fixture_as(folder, name, as);
}

void remove_folder(const Folder* folder) {
  chmod(folder->path, 0700);
  DIR* dir = opendir(folder->path);
  if (!dir) return;
  for (struct dirent* entry = readdir(dir); entry; entry = readdir(dir))
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) unlink(path_in(folder, entry->d_name));
  closedir(dir);
  rmdir(folder->path);
}
