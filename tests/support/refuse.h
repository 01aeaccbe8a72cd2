/* support/refuse.h: system calls that fail from here on, as a sandbox refuses them. */
#ifndef GSEL_TESTS_REFUSE_H
#define GSEL_TESTS_REFUSE_H

#include <errno.h>
#include <sys/syscall.h>

/* In this process these calls fail with `number`; 0 ends the list. Whether the machine allows such a filter. */
int refuse(const int* calls, int number);

/* This process may not read the memory of others. */
int refuse_reading_others(void);

#endif
