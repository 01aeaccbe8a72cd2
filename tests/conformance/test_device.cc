// conformance/test_device.cc: what any device must do, asked through its table only: memory, order, kernels. Without an
// argument of the host; `cuda` and `rocm` try these plugins on the drivers of tests/fake/cuda, in each of their orders;
// `gpu` and `rocm_gpu` try them on a GPU, if there is one.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/foreign.h"
#include "device/device.h"
#include "device/host/table.h"
#include "support/check.h"
#include "support/fake_cuda.h"
#include "support/reduce_trial.h"
#include "support/share.h"

// Too much memory is asked for on purpose; sanitizers shall answer as the system does.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

const gsel_device_v1* table;
void* ctx;

template <class T>
T* on_device(const std::vector<T>& values) {
  void* memory = nullptr;
  gsel_error* err = nullptr;
  check_ok(table->alloc(ctx, GSEL_MEMORY_DEVICE, values.size() * sizeof(T), &memory, &err), err);
  check_ok(table->copy(ctx, memory, values.data(), values.size() * sizeof(T), GSEL_COPY_TO_DEVICE, nullptr, &err), err);
  check_ok(table->stream_wait(ctx, nullptr, &err), err);
  return static_cast<T*>(memory);
}

template <class T>
std::vector<T> on_host(const T* memory, size_t count) {
  std::vector<T> values(count);
  gsel_error* err = nullptr;
  check_ok(table->copy(ctx, values.data(), memory, count * sizeof(T), GSEL_COPY_TO_HOST, nullptr, &err), err);
  check_ok(table->stream_wait(ctx, nullptr, &err), err);
  return values;
}

gsel_device_options options_of(int32_t ordinal) {
  gsel_device_options options{};
  options.struct_size = sizeof options;
  options.ordinal = ordinal;
  return options;
}

int set_up(void**) {
  gsel_error* err = nullptr;
  const gsel_device_options options = options_of(0);
  return table->open(&gsel::host_services(), &options, &ctx, &err);
}

int tear_down(void**) {
  table->close(ctx);
  return 0;
}

void test_the_table_is_complete(void**) {
  assert_true(table->struct_size == sizeof *table);
  const auto* entries = reinterpret_cast<void* const*>(&table->open);
  const auto* end = reinterpret_cast<void* const*>(&table->enter);  // this and leave may be NULL
  for (; entries != end; ++entries) assert_non_null(*entries);
}

void test_a_device_that_is_not_there_is_refused(void**) {
  gsel_error* err = nullptr;
  void* other = nullptr;
  gsel_device_options options = options_of(4711);
  check_fails(table->open(&gsel::host_services(), &options, &other, &err), err, GSEL_ERR_ARG, "4711");
  options = options_of(0);
  options.uuid = GSEL_STR("GPU-4711");
  check_fails(table->open(&gsel::host_services(), &options, &other, &err), err, GSEL_ERR_NO_DEVICES, "GPU-4711");
  options = options_of(0);
  options.flags = 2;
  check_fails(table->open(&gsel::host_services(), &options, &other, &err), err, GSEL_ERR_ARG, "flags");
}

void test_memory_is_aligned_and_too_much_is_an_error(void**) {
  gsel_error* err = nullptr;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{63}, uint64_t{100000}}) {
    void* memory = nullptr;
    check_ok(table->alloc(ctx, GSEL_MEMORY_DEVICE, bytes, &memory, &err), err);
    assert_int_equal(reinterpret_cast<uintptr_t>(memory) % 64, 0);
    table->free(ctx, memory);
  }
  table->free(ctx, nullptr);
  void* memory = &err;
  check_fails(table->alloc(ctx, GSEL_MEMORY_DEVICE, uint64_t{1} << 62, &memory, &err), err, GSEL_ERR_NOMEM,
              "4611686018427387904 bytes");
  assert_null(memory);
  check_fails(table->alloc(ctx, GSEL_MEMORY_DEVICE, UINT64_MAX, &memory, &err), err, GSEL_ERR_NOMEM,
              "18446744073709551615 bytes");
}

void test_a_device_says_what_it_is_and_whose_memory_is_whose(void**) {
  gsel_error* err = nullptr;
  gsel_device_description device{};
  device.struct_size = sizeof device;
  check_ok(table->describe(ctx, &device, &err), err);
  assert_true(device.name.data && *device.name.data);
  assert_true(device.memory_bytes >= device.free_bytes && device.free_bytes > 0);
  gsel_memory_info info{};
  info.struct_size = sizeof info;
  int on_stack = 0;
  check_ok(table->memory_of(ctx, &on_stack, &info, &err), err);
  assert_int_equal(info.kind, GSEL_MEMORY_HOST);
  assert_int_equal(info.ordinal, -1);
  void* memory = nullptr;
  check_fails(table->alloc(ctx, GSEL_MEMORY_HOST, 1, &memory, &err), err, GSEL_ERR_ARG, "memory of kind 3");
  check_ok(table->alloc(ctx, GSEL_MEMORY_PINNED, 100, &memory, &err), err);
  std::memset(memory, 1, 100);  // the host reaches it
  table->free(ctx, memory);
}

void test_copies_and_zeros_arrive(void**) {
  gsel_error* err = nullptr;
  std::vector<int32_t> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i);
  int32_t *a = on_device(values), *b = on_device(std::vector<int32_t>(1000));
  check_ok(table->copy(ctx, b, a, 4000, GSEL_COPY_ON_DEVICE, nullptr, &err), err);
  assert_true(on_host(b, 1000) == values);
  check_ok(table->zero(ctx, b + 1, 3992, nullptr, &err), err);
  const auto seen = on_host(b, 1000);
  assert_int_equal(seen[0], 0);
  assert_int_equal(seen[1], 0);
  assert_int_equal(seen[999], 999);
  table->free(ctx, a);
  table->free(ctx, b);
}

