// train/compile_rank.cc: see compile_rank.h.
#include "train/compile_rank.h"

#include "base/error.h"
#include "base/types.h"

namespace gsel {
namespace {

// Moves the bounds of shards to those of parameters.
void keep_params_whole(Program& program) {
  for (ProgramBucket& bucket : program.buckets)
    if (bucket.shards_state()) bucket.flags |= GSEL_BUCKET_WHOLE_PARAMS;
}

// Such optimizers, as Muon, need the whole matrix.
void refuse_split_params(const Model& local, const Mesh& mesh) {
  for (const Param& p : local.params())
    if (p.trainable() && !p.shard.is_whole())
      fail(GSEL_ERR_UNSUPPORTED,
           "the optimizer works on whole parameters (GSEL_NEEDS_WHOLE_PARAM), and parameter \"{0}\" is split over {1} "
           "ranks of the {2} axis; use an optimizer of elements or of norms, or set mesh.{2} to 1",
           p.name, mesh.sharing_size(), axis_name(mesh.sharing_axis()));
}

}  // namespace

Compiled compile_rank(const Compiler& compiler, int32_t rank, const Optimizer& optimizer) {
  Compiled own = compiler.compile(rank);
  if (optimizer.needs_whole_params()) {
    refuse_split_params(*own.model, compiler.mesh());
    keep_params_whole(own.program);
  }
  return own;
}

}  // namespace gsel
