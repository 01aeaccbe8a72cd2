/* unit/test_select_reserve.c: devices chosen and held: who else may have them, and until when. */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/scratch.h"
#include "support/selection.h"
#include "support/share.h"

static char folder[256];

static gsel_status reserve(const char* machine_name, const char* devices, double wait_s, gsel_reservation** out,
                           gsel_error** err) {
  gsel_inventory* inventory = machine(machine_name);
  gsel_resolve_options resolve_options = GSEL_RESOLVE_OPTIONS_INIT;
  gsel_reserve_options options = GSEL_RESERVE_OPTIONS_INIT;
  resolve_options.inventory = inventory;
  resolve_options.flags = GSEL_RESOLVE_NO_ENV | GSEL_RESOLVE_PER_RANK;
  resolve_options.devices = gsel_str_from(devices);
  options.folder = gsel_str_from(folder);
  options.wait_s = wait_s;
  const gsel_status status = gsel_reserve(&resolve_options, &options, out, err);
  gsel_inventory_free(inventory);
  return status;
}

static gsel_reservation* reserved(const char* machine_name, const char* devices, const char* expected) {
  gsel_reservation* held = NULL;
  gsel_error* err = NULL;
  const gsel_status status = reserve(machine_name, devices, 0, &held, &err);
  check_ok(status, err);
  char chosen[64];
  chosen_text(gsel_reservation_selection(held), 0, chosen, sizeof chosen);
  assert_string_equal(chosen, expected);
  return held;
}

static void refused(const char* machine_name, const char* devices, gsel_status code, const char* part) {
  gsel_reservation* held = NULL;
  gsel_error* err = NULL;
  check_fails(reserve(machine_name, devices, 0, &held, &err), err, code, part);
  assert_null(held);
}

static void what_is_held_is_passed_over_until_it_is_freed(void** state) {
  (void)state;
  gsel_reservation* first = reserved("nvidia:4", "count:2", "0,1");
  gsel_reservation* second = reserved("nvidia:4", "count:1", "2");
  char holder[64];
  snprintf(holder, sizeof holder, "reserved by process %d", (int)getpid());
  refused("nvidia:4", "count:2", GSEL_ERR_BUSY, holder);
  refused("nvidia:4", "index:1", GSEL_ERR_BUSY, holder);
  gsel_reservation_free(first);
  first = reserved("nvidia:4", "index:1,0", "1,0");
  gsel_reservation_free(second);
  gsel_reservation_free(first);
  gsel_reservation_free(NULL);
}

static void a_fallback_that_is_busy_can_be_waited_for(void** state) {
  (void)state;
  gsel_reservation* all = reserved("nvidia:4", "all", "0,1,2,3");
  refused("nvidia:4", "index:9 | count:1", GSEL_ERR_BUSY, "none of 2 choices can be had");
  refused("nvidia:4", "index:9 | count:9 & hip", GSEL_ERR_OUT_OF_RANGE, "none of 2 choices can be had");
  gsel_reservation_free(all);
  gsel_reservation_free(reserved("nvidia:4", "index:9 | count:1", "0"));
}

static void the_cpu_is_shared(void** state) {
  (void)state;
  gsel_reservation* first = reserved("cpu", "cpu", "0");
  gsel_reservation* second = reserved("cpu", "cpu", "0");
  gsel_reservation_free(first);
  gsel_reservation_free(second);
}

static void instances_are_held_one_by_one(void** state) {
  (void)state;
  gsel_reservation* first = reserved("mig", "mig:0", "1:0");
  gsel_reservation* second = reserved("mig", "mig:1", "1:1");
  refused("mig", "mig:0", GSEL_ERR_BUSY, "reserved by process");
  gsel_reservation_free(first);
  gsel_reservation_free(second);
}

