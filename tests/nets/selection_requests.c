/* nets/selection_requests.c: requests, and what docs/selection.md says must come of them on equal cards: counts and
 * indexes mean each host, a list keeps its order, what is held is passed over or refused. */
#include "nets/selection.h"

enum { AUTO, COUNT, INDEX, ALL, NONE, COUNT_WITHOUT, WRONG, FALLBACK, ONE_HOST, SLOTS, FORMS };

typedef struct view {
  const stock* k;
  int (*held)[CARDS];      /* NULL: nothing is asked to be free */
  int mask[CARDS], n_mask; /* n_mask -1: none */
  choice c;
} view;

static int is_free(const view* v, int host, int card) {
  return !v->held || !v->held[host][card];
}

static void take(view* v, int host, int card) {
  v->c.host[v->c.n] = host;
  v->c.card[v->c.n++] = card;
}

static void refuse(view* v, gsel_status status) {
  if (!v->c.status) v->c.status = status;
}

static int is_seen(const view* v, int card) {
  for (int i = 0; i < v->n_mask; ++i)
    if (v->mask[i] == card) return 1;
  return v->n_mask < 0;
}

static int wanted(const view* v, int host, int card, int without, int only_host) {
  return card != without && (only_host < 0 || only_host == host) && is_seen(v, card);
}

/* So many of each host, the first that are free; most -1: all. Where there are too few anywhere, any that is held is
 * why, else it is the number. */
static void take_count(view* v, int most, int without, int only_host) {
  int n_free[HOSTS] = {0}, all_free = 0, held = 0;
  for (int h = 0; h < v->k->hosts; ++h)
    for (int i = 0; i < v->k->cards[h]; ++i) {
      if (!wanted(v, h, i, without, only_host)) continue;
      n_free[h] += is_free(v, h, i);
      all_free += is_free(v, h, i);
      held |= !is_free(v, h, i);
    }
  if (all_free == 0) return refuse(v, held ? GSEL_ERR_BUSY : GSEL_ERR_NO_DEVICES);
  for (int h = 0; h < v->k->hosts; ++h)
    if ((only_host < 0 || only_host == h) && n_free[h] < most)
      return refuse(v, held ? GSEL_ERR_BUSY : GSEL_ERR_OUT_OF_RANGE);
  for (int h = 0; h < v->k->hosts; ++h) {
    const int n = v->n_mask < 0 ? v->k->cards[h] : v->n_mask;
    for (int i = 0, taken = 0; i < n && taken != most; ++i) {
      const int card = v->n_mask < 0 ? i : v->mask[i];
      if (!wanted(v, h, card, without, only_host) || !is_free(v, h, card)) continue;
      take(v, h, card);
      ++taken;
    }
  }
}

static void take_index(view* v, int host, int card) {
  if (!is_free(v, host, card))
    refuse(v, GSEL_ERR_BUSY);
  else if (!is_seen(v, card))
    refuse(v, GSEL_ERR_CONFLICT);
  else
    take(v, host, card);
}

/* The list itself must be good before what it names is looked at. */
static void take_list(view* v, const int* list, int n) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < i; ++j)
      if (list[i] == list[j]) refuse(v, GSEL_ERR_DUPLICATE);
  for (int h = 0; h < v->k->hosts; ++h)
    for (int i = 0; i < n; ++i)
      if (list[i] >= v->k->cards[h]) refuse(v, GSEL_ERR_OUT_OF_RANGE);
  for (int h = 0; h < v->k->hosts; ++h)
    for (int i = 0; i < n && !v->c.status; ++i) take_index(v, h, list[i]);
}

/* A permutation's beginning, as CUDA_VISIBLE_DEVICES. */
static void mask_cards(asked* a, view* v, const op* o) {
  const int cards = v->k->cards[0], first = o->b / 4 % cards, n = 1 + o->b / 32 % cards;
  size_t length = 0;
  for (int i = 0; i < n; ++i) {
    v->mask[i] = (first + i * (cards - 1)) % cards;
    length += (size_t)snprintf(a->mask + length, sizeof a->mask - length, "%s%d", i ? "," : "", v->mask[i]);
  }
  v->n_mask = n;
  a->env[0] = (gsel_env_var){gsel_str_from("CUDA_DEVICE_ORDER"), gsel_str_from("PCI_BUS_ID")};
  a->env[1] = (gsel_env_var){gsel_str_from("CUDA_VISIBLE_DEVICES"), gsel_str_from(a->mask)};
  a->resolve.env = a->env;
  a->resolve.n_env = 2;
}

