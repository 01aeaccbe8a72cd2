/* nets/test_selection.c: what chooses devices: inventories, selections, reservations and configurations, each made from
 * others that may be freed before it, by one thread. The model knows the cards of each inventory, what a request leaves
 * of them, and who holds which. What a request is and must come to: selection_requests.c. */
#include <unistd.h>

#include "nets/selection.h"

/* ---- inventories ---- */

static void parse_inventory(player* p, stock* k, const op* o) {
  static const char* const bad[] = {"",
                                    "{",
                                    "[]",
                                    "{\"gsel_inventory\": 9, \"hosts\": []}",
                                    "{\"gsel_inventory\": 1}",
                                    "{\"gsel_inventory\": 1, \"hosts\": [{\"name\": 3}]}"};
  gsel_error* err;
  gsel_inventory* none = NULL;
  CAME(GSEL_ERR_PARSE, gsel_inventory_parse(gsel_str_from(bad[o->b % 6]), gsel_str_from("bad"), &none, &err));
  right(p, !none, "an inventory beside an error");
  if (k->inventory) return;
  char text[4000];
  size_t n = (size_t)snprintf(text, sizeof text, "{\"gsel_inventory\": 1, \"hosts\": [");
  k->hosts = 1 + o->a % HOSTS;
  for (int h = 0; h < k->hosts; ++h) {
    k->cards[h] = 1 + o->a / 8 / (h + 1) % CARDS;
    n += (size_t)snprintf(text + n, sizeof text - n, "%s{\"name\": \"host%d\", \"devices\": [", h ? ", " : "", h);
    for (int i = 0; i < k->cards[h]; ++i)
      n += (size_t)snprintf(text + n, sizeof text - n,
                            "%s{\"vendor\": \"nvidia\", \"name\": \"card\", \"uuid\": \"GPU-%d%d\", \"pci\": "
                            "\"%08x:01:00.0\", \"process_count\": 0}",
                            i ? ", " : "", h, i, (unsigned)i);
    n += (size_t)snprintf(text + n, sizeof text - n, "]}");
  }
  snprintf(text + n, sizeof text - n, "]}");
  CAME(GSEL_OK, gsel_inventory_parse(gsel_str_from(text), gsel_str_from("stock"), &k->inventory, &err));
}

static void ask_inventory(player* p, const stock* k) {
  gsel_error* err;
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  int32_t n = 0;
  for (int h = 0; h < k->hosts; ++h)
    for (int i = 0; i < k->cards[h]; ++i, ++n)
      if (CAME(GSEL_OK, gsel_inventory_device(k->inventory, n, &info, &err)))
        right(p, info.index == i && info.host.data[4] - '0' == h && info.tile == -1 && info.partition == -1,
              "a device");
  right(p, gsel_inventory_device_count(k->inventory) == n, "devices");
  right(p, gsel_inventory_host_count(k->inventory) == k->hosts, "hosts");
  right(p, gsel_inventory_host_name(k->inventory, k->hosts).len == 0, "a host behind the last");
  CAME(GSEL_ERR_ARG, gsel_inventory_device(k->inventory, n, &info, &err));
  CAME(GSEL_ERR_ARG, gsel_inventory_device(k->inventory, -1, &info, &err));
  gsel_inventory* again = NULL;
  if (CAME(GSEL_OK, gsel_inventory_parse(gsel_inventory_json(k->inventory), gsel_str_from("again"), &again, &err)))
    right(p, !strcmp(gsel_inventory_json(again).data, gsel_inventory_json(k->inventory).data), "JSON read back");
  gsel_inventory_free(again);
}

static void play_stock(player* p, stock* k, const op* o) {
  if (!k->inventory) return parse_inventory(p, k, o);
  if (o->b % 4) return ask_inventory(p, k);
  gsel_inventory_free(k->inventory);
  memset(k, 0, sizeof *k);
}

/* ---- selections ---- */

static void compare_chosen(player* p, const gsel_selection* selection, const choice* c) {
  gsel_error* err;
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  if (gsel_selection_device_count(selection) != c->n) return report(p, "devices of a selection", "a wrong number");
  for (int i = 0; i < c->n; ++i)
    if (CAME(GSEL_OK, gsel_selection_device(selection, i, &info, &err)))
      right(p, info.index == c->card[i] && info.host.data[4] - '0' == c->host[i], "a device of a selection");
  CAME(GSEL_ERR_ARG, gsel_selection_device(selection, c->n, &info, &err));
}