static void devices_that_processes_use_are_not_free(void** state) {
  (void)state;
  gsel_inventory* inventory = NULL;
  gsel_reservation* held = NULL;
  gsel_error* err = NULL;
  gsel_status status = gsel_inventory_parse(
      gsel_str_from("{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"a\", \"devices\": ["
                    "{\"vendor\": \"nvidia\", \"name\": \"A\", \"uuid\": \"GPU-11\", \"process_count\": 2},"
                    "{\"vendor\": \"nvidia\", \"name\": \"A\", \"uuid\": \"GPU-22\", \"process_count\": 0}]}]}"),
      gsel_str_from("two"), &inventory, &err);
  check_ok(status, err);
  gsel_resolve_options resolve_options = GSEL_RESOLVE_OPTIONS_INIT;
  gsel_reserve_options options = GSEL_RESERVE_OPTIONS_INIT;
  options.folder = gsel_str_from(folder);
  resolve_options.inventory = inventory;
  resolve_options.flags = GSEL_RESOLVE_NO_ENV;
  resolve_options.devices = gsel_str_from("count:1");
  status = gsel_reserve(&resolve_options, &options, &held, &err);
  check_ok(status, err);
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  assert_int_equal(gsel_selection_device(gsel_reservation_selection(held), 0, &info, NULL), GSEL_OK);
  assert_int_equal(info.index, 1);
  gsel_reservation_free(held);
  resolve_options.devices = gsel_str_from("index:0");
  check_fails(gsel_reserve(&resolve_options, &options, &held, &err), err, GSEL_ERR_BUSY, "used by 2 processes");
  gsel_inventory_free(inventory);
}

/* A child that reserves, tells so, and waits to be killed. */
static pid_t holder_of(const char* devices) {
  int told[2];
  assert_int_equal(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    gsel_reservation* held = NULL;
    const char good = reserve("nvidia:4", devices, 0, &held, NULL) == GSEL_OK ? 'y' : 'n';
    (void)!write(told[1], &good, 1);
    for (;;) pause();
  }
  char good = 0;
  assert_int_equal(read(told[0], &good, 1), 1);
  close(told[0]);
  close(told[1]);
  assert_int_equal(good, 'y');
  return child;
}

static void a_killed_holder_leaves_nothing_locked(void** state) {
  (void)state;
  const pid_t child = holder_of("all");
  char holder[64];
  snprintf(holder, sizeof holder, "reserved by process %d", (int)child);
  refused("nvidia:4", "count:1", GSEL_ERR_BUSY, holder);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  gsel_reservation_free(reserved("nvidia:4", "count:4", "0,1,2,3"));
}

