// train/check/buffer.h: a buffer of a call with its data, and the numbers in it. Does not know what a breach is.
#pragma once

#include <gsel/check.h>

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shard.h"

namespace gsel::check {

// One entry of one list of gsel_call.
struct Buffer {
  int32_t role = 0;        // GSEL_BUFFER_*
  int32_t index = 0;       // in its list
  std::string name;        // of the parameter or value; empty: it has none
  gsel_tensor view{};      // without its data
  bool is_absent = false;  // data is NULL in calls
  std::vector<char> bytes;

  int64_t elems() const { return view.n_elems; }
  uint64_t elem_bytes() const;
  double number(int64_t i) const;
  void put(int64_t i, double number);  // rounded to the type
  bool is_float() const { return is_floating(view.dtype); }
  void fill(unsigned char byte);
  // Whether element i is bytes of this kind alone.
  bool is_filled(int64_t i, unsigned char byte) const;
  bool same_bits(int64_t i, const Buffer& other) const;
};

Buffer make_buffer(int32_t role, int32_t index, std::string name, const gsel_tensor& view);

std::string shown(double number);
std::vector<int64_t> coordinates_of(const gsel_tensor& view, int64_t element);

// Random numbers of deviation `deviation`; whole ones from 0 to index_limit - 1 where the type has no others.
void fill_random(Buffer& buffer, uint64_t key, double deviation, int64_t index_limit);
double largest_magnitude(const Buffer& buffer);

// What of a whole buffer lies in a part of it, with the part's dims; and back, where the rest stays.
void take_shard(const Buffer& whole, const Shard& shard, Buffer& out);
void put_shard(const Buffer& from, const Shard& shard, Buffer& whole);

// The first element that differs by more than `most`, else -1. Whole numbers must be equal.
int64_t first_different(const Buffer& got, const Buffer& want, double most);

// For the coarsest type among those given, relative to the largest number of a buffer.
double tolerance_of(const std::vector<gsel_dtype>& dtypes);

}  // namespace gsel::check
