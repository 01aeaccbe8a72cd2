/* support/net.h: shared by the nets of tests/nets: each trial runs in a process of its own, so that a crash or a hang
 * names the trial, and the next trial runs; findings, and the list of known ones.
 *
 *   GSEL_NET_SEED=S      seed of random numbers; 1 by default, so that `make test` tries the same each time
 *   GSEL_NET_SECONDS=T   duration of a net without an end of its own
 *   GSEL_NET_ONLY=TEXT   only trials whose name contains TEXT: to replay one */
#ifndef GSEL_TESTS_NET_H
#define GSEL_TESTS_NET_H

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"

enum { NET_FINDINGS = 400, NET_LINE = 1024 };

/* Shared by all processes of a net. */
typedef struct net_log {
  long trials; /* started */
  int findings;
  char text[NET_FINDINGS][NET_LINE];
} net_log;

/* The beginning of the text of a known finding, which does not fail the net. */
typedef struct net_known {
  const char* begins;
  const char* reason;
} net_known;

typedef struct net_trial {
  net_log* log;
  char name[NET_LINE / 2];
  long index; /* of the trial within its set, from 0 */
} net_trial;

double net_seconds(void);
long net_number(const char* variable, long otherwise);
uint64_t net_random(uint64_t* state);
int net_wanted(const char* name);
net_log* net_open(void);
void net_find(net_log* log, const char* trial, const char* what);

/* Prints the findings; fails for findings that are not known. */
void net_close(net_log* log, const net_known* known, int n_known);

/* Waits for a child, at most so many seconds. NULL, or why its end is a failure. */
const char* net_reap(pid_t pid, double most, char* text, size_t capacity);

/* Runs body(trial, user) in children of this process until it returns with all trials done. The body numbers its trials
 * in trial->index and skips those below the index it was started with; if a trial ends the process, the next child
 * starts with the next trial. */
typedef void (*net_body)(net_trial* trial, void* user);
void net_contain(net_log* log, net_body body, void* user, double most_seconds);

/* A whole net: work(log, worker) on two processors, then the findings. */
enum { NET_WORKERS = 2 };
typedef void (*net_work)(net_log* log, int worker);
void net_on_workers(net_work work);

#endif
