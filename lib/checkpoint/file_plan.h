// checkpoint/file_plan.h: which regions of which tensors a file of a checkpoint has, before it is written. Does not
// read or write.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"

namespace gsel::checkpoint {

std::string name_of_file(int32_t rank);

struct FilePlan {
  FilePlan(std::string file, int64_t step);
  void add(int32_t tensor, const std::string& tensor_name, Region region);
  // A state of the embedder's; after all regions.
  void add_user(const std::string& user_name, uint64_t n_bytes);
  uint64_t bytes() const { return header.tensors.empty() ? 0 : header.tensors.back().end; }

  std::string name;
  std::vector<IndexPiece> pieces;
  SafetensorsHeader header;  // tensors: by piece, then states of the embedder
};

}  // namespace gsel::checkpoint