static void waiting_ends_when_the_holder_does(void** state) {
  (void)state;
  const pid_t child = holder_of("index:0,1,2");
  kill(child, SIGKILL); /* perhaps not dead yet when we ask */
  gsel_reservation* held = NULL;
  gsel_error* err = NULL;
  const gsel_status status = reserve("nvidia:4", "count:4", 60, &held, &err);
  check_ok(status, err);
  gsel_reservation_free(held);
  assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_forked_child_cannot_free_what_its_parent_holds(void** state) {
  (void)state;
  gsel_reservation* held = reserved("nvidia:4", "count:1", "0");
  const pid_t child = fork();
  if (child == 0) {
    gsel_reservation_free(held);
    _exit(0);
  }
  assert_int_equal(waitpid(child, NULL, 0), child);
  refused("nvidia:4", "index:0", GSEL_ERR_BUSY, "reserved by process");
  gsel_reservation_free(held);
}

static void nothing_but_the_common_lock_is_left_in_the_folder(void** state) {
  (void)state;
  gsel_reservation_free(reserved("nvidia:4", "all", "0,1,2,3"));
  DIR* directory = opendir(folder);
  assert_non_null(directory);
  for (struct dirent* entry = readdir(directory); entry; entry = readdir(directory))
    if (entry->d_name[0] != '.') fail_msg("%s is left in the folder", entry->d_name);
  closedir(directory);
}

static void a_bad_folder_is_named(void** state) {
  (void)state;
  gsel_reservation* held = NULL;
  gsel_error* err = NULL;
  gsel_inventory* inventory = machine("nvidia:4");
  gsel_resolve_options resolve_options = GSEL_RESOLVE_OPTIONS_INIT;
  gsel_reserve_options options = GSEL_RESERVE_OPTIONS_INIT;
  resolve_options.inventory = inventory;
  options.folder = gsel_str_from("relative");
  check_fails(gsel_reserve(&resolve_options, &options, &held, &err), err, GSEL_ERR_ARG, "absolute path");
  options.folder = gsel_str_from("/dev/null");
  check_fails(gsel_reserve(&resolve_options, &options, &held, &err), err, GSEL_ERR_IO,
              "/dev/null cannot be opened as a folder");
  options.folder = gsel_str_from("/no/such/folder");
  check_fails(gsel_reserve(&resolve_options, &options, &held, &err), err, GSEL_ERR_IO,
              "/no/such/folder cannot be made");
  options.folder = gsel_str_from(folder);
  options.wait_s = -1;
  check_fails(gsel_reserve(&resolve_options, &options, &held, &err), err, GSEL_ERR_ARG, "wait_s is -1");
  gsel_inventory_free(inventory);
}

/* ---- the race ---- */

enum { RACERS = 64, CARDS = 8 };

struct board {
  _Atomic int owner[CARDS]; /* process that believes to hold the card, or 0 */
  _Atomic int double_uses, rounds, refusals, failures;
};

static void race(struct board* board, int rounds) {
  gsel_inventory* inventory = machine("nvidia:8");
  gsel_resolve_options resolve_options = GSEL_RESOLVE_OPTIONS_INIT;
  gsel_reserve_options options = GSEL_RESERVE_OPTIONS_INIT;
  resolve_options.inventory = inventory;
  resolve_options.flags = GSEL_RESOLVE_NO_ENV;
  options.folder = gsel_str_from(folder);
  const char* const asked[] = {"count:1", "count:2", "index:3", "count:3"};
  for (int round = 0; round < rounds; ++round) {
    gsel_reservation* held = NULL;
    resolve_options.devices = gsel_str_from(asked[(round + getpid()) % 4]);
    const gsel_status status = gsel_reserve(&resolve_options, &options, &held, NULL);
    if (status == GSEL_ERR_BUSY) ++board->refusals;
    if (status != GSEL_OK && status != GSEL_ERR_BUSY) ++board->failures;
    const gsel_selection* selection = gsel_reservation_selection(held);
    int cards[CARDS];
    const int count = gsel_selection_device_count(selection);
    for (int i = 0; i < count; ++i) {
      gsel_device_info info = GSEL_DEVICE_INFO_INIT;
      gsel_selection_device(selection, i, &info, NULL);
      cards[i] = info.index;
      if (atomic_exchange(&board->owner[cards[i]], getpid()) != 0) ++board->double_uses;
    }
    for (int i = 0; i < count; ++i)
      if (atomic_exchange(&board->owner[cards[i]], 0) != getpid()) ++board->double_uses;
    gsel_reservation_free(held);
    ++board->rounds;
  }
  gsel_inventory_free(inventory);
}

/* 64 processes, 300 rounds each, a tenth of it under a sanitizer; GSEL_TEST_RACE_ROUNDS sets another number. */
static void racing_processes_never_get_the_same_device(void** state) {
  (void)state;
  struct board* board =
      (struct board*)mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(board != MAP_FAILED);
  const char* given = getenv("GSEL_TEST_RACE_ROUNDS");
  const int rounds = given ? atoi(given) : SANITIZED ? 30 : 300;
  for (int i = 0; i < RACERS; ++i) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      race(board, rounds);
      _exit(0);
    }
  }
  for (int i = 0; i < RACERS; ++i) {
    int status = 0;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  print_message("%d rounds, %d refused as busy\n", board->rounds, board->refusals);
  assert_int_equal(board->rounds, RACERS * rounds);
  assert_int_equal(board->double_uses, 0);
  assert_int_equal(board->failures, 0);
  assert_true(board->refusals < board->rounds);
  munmap(board, sizeof *board);
}

int main(void) {
  char scratch[200];
  if (!make_scratch(scratch, sizeof scratch, "reserve")) return 1;
  snprintf(folder, sizeof folder, "%s/locks", scratch);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_held_is_passed_over_until_it_is_freed),
      cmocka_unit_test(a_fallback_that_is_busy_can_be_waited_for),
      cmocka_unit_test(the_cpu_is_shared),
      cmocka_unit_test(instances_are_held_one_by_one),
      cmocka_unit_test(devices_that_processes_use_are_not_free),
      cmocka_unit_test(a_killed_holder_leaves_nothing_locked),
      cmocka_unit_test(waiting_ends_when_the_holder_does),
      cmocka_unit_test(a_forked_child_cannot_free_what_its_parent_holds),
      cmocka_unit_test(nothing_but_the_common_lock_is_left_in_the_folder),
      cmocka_unit_test(a_bad_folder_is_named),
      cmocka_unit_test(racing_processes_never_get_the_same_device),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char lock[300];
  snprintf(lock, sizeof lock, "%s/.all", folder);
  unlink(lock);
  rmdir(folder);
  rmdir(scratch);
  return failed;
}
