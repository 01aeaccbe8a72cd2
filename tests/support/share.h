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

/* Whether the next row is tried: each n-th call. n should divide the length of no loop, so that the tried rows are
 * spread over all columns. Called before ranks are started, so that all try the same rows. */
int in_share_of(unsigned n);
int in_share(void);

GSEL_EXTERN_C_END

#endif