static void ask_candidates(player* p, const gsel_selection* selection, const choice* c) {
  gsel_error* err;
  gsel_candidate candidate = GSEL_CANDIDATE_INIT;
  gsel_decision step = GSEL_DECISION_INIT;
  int kept = 0;
  const int32_t n = gsel_selection_candidate_count(selection), steps = gsel_selection_decision_count(selection);
  for (int32_t i = 0; i < n; ++i)
    if (CAME(GSEL_OK, gsel_selection_candidate(selection, i, &candidate, &err))) {
      right(p, candidate.reason.len > 0 && candidate.position < c->n, "a candidate");
      kept += candidate.position >= 0;
    }
  right(p, n == c->all && kept == c->n, "candidates");
  CAME(GSEL_ERR_ARG, gsel_selection_candidate(selection, n, &candidate, &err));
  for (int32_t i = 0; i < steps; ++i) CAME(GSEL_OK, gsel_selection_decision(selection, i, &step, &err));
  CAME(GSEL_ERR_ARG, gsel_selection_decision(selection, steps, &step, &err));
  right(p, gsel_selection_warning(selection, gsel_selection_warning_count(selection)).len == 0, "a warning too many");
}

/* Cards of the host, in the order chosen, as CUDA_VISIBLE_DEVICES has them. */
static void ask_host_env(player* p, const gsel_selection* selection, const choice* c, int host, int rank) {
  gsel_error* err;
  const gsel_env_var* env = NULL;
  size_t n_env = 0, length = 0;
  char wanted[200] = "", name[16];
  int n = 0, own[HOSTS * CARDS];
  for (int i = 0; i < c->n; ++i)
    if (c->host[i] == host) own[n++] = c->card[i];
  if (n == 0) return;
  for (int i = 0; i < n; ++i)
    if (rank < 0 || (n == 1 ? 0 : rank) == i)
      length +=
          (size_t)snprintf(wanted + length, sizeof wanted - length, "%sGPU-%d%d", length ? "," : "", host, own[i]);
  snprintf(name, sizeof name, "host%d", host);
  const gsel_status want = rank >= n && n > 1 ? GSEL_ERR_RANK_OVERFLOW : GSEL_OK;
  if (!CAME(want, gsel_selection_host_env(selection, gsel_str_from(name), rank, &env, &n_env, &err))) return;
  int found = 0;
  for (size_t i = 0; i < n_env; ++i)
    if (!strcmp(env[i].name.data, "CUDA_VISIBLE_DEVICES")) found = !strcmp(env[i].value.data, wanted);
  right(p, found, "CUDA_VISIBLE_DEVICES of a selection");
  if (host != c->host[0]) return;
  CAME(GSEL_OK, gsel_selection_env(selection, rank, &env, &n_env, &err));
}

static void ask_selection(player* p, const gsel_selection* selection, const choice* c, const op* o) {
  gsel_error* err;
  const gsel_env_var* env;
  size_t n_env;
  compare_chosen(p, selection, c);
  ask_candidates(p, selection, c);
  for (int h = 0; h < HOSTS; ++h) ask_host_env(p, selection, c, h, o->a % 7 - 1);
  CAME(GSEL_ERR_UNKNOWN_HOST, gsel_selection_host_env(selection, gsel_str_from("elsewhere"), -1, &env, &n_env, &err));
  right(p, gsel_selection_json(selection).data[0] == '{' && gsel_selection_text(selection).len > 0, "text and JSON");
}

static void play_pick(player* p, pick* s, const op* o) {
  gsel_error* err;
  if (s->selection) {
    ask_selection(p, s->selection, &s->chosen, o);
    if (o->b % 2) return;
    gsel_selection_free(s->selection);
    memset(s, 0, sizeof *s);
    return;
  }
  asked a;
  const stock* k = &mine(p)->stocks[o->slot / 4 % STOCKS];
  if (!k->inventory) return;
  const choice c = request_of(&a, k, o, NULL);
  if (CAME(c.status, gsel_resolve(&a.resolve, &s->selection, &err))) {
    s->chosen = c;
    ask_selection(p, s->selection, &c, o);
  }
  right(p, !c.status == !!s->selection, "a selection beside an error");
}

/* ---- reservations ---- */

