/* nets/test_training.c: models, trainers and pipelines in every state, on communicators that several of them use. One
 * to three ranks; parts of it: training_*.c. */
#include "nets/training.h"

int came_as(player* p, const char* call, gsel_status want, gsel_status or_else, gsel_status got, gsel_error* err,
            char text[300]) {
  text[0] = '\0';
  if (err) gsel_error_format(err, text, 300);
  return came(p, call, got == or_else ? or_else : want, got, err);
}

/* ---- communicators ---- */

static void join(player* p, ground* g) {
  gsel_error* err;
  rank_run run = p->run;
  run.id.bytes[0] ^= (uint8_t)++g->joins;
  run.id.bytes[1] ^= (uint8_t)(g - mine(p)->grounds);
  g->broken = 0;
  CAME(GSEL_OK, rank_join(&run, &g->comm, &err));
}

int ground_is_busy(const player* p, const ground* g) {
  for (int i = 0; i < TRAININGS; ++i)
    if (mine(p)->trainings[i].on == g && mine(p)->trainings[i].way) return 1;
  return 0;
}

void ground_fall(player* p, ground* g) {
  holdings* h = mine(p);
  for (int i = 0; i < TRAININGS; ++i) {
    if (h->trainings[i].on != g) continue;
    gsel_trainer_free(h->trainings[i].trainer);
    memset(&h->trainings[i], 0, sizeof h->trainings[i]);
  }
  for (int i = 0; i < PIPELINES; ++i) {
    if (h->pipings[i].on != g) continue;
    gsel_pipeline_free(h->pipings[i].pipeline);
    memset(&h->pipings[i], 0, sizeof h->pipings[i]);
  }
  gsel_comm_free(g->comm);
  g->comm = NULL;
}

static void play_ground(player* p, ground* g, const op* o) {
  gsel_error* err;
  if (!g->comm || (g->broken && o->b % 2)) {
    ground_fall(p, g);
    join(p, g);
  }
  if (!ground_is_busy(p, g)) CAME(g->broken ? GSEL_ERR_ABORTED : GSEL_OK, gsel_barrier(g->comm, &err));
}

/* ---- playing ---- */

static void open_all(player* p) {
  mine(p)->line.user = p;
  for (int i = 0; i < GROUNDS; ++i) join(p, &mine(p)->grounds[i]);
  gsel_error* err;
  description* d = &mine(p)->models[0];
  CAME(GSEL_OK, gsel_model_create(&d->model, &err));
  CAME(GSEL_OK, describe(p, d->model, 0, PIECES, 0, &err));
  d->pieces = PIECES;
}

static void close_all(player* p) {
  for (int i = 0; i < GROUNDS; ++i) ground_fall(p, &mine(p)->grounds[i]);
  for (int i = 0; i < MODELS; ++i) gsel_model_free(mine(p)->models[i].model);
}

static void play(player* p, const op* o) {
  holdings* h = mine(p);
  switch (o->what % 16) {
    case 0:
      return play_ground(p, &h->grounds[o->slot % GROUNDS], o);
    case 1:
    case 2:
      return play_model(p, &h->models[o->slot % MODELS], o);
    case 3:
    case 4:
    case 5:
      return play_piping(p, &h->pipings[o->slot % PIPELINES], o);
    default:
      return play_training(p, &h->trainings[o->slot % TRAININGS], o);
  }
}

const machine played = {1, MACHINE_MOST_RANKS, sizeof(holdings), open_all, play, close_all};
