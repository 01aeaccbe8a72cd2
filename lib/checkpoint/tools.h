// checkpoint/tools.h: what is done with checkpoints without a trainer. Elements pass through a buffer of 16 MiB; a
// state is never whole in memory. Each ends with GSEL_ERR_ABORTED where `progress` says so, and leaves nothing behind
// then.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/contents.h"

namespace gsel::checkpoint {

// Called with the bytes that are done, of all: false ends the work. May be empty.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;

// Compares the sums of all files, then looks for each piece, and each state of the embedder's, in its file. Returns the
// bytes of files that were read.
// GSEL_ERR_PARSE: the first fault, with file and offset.
uint64_t verify(Contents& contents, const Progress& progress);

struct Difference {
  int32_t kind = 0;  // GSEL_CHECKPOINT_DIFFERS_*
  std::string name, first, second;
  int64_t element = -1, count = 0;
  double largest = 0;
};
std::vector<Difference> diff(Contents& first, Contents& second, const Progress& progress);

// Both verify the checkpoint first, so that what is wrong in it gets no new sums. They return the bytes of tensors that
// were written. One safetensors file with whole tensors and, unless params_only, states of the embedder's.
// GSEL_ERR_STATE: it is there already.
uint64_t consolidate(Contents& contents, const std::string& file, bool params_only, const Progress& progress);
// A checkpoint in `folder` of the same step, whose elements are divided evenly among n files.
uint64_t reshard(Contents& contents, const std::string& folder, int32_t n, const Progress& progress);

}  // namespace gsel::checkpoint
