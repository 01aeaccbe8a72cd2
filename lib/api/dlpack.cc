// api/dlpack.cc: gsel/dlpack.h.
#include <gsel/dlpack.h>

#include <algorithm>
#include <memory>

#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "base/types.h"

// The layouts of dlpack.h 1.0, which never change.
struct DLDataType {
  uint8_t code;  // 0 signed, 1 unsigned, 2 floating point, 4 bfloat, 6 bool, 10 float8 e4m3fn, 12 float8 e5m2
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  struct {
    int32_t device_type, device_id;
  } device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // elements; nullptr: row-major without gaps
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor dl_tensor;
};

namespace {

constexpr uint32_t kMajor = 1;

struct Type {
  gsel_dtype dtype;
  DLDataType dlpack;
};
constexpr Type kTypes[] = {
    {GSEL_I8, {0, 8, 1}},      {GSEL_I16, {0, 16, 1}},    {GSEL_I32, {0, 32, 1}}, {GSEL_I64, {0, 64, 1}},
    {GSEL_U8, {1, 8, 1}},      {GSEL_U16, {1, 16, 1}},    {GSEL_U32, {1, 32, 1}}, {GSEL_U64, {1, 64, 1}},
    {GSEL_F16, {2, 16, 1}},    {GSEL_F32, {2, 32, 1}},    {GSEL_F64, {2, 64, 1}}, {GSEL_BF16, {4, 16, 1}},
    {GSEL_F8E4M3, {10, 8, 1}}, {GSEL_F8E5M2, {12, 8, 1}}, {GSEL_BOOL, {6, 8, 1}},
};

bool operator==(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

gsel_dtype dtype_of(const DLDataType& given) {
  const auto* found = std::ranges::find_if(kTypes, [&](const Type& type) { return type.dlpack == given; });
  if (found == std::end(kTypes))
    gsel::fail(GSEL_ERR_ARG,
               "the DLPack tensor has elements of code {}, {} bits and {} lanes; gsel has integers of 8 to 64 bits, "
               "f16, bf16, f32, f64, f8e4m3, f8e5m2 and bool",
               given.code, given.bits, given.lanes);
  return found->dtype;
}

DLDataType dlpack_of(gsel_dtype dtype) {
  const auto* found = std::ranges::find(kTypes, dtype, &Type::dtype);
  if (found == std::end(kTypes)) gsel::fail(GSEL_ERR_ARG, "dtype {} is unknown; use a GSEL_I8 ... GSEL_BOOL", dtype);
  return found->dlpack;
}

void check_dims(int32_t n_dims, const char* what) {
  if (n_dims < 0 || n_dims > GSEL_MAX_DIMS)
    gsel::fail(GSEL_ERR_ARG, "the {} has {}; gsel takes 0 to {}", what, gsel::with_noun(n_dims, "dimension"),
               GSEL_MAX_DIMS);
}

// The number of elements; checks the dimensions.
int64_t elements_of(const int64_t* dims, int32_t n_dims, gsel_dtype dtype, const char* what) {
  int64_t n_elems = 1;
  for (int32_t d = 0; d < n_dims; ++d)
    if (dims[d] < 0 || __builtin_mul_overflow(n_elems, dims[d], &n_elems))
      gsel::fail(GSEL_ERR_ARG, "dimension {} of the {} has {}, which does not fit", d, what,
                 gsel::with_noun(dims[d], "element"));
  const auto bytes = static_cast<int64_t>(gsel::dtype_bytes(dtype));
  if (n_elems > PTRDIFF_MAX / bytes)
    gsel::fail(GSEL_ERR_ARG, "the {} has {}, and so many elements of {} bytes do not fit in memory", what,
               gsel::with_noun(n_elems, "element"), bytes);
  return n_elems;
}

void check_data(const void* data, int64_t n_elems, const char* what) {
  if (n_elems > 0 && !data)
    gsel::fail(GSEL_ERR_ARG, "data of the {} is NULL and it has {}", what, gsel::with_noun(n_elems, "element"));
}

// Address of the first element.
void* start_of(const DLTensor& given, gsel_dtype dtype) {
  if (!given.data) return nullptr;
  uintptr_t start = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(given.data), given.byte_offset, &start))
    gsel::fail(GSEL_ERR_ARG, "the DLPack tensor has byte_offset {}, which does not fit in memory", given.byte_offset);
  if (start % gsel::dtype_bytes(dtype) != 0)
    gsel::fail(GSEL_ERR_ARG, "data of the DLPack tensor with byte_offset {} is not aligned to elements of {} bytes",
               given.byte_offset, gsel::dtype_bytes(dtype));
  return static_cast<char*>(given.data) + given.byte_offset;
}

