// train/check/buffer.cc: see buffer.h.
#include "train/check/buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "base/types.h"
#include "device/formulas/floats.h"

namespace gsel::check {
namespace {

template <class T>
T load(const char* from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

template <class T>
void store(char* to, T x) {
  std::memcpy(to, &x, sizeof x);
}

double read_number(gsel_dtype dtype, const char* from) {
  switch (dtype) {
    case GSEL_I8:
      return load<int8_t>(from);
    case GSEL_U8:
    case GSEL_BOOL:
      return load<uint8_t>(from);
    case GSEL_I16:
      return load<int16_t>(from);
    case GSEL_U16:
      return load<uint16_t>(from);
    case GSEL_I32:
      return load<int32_t>(from);
    case GSEL_U32:
      return load<uint32_t>(from);
    case GSEL_I64:
      return static_cast<double>(load<int64_t>(from));
    case GSEL_U64:
      return static_cast<double>(load<uint64_t>(from));
    case GSEL_F16:
      return load<F16>(from).widen();
    case GSEL_BF16:
      return load<BF16>(from).widen();
    case GSEL_F32:
      return load<float>(from);
    case GSEL_F8E4M3:
      return load<F8E4M3>(from).widen();
    case GSEL_F8E5M2:
      return load<F8E5M2>(from).widen();
    default:
      return load<double>(from);
  }
}

void write_number(gsel_dtype dtype, char* to, double x) {
  const auto narrow = static_cast<float>(x);
  switch (dtype) {
    case GSEL_I8:
      return store(to, static_cast<int8_t>(x));
    case GSEL_U8:
    case GSEL_BOOL:
      return store(to, static_cast<uint8_t>(x));
    case GSEL_I16:
      return store(to, static_cast<int16_t>(x));
    case GSEL_U16:
      return store(to, static_cast<uint16_t>(x));
    case GSEL_I32:
      return store(to, static_cast<int32_t>(x));
    case GSEL_U32:
      return store(to, static_cast<uint32_t>(x));
    case GSEL_I64:
      return store(to, static_cast<int64_t>(x));
    case GSEL_U64:
      return store(to, static_cast<uint64_t>(x));
    case GSEL_F16:
      return store(to, F16::narrow(narrow));
    case GSEL_BF16:
      return store(to, BF16::narrow(narrow));
    case GSEL_F32:
      return store(to, narrow);
    case GSEL_F8E4M3:
      return store(to, F8E4M3::narrow(narrow));
    case GSEL_F8E5M2:
      return store(to, F8E5M2::narrow(narrow));
    default:
      return store(to, x);
  }
}

// Calls copy(offset in whole, offset in shard, bytes) for each row of the shard.
template <class Copy>
void each_row(const gsel_tensor& whole, const Shard& shard, uint64_t size, Copy&& copy) {
  const ShardRows rows = rows_of({whole.dims, static_cast<size_t>(whole.n_dims)}, shard);
  for (int64_t i = 0; i < rows.count; ++i)
    copy(static_cast<uint64_t>(rows.first + i * rows.stride) * size, static_cast<uint64_t>(i * rows.length) * size,
         static_cast<uint64_t>(rows.length) * size);
}

}  // namespace

uint64_t Buffer::elem_bytes() const {
  return dtype_bytes(view.dtype);
}
double Buffer::number(int64_t i) const {
  return read_number(view.dtype, bytes.data() + static_cast<uint64_t>(i) * elem_bytes());
}
void Buffer::put(int64_t i, double x) {
  write_number(view.dtype, bytes.data() + static_cast<uint64_t>(i) * elem_bytes(), x);
}
void Buffer::fill(unsigned char byte) {
  std::memset(bytes.data(), byte, bytes.size());
}

bool Buffer::is_filled(int64_t i, unsigned char byte) const {
  const char* element = bytes.data() + static_cast<uint64_t>(i) * elem_bytes();
  return std::all_of(element, element + elem_bytes(), [&](char c) { return static_cast<unsigned char>(c) == byte; });
}

bool Buffer::same_bits(int64_t i, const Buffer& other) const {
  const uint64_t at = static_cast<uint64_t>(i) * elem_bytes();
  return std::memcmp(bytes.data() + at, other.bytes.data() + at, elem_bytes()) == 0;
}

Buffer make_buffer(int32_t role, int32_t index, std::string name, const gsel_tensor& view) {
  Buffer buffer{role, index, std::move(name), view, false, {}};
  buffer.bytes.resize(static_cast<uint64_t>(view.n_elems) * buffer.elem_bytes());
  return buffer;
}

std::string shown(double number) {
  return std::isnan(number) ? "NaN" : fmt::format("{:.9g}", number);
}

std::vector<int64_t> coordinates_of(const gsel_tensor& view, int64_t element) {
  std::vector<int64_t> result(static_cast<size_t>(view.n_dims));
  for (int32_t d = view.n_dims - 1; d >= 0; --d) {
    result[d] = element % view.dims[d];
    element /= view.dims[d];
  }
  return result;
}

void fill_random(Buffer& buffer, uint64_t key, double deviation, int64_t index_limit) {
  const uint64_t bits = 8 * std::min<uint64_t>(buffer.elem_bytes(), 4) - 1;  // value bits of a signed type
  const int64_t numbers = buffer.view.dtype == GSEL_BOOL ? 2 : int64_t{1} << bits;
  const auto limit = static_cast<double>(std::min(index_limit, numbers));
  for (int64_t i = 0; i < buffer.elems(); ++i) {
    const auto counter = static_cast<uint64_t>(i);
    buffer.put(i, buffer.is_float() ? deviation * random_normal(key, counter)
                                    : std::floor(random_uniform(key, counter) * limit));
  }
}

double largest_magnitude(const Buffer& buffer) {
  double most = 0;
  for (int64_t i = 0; i < buffer.elems(); ++i)
    if (const double x = std::fabs(buffer.number(i)); std::isfinite(x)) most = std::max(most, x);
  return most;
}

void take_shard(const Buffer& whole, const Shard& shard, Buffer& out) {
  each_row(whole.view, shard, whole.elem_bytes(), [&](uint64_t in_whole, uint64_t in_part, uint64_t n) {
    std::memcpy(out.bytes.data() + in_part, whole.bytes.data() + in_whole, n);
  });
}

void put_shard(const Buffer& from, const Shard& shard, Buffer& whole) {
  each_row(whole.view, shard, whole.elem_bytes(), [&](uint64_t in_whole, uint64_t in_part, uint64_t n) {
    std::memcpy(whole.bytes.data() + in_whole, from.bytes.data() + in_part, n);
  });
}

int64_t first_different(const Buffer& got, const Buffer& want, double most) {
  if (!got.is_float()) most = 0;
  for (int64_t i = 0; i < want.elems(); ++i) {
    if (got.same_bits(i, want)) continue;
    const double x = got.number(i), y = want.number(i);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (!(std::fabs(x - y) <= most) && x != y) return i;
  }
  return -1;
}

double tolerance_of(const std::vector<gsel_dtype>& dtypes) {
  double most = 1e-10;
  for (gsel_dtype dtype : dtypes) {
    const double its = dtype == GSEL_F8E4M3 || dtype == GSEL_F8E5M2 ? 0.25
                       : dtype == GSEL_BF16                         ? 1.0 / 32
                       : dtype == GSEL_F16                          ? 1.0 / 256
                       : dtype == GSEL_F32                          ? 1e-4
                                                                    : 0;
    most = std::max(most, its);
  }
  return most;
}

}  // namespace gsel::check
