// train/whole_params.h: parameters between steps, whole on every rank, where ranks keep parts of them, one rank keeps
// them all, or a place of a pipeline has them alone: bucket by bucket, with a collective for each, in the arena that
// steps use. Refuses to know what they are wanted for.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "train/executor.h"

namespace gsel {

class WholeParams {
 public:
  WholeParams(Executor& executor, const Program& program);
  ~WholeParams();
  WholeParams(const WholeParams&) = delete;
  WholeParams& operator=(const WholeParams&) = delete;

  // Makes these parameters whole, until the next call. A collective where they are not kept whole on every rank.
  void open(std::span<const int32_t> params);
  // One of them, as it is kept.
  void* param(int32_t p) const;
  // A whole parameter as f32, exact, to host memory. A collective likewise.
  void read(const Param& param, int32_t p, float* dst);

  // Whether every rank keeps everything whole, so that neither is ever a collective.
  static bool kept_everywhere(const Program& program);

 private:
  bool is_kept(int32_t bucket) const;
  bool gives(int32_t p) const;
  void* take(uint64_t bytes);
  void close();
  void make_whole(int32_t bucket);
  void gather(int32_t bucket, void* whole, gsel_dtype dtype);
  const float* gather_master(int32_t bucket);
  const float* exact(const Param& param, int32_t p);
  void* tell(int32_t p, void* own, gsel_dtype dtype);

  Executor& executor_;
  ParamStorage& params_;
  const Program& program_;
  std::vector<int32_t> givers_;  // by parameter: the place of the pipeline that tells it to the others
  std::vector<int32_t> open_;
  std::map<int32_t, void*> told_;      // parameters that another place has told
  uint64_t taken_ = 0;                 // of the arena
  std::vector<CountedMemory> beside_;  // what it has no room for
};

}  // namespace gsel
