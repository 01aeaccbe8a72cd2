/* cuda/products.c: see products.h. cuBLASLt counts by columns, so it is asked for the transpose of d, with b before a.
 *
 * What it needs to know of a product, and the algorithm that it proposes, is kept by the product's sizes, since asking
 * takes longer than a small product. It gets no workspace, so that nothing is allocated, and is asked for algorithms
 * that do not divide a sum among blocks: a product gives the same bits whenever it is asked for with the same sizes on
 * the same card. */
#include "products.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cublaslt.h"

/* ---- the library ------------------------------------------------------------------------------------------- */

#define LIBRARY_MEMBER(name, function, parameters) int(*name) parameters;
static struct { GPT_CUBLASLT_FUNCTIONS(LIBRARY_MEMBER) } lt;
static char why_none[256]; /* "": it is there */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void* find(void* library, const char* symbol) {
  void* found = dlsym(library, symbol);
  if (!found && !*why_none) snprintf(why_none, sizeof why_none, "cuBLASLt has no %s; use --products plain", symbol);
  return found;
}

static void load_library(void) {
  static const char* const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  void* library = NULL;
  for (int i = 0; i < 2 && !library; ++i) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(why_none, sizeof why_none,
             "no cuBLASLt: neither %s nor %s was found; use --products plain, or add its folder to LD_LIBRARY_PATH",
             names[0], names[1]);
    return;
  }
#define LIBRARY_FIND(name, function, parameters) *(void**)&lt.name = find(library, #function);
  GPT_CUBLASLT_FUNCTIONS(LIBRARY_FIND)
}

const char* gpu_products_refusal(void) {
  pthread_once(&once, load_library);
  return *why_none ? why_none : NULL;
}

/* ---- what is kept ------------------------------------------------------------------------------------------ */

/* Products that are alike; compared as bytes. Addresses count as far as they are aligned. */
struct kind {
  int64_t rows, columns, depth, a_transposed, b_transposed, has_bias, type, d_type;
  uint32_t aligned_a, aligned_b, aligned_d, aligned_bias;
};
struct plan {
  struct kind kind;
  void *operation, *a, *b, *d;
  struct cublaslt_algo algo;
};

enum { MOST_DEVICES = 64, MOST_PLANS = 128 };
struct device {
  void *context, *handle;
  struct plan plans[MOST_PLANS];
  int n_plans, next; /* next: to make room for another */
};
static struct device devices[MOST_DEVICES];
static int n_devices;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static gsel_status failed(int result, const char* what, struct gpu_say say) {
  snprintf(say.message, say.capacity, "%s: cuBLASLt error %d; --products plain does without it", what, result);
  return result == CUBLASLT_NO_MEMORY ? GSEL_ERR_NOMEM : GSEL_ERR_DEVICE;
}

/* Of the device that is current. */
static gsel_status find_device(void* context, struct device** out, struct gpu_say say) {
  int i = 0;
  while (i < n_devices && devices[i].context != context) ++i;
  *out = &devices[i < MOST_DEVICES ? i : 0];
  if (i < n_devices) return GSEL_OK;
  if (i == MOST_DEVICES) return failed(CUBLASLT_NOT_SUPPORTED, "more devices than 64 in a process", say);
  const int result = lt.create(&devices[i].handle);
  if (result) return failed(result, "opening cuBLASLt", say);
  devices[i].context = context;
  ++n_devices;
  return GSEL_OK;
}

/* ---- a plan ------------------------------------------------------------------------------------------------ */

static void drop(struct plan* plan) {
  if (plan->operation) lt.destroy_operation(plan->operation);
  if (plan->a) lt.destroy_layout(plan->a);
  if (plan->b) lt.destroy_layout(plan->b);
  if (plan->d) lt.destroy_layout(plan->d);
  *plan = (struct plan){0};
}

static int type_of(int64_t dtype) {
  return dtype == GSEL_BF16 ? CUBLASLT_BF16 : CUBLASLT_F32;
}

/* A row-major array [lines][numbers], which for cuBLASLt has so many columns. */
static int create_layout(void** layout, int64_t dtype, int64_t lines, int64_t numbers) {
  return lt.create_layout(layout, type_of(dtype), (uint64_t)numbers, (uint64_t)lines, numbers);
}

static int describe(struct plan* p, const void* bias) {
  const struct kind* k = &p->kind;
  const int32_t transposed = CUBLASLT_TRANSPOSED;
  const uint32_t epilogue = CUBLASLT_EPILOGUE_OF_BIAS;
  int result = lt.create_operation(&p->operation, CUBLASLT_COMPUTE_F32, CUBLASLT_F32);
  if (!result && k->b_transposed)
    result = lt.set_operation(p->operation, CUBLASLT_TRANSPOSE_A, &transposed, sizeof transposed);
  if (!result && k->a_transposed)
    result = lt.set_operation(p->operation, CUBLASLT_TRANSPOSE_B, &transposed, sizeof transposed);
  if (!result && k->has_bias) result = lt.set_operation(p->operation, CUBLASLT_EPILOGUE, &epilogue, sizeof epilogue);
  if (!result && k->has_bias) result = lt.set_operation(p->operation, CUBLASLT_BIAS_POINTER, &bias, sizeof bias);
  if (!result)
    result = k->b_transposed ? create_layout(&p->b, k->type, k->columns, k->depth)
                             : create_layout(&p->b, k->type, k->depth, k->columns);
  if (!result)
    result = k->a_transposed ? create_layout(&p->a, k->type, k->depth, k->rows)
                             : create_layout(&p->a, k->type, k->rows, k->depth);
  return result ? result : create_layout(&p->d, k->d_type, k->rows, k->columns);
}

