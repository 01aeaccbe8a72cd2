/* fuzz_lightning: devices= as Lightning reads it, which is a Python literal. An input is a line "MACHINE
 * [ACCELERATOR]", then the literal. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  struct rest rest = {(const char*)data, size};
  gsel_str first = take(&rest, '\n');
  struct rest words = {first.data, first.len};
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.flags = GSEL_RESOLVE_NO_ENV;
  options.compat = gsel_str_from("lightning");
  options.inventory = machine_named(take(&words, ' '));
  options.accelerator = unless_empty(take_all(&words));
  options.devices = take_all(&rest);
  check_resolve(&options);
  return 0;
}
