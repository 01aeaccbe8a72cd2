// fake/cuda/cublaslt.cc: libcublasLt.so.13 as far as examples/gpt asks for it, over the machine of machine.h: products
// by plain loops, enqueued on a stream of the double. It is as strict as the library is: a layout that does not fit the
// operation, an attribute of another size, an address that is aligned worse than the preference said, or an algorithm
// that was found for another product are refused, and what the library would get wrong without a word is a violation.
#include "examples/gpt/cuda/cublaslt.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "captures.h"
#include "driver.h"

using namespace fake_cuda;

namespace {

enum Status { kSuccess = 0, kNotInitialized = 1, kWrong = 7, kStatusNotSupported = 15 };

struct Handle {
  uintptr_t context;
};
struct Description {
  int transposes_a = 0, transposes_b = 0;
  unsigned epilogue = 1;
  const char* bias = nullptr;
};
struct Layout {
  int type;
  int64_t rows, columns, ld;
};
struct Preference {
  unsigned aligned[4] = {256, 256, 256, 256};  // a, b, c, d
};
// What an algorithm was found for, in its words.
struct Found {
  uint64_t of, aligned;
};

int64_t bytes_of(int type) {
  return type == CUBLASLT_BF16 ? 2 : 4;
}
bool is_type(int type) {
  return type == CUBLASLT_BF16 || type == CUBLASLT_F32;
}

// The library counts lines along a column.
struct Problem {
  int64_t m, n, k;
};
// False: a product of these layouts is none.
bool fits(const Description& op, const Layout& a, const Layout& b, const Layout& d, Problem* out) {
  const int64_t m = op.transposes_a ? a.columns : a.rows, k = op.transposes_a ? a.rows : a.columns;
  const int64_t n = op.transposes_b ? b.rows : b.columns, k_of_b = op.transposes_b ? b.columns : b.rows;
  *out = {m, n, k};
  return k == k_of_b && d.rows == m && d.columns == n && a.type == b.type &&
         (d.type == a.type || d.type == CUBLASLT_F32);
}

uint64_t mixed(uint64_t hash, uint64_t number) {
  return (hash ^ number) * 1099511628211u;
}
uint64_t hash_of(const Description& op, const Layout& a, const Layout& b, const Layout& d) {
  uint64_t hash = 14695981039346656037u;
  for (const uint64_t part : {uint64_t(op.transposes_a), uint64_t(op.transposes_b), uint64_t{op.epilogue}})
    hash = mixed(hash, part);
  for (const Layout* l : {&a, &b, &d})
    for (const int64_t part : {int64_t{l->type}, l->rows, l->columns, l->ld})
      hash = mixed(hash, static_cast<uint64_t>(part));
  return hash | 1;
}
uint64_t packed(const unsigned* aligned) {
  uint64_t all = 0;
  for (int i = 0; i < 4; ++i) all = all << 16 | aligned[i];
  return all;
}
bool is_aligned(const void* address, uint64_t packed, int which) {
  const uint64_t to = packed >> (16 * (3 - which)) & 0xffff;
  return reinterpret_cast<uintptr_t>(address) % to == 0;
}

float number_at(const char* memory, int type, int64_t i) {
  if (type == CUBLASLT_F32) return reinterpret_cast<const float*>(memory)[i];
  const uint32_t bits = static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(memory)[i]) << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
// To nearest even, as the library rounds.
void put_number(char* memory, int type, int64_t i, float x) {
  if (type == CUBLASLT_F32) {
    reinterpret_cast<float*>(memory)[i] = x;
    return;
  }
  int exponent = 0;
  std::frexp(x, &exponent);
  const float unit = std::ldexp(1.0f, exponent - 8), rounded = std::isfinite(x) ? std::nearbyint(x / unit) * unit : x;
  uint32_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  reinterpret_cast<uint16_t*>(memory)[i] = static_cast<uint16_t>(bits >> 16);
}

Access touched(const void* at, const Layout& layout, bool writes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  const int64_t last = (layout.columns - 1) * layout.ld + layout.rows;
  return {begin, begin + static_cast<uintptr_t>(last * bytes_of(layout.type)), writes};
}

int violated(const char* text) {
  Machine::get().violation(std::string("cublasLtMatmul: ") + text);
  return kWrong;
}

}  // namespace

EXPORT int cublasLtCreate(void** handle) {
  const std::lock_guard lock(Machine::get().mutex());
  if (thread_state().current.empty() || !is_alive(current())) return kNotInitialized;
  *handle = new Handle{current()};
  return kSuccess;
}

EXPORT int cublasLtMatmulDescCreate(void** operation, int compute, int scale) {
  if (compute != CUBLASLT_COMPUTE_F32 || scale != CUBLASLT_F32) return kStatusNotSupported;
  *operation = new Description;
  return kSuccess;
}
EXPORT int cublasLtMatmulDescDestroy(void* operation) {
  delete static_cast<Description*>(operation);
  return kSuccess;
}
EXPORT int cublasLtMatmulDescSetAttribute(void* operation, int attribute, const void* from, size_t bytes) {
  auto& op = *static_cast<Description*>(operation);
  const size_t expected = attribute == CUBLASLT_BIAS_POINTER ? sizeof(void*) : 4;
  if (!from || bytes != expected) return kWrong;
  switch (attribute) {
    case CUBLASLT_TRANSPOSE_A:
      memcpy(&op.transposes_a, from, bytes);
      return kSuccess;
    case CUBLASLT_TRANSPOSE_B:
      memcpy(&op.transposes_b, from, bytes);
      return kSuccess;
    case CUBLASLT_EPILOGUE:
      memcpy(&op.epilogue, from, bytes);
      return op.epilogue == 1 || op.epilogue == CUBLASLT_EPILOGUE_OF_BIAS ? kSuccess : kStatusNotSupported;
    case CUBLASLT_BIAS_POINTER:
      memcpy(&op.bias, from, bytes);
      return kSuccess;
    default:
      return kWrong;
  }
}

