/* unit/test_plugin_chosen.c: a program that computes on the CPU alone has no driver of an accelerator in it. Each
 * strategy is loaded in turn, and /proc/self/maps is searched for the libraries that other plugins load. */
#include <gsel/registry.h>

#include "support/step_model.h"

static const struct {
  const char *axis, *plugin;
} kStrategies[] = {
    {"data", "ddp"}, {"data", "dp"}, {"data", "zero"}, {"pipeline", "pp"}, {"tensor", "tp"}, {"context", "cp"},
};
enum { N_STRATEGIES = sizeof kStrategies / sizeof *kStrategies };

/* The first of these that this process has mapped, or NULL. */
static const char* mapped(const char* const* names, size_t n) {
  static char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  const char* found = NULL;
  while (!found && fgets(line, sizeof line, maps))
    for (size_t i = 0; i < n && !found; ++i)
      if (strstr(line, names[i])) found = names[i];
  fclose(maps);
  return found;
}

static void load(rank_run* run) {
  const step_model m = {.config = (const char*)run->user};
  step_session s;
  gsel_error* err = NULL;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  step_close(&s);
}

static void a_strategy_brings_no_driver_with_it(void** state) {
  (void)state;
  static const char* const drivers[] = {"libcuda.so", "libnccl.so", "plugins-1/cuda.so", "plugins-1/nccl.so"};
  for (size_t i = 0; i < N_STRATEGIES; ++i) {
    char config[256], file[64];
    snprintf(config, sizeof config, "[strategy.%s]\nplugin = \"%s\"\n", kStrategies[i].axis, kStrategies[i].plugin);
    as_threads(1, load, config);
    snprintf(file, sizeof file, "plugins-1/%s.so", kStrategies[i].plugin);
    const char* const own[] = {file};
    if (!mapped(own, 1)) fail_msg("strategy %s was not loaded", kStrategies[i].plugin);
    const char* found = mapped(drivers, sizeof drivers / sizeof *drivers);
    if (found) fail_msg("strategy %s was loaded, and %s is mapped", kStrategies[i].plugin, found);
  }
  /* Who lists all plugins asks them all: what this test looks for can be there. */
  gsel_plugin_list* list = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_plugin_list_create(&list, &err), err);
  assert_non_null(mapped(drivers, sizeof drivers / sizeof *drivers));
  for (int32_t i = 0; i < gsel_plugin_list_count(list); ++i) {
    gsel_plugin_info info = GSEL_PLUGIN_INFO_INIT;
    check_ok(gsel_plugin_list_get(list, i, &info, &err), err);
    int tried = strcmp(info.kind.data, "strategy") != 0;
    for (size_t k = 0; k < N_STRATEGIES; ++k) tried = tried || strcmp(info.name.data, kStrategies[k].plugin) == 0;
    if (!tried) fail_msg("strategy %s is not among those tried", info.name.data);
  }
  gsel_plugin_list_free(list);
}

int main(void) {
  unsetenv("GSEL_PLUGIN_PATH");
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_strategy_brings_no_driver_with_it)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
