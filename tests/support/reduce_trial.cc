// support/reduce_trial.cc: see reduce_trial.h.
#include "support/reduce_trial.h"

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "support/ranks.h"

namespace {

using Bytes = std::vector<char>;

constexpr size_t kCount = 1021;     // of no power of two, and more than a block of threads takes in one round
constexpr size_t kRoom = 8 * 1024;  // bytes of each buffer: kCount elements of any type, and one more
constexpr int32_t kNs[] = {1, 2, 3, 8, GSEL_REDUCE_SOURCES};

struct Format {  // of a floating-point type
  int bits, fraction;
};
const Format* format_of(gsel_dtype dtype) {
  static const std::map<gsel_dtype, Format> formats{{GSEL_F16, {16, 10}}, {GSEL_BF16, {16, 7}},  {GSEL_F32, {32, 23}},
                                                    {GSEL_F64, {64, 52}}, {GSEL_F8E4M3, {8, 3}}, {GSEL_F8E5M2, {8, 2}}};
  const auto found = formats.find(dtype);
  return found == formats.end() ? nullptr : &found->second;
}

uint64_t random_bits(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Element i of a source. Floating point: by i any bits, numbers near 1, subnormal numbers, zeros of either sign, the
// largest exponents, and one source with an infinity or a NaN among numbers near 1.
uint64_t element_bits(gsel_dtype dtype, int32_t source, int32_t n, size_t i) {
  const uint64_t any = random_bits((static_cast<uint64_t>(source) << 32) + i);
  if (dtype == GSEL_BOOL) return any & 1;
  const Format* f = format_of(dtype);
  if (!f) return i % 2 ? any | 1 : any;  // products of odd numbers do not become 0
  const uint64_t exponents = (uint64_t{1} << (f->bits - 1 - f->fraction)) - 1;
  const auto number = [&](uint64_t exponent, bool has_fraction) {
    const uint64_t fraction = has_fraction ? any & ((uint64_t{1} << f->fraction) - 1) : 0;
    return (any >> 63) << (f->bits - 1) | exponent << f->fraction | fraction;
  };
  switch (i % 7) {
    case 0:
      return any;
    case 1:
      return number(0, true);
    case 2:
      return number(0, false);
    case 3:
      return number(exponents - 1, true);
    case 4:
      return number(static_cast<int32_t>(i) % n == source ? exponents : exponents / 2, i % 2);
    default:
      return number(exponents / 2, true);
  }
}

Bytes source_of(gsel_dtype dtype, int32_t source, int32_t n) {
  const size_t element = gsel_dtype_bytes(dtype);
  Bytes bytes(kRoom);
  for (size_t i = 0; i < kRoom / element; ++i) {
    const uint64_t bits = element_bits(dtype, source, n, i);
    std::memcpy(&bytes[i * element], &bits, element);  // of a little-endian machine
  }
  return bytes;
}

struct Case {
  gsel_dtype dtype;
  gsel_op op;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_BOOL; ++dtype)
    for (gsel_op op = GSEL_SUM; op <= GSEL_BXOR; ++op) {
      const bool is_of_bits = op >= GSEL_BAND;
      if ((!format_of(dtype) || !is_of_bits) && (dtype != GSEL_BOOL || op != GSEL_AVG)) all.push_back({dtype, op});
    }
  return all;
}

// Of all cases in order, as rank 0 gets them.
struct Collectives {
  std::vector<Bytes> results;
};

void allreduce_cases(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (const Case& c : cases()) {
    const Bytes send = source_of(c.dtype, run->rank, run->world_size);
    Bytes recv(kRoom);
    const size_t count = kRoom / gsel_dtype_bytes(c.dtype);
    rank_ok(run, gsel_allreduce(comm, send.data(), recv.data(), count, c.dtype, c.op, &err), err);
    if (run->rank == 0) static_cast<Collectives*>(run->user)->results.push_back(recv);
  }
  gsel_comm_free(comm);
}

// Once in a process: more threads than ranks_run_threads has room for.
const Collectives& collectives_of(int32_t n) {
  static std::map<int32_t, Collectives> all;
  const auto [at, is_new] = all.try_emplace(n);
  if (!is_new) return at->second;
  rank_run* runs = ranks_prepare(n, &at->second);
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < n; ++r) threads.emplace_back(allreduce_cases, &runs[r]);
  for (std::thread& thread : threads) thread.join();
  ranks_verdict(runs, n);
  return at->second;
}

