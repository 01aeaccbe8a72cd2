/* See share.h. */
#include "support/share.h"

#include <stdlib.h>

int in_share_of(unsigned n) {
  static unsigned asked;
  const char* given = getenv("GSEL_TEST_SHARE");
  if (given) return asked++ % (unsigned)atoi(given) == 0;
  return asked++ % n == 0 || !SANITIZED;
}
int in_share(void) {
  return in_share_of(5);
}
