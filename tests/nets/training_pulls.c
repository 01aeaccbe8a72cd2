/* nets/training_pulls.c: steps and evaluations that are pulled, in one go, or a few works at a time with other calls
 * between them; that fail, or are given up. */
#include "nets/training.h"

/* Whether ranks that pull the same number of works wait for nothing that a slower one has not come to. */
static int in_step_with_others(const player* p, const training* t) {
  if (p->run.world_size == 1) return 1;
  if (t->fault == NO_SAMPLES) return 0;
  return t->strategy != BY_DP && t->strategy != BY_PP && t->batch % p->run.world_size == 0;
}

/* What a plan says of the work: the callbacks fail by themselves; what they say goes to the library. */
static gsel_status work_and_complete(player* p, training* t, gsel_error** err) {
  gsel_work work = t->work;
  const gsel_status said = work_off(p, &work);
  const char* message = work.input ? work.input->message : work.call->message;
  t->work.ticket = 0;
  return gsel_trainer_complete(t->trainer, work.ticket, said,
                               gsel_str_from(said && said != GSEL_NO_SAMPLES ? message : ""), err);
}

/* Pulls at most so many works; whether it is over, well or not. */
static int pull(player* p, training* t, int most, gsel_status* status, gsel_error** err) {
  *status = GSEL_OK;
  *err = NULL;
  for (int i = 0; i < most; ++i) {
    if (!t->work.ticket) {
      gsel_work_init(&t->work, sizeof t->work);
      *status = gsel_trainer_next_work(t->trainer, &t->work, err);
      if (*status || t->work.kind == GSEL_WORK_DONE) {
        t->work.ticket = 0;
        return 1;
      }
      right(p, !t->work.call != !t->work.input && t->work.ticket, "a work");
    }
    *status = work_and_complete(p, t, err);
    if (*status) return 1;
  }
  return 0;
}

/* ---- ends ---- */

static void waits(training* t, numbers n) {
  t->evaluation = n;
  t->evaluation_waits = 1;
}

static void ended_well(player* p, training* t, gsel_status got, gsel_error* err) {
  char text[300];
  gsel_step_report r = GSEL_STEP_REPORT_INIT;
  const int evaluates = t->way == IN_EVALUATION;
  const numbers n = batch_by_hand(p, t, t->first_sample, 0);
  if (n.weight == 0) {
    came_as(p, "gsel_trainer_next_work", GSEL_ERR_MODEL, GSEL_ERR_MODEL, got, err, text);
    if (!evaluates) batch_failed(t);
    rest(t);
    return;
  }
  const gsel_status want = t->unwritable && !evaluates ? GSEL_ERR_IO : GSEL_OK;
  came_as(p, "gsel_trainer_next_work", want, want, got, err, text);
  batch_ended(p, t, NULL);
  if (evaluates) waits(t, n);
  if (t->at_once && CAME(GSEL_OK, gsel_trainer_report(t->trainer, &r, &err))) {
    compare_numbers(p, "gsel_trainer_report", &r, evaluates ? &t->evaluation : &t->last);
    t->evaluation_waits = 0;
  }
}

static void ended(player* p, training* t, gsel_status got, gsel_error* err) {
  char text[300];
  const int here = t->with == p->run.rank;
  if (!faulty(p, t)) {
    ended_well(p, t, got, err);
  } else {
    const gsel_status others = fate_of_others(t);
    came_as(p, "pulled", here ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, here ? GSEL_ERR_CALLBACK : others, got, err,
            text);
    const char* planned = t->fault == NO_SAMPLES ? "had no samples" : "as planned for";
    t->unaware = got == GSEL_OK || got == GSEL_ERR_IO;
    if (!t->unaware && !strstr(text, planned)) report(p, "the text of a pulled callback's error", text);
    if (t->unaware && t->way == IN_EVALUATION) waits(t, batch_by_hand(p, t, t->first_sample, 0));
    if (t->unaware) batch_ended(p, t, NULL);
    batch_failed(t);
  }
}

