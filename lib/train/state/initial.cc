// train/state/initial.cc: see initial.h.
#include "train/state/initial.h"

#include <algorithm>

#include "base/foreign.h"
#include "base/random.h"

namespace gsel {
namespace {

// Elements [first, first + chunk.size()) of the whole parameter.
void fill_run(const Param& p, uint64_t key, int64_t first, std::span<float> chunk, uint64_t seed) {
  switch (p.init) {
    case GSEL_INIT_ZEROS:
      std::ranges::fill(chunk, 0.0f);
      return;
    case GSEL_INIT_ONES:
      std::ranges::fill(chunk, 1.0f);
      return;
    case GSEL_INIT_NORMAL:
      for (size_t i = 0; i < chunk.size(); ++i)
        chunk[i] = static_cast<float>(p.init_scale) * random_normal(key, static_cast<uint64_t>(first) + i);
      return;
    default: {
      std::string thrown;
      const gsel_status status = call_foreign(
          [&] { return p.init_fn(chunk.data(), first, static_cast<int64_t>(chunk.size()), seed, p.init_user_data); },
          GSEL_ERR_CALLBACK, thrown);
      if (status)
        fail(GSEL_ERR_CALLBACK, "the initialiser of parameter \"{}\" failed: {}", p.name, reason_of(status, thrown));
    }
  }
}

}  // namespace

// Fills a split parameter run by run, in the order of the whole.
void make_initial(const Param& p, int64_t first, std::span<float> values, uint64_t seed) {
  const uint64_t key = derive_key(derive_key(seed, "initial values"), p.name);
  const ShardRows rows = rows_of(p.whole_dims, p.shard);
  for (int64_t done = 0, count = std::ssize(values); done < count;) {
    const int64_t row = (first + done) / rows.length, column = (first + done) % rows.length;
    const int64_t n = std::min(rows.length - column, count - done);
    fill_run(p, key, rows.first + row * rows.stride + column, values.subspan(done, n), seed);
    done += n;
  }
}

}  // namespace gsel
