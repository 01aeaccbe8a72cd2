/* nets/messages.h: messages of mixed tags, lengths and memory between all ranks of a communicator, drawn at random and
 * received by every kind of call, against a model of which message each receive gets: the first one of its sender that
 * suits it and that no receive posted before it got. */
#ifndef GSEL_TESTS_NETS_MESSAGES_H
#define GSEL_TESTS_NETS_MESSAGES_H

#include <gsel/comm.h>
#include <stdint.h>

enum { MESSAGES_MOST_RANKS = 4, MESSAGES_MOST_PHASES = 8, MESSAGES_TEXT = 400 };

/* Every rank of comm calls it, with the same seed and phases: in each phase a rank sends up to eight messages and
 * receives those sent to it. NULL, or in `text` what was against the model; the communicator is aborted then, so that
 * nobody waits. */
const char* messages_play(gsel_comm* comm, uint64_t seed, int phases, char text[MESSAGES_TEXT]);

#endif