/* A step that others have pulled as far as this rank; its next work fails there. */
static void fail_next(player* p, training* t, const op* o) {
  gsel_error* err = NULL;
  gsel_status status = GSEL_OK;
  char text[300];
  const int here = is_odd(p, o);
  if (!t->work.ticket) {
    gsel_work_init(&t->work, sizeof t->work);
    status = gsel_trainer_next_work(t->trainer, &t->work, &err);
    if (status || t->work.kind == GSEL_WORK_DONE) {
      t->work.ticket = 0;
      return ended(p, t, status, err);
    }
  }
  if (here) {
    const uint64_t ticket = t->work.ticket;
    status = gsel_trainer_complete(t->trainer, ticket, -77, gsel_str_from("as planned here"), &err);
  } else {
    pull(p, t, 1 << 20, &status, &err);
  }
  const gsel_status want = here ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED;
  came_as(p, "a work that fails", want, want, status, err, text);
  if (!strstr(text, "as planned here")) report(p, "the text of a work's error", text);
  batch_failed(t);
}

/* ---- calls ---- */

static void begin(player* p, training* t, const op* o) {
  gsel_error* err;
  const int evaluates = o->b / 128;
  if (t->way) return;
  t->fault = o->b % 4 ? NO_FAULT : 1 + o->b / 4 % NO_SAMPLES;
  t->with = o->a / 4 % p->run.world_size;
  if (evaluates) CAME(GSEL_OK, gsel_trainer_begin_evaluation(t->trainer, o->a, &err));
  batch_begins(p, t, evaluates ? IN_EVALUATION : IN_STEP, evaluates ? o->a : t->steps * t->batch);
}

static void refused_under_way(player* p, training* t) {
  gsel_error* err;
  gsel_work work = GSEL_WORK_INIT;
  CAME(GSEL_ERR_STATE, gsel_trainer_begin_evaluation(t->trainer, 0, &err));
  if (t->work.ticket) CAME(GSEL_ERR_STATE, gsel_trainer_next_work(t->trainer, &work, &err));
}

static void forget(training* t) {
  gsel_trainer_free(t->trainer);
  memset(t, 0, sizeof *t);
}

/* Freed by all, or by one alone, of which the others hear as soon as they need it. */
static void give_up(player* p, training* t, const op* o) {
  gsel_error* err;
  gsel_status status;
  char text[300];
  ground* on = t->on;
  const int under_way = t->begun,
            all = o->b % 2 || p->run.world_size == 1 || !in_step_with_others(p, t) || faulty(p, t);
  if (under_way && !all && !is_odd(p, o)) {
    mine(p)->now = t;
    const int over = pull(p, t, 1 << 20, &status, &err);
    if (came_as(p, "after another was freed", GSEL_ERR_ABORTED, GSEL_ERR_ABORTED, status, err, text) || !over)
      report(p, "a step without all ranks", "it ended well");
    if (!strstr(text, "freed in the middle")) report(p, "a step without all ranks", text);
  }
  forget(t);
  if (under_way) on->broken = 1;
}

void training_pull(player* p, training* t, const op* o) {
  gsel_error* err;
  gsel_status status;
  const int what = o->what / 16 % 12;
  if (what == 11) return give_up(p, t, o);
  if (t->broken) {
    gsel_work work = GSEL_WORK_INIT;
    status = gsel_trainer_next_work(t->trainer, &work, &err);
    came_broken(p, t, "gsel_trainer_next_work", status, err);
    t->evaluation_waits = 0;
    CAME(GSEL_ERR_STATE, gsel_trainer_begin_evaluation(t->trainer, 0, &err));
    return;
  }
  const int was_idle = !t->way;
  begin(p, t, o);
  mine(p)->now = t;
  if (!was_idle) refused_under_way(p, t);
  if (!was_idle && what == 10) return fail_next(p, t, o);
  t->at_once = what == 7 || what == 8;
  const int most = t->at_once || faulty(p, t) || !in_step_with_others(p, t) ? 1 << 20 : o->a % 8;
  int over = pull(p, t, most, &status, &err);
  if (!over && !status && o->b / 16 % 2 && !t->work.ticket) { /* one more is handed out */
    gsel_work_init(&t->work, sizeof t->work);
    status = gsel_trainer_next_work(t->trainer, &t->work, &err);
    over = status || t->work.kind == GSEL_WORK_DONE;
    if (over) t->work.ticket = 0;
  }
  if (t->way == IN_STEP && (over || most > 0 || t->work.ticket)) t->evaluation_waits = 0;
  if (over) return ended(p, t, status, err);
  t->begun |= t->way == IN_EVALUATION || most > 0 || t->work.ticket;
  if (!t->begun) rest(t); /* nothing has been pulled */
}
