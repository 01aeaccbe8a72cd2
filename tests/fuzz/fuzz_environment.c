/* fuzz_environment: the variables of every vendor and framework, read strictly or as a system reads them. An input is a
 * line "MACHINE [SYSTEM [DEVICES]]", then lines NAME=VALUE. */
#include "fuzz/fuzz.h"

enum { MOST_VARIABLES = 16 };

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  struct rest rest = {(const char*)data, size};
  gsel_str first = take(&rest, '\n');
  struct rest words = {first.data, first.len};
  gsel_env_var env[MOST_VARIABLES];
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = machine_named(take(&words, ' '));
  options.compat = unless_empty(take(&words, ' '));
  options.devices = unless_empty(take_all(&words));
  options.env = env;
  while (rest.left && options.n_env < MOST_VARIABLES) {
    gsel_str line = take(&rest, '\n');
    struct rest parts = {line.data, line.len};
    const gsel_str name = take(&parts, '=');
    env[options.n_env++] = (gsel_env_var){name, take_all(&parts)};
  }
  if (!options.n_env) options.flags = GSEL_RESOLVE_NO_ENV;
  check_resolve(&options);
  return 0;
}