// Memory of a device for the sources and one more buffer, all at multiples of kRoom.
class Buffers {
 public:
  Buffers(const gsel_device_v1& device, void* ctx, int32_t n) : device_(device), ctx_(ctx), n_(n) {
    gsel_error* err = nullptr;
    void* memory = nullptr;
    check_ok(device.alloc(ctx, GSEL_MEMORY_DEVICE, kRoom * static_cast<size_t>(n + 1), &memory, &err), err);
    memory_ = static_cast<char*>(memory);
  }
  ~Buffers() { device_.free(ctx_, memory_); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  char* source(int32_t q) const { return memory_ + kRoom * static_cast<size_t>(q); }
  char* apart() const { return source(n_); }
  void put(int32_t q, const Bytes& bytes) const {
    gsel_error* err = nullptr;
    check_ok(device_.copy(ctx_, source(q), bytes.data(), kRoom, GSEL_COPY_TO_DEVICE, nullptr, &err), err);
    check_ok(device_.stream_wait(ctx_, nullptr, &err), err);
  }
  Bytes get(const char* from) const {
    Bytes bytes(kRoom);
    gsel_error* err = nullptr;
    check_ok(device_.copy(ctx_, bytes.data(), from, kRoom, GSEL_COPY_TO_HOST, nullptr, &err), err);
    check_ok(device_.stream_wait(ctx_, nullptr, &err), err);
    return bytes;
  }

 private:
  const gsel_device_v1& device_;
  void* ctx_;
  int32_t n_;
  char* memory_;
};

struct Trial {
  const gsel_device_v1& device;
  void* ctx;
  const Buffers& buffers;
  int32_t n;
  Case c;
  const Bytes& expected;

  // From element `first` of each source to a buffer, there from element `to` on. What is around it stays.
  void run(size_t first, char* buffer, size_t to, size_t count) const {
    const size_t element = gsel_dtype_bytes(c.dtype);
    const Bytes before = buffers.get(buffer);
    std::vector<const void*> srcs;
    for (int32_t q = 0; q < n; ++q) srcs.push_back(buffers.source(q) + first * element);
    gsel_error* err = nullptr;
    check_ok(device.reduce(ctx, buffer + to * element, srcs.data(), n, c.dtype, c.op, count, nullptr, &err), err);
    const Bytes after = buffers.get(buffer);
    Bytes right = before;
    std::copy_n(expected.begin() + static_cast<ptrdiff_t>(first * element), count * element,
                right.begin() + static_cast<ptrdiff_t>(to * element));
    if (after == right) return;
    const auto at = static_cast<size_t>(std::mismatch(after.begin(), after.end(), right.begin()).first - after.begin());
    uint64_t is = 0, should = 0;
    std::memcpy(&is, &after[at / element * element], element);
    std::memcpy(&should, &right[at / element * element], element);
    fail_msg("%s, op %d, %d sources, from element %zu to %zu of %s: element %zu is 0x%llx, of gsel_allreduce 0x%llx",
             gsel_dtype_name(c.dtype), c.op, n, first, to, buffer == buffers.apart() ? "another buffer" : "a source",
             at / element, static_cast<unsigned long long>(is), static_cast<unsigned long long>(should));
  }
};

}  // namespace

void check_reduce_bits(const gsel_device_v1& device, void* ctx) {
  for (const int32_t n : kNs) {
    const std::vector<Bytes>& results = collectives_of(n).results;
    const std::vector<Case> all = cases();
    assert_int_equal(results.size(), all.size());
    const Buffers buffers(device, ctx, n);
    for (size_t i = 0; i < all.size(); ++i) {
      if (i == 0 || all[i].dtype != all[i - 1].dtype)
        for (int32_t q = 0; q < n; ++q) buffers.put(q, source_of(all[i].dtype, q, n));
      buffers.put(n, Bytes(kRoom, 0x55));
      const Trial trial{device, ctx, buffers, n, all[i], results[i]};
      trial.run(0, buffers.apart(), 0, kCount);
      trial.run(1, buffers.apart(), 1, kCount);
      trial.run(0, buffers.apart(), 1, 7);
      trial.run(1, buffers.apart(), 0, 1);
      for (const int32_t q : {0, n / 2, n - 1})
        if (q == n / 2 || i % 3 == 0) {
          trial.run(0, buffers.source(q), 0, kCount);
          buffers.put(q, source_of(all[i].dtype, q, n));
        }
    }
  }
}

