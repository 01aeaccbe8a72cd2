/* unit/test_dlpack.c: tensors of other libraries, in and out. */
#include <gsel/dlpack.h>
#include <stdlib.h>

#include "support/check.h"

/* As dlpack.h 1.0 has them. */
typedef struct {
  void* data;
  struct {
    int32_t device_type, device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

static gsel_error* err;

static gsel_status take(const DLTensor* tensor, gsel_tensor* out, gsel_dlpack_device* device) {
  const DLManagedTensor managed = {.dl_tensor = *tensor};
  return gsel_tensor_from_dlpack(&managed, out, device, &err);
}

static DLTensor tensor_of(void* data, int32_t ndim, int64_t* shape, int64_t* strides) {
  DLTensor t = {0};
  t.data = data;
  t.device.device_type = 2;
  t.device.device_id = 3;
  t.ndim = ndim;
  t.dtype.code = 2;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  t.strides = strides;
  return t;
}

static void test_a_dense_tensor_is_taken_as_it_is(void** state) {
  (void)state;
  float data[7];
  int64_t shape[] = {2, 1, 3}, dense[] = {3, 77, 1};
  DLTensor given = tensor_of(data, 3, shape, NULL);
  gsel_tensor out;
  gsel_dlpack_device device;
  for (int with_strides = 0; with_strides < 2; ++with_strides) {
    given.strides = with_strides ? dense : NULL; /* a dimension of size 1 may have any */
    given.byte_offset = with_strides ? 4 : 0;
    check_ok(take(&given, &out, &device), err);
    assert_ptr_equal(out.data, data + with_strides);
    assert_int_equal(out.n_elems, 6);
    assert_int_equal(out.n_dims, 3);
    assert_int_equal(out.dims[2], 3);
    assert_int_equal(out.dtype, GSEL_F32);
    assert_int_equal(device.type, 2);
    assert_int_equal(device.id, 3);
  }
  DLTensor scalar = tensor_of(data, 0, NULL, NULL);
  check_ok(take(&scalar, &out, NULL), err);
  assert_int_equal(out.n_elems, 1);
  int64_t none[] = {0, 5};
  DLTensor empty = tensor_of(NULL, 2, none, NULL);
  check_ok(take(&empty, &out, NULL), err);
  assert_int_equal(out.n_elems, 0);
}

static void test_what_gsel_cannot_take_is_said(void** state) {
  (void)state;
  float data[6];
  int64_t shape[] = {2, 3}, transposed[] = {1, 2}, many[] = {1, 1, 1, 1, 1, 1, 1}, huge[] = {INT64_MAX, 2},
          negative[] = {-1, 2};
  gsel_tensor out = {0};
  DLTensor given = tensor_of(data, 2, shape, transposed);
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG,
              "stride 2 in dimension 1, and row-major without gaps is 1; make it contiguous");
  given = tensor_of(data, 7, many, NULL);
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "7 dimensions; gsel takes 0 to 6");
  given = tensor_of(data, 2, huge, NULL);
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "dimension 1");
  given = tensor_of(data, 2, negative, NULL);
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "dimension 0");
  given = tensor_of(data, 2, shape, NULL);
  given.dtype.lanes = 4;
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "32 bits and 4 lanes");
  given = tensor_of(data, 2, shape, NULL);
  given.dtype.code = 5;
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "code 5");
  given = tensor_of(NULL, 2, shape, NULL);
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "data of the DLPack tensor is NULL");
  given = tensor_of(data, 2, shape, NULL);
  given.byte_offset = 2;
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "with byte_offset 2 is not aligned to elements of 4 bytes");
  given.byte_offset = UINT64_MAX - 3;
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "byte_offset 18446744073709551612");
  int64_t many_bytes[] = {INT64_MAX / 2, 1};
  given = tensor_of(data, 2, many_bytes, NULL);
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "of 4 bytes do not fit in memory");
  given = tensor_of(data, 2, NULL, NULL);
  check_fails(take(&given, &out, NULL), err, GSEL_ERR_ARG, "shape of the DLPack tensor");
  check_fails(gsel_tensor_from_dlpack(NULL, &out, NULL, &err), err, GSEL_ERR_ARG, "given");
  assert_null(out.data);
}

