/* nets/machine.h: handles driven by bytes. Ranks, which are threads, read the same bytes: a call, a handle and two
 * arguments each time. After each call they meet, so that the model of one rank, which has seen the same calls, is that
 * of all. A net brings the calls and the model of what each must answer, as `played`; this is what all nets share.
 * sequences.c gives a machine bytes drawn at random, fuzz_machine.c those of libFuzzer. */
#ifndef GSEL_TESTS_NETS_MACHINE_H
#define GSEL_TESTS_NETS_MACHINE_H

#include <stdint.h>
#include <string.h>

#include "support/ranks.h"

enum { MACHINE_OP_BYTES = 4, MACHINE_TEXT = 500, MACHINE_MOST_OPS = 256, MACHINE_MOST_RANKS = 3 };

/* Of all ranks: the first call in which something was wrong, and who found something first. */
struct findings {
  size_t call;
  int32_t rank;
};

typedef struct op {
  uint8_t what, slot, a, b;
} op;

typedef struct player {
  rank_run run;
  pthread_barrier_t* all; /* of the ranks; see meet() */
  const op* ops;
  size_t n_ops;
  size_t at;          /* number of the call */
  gsel_status status; /* of the last CAME */
  void* own;          /* the net's */
  struct findings* of_all;
  char failure[MACHINE_TEXT];
} player;

typedef struct machine {
  int32_t fewest_ranks, most_ranks; /* the bytes say how many */
  size_t own_bytes;                 /* of player.own, zeros to begin with */
  void (*open)(player* p);
  void (*play)(player* p, const op* o);
  void (*close)(player* p);
} machine;

/* Of the program's net. */
extern const machine played;

/* Plays size / MACHINE_OP_BYTES calls, the most MACHINE_MOST_OPS; NULL, or in `text` what came back against the model.
 */
const char* machine_run(const machine* m, const uint8_t* data, size_t size, char text[MACHINE_TEXT]);

/* ---- for nets ---- */

/* What is wrong; the first of a rank counts, and ends its playing. */
void report(player* p, const char* call, const char* what);
void right(player* p, int condition, const char* what);

/* Whether it is as the model says and a success; takes over err. */
int came(player* p, const char* call, gsel_status want, gsel_status got, gsel_error* err);
#define CAME(want, call) (err = NULL, p->status = (call), came(p, #call, want, p->status, err))

/* Waits for all ranks, in the middle of a call: each rank must come here. */
void meet(player* p);

#endif
