/* fuzz_hosts: hostfiles and filters of hosts, read strictly or as a system reads them. An input is a line
 * "MACHINE [SYSTEM [DEVICES]]", a line with include, a line with exclude (empty: not given), then the hostfile. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  struct rest rest = {(const char*)data, size};
  gsel_str first = take(&rest, '\n');
  struct rest words = {first.data, first.len};
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.flags = GSEL_RESOLVE_NO_ENV;
  options.inventory = machine_named(take(&words, ' '));
  options.compat = unless_empty(take(&words, ' '));
  options.devices = unless_empty(take_all(&words));
  options.include = unless_empty(take(&rest, '\n'));
  options.exclude = unless_empty(take(&rest, '\n'));
  options.hostfile_text = unless_empty(take_all(&rest));
  check_resolve(&options);
  return 0;
}
