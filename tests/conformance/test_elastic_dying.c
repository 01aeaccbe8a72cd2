/* Training that goes on although ranks are lost at bad moments: in the rebind after another loss, while ranks join, in
 * a save, two at once; or stop for so long that the others go on without them, and then continue. The others end as one
 * rank that trained alone, or are told that the state is lost and go on from a checkpoint. */
#include "support/elastic_trial.h"

#define ZERO_3 ZERO("3", ALL_SHARDED) LION "redundancy = 1\n"
#define PIPELINE_OF_3 PIPELINE("3", "schedule = \"gpipe\"\n") LION "microbatch = 3\nredundancy = 1\n"
#define DDP_ELASTIC DDP("") LION "elastic = \"on\"\n"

static void tell(const char* what, const struct losses* losses) {
  print_message("  %s: %d worlds; from ranks %d times, from a checkpoint %d, refused without one %d\n", what,
                losses->worlds, losses->from_ranks, losses->from_checkpoint, losses->refused);
}

/* ---- two at once ---- */

struct pair {
  const char *name, *config;
  int victims[2];
  int64_t lost;
  bool is_lost; /* with them goes a part of the state */
};

static void two_die_at_once(void** state) {
  static const struct pair pairs[] = {
      {"ddp, neighbours", DDP_ELASTIC, {0, 1}, 0, false},
      {"ddp, not neighbours", DDP_ELASTIC, {1, 3}, 0, false},
      {"zero 3, not neighbours", ZERO_3, {0, 2}, 1, false},
      {"zero 3, neighbours", ZERO_3, {1, 2}, 2, true},
  };
  (void)state;
  outcome* expected = trained_alone();
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; ++p) {
    struct change c = change_of(pairs[p].config, expected);
    c.n_victims = 2;
    memcpy(c.victims, pairs[p].victims, sizeof c.victims);
    c.lost = pairs[p].lost;
    c.has_folder = c.is_last_resort = pairs[p].is_lost;
    const struct losses losses = lose_ranks_in_turn(&c, 4, at_each_callback);
    tell(pairs[p].name, &losses);
    assert_int_equal(losses.refused, pairs[p].is_lost ? 2 * losses.worlds : 0);
  }
  free_outcomes(expected);
}

/* ---- in the rebind, and while ranks join ---- */

/* At every call of the communicator: before it, in it and after it. Not every call has the others. */
static void at_each_call(struct change* world, int i) {
  static const char* const steps[] = {"enter", "header", "leave"};
  snprintf(world->fault, sizeof world->fault, "kill@%s:call=%d", steps[i % 3], 1 + i / 3);
  world->may_miss = i % 3 > 0;
}

static void dies_in_the_rebind(const struct change* c, const char* name) {
  const struct losses losses = lose_ranks_in_turn(c, 4, at_each_call);
  tell(name, &losses);
  assert_true(losses.worlds > 30);
  assert_int_equal(losses.from_checkpoint > 0, c->has_folder);
}

static void one_dies_in_the_rebind_after_another(void** state) {
  static const struct pair pairs[] = {
      {"ddp", DDP_ELASTIC, {3, 0}, 0, false},
      {"zero 3, not neighbours", ZERO_3, {3, 1}, 1, false},
      {"zero 3, not neighbours, rank 0", ZERO_3, {2, 0}, 1, false},
      {"zero 3, neighbours", ZERO_3, {3, 2}, 2, true},
  };
  (void)state;
  outcome* expected = trained_alone();
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; ++p) {
    struct change c = change_of(pairs[p].config, expected);
    c.strikes = IN_REBIND;
    c.at = 3;
    c.n_victims = 1;
    c.victims[0] = pairs[p].victims[0];
    c.second = pairs[p].victims[1];
    c.lost = pairs[p].lost;
    c.has_folder = c.is_last_resort = pairs[p].is_lost;
    dies_in_the_rebind(&c, pairs[p].name);
  }
  free_outcomes(expected);
}

