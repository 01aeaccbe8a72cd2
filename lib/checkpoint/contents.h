// checkpoint/contents.h: what is in a checkpoint, and where in its files the elements of any region of a tensor are,
// whoever wrote them. Headers are read when a file is first needed. Does not know trainers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "checkpoint/disk.h"
#include "checkpoint/folder.h"
#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"

namespace gsel::checkpoint {

// Consecutive bytes of a file, which are elements of a region from `local` on.
struct FileRead {
  uint64_t offset = 0, bytes = 0;
  int64_t local = 0;
};

// Files that are read in turn, of which only some are open: a checkpoint may have more than a process may open.
class OpenFiles {
 public:
  static constexpr size_t kMost = 32;

  explicit OpenFiles(Disk& disk) : disk_(disk) {}
  // A file that is opened when it is read, and may be closed when another one is. Not for several threads at a time.
  std::unique_ptr<DiskFile> file(const std::string& path);

 private:
  class File;
  void open(const File& file);
  void forget(const File& file);

  Disk& disk_;
  std::vector<const File*> open_;  // the one that was opened first is the first
};

// A state of the embedder's in a file; texts live as long as the contents.
struct StoredUser {
  const std::string &file, &key;
  FileRead read;
};

class Contents {
 public:
  // texts: as find_checkpoint gives them. GSEL_ERR_PARSE.
  Contents(Disk& disk, const CheckpointTexts& texts);

  Disk& disk() const { return disk_; }
  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const Index& index() const { return index_; }
  std::string path_of(const std::string& file) const { return path_ + "/" + file; }
  const ManifestFile& file(const std::string& name) const { return manifest_.file(name, path_of(kManifestName)); }
  uint64_t file_bytes() const;
  std::span<const IndexPiece> pieces(int32_t tensor) const;

  // Reads that make up the region, none twice; those of one file in the order of the region. GSEL_ERR_PARSE with file
  // and key where a file is not as the index says; GSEL_ERR_IO.
  void find(int32_t tensor, const Region& region, const std::function<void(const std::string& file, FileRead)>& add);
  // dst: the elements of the region.
  void read(int32_t tensor, const Region& region, float* dst);
  // The same bytes of a file; compares the sums of blocks that are read whole, in ascending order. GSEL_ERR_PARSE.
  void read(const std::string& file, uint64_t offset, void* dst, size_t bytes);
  // open and compare are the two halves of that read, for callers that read on another thread. The file lives as long
  // as the contents.
  DiskFile& open(const std::string& file) { return *source(file).file; }
  // The file without its header being read, for callers that compare blocks.
  std::unique_ptr<DiskFile> raw(const std::string& file) { return files_.file(path_of(file)); }
  // Bytes of a file before its tensors.
  uint64_t data_at(const std::string& file) { return source(file).data_at; }
  void compare(const std::string& file, uint64_t offset, const void* data, size_t bytes);
  // A state of the embedder's; rank: whose file has it. Errors as of find.
  StoredUser stored_user(const IndexUser& user, int32_t rank);
  FileRead find_user(const IndexUser& user, int32_t rank) { return stored_user(user, rank).read; }
  // Whether the piece is in its file; errors as of find.
  void check(const IndexPiece& piece) { begin_of(piece); }

 private:
  struct Source {
    std::unique_ptr<DiskFile> file;
    std::map<std::string, StoredTensor> tensors;
    uint64_t data_at = 0;
    std::unique_ptr<BlockComparer> sums;
  };
  using SourceOfName = std::pair<const std::string, Source>;
  using TensorOfKey = std::pair<const std::string, StoredTensor>;
  SourceOfName& named_source(const std::string& name);
  Source& source(const std::string& name) { return named_source(name).second; }
  const TensorOfKey& stored(const SourceOfName& from, const std::string& key, gsel_dtype dtype) const;
  [[noreturn]] void refuse(const std::string& file, const std::string& key, const std::string& why) const;
  uint64_t begin_of(const IndexPiece& piece);

  Disk& disk_;
  const std::string path_;
  Manifest manifest_;
  Index index_;
  OpenFiles files_{disk_};  // before those that are of it
  std::map<std::string, Source> sources_;
};

}  // namespace gsel::checkpoint