void test_a_stream_keeps_order_and_events_tell_time_across_streams(void**) {
  gsel_error* err = nullptr;
  gsel_stream *first = nullptr, *second = nullptr;
  gsel_event *start = nullptr, *middle = nullptr, *end = nullptr;
  check_ok(table->stream_create(ctx, 0, &first, &err), err);
  check_ok(table->stream_create(ctx, 0, &second, &err), err);
  for (gsel_event** event : {&start, &middle, &end})
    check_ok(table->event_create(ctx, GSEL_EVENT_TIMING, event, &err), err);
  check_ok(table->event_wait(ctx, start, &err), err);  // never recorded: nothing to wait for
  double* x = on_device(std::vector<double>(5000, 1.0));
  double* y = on_device(std::vector<double>(5000, 0.0));
  for (int round = 0; round < 20; ++round) {
    check_ok(table->event_record(ctx, start, first, &err), err);
    for (int i = 0; i < 10; ++i) check_ok(table->add(ctx, x, x, GSEL_F64, 5000, first, &err), err);
    check_ok(table->scale(ctx, x, GSEL_F64, 0.0009765625, 5000, first, &err), err);
    check_ok(table->event_record(ctx, middle, first, &err), err);
    check_ok(table->stream_wait_event(ctx, second, middle, &err), err);
    check_ok(table->add(ctx, y, x, GSEL_F64, 5000, second, &err), err);
    check_ok(table->event_record(ctx, end, second, &err), err);
    check_ok(table->stream_wait_event(ctx, first, end, &err), err);
  }
  check_ok(table->event_wait(ctx, end, &err), err);
  check_ok(table->stream_wait(ctx, first, &err), err);
  assert_true(table->event_seconds(ctx, start, middle) >= 0);
  assert_true(table->event_seconds(ctx, middle, end) >= 0);
  assert_true(on_host(x, 5000) == std::vector<double>(5000, 1.0));
  assert_true(on_host(y, 5000) == std::vector<double>(5000, 20.0));
  for (gsel_event* event : {start, middle, end}) table->event_free(ctx, event);
  table->stream_free(ctx, first);
  table->stream_free(ctx, second);
  table->free(ctx, x);
  table->free(ctx, y);
}

// Looked at without blocking; done once what stood before the record has ended.
void test_an_event_tells_whether_it_was_reached(void**) {
  gsel_error* err = nullptr;
  gsel_stream* stream = nullptr;
  gsel_event* event = nullptr;
  check_ok(table->stream_create(ctx, GSEL_STREAM_HIGH_PRIORITY, &stream, &err), err);
  check_ok(table->event_create(ctx, 0, &event, &err), err);
  int32_t done = 0;
  check_ok(table->event_done(ctx, event, &done, &err), err);
  assert_int_equal(done, 1);  // never recorded
  float* x = on_device(std::vector<float>(1 << 20, 1.0f));
  for (int i = 0; i < 20; ++i) check_ok(table->add(ctx, x, x, GSEL_F32, 1 << 20, stream, &err), err);
  check_ok(table->event_record(ctx, event, stream, &err), err);
  do check_ok(table->event_done(ctx, event, &done, &err), err);
  while (!done);
  assert_true(on_host(x, 1)[0] == 0x1p20f);
  gsel_stream* other = nullptr;
  check_fails(table->stream_create(ctx, 2, &other, &err), err, GSEL_ERR_ARG, "0x2");
  assert_null(other);
  table->stream_free(ctx, stream);
  table->event_free(ctx, event);
  table->free(ctx, x);
}

// Handles of a device that has a native form come back as they were given; the host has none.
void test_streams_are_imported_or_refused(void**) {
  gsel_error* err = nullptr;
  gsel_stream *own = nullptr, *imported = nullptr;
  gsel_event* event = nullptr;
  check_ok(table->stream_create(ctx, 0, &own, &err), err);
  if (void* native = table->stream_native(ctx, own)) {
    check_ok(table->stream_import(ctx, native, &imported, &err), err);
    assert_ptr_equal(table->stream_native(ctx, imported), native);
    table->stream_free(ctx, imported);
    gsel_event* recorded = nullptr;
    check_ok(table->event_create(ctx, 0, &recorded, &err), err);
    check_ok(table->event_import(ctx, table->event_native(ctx, recorded), &event, &err), err);
    check_ok(table->event_record(ctx, recorded, own, &err), err);
    check_ok(table->event_wait(ctx, event, &err), err);  // the same event by its other handle
    table->event_free(ctx, event);
    table->event_free(ctx, recorded);
  } else {
    check_fails(table->stream_import(ctx, &native, &imported, &err), err, GSEL_ERR_UNSUPPORTED, "stream");
    check_fails(table->event_import(ctx, &native, &event, &err), err, GSEL_ERR_UNSUPPORTED, "event");
  }
  table->stream_free(ctx, own);
}

void test_a_cast_rounds_to_nearest_even(void**) {
  gsel_error* err = nullptr;
  const float inf = INFINITY;
  const std::vector<float> given{0,     -0.0f, 1,       1.00390625f, 1.01171875f, 65504,
                                 65520, -inf,  3.4e38f, 6e-8f,       2e-8f,       0.1f};
  const std::vector<uint16_t> brain{0,      0x8000, 0x3f80, 0x3f80, 0x3f82, 0x4780,
                                    0x4780, 0xff80, 0x7f80, 0x3381, 0x32ac, 0x3dcd};
  const std::vector<uint16_t> half{0, 0x8000, 0x3c00, 0x3c04, 0x3c0c, 0x7bff, 0x7c00, 0xfc00, 0x7c00, 1, 0, 0x2e66};
  float* from = on_device(given);
  uint16_t* to = on_device(std::vector<uint16_t>(given.size()));
  check_ok(table->cast(ctx, to, GSEL_BF16, from, GSEL_F32, given.size(), nullptr, &err), err);
  assert_true(on_host(to, given.size()) == brain);
  check_ok(table->cast(ctx, to, GSEL_F16, from, GSEL_F32, given.size(), nullptr, &err), err);
  assert_true(on_host(to, given.size()) == half);
  check_ok(table->cast(ctx, from, GSEL_F32, to, GSEL_F16, given.size(), nullptr, &err), err);
  const auto back = on_host(from, given.size());
  assert_true(back[5] == 65504 && back[6] == inf && back[9] == 0x1p-24f && std::signbit(back[1]));
  table->free(ctx, from);
  table->free(ctx, to);
}