static void one_dies_while_ranks_join(void** state) {
  static const struct pair pairs[] = {
      {"ddp, who was there", DDP_ELASTIC, {0}, 0, false},
      {"zero 3, who was there", ZERO_3, {1}, 0, false},
      {"zero 3, who joins", ZERO_3, {2}, 0, false},
  };
  (void)state;
  outcome* expected = trained_alone();
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; ++p) {
    struct change c = change_of(pairs[p].config, expected);
    c.strikes = IN_JOIN;
    c.n_new = 2;
    c.second = pairs[p].victims[0];
    dies_in_the_rebind(&c, pairs[p].name);
  }
  free_outcomes(expected);
}

/* ---- in a save ---- */

static void at_some_time(struct change* world, int i) {
  world->after_us = 40 * i * i;
}

static void one_dies_in_a_save(void** state) {
  (void)state;
  outcome* expected = trained_alone();
  for (int i = 0; i < 4; ++i) {
    struct change c = change_of(i / 2 ? ZERO_3 : DDP_ELASTIC, expected);
    c.strikes = i % 2 ? IN_SAVE_BEGIN : IN_SAVE;
    c.has_folder = true;
    c.n_victims = 1;
    c.victims[0] = i % 3;
    c.lost = i / 2;
    const struct losses losses = lose_ranks_in_turn(&c, 3, at_some_time);
    tell(i % 2 ? "a save in the background" : "a save", &losses);
    assert_int_equal(losses.from_checkpoint, 0);
  }
  free_outcomes(expected);
}

/* ---- stopped ---- */

enum { WORLDS = 16 };

/* At a callback in a step; at some time of a step, as well between callbacks; at some time of a save in the background.
 * All worlds at a time, because they only wait. */
static void one_stops_and_continues_when_others_have_gone_on(void** state) {
  (void)state;
  outcome* expected = trained_alone();
  for (int i = 0; i < 3; ++i) {
    struct change worlds[WORLDS];
    struct losses losses = {0, 0, 0, 0, 0};
    for (int w = 0; w < WORLDS; ++w) {
      static const char* const configs[] = {DDP_ELASTIC, ZERO_3, PIPELINE_OF_3};
      struct change c = change_of(configs[w % 3], expected);
      c.strikes = i == 2 ? IN_SAVE_BEGIN : IN_STEP;
      c.has_folder = i == 2;
      c.signal = SIGSTOP;
      c.n_victims = 1;
      c.victims[0] = w / 3 % 3;
      c.afterwards = w % 3 == 2 ? ZERO("2", "") LION : NULL;
      c.at = w;
      c.after_us = i == 0 ? -1 : 40 * w * w;
      c.lost = w % 3 > 0;
      worlds[w] = c;
    }
    lose_ranks(worlds, WORLDS, 3, &losses);
    tell("stopped", &losses);
    assert_int_equal(losses.from_ranks, 2 * WORLDS);
  }
  free_outcomes(expected);
}

static void one_stops_in_the_rebind_after_a_death(void** state) {
  static const char* const steps[] = {"enter", "header", "leave"};
  (void)state;
  outcome* expected = trained_alone();
  for (int i = 0; i < 3; ++i) {
    struct change worlds[WORLDS];
    struct losses losses = {0, 0, 0, 0, 0};
    for (int w = 0; w < WORLDS; ++w) {
      struct change c = change_of(w % 2 ? DDP_ELASTIC : ZERO_3, expected);
      c.strikes = IN_REBIND;
      c.n_victims = 1;
      c.victims[0] = 3;
      c.second = 1;
      c.at = 3;
      c.lost = 1;
      snprintf(c.fault, sizeof c.fault, "stop@%s:call=%d", steps[i], 1 + w);
      worlds[w] = c;
    }
    lose_ranks(worlds, WORLDS, 4, &losses);
    tell("stopped in the rebind", &losses);
    assert_int_equal(losses.from_checkpoint, 0);
  }
  free_outcomes(expected);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_die_at_once),
      cmocka_unit_test(one_dies_in_the_rebind_after_another),
      cmocka_unit_test(one_dies_while_ranks_join),
      cmocka_unit_test(one_dies_in_a_save),
      cmocka_unit_test(one_stops_and_continues_when_others_have_gone_on),
      cmocka_unit_test(one_stops_in_the_rebind_after_a_death),
  };
  return cmocka_run_group_tests_name("elastic, dying", tests, NULL, NULL);
}
