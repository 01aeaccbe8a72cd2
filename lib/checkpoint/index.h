// checkpoint/index.h: the two JSON files of a checkpoint. index.json says what was saved: each tensor of the state with
// its shape, the regions in which it lies in which file, and the numbers of training. manifest.json, written last, says
// which files belong to it, with sizes and checksums: without it there is no checkpoint. Does not read tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/region.h"
#include "train/optimize/training_numbers.h"

namespace gsel::checkpoint {

constexpr int32_t kFormat = 1;  // a reader refuses others
constexpr const char* kIndexName = "index.json";
constexpr const char* kManifestName = "manifest.json";
constexpr const char* kLatestName = "latest";
constexpr uint64_t kMostIndexBytes = uint64_t{1} << 30;

// Elements of a tensor in a file: in the order of the region, as f32.
struct Slice {
  int32_t tensor = 0;  // index in Index::tensors
  std::string file, key;
  Region region;
};

struct IndexTensor {
  std::string name;
  std::vector<int64_t> shape;
};

struct Index {
  TrainingNumbers numbers;
  std::string optimizer;  // as configured
  std::vector<IndexTensor> tensors;
  std::vector<Slice> slices;  // by tensor

  // Slices of one rank, as items of a JSON array without its brackets.
  static std::string text_of(const std::vector<Slice>& some, const std::vector<IndexTensor>& of);
  // items: what text_of gave on each rank.
  std::string text(const std::vector<std::string>& items) const;
  // GSEL_ERR_PARSE with file and field, also where the slices of a tensor do not hold each element once.
  static Index parse(std::string_view text, const std::string& file);
};

struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  std::string sum;  // XXH3 of 128 bits, in hexadecimal digits
};

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestFile> files;

  std::string text() const;
  // GSEL_ERR_PARSE; also where the sum of the manifest itself, which is its last line, is another.
  static Manifest parse(std::string_view text, const std::string& file);
};

// XXH3 of 128 bits, which finds what a disk does to a file, and not what somebody does who means to.
class Sum {
 public:
  Sum();
  ~Sum();
  void add(const void* data, size_t bytes);
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::string sum_of(const void* data, size_t bytes);

}  // namespace gsel::checkpoint