void check_reduce_refusals(const gsel_device_v1& device, void* ctx) {
  gsel_error* err = nullptr;
  const Buffers buffers(device, ctx, 2);
  const std::vector<const void*> srcs(GSEL_REDUCE_SOURCES + 1, buffers.source(0));
  const auto reduce = [&](int32_t n, gsel_dtype dtype, gsel_op op, uint64_t count) {
    return device.reduce(ctx, buffers.apart(), srcs.data(), n, dtype, op, count, nullptr, &err);
  };
  buffers.put(0, Bytes(kRoom, 1));
  buffers.put(2, Bytes(kRoom, 7));
  check_fails(reduce(0, GSEL_F32, GSEL_SUM, 1), err, GSEL_ERR_ARG, "0 sources; use 1 to 64");
  check_fails(reduce(-1, GSEL_F32, GSEL_SUM, 1), err, GSEL_ERR_ARG, "-1 sources; use 1 to 64");
  check_fails(reduce(65, GSEL_F32, GSEL_SUM, 1), err, GSEL_ERR_ARG, "65 sources; use 1 to 64");
  check_fails(reduce(2, 0, GSEL_SUM, 1), err, GSEL_ERR_ARG, "type 0, which is unknown");
  check_fails(reduce(2, GSEL_BOOL + 1, GSEL_SUM, 1), err, GSEL_ERR_ARG, "type 16, which is unknown");
  check_fails(reduce(2, GSEL_F32, 0, 1), err, GSEL_ERR_ARG, "op 0, which is unknown; use GSEL_SUM to GSEL_BXOR");
  check_fails(reduce(2, GSEL_F32, 77, 1), err, GSEL_ERR_ARG, "op 77, which is unknown");
  for (const gsel_op op : {GSEL_BAND, GSEL_BOR, GSEL_BXOR})
    for (const gsel_dtype dtype : {GSEL_F16, GSEL_F64, GSEL_F8E5M2})
      check_fails(reduce(1, dtype, op, 1), err, GSEL_ERR_ARG, "operations on bits are for integers and bool");
  check_fails(reduce(2, GSEL_BOOL, GSEL_AVG, 1), err, GSEL_ERR_ARG, "avg of bool; use sum for or");
  check_fails(reduce(2, GSEL_F32, GSEL_SCALED_SUM, 1), err, GSEL_ERR_UNSUPPORTED, "reduce in memory of the host");
  gsel_op made = 0;
  const auto function = [](void*, const void*, size_t, gsel_dtype, void*) -> int32_t { return 0; };
  check_ok(gsel_op_create(GSEL_STR("mine"), 1, function, nullptr, nullptr, &made, &err), err);
  check_fails(reduce(2, GSEL_F32, made, 1), err, GSEL_ERR_UNSUPPORTED, "an operation of the program, is not supported");
  gsel_op_free(made);
  check_ok(gsel_op_create_scaled_sum(0.5, &made, &err), err);
  check_fails(reduce(2, GSEL_F32, made, 1), err, GSEL_ERR_UNSUPPORTED, "reduce in memory of the host");
  gsel_op_free(made);
  const void* one_missing[] = {buffers.source(0), nullptr};
  check_fails(device.reduce(ctx, buffers.apart(), one_missing, 2, GSEL_F32, GSEL_SUM, 1, nullptr, &err), err,
              GSEL_ERR_ARG, "needs srcs[1] and it is NULL");
  check_fails(device.reduce(ctx, nullptr, srcs.data(), 2, GSEL_F32, GSEL_SUM, 1, nullptr, &err), err, GSEL_ERR_ARG,
              "needs dst and srcs");
  check_ok(device.reduce(ctx, nullptr, nullptr, 2, GSEL_F32, GSEL_SUM, 0, nullptr, &err), err);
  check_ok(reduce(64, GSEL_U8, GSEL_SUM, 0), err);
  assert_true(buffers.get(buffers.apart()) == Bytes(kRoom, 7));
  check_ok(reduce(64, GSEL_U8, GSEL_SUM, 2), err);
  assert_int_equal(buffers.get(buffers.apart())[1], 64);
}