static void write_devices(asked* a, view* v, int form, const op* o) {
  static const char* const wrong[] = {"2", "cout:1", "index:0-1", "count:", "count:-1", "index:", "count:1 &", "| all"};
  const int n = 1 + o->b % 7, k = o->b / 8 % CARDS, list[] = {o->b % CARDS, o->b / 8 % CARDS, o->b / 64};
  const int host = o->b / 8 % v->k->hosts;
  char* text = a->devices;
  const size_t capacity = sizeof a->devices;
  switch (form) {
    case COUNT:
      snprintf(text, capacity, "count:%d", n);
      return take_count(v, n, -1, -1);
    case INDEX:
      snprintf(text, capacity, o->a / 16 % 3 ? "index:%d,%d" : "index:%d,%d,%d", list[0], list[1], list[2]);
      return take_list(v, list, o->a / 16 % 3 ? 2 : 3);
    case ALL:
      snprintf(text, capacity, "all");
      return take_count(v, -1, -1, -1);
    case NONE:
      snprintf(text, capacity, "none");
      return;
    case COUNT_WITHOUT:
      snprintf(text, capacity, "count:%d & !index:%d", n, k);
      for (int h = 0; h < v->k->hosts; ++h)
        if (k >= v->k->cards[h]) refuse(v, GSEL_ERR_OUT_OF_RANGE);
      return take_count(v, n, k, -1);
    case WRONG:
      snprintf(text, capacity, "%s", wrong[o->b % 8]);
      return refuse(v, GSEL_ERR_SYNTAX);
    case FALLBACK:
      snprintf(text, capacity, "index:%d | count:%d", CARDS, n);
      return take_count(v, n, -1, -1);
    case ONE_HOST:
      snprintf(text, capacity, "count:%d & host:host%d", n, host);
      return take_count(v, n, -1, host);
    default:
      return take_count(v, -1, -1, -1);
  }
}

/* Slots of one host, then all of another. */
static void write_include(asked* a, view* v, const op* o) {
  const int h = o->b % v->k->hosts, other = o->b / 4 % (HOSTS + 1), slot = o->b / 16 % CARDS;
  a->devices[0] = '\0';
  snprintf(a->include, sizeof a->include, "host%d:%d@host%d", h, slot, other);
  a->resolve.include = gsel_str_from(a->include);
  if (slot >= v->k->cards[h]) refuse(v, GSEL_ERR_OUT_OF_RANGE);
  if (other >= v->k->hosts) refuse(v, GSEL_ERR_UNKNOWN_HOST);
  if (other == h) refuse(v, GSEL_ERR_DUPLICATE);
  if (v->c.status) return;
  if (is_free(v, h, slot)) take(v, h, slot);
  for (int i = 0; i < v->k->cards[other]; ++i)
    if (is_free(v, other, i)) take(v, other, i);
  if (v->c.n == 0) refuse(v, GSEL_ERR_BUSY);
}

choice request_of(asked* a, const stock* k, const op* o, int held[HOSTS][CARDS]) {
  view v;
  memset(&v, 0, sizeof v);
  memset(a, 0, sizeof *a);
  v.k = k;
  v.held = held;
  v.n_mask = -1;
  gsel_resolve_options_init(&a->resolve, sizeof a->resolve);
  a->resolve.inventory = k->inventory;
  a->resolve.flags = GSEL_RESOLVE_PER_RANK;
  for (int h = 0; h < k->hosts; ++h) v.c.all += k->cards[h];
  const int form = o->a % FORMS;
  if (k->hosts == 1 && o->a >= 128 && form != SLOTS)
    mask_cards(a, &v, o);
  else
    a->resolve.flags |= GSEL_RESOLVE_NO_ENV;
  if (form == SLOTS)
    write_include(a, &v, o);
  else
    write_devices(a, &v, form, o);
  if (a->devices[0]) a->resolve.devices = gsel_str_from(a->devices);
  return v.c;
}
