/* nets/fuzz_machine.c: a machine of machine.h driven by libFuzzer. */
#include <stdio.h>
#include <stdlib.h>

#include "nets/machine.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char text[MACHINE_TEXT];
  const char* wrong = machine_run(&played, data, size, text);
  if (!wrong) return 0;
  fprintf(stderr, "%s\n", wrong);
  abort();
}
