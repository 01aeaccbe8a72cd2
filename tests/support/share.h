/* support/share.h: under a sanitizer a trial takes ten times as long, and rows of one table run through the same code,
 * so there a share of the rows is tried, and so is each n-th with GSEL_TEST_SHARE=n. Every row is tried without. */
#ifndef GSEL_TEST_SHARE_H
#define GSEL_TEST_SHARE_H

#include <gsel/types.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

GSEL_EXTERN_C_BEGIN

/* Whether the row that is asked for is in the share: each n-th call's. A number that divides none of the loops' lengths
 * keeps the share from lying in one column. Ranks ask before they are started, not each for itself. */
int in_share_of(unsigned n);
int in_share(void);

GSEL_EXTERN_C_END

#endif
