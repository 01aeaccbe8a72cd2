// checkpoint/weights_files.h: the tensors of one safetensors file, or of a folder as model hubs have it, whose
// model.safetensors.index.json says which tensor is in which file. Trusts nothing of either. Does not know parameters.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"

namespace gsel::checkpoint {

class WeightFiles {
 public:
  struct Tensor {
    size_t file = 0;
    StoredTensor stored;
    uint64_t at = 0;  // byte of the file
  };

  // GSEL_ERR_PARSE with file and place, GSEL_ERR_IO.
  WeightFiles(Disk& disk, const std::string& path);

  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  DiskFile& file(size_t i) { return *files_[i].file; }
  // XXH3 of all headers.
  const std::string& sum() const { return sum_; }

 private:
  struct File {
    std::string path;
    std::unique_ptr<DiskFile> file;
  };
  void open(const std::string& path, Sum& headers);
  void open_folder(const std::string& folder, const std::string& index, Sum& headers);

  Disk& disk_;
  std::vector<File> files_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::string sum_;
};

}  // namespace gsel::checkpoint
