/* forked.h: ranks for a peer that has no launcher: processes forked from one, with shared memory to meet in. It knows
 * nothing of the peer; numbers are gathered through the shared memory, behind a barrier that sleeps. */
#ifndef BENCH_PEERS_FORKED_H
#define BENCH_PEERS_FORKED_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FORKED_MOST_RANKS = 64 };

/* Zeroed memory that the ranks to be forked will share. */
void* forked_share(size_t bytes);

/* Forks the ranks; the caller becomes rank 0, and the others end when it does. */
void forked_join(int wanted, int* rank, int* ranks);

/* With BENCH_HOSTS=A,B in the environment, files of two network namespaces: the first half of the ranks goes to A, the
 * other one to B, whose interfaces are "eth0". Whether it is set. */
int forked_enter_host(int rank, int ranks);

void forked_gather(double* mine, double* all, size_t count);

/* Waits, asleep, until all ranks are here. */
void forked_barrier(void);

/* Ends ranks other than 0 and waits for them; their failure becomes the program's. */
void forked_leave(void);

#ifdef __cplusplus
}
#endif

#endif
