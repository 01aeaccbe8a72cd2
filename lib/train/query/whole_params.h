// train/query/whole_params.h: makes a parameter or its gradient whole and exact on every rank, between steps. Ranks may
// have parts of it, one rank may have all of it, or one pipeline rank may have it alone. Uses one collective for each
// way in which it is divided, in the arena of steps. Does not know what it is wanted for.
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

  // As f32, exact, to host memory. A collective where parameters are not kept whole on every rank.
  void read(int32_t p, float* dst);
  // The same of its gradient in the last step, as a sum that nothing has divided yet. A collective.
  void read_gradient(int32_t p, float* dst);

  // Whether every rank keeps everything whole, so that it is never a collective.
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
  uint64_t taken_ = 0;                 // of the arena
  std::vector<CountedMemory> beside_;  // what it has no room for
};

}  // namespace gsel
