/* fake/cuda/new_nccl.c: functions of NCCL 2.29.7 that are looked for by name and that gsel does not call. */
#include <stdlib.h>

#define NEWER(name)                                       \
  __attribute__((visibility("default"))) void name(void); \
  void name(void) {                                       \
    abort();                                              \
  }

NEWER(ncclCommGetUniqueId)
NEWER(ncclCommGrow)
NEWER(ncclCommSuspend)
NEWER(ncclCommResume)
NEWER(ncclPutSignal)
NEWER(ncclSignal)
NEWER(ncclWaitSignal)
