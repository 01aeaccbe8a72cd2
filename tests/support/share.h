/* support/share.h: under a sanitizer a trial takes ten times as long, and rows of one table run through the same code, so
 * there a share of the rows is tried. Every row is tried without one. */
#ifndef GSEL_TEST_SHARE_H
#define GSEL_TEST_SHARE_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Whether the row that is asked for is in the share: each fifth call's, so that no loop over 2, 3, 4 or 8 columns has all
 * of its share in one. Ranks ask before they are started, not each for itself. */
static inline int in_share(void) {
  static unsigned asked;
  return asked++ % 5 == 0 || !SANITIZED;
}

#endif