// Every bit pattern of the 16-bit types survives the way to f32 and back.
void test_sixteen_bit_floats_survive_a_round_trip(void**) {
  gsel_error* err = nullptr;
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  uint16_t *from = on_device(bits), *to = on_device(bits);
  float* wide = on_device(std::vector<float>(65536));
  for (const gsel_dtype dtype : {GSEL_F16, GSEL_BF16}) {
    check_ok(table->zero(ctx, to, 131072, nullptr, &err), err);
    check_ok(table->cast(ctx, wide, GSEL_F32, from, dtype, 65536, nullptr, &err), err);
    check_ok(table->cast(ctx, to, dtype, wide, GSEL_F32, 65536, nullptr, &err), err);
    const auto back = on_host(to, 65536);
    const auto values = on_host(wide, 65536);
    for (size_t i = 0; i < bits.size(); ++i) assert_true(back[i] == bits[i] || std::isnan(values[i]));
  }
  table->free(ctx, from);
  table->free(ctx, to);
  table->free(ctx, wide);
}

void test_kernels_give_the_exact_numbers(void**) {
  gsel_error* err = nullptr;
  std::vector<float> values(1003);
  double expected = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 17) - 8;
    expected += static_cast<double>(values[i]) * values[i];
  }
  float* x = on_device(values);
  double sum = 0;
  check_ok(table->sum_squares(ctx, x, GSEL_F32, values.size(), &sum, nullptr, &err), err);
  check_ok(table->stream_wait(ctx, nullptr, &err), err);
  assert_true(sum == expected);
  check_ok(table->sum_squares(ctx, x, GSEL_F32, 0, &sum, nullptr, &err), err);
  check_ok(table->stream_wait(ctx, nullptr, &err), err);
  assert_true(sum == 0);
  check_fails(table->add(ctx, x, x, GSEL_I8, 1, nullptr, &err), err, GSEL_ERR_UNSUPPORTED, "i8");
  for (const gsel_dtype dtype : {GSEL_F16, GSEL_BF16}) {
    uint16_t* narrow = on_device(std::vector<uint16_t>(9));
    check_ok(table->cast(ctx, narrow, dtype, x, GSEL_F32, 9, nullptr, &err), err);
    check_ok(table->add(ctx, narrow, narrow, dtype, 9, nullptr, &err), err);
    check_ok(table->cast(ctx, x, GSEL_F32, narrow, dtype, 9, nullptr, &err), err);
    const std::vector<float> got = on_host(x, 9);
    for (size_t i = 0; i < got.size(); ++i) assert_true(got[i] == 2 * values[i]);
    check_ok(table->scale(ctx, x, GSEL_F32, 0.5, 9, nullptr, &err), err);
    table->free(ctx, narrow);
  }
  for (const gsel_dtype dtype : {GSEL_F8E4M3, GSEL_F8E5M2}) {
    uint8_t* narrow = on_device(std::vector<uint8_t>{0x3c, 0xbc, 0x00, 0x40});
    check_ok(table->add(ctx, narrow, narrow, dtype, 4, nullptr, &err), err);
    check_ok(table->scale(ctx, narrow, dtype, 0.5, 4, nullptr, &err), err);
    assert_true(on_host(narrow, 4) == std::vector<uint8_t>({0x3c, 0xbc, 0x00, 0x40}));
    table->free(ctx, narrow);
  }
  check_fails(table->cast(ctx, x, GSEL_F32, x, GSEL_F8E4M3, 1, nullptr, &err), err, GSEL_ERR_UNSUPPORTED, "f8e4m3");
  table->free(ctx, x);
}

// The order that gsel/device.h states, by hand.
double added_in_order(std::vector<double> x) {
  do {
    std::vector<double> sums;
    for (size_t begin = 0; begin < x.size(); begin += 4096) {
      std::vector<double> lanes(256);
      for (size_t i = begin; i < std::min(x.size(), begin + 4096); ++i) lanes[(i - begin) % 256] += x[i];
      for (size_t half = 128; half > 0; half /= 2)
        for (size_t t = 0; t < half; ++t) lanes[t] += lanes[t + half];
      sums.push_back(lanes[0]);
    }
    x = sums;
  } while (x.size() > 1);
  return x[0];
}

double squares_in_order(const std::vector<float>& x) {
  std::vector<double> squares;
  for (const float v : x) squares.push_back(static_cast<double>(v) * static_cast<double>(v));
  return added_in_order(squares);
}

void test_squares_are_added_in_one_order(void**) {
  gsel_error* err = nullptr;
  for (const size_t count :
       {size_t{1}, size_t{255}, size_t{257}, size_t{4096}, size_t{4097}, size_t{100001}, size_t{4096 * 4096 + 4097}}) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = std::sin(static_cast<float>(i)) * std::exp2f(static_cast<float>(i % 40) - 20);
    float* x = on_device(values);
    double sum = 0;
    check_ok(table->sum_squares(ctx, x, GSEL_F32, count, &sum, nullptr, &err), err);
    check_ok(table->stream_wait(ctx, nullptr, &err), err);
    assert_true(sum == squares_in_order(values));
    values.back() = INFINITY;
    check_ok(table->copy(ctx, x, values.data(), count * sizeof(float), GSEL_COPY_TO_DEVICE, nullptr, &err), err);
    check_ok(table->sum_squares(ctx, x, GSEL_F32, count, &sum, nullptr, &err), err);
    check_ok(table->stream_wait(ctx, nullptr, &err), err);
    assert_false(std::isfinite(sum));
    table->free(ctx, x);
  }
}

