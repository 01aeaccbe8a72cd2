/* fuzz_spec: gsel_resolve_options.devices in gsel's own grammar. An input is a line "MACHINE [ORDER [ACCELERATOR]]",
 * then the spec. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  struct rest rest = {(const char*)data, size};
  gsel_str first = take(&rest, '\n');
  struct rest words = {first.data, first.len};
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.flags = GSEL_RESOLVE_NO_ENV | (size % 2 ? GSEL_RESOLVE_PER_RANK : 0);
  options.inventory = machine_named(take(&words, ' '));
  options.order = unless_empty(take(&words, ' '));
  options.accelerator = unless_empty(take_all(&words));
  options.devices = take_all(&rest);
  check_resolve(&options);
  return 0;
}
