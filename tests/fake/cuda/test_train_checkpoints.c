/* Checkpoints of trainers on devices: what is saved from memory of devices loads there and on the host, and the other
 * way round, and training goes on to the bits of ranks on the host. */
#include "fake/cuda/on_device.h"
#include "support/checkpoint_trial.h"
#include "support/layouts.h"
#include "support/scratch.h"

static char folder[256];

/* Saves under one layout and loads under another, each on devices or on the host. */
static void goes_on(const struct layout* saved, const char* saved_on_transport, const struct layout* loaded,
                    const char* loaded_on_transport, bool in_background, struct ending* expected) {
  static int turn;
  char path[300], text[1024];
  snprintf(path, sizeof path, "%s/%d", folder, turn++);
  snprintf(text, sizeof text, "%s", config_of(saved, ""));
  struct going_on what = {plain(text, NULL), path, NULL, in_background, NULL, NULL};
  on_transport = saved_on_transport;
  saved_on(saved->ranks, &what);
  on_transport = NULL;
  snprintf(text, sizeof text, "%s", config_of(loaded, ""));
  what.ending = expected;
  on_transport = loaded_on_transport;
  as_threads(loaded->ranks, load_and_go_on, &what);
  on_transport = NULL;
  no_violations();
}

static void devices_and_the_host_load_what_either_saved(void** state) {
  (void)state;
  static const int layouts[] = {2, 5, 7, 10}; /* of kLayouts: ddp, offload, zero 3, a pipeline */
  enum { N = sizeof layouts / sizeof layouts[0] };
  struct ending* expected = shared_ending();
  struct going_on alone = {plain(config_of(&kLayouts[0], ""), NULL), "", NULL, false, NULL, expected};
  as_threads(1, never_stops, &alone);
  for (int i = 0; i < N; ++i)
    for (int on_device = 0; on_device < 3; ++on_device) {
      const struct layout *saved = &kLayouts[layouts[i]], *loaded = &kLayouts[layouts[(i + 1 + on_device) % N]];
      print_message("  saved under %s on %s, loaded under %s on %s\n", saved->name,
                    on_device < 2 ? "devices" : "the host", loaded->name, on_device != 1 ? "devices" : "the host");
      goes_on(saved, on_device < 2 ? "nccl" : NULL, loaded, on_device != 1 ? "nccl" : NULL, i % 2, expected);
    }
  free_ending(expected);
}

static int begin(void** state) {
  (void)state;
  return make_scratch(folder, sizeof folder, "device") ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  return remove_scratch(folder);
}

int main(void) {
  load_doubles("fake_libnccl.so");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_and_the_host_load_what_either_saved),
  };
  return cmocka_run_group_tests_name("checkpoints of devices", tests, begin, end);
}