gsel_optimizer_step step_on(int32_t kind, float* param, const float* gradient, float* s0, float* s1, uint64_t count) {
  gsel_optimizer_step step{};
  step.struct_size = sizeof step;
  step.kind = kind;
  step.param = param;
  step.gradient = gradient;
  step.state0 = s0;
  step.state1 = s1;
  step.count = count;
  step.t = 1;
  step.gradient_scale = 1;
  step.learning_rate = 0.125;
  return step;
}

// Of 16 bits in f32, rounded once more to nearest even; what is too large becomes infinite and stays so.
void test_a_scale_of_16_bits_rounds_to_nearest_even(void**) {
  gsel_error* err = nullptr;
  const std::vector<float> given{1, -3, 0, 2049, 1027, 65504, 0x1p-24f, 3 * 0x1p-24f, 0x1p127f};
  const std::vector<float> half{1.5f, -4.5f, 0, 3072, 1540, INFINITY, 2 * 0x1p-24f, 4 * 0x1p-24f, INFINITY};
  const std::vector<float> brain{1.5f, -4.5f, 0, 3072, 1536, 98304, 1.5f * 0x1p-24f, 4.5f * 0x1p-24f, INFINITY};
  for (const gsel_dtype dtype : {GSEL_F16, GSEL_BF16}) {
    float* x = on_device(given);
    uint16_t* narrow = on_device(std::vector<uint16_t>(given.size()));
    check_ok(table->cast(ctx, narrow, dtype, x, GSEL_F32, given.size(), nullptr, &err), err);
    check_ok(table->scale(ctx, narrow, dtype, 1.5, given.size(), nullptr, &err), err);
    if (dtype == GSEL_BF16) check_ok(table->scale(ctx, narrow + 8, dtype, 2, 1, nullptr, &err), err);
    check_ok(table->cast(ctx, x, GSEL_F32, narrow, dtype, given.size(), nullptr, &err), err);
    assert_true(on_host(x, given.size()) == (dtype == GSEL_F16 ? half : brain));
    table->free(ctx, narrow);
    table->free(ctx, x);
  }
}

void test_optimizer_steps_follow_their_formulas(void**) {
  gsel_error* err = nullptr;
  float* param = on_device(std::vector<float>{1, 1, 1});
  float* gradient = on_device(std::vector<float>{4, 0, -2});
  float* s0 = on_device(std::vector<float>{0, 0, 0});
  float* s1 = on_device(std::vector<float>{0, 0, 0});
  auto step = step_on(GSEL_OPTIMIZER_SIGN_SGD, param, gradient, nullptr, nullptr, 3);
  check_ok(table->optimizer_step(ctx, &step, nullptr, &err), err);
  assert_true(on_host(param, 3) == std::vector<float>({0.875f, 1, 1.125f}));
  step = step_on(GSEL_OPTIMIZER_SGD, param, gradient, nullptr, nullptr, 3);
  step.gradient_scale = 0.5;
  check_ok(table->optimizer_step(ctx, &step, nullptr, &err), err);
  assert_true(on_host(param, 3) == std::vector<float>({0.625f, 1, 1.25f}));
  step.state0 = s0;
  step.momentum = 0.5;
  for (int i = 0; i < 2; ++i) check_ok(table->optimizer_step(ctx, &step, nullptr, &err), err);
  assert_true(on_host(s0, 3) == std::vector<float>({3, 0, -1.5f}));
  assert_true(on_host(param, 3) == std::vector<float>({0, 1, 1.5625f}));
  step.state0 = nullptr;
  check_fails(table->optimizer_step(ctx, &step, nullptr, &err), err, GSEL_ERR_ARG, "state0");
  step.kind = 77;
  check_fails(table->optimizer_step(ctx, &step, nullptr, &err), err, GSEL_ERR_UNSUPPORTED, "77");
  check_ok(table->zero(ctx, s0, 12, nullptr, &err), err);
  step = step_on(GSEL_OPTIMIZER_ADAMW, param, gradient, s0, s1, 3);
  step.beta1 = 0.9, step.beta2 = 0.999, step.epsilon = 1e-8, step.weight_decay = 0.01;
  double p = 0, m = 0, v = 0;
  for (step.t = 1; step.t <= 5; ++step.t) {
    check_ok(table->optimizer_step(ctx, &step, nullptr, &err), err);
    m = 0.9 * m + 0.1 * 4, v = 0.999 * v + 0.001 * 16;
    const double t = static_cast<double>(step.t);
    p -= 0.125 * (m / (1 - std::pow(0.9, t)) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8) + 0.01 * p);
    assert_true(std::fabs(on_host(param, 1)[0] - p) < 1e-5);
  }
  step.t = 0;
  check_fails(table->optimizer_step(ctx, &step, nullptr, &err), err, GSEL_ERR_ARG, "counts from 1");
  for (float* memory : {param, gradient, s0, s1}) table->free(ctx, memory);
}

