// checkpoint/index.h: the two JSON files of a checkpoint. index.json says what was saved: each tensor of the state with
// its shape, the regions in which it lies in which file, and the numbers of training. manifest.json, written last, says
// which files belong to it, with sizes and checksums: without it there is no checkpoint. Does not read tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/region.h"
#include "checkpoint/sums.h"
#include "train/optimize/training_numbers.h"

namespace gsel::checkpoint {

constexpr int32_t kFormat = 1;  // a reader refuses others
constexpr const char* kIndexName = "index.json";
constexpr const char* kManifestName = "manifest.json";
constexpr const char* kLatestName = "latest";

// Elements of a tensor in a file: in the order of the region, as f32.
struct IndexPiece {
  int32_t tensor = 0;  // index in Index::tensors
  std::string file, key;
  Region region;
};

struct IndexTensor {
  std::string name;
  std::vector<int64_t> shape;
};

uint64_t bytes_of(const IndexTensor& tensor);

// A state of the embedder's: bytes with the key of user_key(), in the file of the first rank, or of each.
struct IndexUser {
  std::string name;
  bool is_of_rank = false;
};
std::string user_key(const std::string& name);
// Its key where states of all ranks are together: of a rank's own the rank follows, "user:NAME@RANK".
std::string user_key(const IndexUser& user, int32_t rank);

struct Index {
  TrainingNumbers numbers;
  int32_t n_ranks = 1;    // that saved
  std::string optimizer;  // as configured
  std::vector<IndexTensor> tensors;
  std::vector<IndexPiece> pieces;  // by tensor
  std::vector<IndexUser> users;

  // Ranks whose files have it, from 0 on.
  int32_t writers_of(const IndexUser& user) const { return user.is_of_rank ? n_ranks : 1; }
  // Pieces of one rank, as items of a JSON array without its brackets.
  static std::string text_of(const std::vector<IndexPiece>& some, const std::vector<IndexTensor>& of);
  // items: what text_of gave on each rank.
  std::string text(const std::vector<std::string>& items) const;
  // GSEL_ERR_PARSE with file and field.
  static Index parse(std::string_view text, const std::string& file);
  // Whether the pieces of each tensor hold each element once, and no more than so many bytes: a few letters can say
  // more elements than can be counted. GSEL_ERR_PARSE.
  void check_coverage(const std::string& file, uint64_t most_bytes) const;
};

struct ManifestFile {
  std::string name;
  FileSums sums;

  std::string text() const;  // an item of the manifest's files
};

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestFile> files;

  // files: text() of each.
  static std::string text(int64_t step, const std::vector<std::string>& files);
  // GSEL_ERR_PARSE; also where the sum of the manifest itself, which is its last line, is another.
  static Manifest parse(std::string_view text, const std::string& file);
  // path: of the manifest. GSEL_ERR_PARSE: it has no such file.
  const ManifestFile& file(const std::string& name, const std::string& path) const;
};

}  // namespace gsel::checkpoint
