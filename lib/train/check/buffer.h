// train/check/buffer.h: a buffer of a callback, with its data as numbers. Does not know what a breach is.
#pragma once

#include <gsel/check.h>

#include <string>
#include <vector>

#include "base/shard.h"
#include "base/types.h"

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
  // Whether every byte of element i is `byte`.
  bool is_filled(int64_t i, unsigned char byte) const;
  bool same_bits(int64_t i, const Buffer& other) const;
};

Buffer make_buffer(int32_t role, int32_t index, std::string name, const gsel_tensor& view);

std::string shown(double number);
std::vector<int64_t> coordinates_of(const gsel_tensor& view, int64_t element);

// Normal random numbers of this standard deviation; for integer types, integers in [0, index_limit).
void fill_random(Buffer& buffer, uint64_t key, double deviation, int64_t index_limit);
double largest_magnitude(const Buffer& buffer);

// take_shard copies a shard out of a whole buffer; put_shard writes it back and leaves the other elements as they are.
void take_shard(const Buffer& whole, const Shard& shard, Buffer& out);
void put_shard(const Buffer& from, const Shard& shard, Buffer& whole);

// The first element that differs by more than `most`, or -1. Integers must be equal.
int64_t first_different(const Buffer& got, const Buffer& want, double most);

// Relative to the largest magnitude in a buffer; the coarsest of these types decides.
double tolerance_of(const std::vector<gsel_dtype>& dtypes);

}  // namespace gsel::check