static void count(void* user_data) {
  ++*(int*)user_data;
}

static void test_a_tensor_goes_out_and_comes_back(void** state) {
  (void)state;
  int freed = 0;
  double data[32];
  const gsel_dlpack_device device = {10, 1};
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_BOOL; ++dtype) {
    gsel_tensor given = {.data = data, .n_elems = 6, .dims = {2, 3}, .n_dims = 2, .dtype = dtype}, back;
    DLManagedTensorVersioned* managed;
    gsel_dlpack_device where;
    check_ok(gsel_tensor_to_dlpack(&given, &device, count, &freed, &managed, &err), err);
    assert_int_equal(managed->version.major, 1);
    assert_int_equal(managed->flags, 0);
    assert_int_equal(managed->dl_tensor.strides[0], 3);
    assert_int_equal(managed->dl_tensor.strides[1], 1);
    assert_int_equal(managed->dl_tensor.dtype.bits, 8 * gsel_dtype_bytes(dtype));
    check_ok(gsel_tensor_from_dlpack_versioned(managed, &back, &where, &err), err);
    assert_memory_equal(&back, &given, sizeof given);
    assert_int_equal(where.type, 10);
    assert_int_equal(freed, dtype - GSEL_I8);
    managed->version.major = 2;
    check_fails(gsel_tensor_from_dlpack_versioned(managed, &back, NULL, &err), err, GSEL_ERR_VERSION,
                "2.0; expected 1.x");
    managed->deleter(managed);
    assert_int_equal(freed, dtype - GSEL_I8 + 1);
  }
  gsel_tensor wrong = {.data = data, .n_elems = 1, .n_dims = 0, .dtype = 99};
  DLManagedTensorVersioned* managed;
  check_fails(gsel_tensor_to_dlpack(&wrong, &device, count, &freed, &managed, &err), err, GSEL_ERR_ARG, "dtype 99");
  assert_null(managed);
  const struct {
    gsel_tensor tensor;
    const char* says;
  } refused[] = {
      {{data, 6, {-2, -3}, 2, GSEL_F32}, "dimension 0 of the tensor has -2 elements"},
      {{data, 6, {INT64_MAX, 6}, 2, GSEL_F32}, "dimension 1 of the tensor"},
      {{data, INT64_MAX / 2, {INT64_MAX / 2}, 1, GSEL_F32}, "elements of 4 bytes do not fit in memory"},
      {{NULL, 6, {2, 3}, 2, GSEL_F32}, "data of the tensor is NULL and it has 6 elements"},
      {{data, 5, {2, 3}, 2, GSEL_F32}, "n_elems of the tensor is 5, and its dimensions have 6"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; ++i) {
    check_fails(gsel_tensor_to_dlpack(&refused[i].tensor, &device, count, &freed, &managed, &err), err, GSEL_ERR_ARG,
                refused[i].says);
    assert_null(managed);
  }
  const gsel_tensor empty = {NULL, 0, {0, INT64_MAX, INT64_MAX}, 3, GSEL_F32}; /* no stride matters */
  check_ok(gsel_tensor_to_dlpack(&empty, &device, NULL, NULL, &managed, &err), err);
  managed->deleter(managed);
  wrong.n_dims = 7;
  check_fails(gsel_tensor_to_dlpack(&wrong, &device, NULL, NULL, &managed, &err), err, GSEL_ERR_ARG, "7 dimensions");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_dense_tensor_is_taken_as_it_is),
      cmocka_unit_test(test_what_gsel_cannot_take_is_said),
      cmocka_unit_test(test_a_tensor_goes_out_and_comes_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
