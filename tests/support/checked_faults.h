/* support/checked_faults.h: each way in which one kernel of checked_model.h can break the contract of gsel/model.h, and
 * what a check has to find. */
#ifndef GSEL_TESTS_CHECKED_FAULTS_H
#define GSEL_TESTS_CHECKED_FAULTS_H

#include "support/checked_model.h"

enum { CK_ANY = -100, N_FAULTS = 25 };
typedef struct fault {
  const char* name;
  int layer, callback; /* GSEL_WORK_* */
  gsel_layer_fn kernel;
  gsel_breach_kind kind;
  int found_in; /* callback; 0: the same */
  int32_t buffer, index;
  int64_t element; /* CK_ANY: any */
} fault;
extern const fault kFaults[N_FAULTS];

gsel_status writes_past_saved(const gsel_call* c, void* user);
gsel_status ignores_accumulate(const gsel_call* c, void* user);
gsel_status always_adds(const gsel_call* c, void* user);
gsel_status drops_by_key(const gsel_call* c, void* user);
gsel_status has_the_wrong_sign(const gsel_call* c, void* user);

#endif
