/* nets/selection.h: what the parts of test_selection.c share: what is held, and what a request must come to. */
#ifndef GSEL_TESTS_NETS_SELECTION_H
#define GSEL_TESTS_NETS_SELECTION_H

#include "nets/machine.h"

enum { STOCKS = 3, PICKS = 4, HOSTS = 3, CARDS = 6 };

/* An inventory: so many equal cards on each host. */
typedef struct stock {
  gsel_inventory* inventory;
  int hosts, cards[HOSTS];
} stock;

/* What comes of a request: a code, or devices in the order selected. */
typedef struct choice {
  gsel_status status;
  int n, all; /* devices chosen, of so many */
  int host[HOSTS * CARDS], card[HOSTS * CARDS];
} choice;

typedef struct pick {
  gsel_selection* selection;
  choice chosen;
} pick;

typedef struct hold {
  gsel_reservation* reservation;
  choice chosen;
} hold;

typedef struct setting {
  gsel_config* config;
  int batch, with_devices;
} setting;

typedef struct holdings {
  stock stocks[STOCKS];
  pick picks[PICKS];
  hold holds[PICKS];
  setting settings[PICKS];
  int held[HOSTS][CARDS];
  char folder[64];
} holdings;

static inline holdings* mine(const player* p) {
  return (holdings*)p->own;
}

/* A request, with the text that it borrows. */
typedef struct asked {
  gsel_resolve_options resolve;
  gsel_env_var env[2];
  char devices[100], mask[60], include[100];
} asked;

/* The request that an op makes of an inventory, and what must come of it; with `held` as a reservation. */
choice request_of(asked* a, const stock* k, const op* o, int held[HOSTS][CARDS]);

#endif