// Beside the parameter of f32 its value in 16 bits; and state of 8 bits, in which a block's largest moment is exact.
void test_optimizer_steps_round_and_quantise(void**) {
  gsel_error* err = nullptr;
  float* param = on_device(std::vector<float>(300, 1.0f));
  float* gradient = on_device(std::vector<float>(300, 0.5f));
  uint8_t* codes = on_device(std::vector<uint8_t>(600));
  float* scales = on_device(std::vector<float>(4));
  uint16_t* rounded = on_device(std::vector<uint16_t>(300));
  auto step = step_on(GSEL_OPTIMIZER_ADAMW_8BIT, param, gradient, reinterpret_cast<float*>(codes),
                      reinterpret_cast<float*>(codes + 300), 300);
  step.beta1 = 0.5, step.beta2 = 0.75, step.epsilon = 1e-8;
  check_fails(table->optimizer_step(ctx, &step, nullptr, &err), err, GSEL_ERR_ARG, "scale0");
  step.scale0 = scales, step.scale1 = scales + 2;
  step.param16 = rounded, step.param16_dtype = GSEL_F32;
  check_fails(table->optimizer_step(ctx, &step, nullptr, &err), err, GSEL_ERR_UNSUPPORTED, "param16_dtype is 11");
  step.param16_dtype = GSEL_BF16;
  check_ok(table->optimizer_step(ctx, &step, nullptr, &err), err);
  for (const float p : on_host(param, 300)) assert_true(std::fabs(p - 0.875f) < 1e-6f);
  for (const uint16_t bits : on_host(rounded, 300)) assert_int_equal(bits, 0x3f60);
  assert_true(on_host(scales, 4) == std::vector<float>({0.25f, 0.25f, 0.0625f, 0.0625f}));
  step.t = 2;
  check_ok(table->optimizer_step(ctx, &step, nullptr, &err), err);
  for (const float p : on_host(param, 300)) assert_true(std::fabs(p - 0.75f) < 1e-6f);
  for (void* memory : {static_cast<void*>(param), static_cast<void*>(gradient), static_cast<void*>(codes),
                       static_cast<void*>(scales), static_cast<void*>(rounded)})
    table->free(ctx, memory);
}

