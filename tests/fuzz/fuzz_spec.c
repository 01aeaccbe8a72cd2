/* fuzz_spec: request.devices in gsel's own grammar. An input is a line "MACHINE [ORDER [ACCELERATOR]]", then the spec.
 */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  struct rest rest = {(const char*)data, size};
  gsel_str first = take(&rest, '\n');
  struct rest words = {first.data, first.len};
  gsel_resolve_options request = GSEL_RESOLVE_OPTIONS_INIT;
  request.flags = GSEL_RESOLVE_NO_ENV | (size % 2 ? GSEL_RESOLVE_PER_RANK : 0);
  request.inventory = machine_named(take(&words, ' '));
  request.order = unless_empty(take(&words, ' '));
  request.accelerator = unless_empty(take_all(&words));
  request.devices = take_all(&rest);
  check_resolve(&request);
  return 0;
}