static void play_hold(player* p, hold* s, const op* o) {
  gsel_error* err;
  gsel_reserve_options options = GSEL_RESERVE_OPTIONS_INIT;
  holdings* h = mine(p);
  if (s->reservation) {
    ask_selection(p, gsel_reservation_selection(s->reservation), &s->chosen, o);
    if (o->b % 2) return;
    gsel_reservation_free(s->reservation);
    for (int i = 0; i < s->chosen.n; ++i) h->held[s->chosen.host[i]][s->chosen.card[i]] = 0;
    memset(s, 0, sizeof *s);
    return;
  }
  asked a;
  const stock* k = &h->stocks[o->slot / 4 % STOCKS];
  if (!k->inventory) return;
  const choice c = request_of(&a, k, o, h->held);
  options.folder = gsel_str_from(h->folder);
  CAME(GSEL_ERR_ARG, (options.wait_s = -1, gsel_reserve(&a.resolve, &options, &s->reservation, &err)));
  options.wait_s = o->b % 64 ? 0 : 0.01;
  if (CAME(c.status, gsel_reserve(&a.resolve, &options, &s->reservation, &err))) {
    s->chosen = c;
    for (int i = 0; i < c.n; ++i) h->held[c.host[i]][c.card[i]] = 1;
    ask_selection(p, gsel_reservation_selection(s->reservation), &c, o);
  }
  right(p, !c.status == !!s->reservation, "a reservation beside an error");
}

/* ---- configurations ---- */

static void check_value(player* p, const gsel_config* config, const char* key, const char* want) {
  const gsel_str got = gsel_config_get(config, gsel_str_from(key));
  right(p, want ? got.data && !strcmp(got.data, want) : !got.data, key);
}

static void play_setting(player* p, setting* s, const op* o) {
  static const char* const bad[] = {"[train]\nbatch = 0\n", "[train]\nbatsh = 1\n", "[train]\nbatch = \"x\"\n",
                                    "[mesh]\ndata = -1\n", "batch = 4\n"};
  static const char* const broken[] = {"[train\n", "[train]\nbatch = \n", "= 3\n", "[train]\nseed = 1\nseed = 2\n"};
  gsel_error* err;
  gsel_config* none = NULL;
  char text[300], number[20];
  CAME(GSEL_ERR_CONFIG, gsel_config_parse(gsel_str_from(bad[o->a % 5]), gsel_str_from("bad"), &none, &err));
  CAME(GSEL_ERR_PARSE, gsel_config_parse(gsel_str_from(broken[o->a % 4]), gsel_str_from("broken"), &none, &err));
  right(p, !none, "a configuration beside an error");
  if (!s->config) {
    s->batch = 1 + o->a;
    s->with_devices = o->b % 2;
    snprintf(text, sizeof text, "[train]\nbatch = %d\n%s", s->batch,
             s->with_devices ? "[select]\ndevices = \"count:3\"\n" : "");
    CAME(GSEL_OK, gsel_config_parse(gsel_str_from(text), gsel_str_from("net.toml"), &s->config, &err));
    return;
  }
  snprintf(number, sizeof number, "%d", s->batch);
  check_value(p, s->config, "train.batch", number);
  check_value(p, s->config, "select.devices", s->with_devices ? "count:3" : "");
  check_value(p, s->config, "train.microbatch", "0");
  check_value(p, s->config, "train.batsh", NULL);
  if (o->b % 4) return;
  gsel_config_free(s->config);
  memset(s, 0, sizeof *s);
}

/* ---- playing ---- */

static void open_all(player* p) {
  snprintf(mine(p)->folder, sizeof mine(p)->folder, "/tmp/gsel-net-%d-XXXXXX", (int)getpid());
  if (!mkdtemp(mine(p)->folder)) report(p, "mkdtemp", mine(p)->folder);
}

static void close_all(player* p) {
  char lock[80]; /* the common one, which stays */
  holdings* h = mine(p);
  for (int i = 0; i < PICKS; ++i) {
    gsel_reservation_free(h->holds[i].reservation);
    gsel_selection_free(h->picks[i].selection);
    gsel_config_free(h->settings[i].config);
  }
  for (int i = 0; i < STOCKS; ++i) gsel_inventory_free(h->stocks[i].inventory);
  snprintf(lock, sizeof lock, "%s/.all", h->folder);
  unlink(lock);
  if (rmdir(h->folder)) report(p, "reservations", "locks that are left in their folder");
}

static void play(player* p, const op* o) {
  holdings* h = mine(p);
  switch (o->what % 8) {
    case 0:
    case 1:
      return play_stock(p, &h->stocks[o->slot % STOCKS], o);
    case 2:
    case 3:
    case 4:
      return play_pick(p, &h->picks[o->slot % PICKS], o);
    case 5:
    case 6:
      return play_hold(p, &h->holds[o->slot % PICKS], o);
    default:
      return play_setting(p, &h->settings[o->slot % PICKS], o);
  }
}

const machine played = {1, 1, sizeof(holdings), open_all, play, close_all};