struct ByteStates {
  std::vector<float> param;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

// Two steps of 1000 elements, whose largest stand at other places in each block of state.
ByteStates after_steps(const gsel_device_v1& d, void* c, const std::vector<float>& gradient) {
  const uint64_t n = gradient.size(), blocks = (n + 255) / 256;
  ByteStates out{std::vector<float>(n, 1.0f), std::vector<uint8_t>(2 * n), std::vector<float>(2 * blocks)};
  gsel_error* err = nullptr;
  std::vector<void*> memory;
  const auto put = [&](const auto& values) {
    void* at = nullptr;
    const uint64_t bytes = values.size() * sizeof values[0];
    check_ok(d.alloc(c, GSEL_MEMORY_DEVICE, bytes, &at, &err), err);
    check_ok(d.copy(c, at, values.data(), bytes, GSEL_COPY_TO_DEVICE, nullptr, &err), err);
    memory.push_back(at);
    return at;
  };
  const auto get = [&](auto& values, const void* from) {
    check_ok(d.copy(c, values.data(), from, values.size() * sizeof values[0], GSEL_COPY_TO_HOST, nullptr, &err), err);
  };
  auto* param = static_cast<float*>(put(out.param));
  auto* codes = static_cast<uint8_t*>(put(out.codes));
  auto* scales = static_cast<float*>(put(out.scales));
  auto step = step_on(GSEL_OPTIMIZER_ADAMW_8BIT, param, static_cast<const float*>(put(gradient)),
                      reinterpret_cast<float*>(codes), reinterpret_cast<float*>(codes + n), n);
  step.beta1 = 0.9, step.beta2 = 0.99, step.epsilon = 1e-8;
  step.scale0 = scales, step.scale1 = scales + blocks;
  for (step.t = 1; step.t <= 2; ++step.t) check_ok(d.optimizer_step(c, &step, nullptr, &err), err);
  get(out.param, param), get(out.codes, codes), get(out.scales, scales);
  check_ok(d.stream_wait(c, nullptr, &err), err);
  for (void* at : memory) d.free(c, at);
  return out;
}

// So every thread of a block has seen what the others found.
void test_state_of_8_bits_is_that_of_the_host(void**) {
  std::vector<float> gradient;
  for (int i = 0; i < 1000; ++i)
    gradient.push_back(i % 256 == 37 + i / 256 * 71 ? -8.0f : static_cast<float>(i * 37 % 101 - 50) / 16);
  const gsel_device_v1& host = gsel::host_device_table();
  gsel_device_options options{};
  options.struct_size = sizeof options;
  void* host_ctx = nullptr;
  gsel_error* err = nullptr;
  check_ok(host.open(&gsel::host_services(), &options, &host_ctx, &err), err);
  const ByteStates expected = after_steps(host, host_ctx, gradient), got = after_steps(*table, ctx, gradient);
  host.close(host_ctx);
  assert_true(got.scales == expected.scales);
  assert_true(got.codes == expected.codes);
  assert_true(got.param == expected.param);
}

struct LowRankShape {
  int64_t rows, cols, rank;
};

// Matrix, left, right and error after two rounds of a reduction over three ranks, one after the other.
std::vector<float> after_low_rank(const gsel_device_v1& d, void* c, const LowRankShape& s,
                                  const std::vector<float>& gradient) {
  const auto elems = static_cast<size_t>(s.rows * s.cols), lefts = static_cast<size_t>(s.rows * s.rank),
             rights = static_cast<size_t>(s.cols * s.rank), all = 2 * elems + lefts + rights;
  gsel_error* err = nullptr;
  void* at = nullptr;
  check_ok(d.alloc(c, GSEL_MEMORY_DEVICE, all * sizeof(float), &at, &err), err);
  check_ok(d.zero(c, at, all * sizeof(float), nullptr, &err), err);
  gsel_low_rank_step step{};
  step.struct_size = sizeof step;
  step.rows = s.rows, step.cols = s.cols, step.rank = s.rank;
  step.matrix = static_cast<float*>(at);
  step.left = step.matrix + elems;
  step.right = step.left + lefts;
  step.error = step.right + rights;
  step.old_error = step.error;
  step.key = 0x1234567890abcdef;
  step.scale = 0.75;
  step.ranks = 3;
  step.kind = GSEL_LOW_RANK_START;
  check_ok(d.low_rank_step(c, &step, nullptr, &err), err);
  for (int round = 0; round < 2; ++round) {
    check_ok(d.copy(c, step.matrix, gradient.data(), elems * sizeof(float), GSEL_COPY_TO_DEVICE, nullptr, &err), err);
    for (const int32_t kind : {GSEL_LOW_RANK_LEFT, GSEL_LOW_RANK_RIGHT, GSEL_LOW_RANK_FINISH}) {
      step.kind = kind;
      check_ok(d.low_rank_step(c, &step, nullptr, &err), err);
    }
  }
  std::vector<float> out(all);
  check_ok(d.copy(c, out.data(), at, all * sizeof(float), GSEL_COPY_TO_HOST, nullptr, &err), err);
  check_ok(d.stream_wait(c, nullptr, &err), err);
  d.free(c, at);
  return out;
}

// Numbers of any size, nothing but zeros, tiny ones, equal rows, and one that is not finite.
float low_rank_element(int kind, int64_t i, int64_t j) {
  const auto some = static_cast<float>((i * 37 + j * 101 + i * j) % 199 - 99) / 16;
  const auto of_column = static_cast<float>(j % 7) - 3;
  return kind == 0          ? some
         : kind == 1        ? 0
         : kind == 2        ? 1e-25f * some
         : kind == 3        ? of_column
         : i == 2 && j == 1 ? INFINITY
                            : some;
}

void test_low_rank_steps_give_the_bits_of_the_host(void**) {
  const gsel_device_v1& host = gsel::host_device_table();
  gsel_device_options options{};
  options.struct_size = sizeof options;
  void* host_ctx = nullptr;
  gsel_error* err = nullptr;
  check_ok(host.open(&gsel::host_services(), &options, &host_ctx, &err), err);
  for (const LowRankShape& s : {LowRankShape{8, 6, 1}, {40, 33, 4}, {300, 17, 3}, {5, 700, 2}})
    for (int kind = 0; kind < 5; ++kind) {
      std::vector<float> gradient;
      for (int64_t i = 0; i < s.rows; ++i)
        for (int64_t j = 0; j < s.cols; ++j) gradient.push_back(low_rank_element(kind, i, j));
      const auto expected = after_low_rank(host, host_ctx, s, gradient), got = after_low_rank(*table, ctx, s, gradient);
      for (size_t i = 0; i < got.size(); ++i)
        if (std::memcmp(&got[i], &expected[i], sizeof got[i]) != 0)
          fail_msg("%d x %d of rank %d, kind %d: number %zu is %.9g, of the host %.9g", static_cast<int>(s.rows),
                   static_cast<int>(s.cols), static_cast<int>(s.rank), kind, i, got[i], expected[i]);
      assert_true(std::isnan(got[0]) == (kind == 4));
    }
  host.close(host_ctx);
}

void test_low_rank_steps_need_their_arrays(void**) {
  gsel_error* err = nullptr;
  float number = 0;
  gsel_low_rank_step step{};
  step.struct_size = sizeof step;
  check_fails(table->low_rank_step(ctx, &step, nullptr, &err), err, GSEL_ERR_UNSUPPORTED, "low-rank step 0 is unknown");
  step.kind = GSEL_LOW_RANK_LEFT;
  check_fails(table->low_rank_step(ctx, &step, nullptr, &err), err, GSEL_ERR_ARG, "0 rows, 0 columns and rank 0");
  step.rows = step.cols = step.rank = 1;
  step.matrix = step.left = step.right = step.error = &number;
  check_fails(table->low_rank_step(ctx, &step, nullptr, &err), err, GSEL_ERR_ARG, "needs old_error");
}

// ---- graphs, which a device may lack --------------------------------------------------------------------------------

void test_a_graph_does_its_work_at_each_launch(void**) {
  if (!table->capture_begin) return;  // of the host
  gsel_error* err = nullptr;
  gsel_stream* stream = nullptr;
  gsel_graph* graph = nullptr;
  auto* numbers = on_device(std::vector<float>(5000, 1));
  check_ok(table->stream_create(ctx, 0, &stream, &err), err);
  check_ok(table->capture_begin(ctx, stream, &err), err);
  check_ok(table->scale(ctx, numbers, GSEL_F32, 2, 5000, stream, &err), err);
  check_ok(table->capture_check(ctx, stream, &err), err);
  check_ok(table->capture_end(ctx, stream, &graph, &err), err);
  assert_true(on_host(numbers, 5000) == std::vector<float>(5000, 1));
  for (int i = 0; i < 3; ++i) check_ok(table->graph_launch(ctx, graph, stream, &err), err);
  check_ok(table->stream_wait(ctx, stream, &err), err);
  assert_true(on_host(numbers, 5000) == std::vector<float>(5000, 8));
  table->graph_free(ctx, graph);
  table->graph_free(ctx, nullptr);
  table->stream_free(ctx, stream);
  table->free(ctx, numbers);
}

// Also after larger sums, for which the stream needed more memory.
void test_a_graph_keeps_what_its_sums_need(void**) {
  if (!table->capture_begin) return;
  gsel_error* err = nullptr;
  gsel_stream* stream = nullptr;
  gsel_graph* graph = nullptr;
  void* sum = nullptr;
  constexpr size_t n = 5000, more = 500000;
  auto* numbers = on_device(std::vector<float>(more, 2));
  check_ok(table->alloc(ctx, GSEL_MEMORY_PINNED, sizeof(double), &sum, &err), err);
  check_ok(table->stream_create(ctx, 0, &stream, &err), err);
  auto sum_of = [&](size_t count) {
    check_ok(table->sum_squares(ctx, numbers, GSEL_F32, count, static_cast<double*>(sum), stream, &err), err);
  };
  auto expect_sum = [&](double expected) {
    check_ok(table->stream_wait(ctx, stream, &err), err);
    assert_true(*static_cast<double*>(sum) == expected);
  };
  sum_of(n);
  expect_sum(4 * n);
  check_ok(table->capture_begin(ctx, stream, &err), err);
  sum_of(n);
  check_ok(table->capture_end(ctx, stream, &graph, &err), err);
  sum_of(more);
  expect_sum(4 * more);
  check_ok(table->graph_launch(ctx, graph, stream, &err), err);
  expect_sum(4 * n);
  table->graph_free(ctx, graph);
  table->stream_free(ctx, stream);
  table->free(ctx, sum);
  table->free(ctx, numbers);
}

void test_a_wait_ends_a_capture(void**) {
  if (!table->capture_begin) return;
  gsel_error* err = nullptr;
  gsel_stream* stream = nullptr;
  gsel_graph* graph = nullptr;
  check_ok(table->stream_create(ctx, 0, &stream, &err), err);
  check_fails(table->capture_check(ctx, stream, &err), err, GSEL_ERR_STATE, "not captured");
  check_ok(table->capture_begin(ctx, stream, &err), err);
  check_fails(table->stream_wait(ctx, stream, &err), err, GSEL_ERR_DEVICE, "(900)");
  check_fails(table->capture_check(ctx, stream, &err), err, GSEL_ERR_STATE, "a call that a capture forbids");
  check_fails(table->capture_end(ctx, stream, &graph, &err), err, GSEL_ERR_DEVICE, "(901)");
  assert_null(graph);
  check_ok(table->stream_wait(ctx, stream, &err), err);
  table->stream_free(ctx, stream);
}

// Numbers of an update in page-locked memory, and what it comes to.
struct Update {
  double weights[2], squares[3];
  double loss_scale, clip_norm;
  int32_t first_norm, refuses;
};

std::vector<double> scale_of(const Update& u) {
  gsel_error* err = nullptr;
  void* memory = nullptr;
  check_ok(table->alloc(ctx, GSEL_MEMORY_PINNED, 256, &memory, &err), err);
  auto* numbers = static_cast<double*>(memory);
  std::copy_n(u.weights, 2, numbers);
  std::copy_n(u.squares, 3, numbers + 2);
  auto** weights = reinterpret_cast<const double**>(numbers + 8);
  weights[0] = numbers, weights[1] = numbers + 1;
  auto* ends = reinterpret_cast<int32_t*>(weights + 2);
  ends[0] = 1, ends[1] = 3;
  auto* out = on_device(std::vector<double>(2));
  gsel_update_scale scale{};
  scale.struct_size = sizeof scale;
  scale.n_weights = 2, scale.weights = weights;
  scale.squares = numbers + 2, scale.ends = ends, scale.n_ends = 2;
  scale.first_norm = u.first_norm, scale.refuses_non_finite = u.refuses;
  scale.loss_scale = u.loss_scale, scale.clip_norm = u.clip_norm;
  scale.out = out;
  check_ok(table->update_scale(ctx, &scale, nullptr, &err), err);
  const std::vector<double> result = on_host(out, 2);
  table->free(ctx, out);
  table->free(ctx, memory);
  return result;
}

void test_an_update_is_scaled_by_weight_and_norm(void**) {
  if (!table->update_scale) return;
  const Update plain{{3, 4.5}, {0.3, 1.7, 0.9}, 8, 0.01, 0, 1};
  const double mean = 1 / (7.5 * 8), norm = std::sqrt(0.3 + (1.7 + 0.9)) / (7.5 * 8);
  assert_true(scale_of(plain) == (std::vector<double>{mean, mean * (0.01 / (norm + 1e-6))}));
  Update other = plain;
  other.clip_norm = 10;
  assert_true(scale_of(other) == (std::vector<double>{mean, mean}));
  other = plain;
  other.first_norm = 1;
  assert_true(scale_of(other)[1] == mean * (0.01 / (std::sqrt(1.7 + 0.9) / (7.5 * 8) + 1e-6)));
  other.squares[0] = INFINITY;
  assert_true(std::isnan(scale_of(other)[0]) && std::isnan(scale_of(other)[1]));
  other.refuses = 0;
  assert_true(scale_of(other)[0] == mean);
  for (const double weight : {-4.5, -3.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    other = plain;
    other.weights[0] = weight == -3.0 ? -4.5 : weight;
    assert_true(std::isnan(scale_of(other)[0]));
  }
}

// In groups, in order: no two of these sums have the same bits.
void test_numbers_are_added_in_groups_and_in_order(void**) {
  if (!table->sum_numbers) return;
  gsel_error* err = nullptr;
  void* memory = nullptr;
  check_ok(table->alloc(ctx, GSEL_MEMORY_PINNED, 4096 * sizeof(double), &memory, &err), err);
  auto* numbers = static_cast<double*>(memory);
  auto* ends = reinterpret_cast<int32_t*>(numbers + 4000);
  for (size_t i = 0; i < 4000; ++i) numbers[i] = std::ldexp(1 + static_cast<double>(i * 37 % 101) / 7, i * 13 % 40);
  auto* out = on_device(std::vector<double>(1));
  const std::vector<std::vector<int32_t>> all{{},
                                              {1},
                                              {0, 0},
                                              {3, 3, 7},
                                              {255},
                                              {256},
                                              {257},
                                              {0, 256, 257},
                                              {100, 600, 700},
                                              {4000},
                                              {1, 2, 512, 513, 513, 1024, 3999, 4000, 4000}};
  for (const auto& groups : all) {
    std::ranges::copy(groups, ends);
    double sum = 0;
    for (size_t g = 0, at = 0; g < groups.size(); ++g) {
      double of_group = 0;
      for (; at < static_cast<size_t>(groups[g]); ++at) of_group += numbers[at];
      sum += of_group;
    }
    check_ok(table->sum_numbers(ctx, numbers, ends, static_cast<int32_t>(groups.size()), out, nullptr, &err), err);
    assert_true(on_host(out, 1) == std::vector<double>{sum});
  }
  const int32_t one = 1;
  numbers[0] = NAN;
  std::copy_n(&one, 1, ends);
  check_ok(table->sum_numbers(ctx, numbers, ends, 1, out, nullptr, &err), err);
  assert_true(std::isnan(on_host(out, 1)[0]));
  table->free(ctx, out);
  table->free(ctx, memory);
}

// A step that reads its factors on the device is one that is given them.
void test_steps_in_graphs_have_the_bits_of_others(void**) {
  if (!table->step_factors) return;
  constexpr size_t n = 1000;
  gsel_error* err = nullptr;
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i * 37 % 101) / 16 - 3;
  for (int32_t kind = GSEL_OPTIMIZER_SGD; kind <= GSEL_OPTIMIZER_ADAMW_8BIT; ++kind)
    for (const double momentum : {0.0, 0.5}) {
      std::vector<float> params[3];
      for (int how = 0; how < 3; ++how) {  // given numbers; factors; NaN
        auto* param = on_device(values);
        auto* gradient = on_device(std::vector<float>(values.rbegin(), values.rend()));
        auto* states = on_device(std::vector<float>(4 * n));
        gsel_optimizer_step step{};
        step.struct_size = sizeof step;
        step.kind = kind;
        step.param = param, step.gradient = gradient;
        step.state0 = states, step.state1 = states + n, step.scale0 = states + 2 * n, step.scale1 = states + 3 * n;
        step.count = n;
        step.t = 5;
        step.gradient_scale = 0.37, step.learning_rate = 0.013, step.weight_decay = 0.1;
        step.momentum = momentum, step.beta1 = 0.9, step.beta2 = 0.99, step.epsilon = 1e-8;
        std::vector<char> factors(GSEL_STEP_FACTOR_BYTES);
        check_ok(table->step_factors(ctx, &step, factors.data(), &err), err);
        auto* on_card = on_device(factors);
        auto* scale = on_device(std::vector<double>{how == 2 ? static_cast<double>(NAN) : 0.37});
        if (how > 0) {
          step.factors = on_card, step.update_scale = scale;
          step.gradient_scale = step.learning_rate = 0;
        }
        check_ok(table->optimizer_step(ctx, &step, nullptr, &err), err);
        params[how] = on_host(param, n);
        step.factors = on_card, step.update_scale = nullptr;
        check_fails(table->optimizer_step(ctx, &step, nullptr, &err), err, GSEL_ERR_ARG, "factors or update_scale");
        for (void* memory : {static_cast<void*>(param), static_cast<void*>(gradient), static_cast<void*>(states),
                             static_cast<void*>(on_card), static_cast<void*>(scale)})
          table->free(ctx, memory);
      }
      assert_true(params[0] == params[1] && params[0] != values && params[2] == values);
    }
}

void test_reductions_have_the_bits_of_collectives(void**) {
  check_reduce_bits(*table, ctx);
}

void test_reductions_that_a_device_does_not_take(void**) {
  check_reduce_refusals(*table, ctx);
}

const CMUnitTest tests[] = {
    cmocka_unit_test(test_the_table_is_complete),
    cmocka_unit_test(test_a_device_that_is_not_there_is_refused),
    cmocka_unit_test(test_memory_is_aligned_and_too_much_is_an_error),
    cmocka_unit_test(test_a_device_says_what_it_is_and_whose_memory_is_whose),
    cmocka_unit_test(test_copies_and_zeros_arrive),
    cmocka_unit_test(test_a_stream_keeps_order_and_events_tell_time_across_streams),
    cmocka_unit_test(test_an_event_tells_whether_it_was_reached),
    cmocka_unit_test(test_streams_are_imported_or_refused),
    cmocka_unit_test(test_a_cast_rounds_to_nearest_even),
    cmocka_unit_test(test_sixteen_bit_floats_survive_a_round_trip),
    cmocka_unit_test(test_kernels_give_the_exact_numbers),
    cmocka_unit_test(test_squares_are_added_in_one_order),
    cmocka_unit_test(test_a_scale_of_16_bits_rounds_to_nearest_even),
    cmocka_unit_test(test_optimizer_steps_follow_their_formulas),
    cmocka_unit_test(test_optimizer_steps_round_and_quantise),
    cmocka_unit_test(test_state_of_8_bits_is_that_of_the_host),
    cmocka_unit_test(test_low_rank_steps_give_the_bits_of_the_host),
    cmocka_unit_test(test_low_rank_steps_need_their_arrays),
    cmocka_unit_test(test_a_graph_does_its_work_at_each_launch),
    cmocka_unit_test(test_a_graph_keeps_what_its_sums_need),
    cmocka_unit_test(test_a_wait_ends_a_capture),
    cmocka_unit_test(test_an_update_is_scaled_by_weight_and_norm),
    cmocka_unit_test(test_numbers_are_added_in_groups_and_in_order),
    cmocka_unit_test(test_steps_in_graphs_have_the_bits_of_others),
    cmocka_unit_test(test_reductions_have_the_bits_of_collectives),
    cmocka_unit_test(test_reductions_that_a_device_does_not_take),
};

int run_in_each_order(const FakeCuda& cuda, const gsel_device_v1* of_plugin) {
  table = of_plugin;
  int failures = 0;
  for (const char* order : {"least", "random", "others", "newest"}) {
    if (!in_share_of(2)) continue;
    setenv("GSEL_FAKE_CUDA_ORDER", order, 1);
    failures += cmocka_run_group_tests_name(order, tests, set_up, tear_down);
  }
  return failures + cuda.report();
}

int run_on_gpu(const CudaPlugin& cuda) {
  char reason[512] = "";
  if (cuda.plugin->probe(&gsel::host_services(), reason, sizeof reason) == 0) {
    fprintf(stderr, "%s\n", reason);
    return 77;  // skipped
  }
  table = cuda.table;
  return cmocka_run_group_tests_name("gpu", tests, set_up, tear_down);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && !std::strcmp(argv[1], "gpu")) return run_on_gpu(CudaPlugin());
  if (argc > 1 && !std::strcmp(argv[1], "rocm_gpu")) return run_on_gpu(CudaPlugin("/lib/gsel/plugins-1/rocm.so"));
  if (argc > 1 && !std::strcmp(argv[1], "cuda")) {
    const FakeCuda cuda;
    return run_in_each_order(cuda, cuda.table);
  }
  if (argc > 1 && !std::strcmp(argv[1], "rocm")) {
    const FakeHip hip;
    return run_in_each_order(hip, hip.rocm.table);
  }
  table = &gsel::host_device_table();
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
