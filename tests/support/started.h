/* support/started.h: ranks of a test that are processes of a launcher, which run the same program side by side on one
 * host or on several (tests/hosts/started.sh): with GSEL_TEST_STARTED=FOLDER in the environment ranks.h takes these
 * instead of threads and forks, spread over the processes, so that two ranks are on two hosts. All processes do what
 * main does in step; only bodies of ranks run in one process each. What ranks share lies in files of FOLDER, which all
 * hosts see, and so does the place at which the ranks of a world meet. Worlds with more ranks than processes stay
 * threads of the first. */
#ifndef GSEL_TESTS_STARTED_H
#define GSEL_TESTS_STARTED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"

GSEL_EXTERN_C_BEGIN

struct started {
  const char* folder; /* NULL: not started */
  int32_t rank, size; /* of the processes */
  int32_t in_body;
  int32_t files, unlinked, folders, worlds; /* so far */
  int32_t joined;                           /* communicators of this body */
  void* user;                               /* of the world that is run next: its address in this process */
  volatile int32_t* arrived;                /* at all barriers so far, of all processes */
  int32_t barriers;
};

/* Zeroed memory that all processes map: the n-th of them. */
void* started_map(const struct started* s, const char* kind, int32_t n, size_t bytes);
/* This process as one of the started ones; joins them at the first call. */
struct started* started_job(void);
int is_started(void);

/* The text of an error about ranks on several hosts (hosts.sh), in the form for one host. */
void started_plain(char* text);

/* All processes are here. A process that is lost ends the program: the launcher ends the others. */
void started_barrier(struct started* s);

/* What main does with files, once none of the processes uses them: by the first alone, for whose end the others wait.
 */
#define BY_FIRST_PROCESS(...)                                                    \
  do {                                                                           \
    if (is_started() && !started_job()->in_body) started_barrier(started_job()); \
    if (started_job()->in_body || started_job()->rank == 0) {                    \
      __VA_ARGS__;                                                               \
    }                                                                            \
    if (is_started() && !started_job()->in_body) started_barrier(started_job()); \
  } while (0)

/* Once all processes have mapped what they share. */
void started_unlink(struct started* s);

/* Which process runs this rank of a world of n. */
int32_t started_process(const struct started* s, int32_t rank, int32_t n);

/* Whether a world of n has ranks on two hosts, or none was started: for tests of many worlds. */
int started_suits(int32_t n);

/* Where the ranks of a world of several meet, for the communicator that is joined next. */
void started_place(struct started* s, char* text, size_t capacity);

GSEL_EXTERN_C_END

#endif
