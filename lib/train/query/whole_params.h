// train/query/whole_params.h: makes a parameter or its gradient whole and exact on every rank, between steps. It may be
// sharded, owned by one rank, or on one pipeline rank only; each such division takes one collective, in the arena of
// steps.
#pragma once

#include <vector>

#include "train/execute/executor.h"

namespace gsel {

class WholeParams {
 public:
  WholeParams(Executor& executor, const Model& model, const Program& program);
  ~WholeParams();
  WholeParams(const WholeParams&) = delete;
  WholeParams& operator=(const WholeParams&) = delete;

  // As f32, exact, to host memory. A collective unless every rank keeps whole parameters.
  void read(int32_t p, float* dst);
  // The same for its gradient in the last step, as an undivided sum. A collective.
  void read_gradient(int32_t p, float* dst);

  // Whether every rank keeps everything whole, so that read() is never a collective.
  static bool kept_everywhere(const Program& program);

 private:
  bool is_kept(int32_t bucket) const;
  void* take(uint64_t bytes);
  void close();
  void make_whole(int32_t bucket);
  void gather(int32_t bucket, void* whole, gsel_dtype dtype);
  float* gather_own(int32_t bucket, const float* own);
  float* gather_master(int32_t bucket);
  float* exact(int32_t p);

  Executor& executor_;
  ParamStorage& params_;
  const Model& model_;
  const Program& program_;
  std::vector<int32_t> open_;
  uint64_t taken_ = 0;                 // bytes of the arena
  std::vector<CountedMemory> beside_;  // what does not fit the arena
};

}  // namespace gsel
