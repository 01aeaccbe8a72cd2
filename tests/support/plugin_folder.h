/* support/plugin_folder.h: a fresh folder with copies of fixture modules in it, and GSEL_PLUGIN_PATH set to it. */
#ifndef GSEL_TESTS_PLUGIN_FOLDER_H
#define GSEL_TESTS_PLUGIN_FOLDER_H

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/check.h"
#include "support/scratch.h"

GSEL_EXTERN_C_BEGIN

typedef struct {
  char path[160];
} Folder;

Folder fresh_folder(void);

/* The same, searched before the folders that GSEL_PLUGIN_PATH already names. */
Folder fresh_folder_before_others(void);

/* Path of a file in the folder; static, until the next call. */
const char* path_in(const Folder* folder, const char* name);
void write_into(const Folder* folder, const char* name, const void* bytes, size_t n);

/* Copies the fixture `name` (without .so) under the name `as`. */
void copy_fixture_as(const Folder* folder, const char* name, const char* as);
void copy_fixture(const Folder* folder, const char* name);
void remove_folder(const Folder* folder);

GSEL_EXTERN_C_END

#endif
