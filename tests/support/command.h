/* support/command.h: runs the gsel command in a scratch folder and keeps its output, for the tests of the command.
 * Every process started here inherits a pipe, which ends when the last process has ended. */
#ifndef GSEL_TESTS_COMMAND_H
#define GSEL_TESTS_COMMAND_H

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"
#include "support/scratch.h"

GSEL_EXTERN_C_BEGIN

#define MAX_TEXT (1 << 20)

extern char dir[256];
extern char out[MAX_TEXT], err[MAX_TEXT];
extern int alive;

/* A file of the scratch folder, into text[MAX_TEXT]. */
void read_back(const char* name, char* text);

/* Starts a shell line in the scratch folder; its pid is that of the first command when the line begins with exec. */
pid_t start(const char* line);

/* Waits for it: its exit status; fills out and err from the files of those names. */
int finish(pid_t pid);

/* Runs `gsel <arguments>`. */
int gsel(const char* arguments);

#define check_gsel(arguments, status) check_status(gsel(arguments), (status), (arguments), __LINE__)
void check_status(int got, int expected, const char* arguments, int line);

#define check_part(text, part) check_part_at((text), (part), __LINE__)
void check_part_at(const char* text, const char* part, int line);
void write_file(const char* name, const char* text);

/* A scratch folder, and the command that was built on PATH; 0 when both are there. */
int command_set_up(const char* area);
int command_tear_down(void);

GSEL_EXTERN_C_END

#endif