EXPORT int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  if (!is_type(type) || rows == 0 || columns == 0 || ld < static_cast<int64_t>(rows)) return kWrong;
  *layout = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
  return kSuccess;
}
EXPORT int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return kSuccess;
}

EXPORT int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference;
  return kSuccess;
}
EXPORT int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  return kSuccess;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* from, size_t bytes) {
  if (from && attribute == CUBLASLT_REDUCTIONS && bytes == sizeof(unsigned)) return kSuccess;
  if (!from || attribute < CUBLASLT_ALIGNMENT_A || attribute > CUBLASLT_ALIGNMENT_D || bytes != sizeof(unsigned))
    return kWrong;
  memcpy(&static_cast<Preference*>(preference)->aligned[attribute - CUBLASLT_ALIGNMENT_A], from, bytes);
  return kSuccess;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void* handle, void* operation, void* a, void* b, void* c, void* d,
                                          void* preference, int most, cublaslt_found* found, int* n_found) {
  const auto& op = *static_cast<Description*>(operation);
  const auto &la = *static_cast<Layout*>(a), &lb = *static_cast<Layout*>(b), &ld = *static_cast<Layout*>(d);
  Problem problem{};
  *n_found = 0;
  if (!handle || most < 1 || !fits(op, la, lb, ld, &problem) || memcmp(c, d, sizeof ld) != 0) return kWrong;
  if (number_in("GSEL_FAKE_CUBLASLT_FINDS", 1) == 0) return kStatusNotSupported;
  const Found algo{hash_of(op, la, lb, ld), packed(static_cast<Preference*>(preference)->aligned)};
  *found = {};
  memcpy(found->algo.data, &algo, sizeof algo);
  *n_found = 1;
  return kSuccess;
}

EXPORT int cublasLtMatmul(void* handle, void* operation, const void* alpha, const void* a, void* a_layout,
                          const void* b, void* b_layout, const void* beta, const void* c, void* c_layout, void* d,
                          void* d_layout, const cublaslt_algo* algorithm, void* workspace, size_t workspace_bytes,
                          void* stream) {
  Problem p{};
  Found algo;
  const Description op = *static_cast<Description*>(operation);
  const Layout la = *static_cast<Layout*>(a_layout), lb = *static_cast<Layout*>(b_layout),
               ld = *static_cast<Layout*>(d_layout);
  if (!algorithm || !a || !b || !d || !fits(op, la, lb, ld, &p) || memcmp(c_layout, d_layout, sizeof ld) != 0)
    return kWrong;
  memcpy(&algo, algorithm->data, sizeof algo);
  const float by = *static_cast<const float*>(alpha), keeps = *static_cast<const float*>(beta);
  if (algo.of != hash_of(op, la, lb, ld)) return violated("an algorithm that was found for another product");
  if (!is_aligned(a, algo.aligned, 0) || !is_aligned(b, algo.aligned, 1) || !is_aligned(d, algo.aligned, 3))
    return violated("an address that is aligned worse than the preference said");
  if (keeps != 0 && c != d) return violated("adds to an array that is not the result");
  if (!workspace && workspace_bytes) return kWrong;
  if (op.epilogue == CUBLASLT_EPILOGUE_OF_BIAS && !op.bias) return violated("a bias without an address");
  if (static_cast<Handle*>(handle)->context != current()) return violated("a handle of another device");
  return on_stream(stream, [&](Machine& machine, Stream& on) {
    fake_cuda::Operation work;
    work.name = "cublasLtMatmul";
    work.accesses = {touched(a, la, false), touched(b, lb, false), touched(d, ld, true)};
    const bool has_bias = op.epilogue == CUBLASLT_EPILOGUE_OF_BIAS;
    if (has_bias) work.accesses.push_back(touched(op.bias, {ld.type, p.m, 1, p.m}, false));
    work.work = [=] {
      const auto here = [](const void* at) { return static_cast<char*>(Machine::get().here(at)); };
      const char *from_a = here(a), *from_b = here(b), *bias = has_bias ? here(op.bias) : nullptr;
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
          float sum = 0;
          for (int64_t l = 0; l < p.k; ++l)
            sum += number_at(from_a, la.type, op.transposes_a ? i * la.ld + l : l * la.ld + i) *
                   number_at(from_b, lb.type, op.transposes_b ? l * lb.ld + j : j * lb.ld + l);
          sum *= by;
          if (keeps != 0) sum += keeps * number_at(here(d), ld.type, j * ld.ld + i);
          if (bias) sum += number_at(bias, ld.type, i);
          put_number(here(d), ld.type, j * ld.ld + i, sum);
        }
    };
    if (is_captured(on)) return capture_work(on, std::move(work));
    machine.enqueue(on, std::move(work));
    return static_cast<int>(kOk);
  });
}