// The number of elements. Any stride is valid in an empty tensor, and in a dimension of size 1.
int64_t check_shape(const DLTensor& given, gsel_dtype dtype) {
  const int64_t n_elems = elements_of(given.shape, given.ndim, dtype, "DLPack tensor");
  int64_t dense = 1;
  for (int32_t d = given.ndim; given.strides && n_elems > 0 && d-- > 0; dense *= given.shape[d])
    if (given.shape[d] > 1 && given.strides[d] != dense)
      gsel::fail(
          GSEL_ERR_ARG,
          "the DLPack tensor has stride {} in dimension {}, and row-major without gaps is {}; make it contiguous",
          given.strides[d], d, dense);
  return n_elems;
}

void import_tensor(const DLTensor& tensor, gsel_tensor* out, gsel_dlpack_device* device) {
  gsel::required(out, "out");
  check_dims(tensor.ndim, "DLPack tensor");
  if (tensor.ndim > 0) gsel::required(tensor.shape, "shape of the DLPack tensor");
  gsel_tensor made{};
  made.dtype = dtype_of(tensor.dtype);
  made.n_elems = check_shape(tensor, made.dtype);
  check_data(tensor.data, made.n_elems, "DLPack tensor");
  made.data = start_of(tensor, made.dtype);
  made.n_dims = tensor.ndim;
  std::copy_n(tensor.shape, tensor.ndim, made.dims);
  *out = made;
  if (device) *device = {tensor.device.device_type, tensor.device.device_id};
}

// The object that gsel_tensor_to_dlpack returns, in one allocation.
struct Owned {
  DLManagedTensorVersioned managed{};
  int64_t shape[GSEL_MAX_DIMS] = {}, strides[GSEL_MAX_DIMS] = {};
  gsel_free_fn free_user_data = nullptr;
  void* user_data = nullptr;
};

void release(DLManagedTensorVersioned* managed) {
  if (!managed) return;
  const std::unique_ptr<Owned> owned(static_cast<Owned*>(managed->manager_ctx));
  if (owned->free_user_data) owned->free_user_data(owned->user_data);
}

}  // namespace

extern "C" {

gsel_status gsel_tensor_from_dlpack(const DLManagedTensor* given, gsel_tensor* out, gsel_dlpack_device* device,
                                    gsel_error** err) {
  return gsel::guard(err, [&] { import_tensor(gsel::required(given, "given").dl_tensor, out, device); });
}

gsel_status gsel_tensor_from_dlpack_versioned(const DLManagedTensorVersioned* given, gsel_tensor* out,
                                              gsel_dlpack_device* device, gsel_error** err) {
  return gsel::guard(err, [&] {
    const auto& version = gsel::required(given, "given").version;
    if (version.major != kMajor)
      gsel::fail(GSEL_ERR_VERSION, "the DLPack tensor is of version {}.{}; expected {}.x", version.major, version.minor,
                 kMajor);
    import_tensor(given->dl_tensor, out, device);
  });
}

gsel_status gsel_tensor_to_dlpack(const gsel_tensor* tensor, const gsel_dlpack_device* device,
                                  gsel_free_fn free_user_data, void* user_data, DLManagedTensorVersioned** out,
                                  gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    const gsel_tensor& given = gsel::required(tensor, "tensor");
    check_dims(given.n_dims, "tensor");
    const DLDataType type = dlpack_of(given.dtype);
    const int64_t n_elems = elements_of(given.dims, given.n_dims, given.dtype, "tensor");
    if (given.n_elems != n_elems)
      gsel::fail(GSEL_ERR_ARG, "n_elems of the tensor is {}, and its dimensions have {}", given.n_elems,
                 gsel::with_noun(n_elems, "element"));
    check_data(given.data, n_elems, "tensor");
    auto owned = std::make_unique<Owned>();
    DLTensor& made = owned->managed.dl_tensor;
    made.data = given.data;
    const gsel_dlpack_device& where = gsel::required(device, "device");
    made.device = {where.type, where.id};
    made.ndim = given.n_dims;
    made.dtype = type;
    std::copy_n(given.dims, given.n_dims, owned->shape);
    int64_t dense = 1;
    for (int32_t d = given.n_dims; d-- > 0;) {
      owned->strides[d] = dense;
      if (__builtin_mul_overflow(dense, given.dims[d], &dense)) dense = 0;  // overflow is possible in an empty tensor
    }
    made.shape = owned->shape;
    made.strides = owned->strides;
    owned->managed.version = {kMajor, 0};
    owned->managed.manager_ctx = owned.get();
    owned->managed.deleter = release;
    owned->free_user_data = free_user_data;
    owned->user_data = user_data;
    *out = &owned.release()->managed;
  });
}

}  // extern "C"
