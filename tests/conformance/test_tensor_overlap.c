/* A call of one axis waits for no call of another: ranks of one replica go through their backward, with collectives on
 * the tensor axis between its callbacks, while their reductions on the data axis are under way and cannot end, since
 * the other replica has not begun its own. */
#include "support/tensor_trial.h"

enum { TENSOR = 2, WORLD = 4, LONGEST_S = 20 };

typedef struct meeting {
  tensor_trial t; /* first: a session is opened by it */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int through; /* ranks of replica 0 that have come to the last backward of the step */
} meeting;

static void come_through(meeting* m) {
  pthread_mutex_lock(&m->mutex);
  ++m->through;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->mutex);
}

/* Whether replica 0 came through. */
static int wait_for_replica_0(meeting* m) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += LONGEST_S;
  int status = 0;
  pthread_mutex_lock(&m->mutex);
  while (m->through < TENSOR && status == 0) status = pthread_cond_timedwait(&m->changed, &m->mutex, &until);
  pthread_mutex_unlock(&m->mutex);
  return status == 0;
}

static void pull_a_step(rank_run* run) {
  meeting* m = (meeting*)run->user;
  const int replica = run->rank / TENSOR;
  const gsel_str none = {NULL, 0};
  tensor_session s;
  gsel_error* err = NULL;
  int waited = 0;
  rank_ok(run, open_tensor(run, &s, &err), err);
  for (;;) {
    gsel_work work = GSEL_WORK_INIT;
    rank_ok(run, gsel_trainer_next_work(s.trainer, &work, &err), err);
    if (work.kind == GSEL_WORK_DONE) break;
    const int is_backward = work.kind >= GSEL_BACKWARD_INPUT;
    if (replica == 0 && is_backward && work.call->layer == 0) come_through(m);
    if (replica == 1 && is_backward && !waited++) rank_check(run, wait_for_replica_0(m));
    const gsel_status status = tensor_work(&work, s.m);
    rank_ok(run, gsel_trainer_complete(s.trainer, work.ticket, status, none, &err), err);
  }
  close_tensor(&s);
}

static void a_tensor_axis_does_not_wait_for_the_data_axis(void** state) {
  (void)state;
  static const char* const data[] = {
      "plugin = \"ddp\"\nbucket_bytes = 1\nfirst_bucket_bytes = 1\n",
      "plugin = \"zero\"\nstage = 1\nbucket_bytes = 1\n",
  };
  char config[640];
  for (size_t i = 0; i < sizeof data / sizeof *data; ++i) {
    snprintf(config, sizeof config,
             "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n[strategy.data]\n%s" TENSOR_TRAIN, data[i], 8, 1);
    meeting m;
    memset(&m, 0, sizeof m);
    m.t = tensor_trial_of(config, NULL);
    pthread_mutex_init(&m.mutex, NULL);
    pthread_cond_init(&m.changed, NULL);
    as_threads(WORLD, pull_a_step, &m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tensor_axis_does_not_wait_for_the_data_axis),
  };
  return cmocka_run_group_tests_name("tensor_overlap", tests, NULL, NULL);
}