static int choose(void* handle, struct plan* p) {
  struct cublaslt_found found = {0};
  void* preference = NULL;
  int n = 0, result = lt.create_preference(&preference);
  const struct {
    int attribute;
    uint32_t value;
  } wishes[] = {{CUBLASLT_REDUCTIONS, 0},
                {CUBLASLT_ALIGNMENT_A, p->kind.aligned_b},
                {CUBLASLT_ALIGNMENT_B, p->kind.aligned_a},
                {CUBLASLT_ALIGNMENT_C, p->kind.aligned_d},
                {CUBLASLT_ALIGNMENT_D, p->kind.aligned_d}};
  for (int i = 0; i < 5 && !result; ++i)
    result = lt.set_preference(preference, wishes[i].attribute, &wishes[i].value, sizeof wishes[i].value);
  if (!result) result = lt.find(handle, p->operation, p->b, p->a, p->d, p->d, preference, 1, &found, &n);
  if (preference) lt.destroy_preference(preference);
  if (!result && n == 0) result = CUBLASLT_NOT_SUPPORTED;
  if (!result) result = found.state;
  p->algo = found.algo;
  return result;
}

static int find_plan(struct device* device, const struct kind* kind, const void* bias, struct plan** out) {
  for (int i = 0; i < device->n_plans; ++i) {
    *out = &device->plans[i];
    if (!memcmp(&(*out)->kind, kind, sizeof *kind)) return 0;
  }
  *out = &device->plans[device->n_plans < MOST_PLANS ? device->n_plans : device->next];
  drop(*out);
  (*out)->kind = *kind;
  int result = describe(*out, bias);
  if (!result) result = choose(device->handle, *out);
  if (result) {
    drop(*out);
  } else if (device->n_plans < MOST_PLANS) {
    ++device->n_plans;
  } else {
    device->next = (device->next + 1) % MOST_PLANS;
  }
  return result;
}

/* ---- a product --------------------------------------------------------------------------------------------- */

/* What an address is a multiple of, up to the 256 that cuBLASLt otherwise expects. */
static uint32_t alignment_of(const void* address) {
  const uintptr_t at = (uintptr_t)address | 256;
  return (uint32_t)(at & -at);
}

static struct kind kind_of(const struct gpu_product* p) {
  struct kind kind;
  memset(&kind, 0, sizeof kind);
  kind.rows = p->rows;
  kind.columns = p->columns;
  kind.depth = p->depth;
  kind.a_transposed = p->a_transposed != 0;
  kind.b_transposed = p->b_transposed != 0;
  kind.has_bias = p->bias != NULL;
  kind.type = p->type;
  kind.d_type = p->d_type;
  kind.aligned_a = alignment_of(p->a);
  kind.aligned_b = alignment_of(p->b);
  kind.aligned_d = alignment_of(p->d);
  kind.aligned_bias = alignment_of(p->bias);
  return kind;
}

static gsel_status multiply(void* stream, void* context, const struct gpu_product* p, struct gpu_say say) {
  const float one = 1, kept = p->adds ? 1 : 0;
  const struct kind kind = kind_of(p);
  struct device* device;
  struct plan* plan;
  const gsel_status status = find_device(context, &device, say);
  if (status) return status;
  int result = find_plan(device, &kind, p->bias, &plan);
  if (!result && p->bias) result = lt.set_operation(plan->operation, CUBLASLT_BIAS_POINTER, &p->bias, sizeof p->bias);
  if (!result)
    result = lt.multiply(device->handle, plan->operation, &one, p->b, plan->b, p->a, plan->a, &kept, p->d, plan->d,
                         p->d, plan->d, &plan->algo, NULL, 0, stream);
  char what[128];
  snprintf(what, sizeof what, "a product of %lld x %lld with sums of %lld", (long long)p->rows, (long long)p->columns,
           (long long)p->depth);
  return result ? failed(result, what, say) : GSEL_OK;
}

gsel_status gpu_multiply(void* stream, const struct gpu_product* product, struct gpu_say say) {
  void* context;
  if (gpu_products_refusal()) {
    snprintf(say.message, say.capacity, "%s", gpu_products_refusal());
    return GSEL_ERR_UNSUPPORTED;
  }
  if (product->rows == 0 || product->columns == 0) return GSEL_OK;
  gsel_status status = gpu_enter(stream, &context, say);
  if (status) return status;
  pthread_mutex_lock(&lock);
  status = multiply(stream, context, product, say);
  pthread_mutex_unlock(&lock);
  gpu_leave();
  return status;
}
