// checkpoint/contents.cc: see contents.h.
#include "checkpoint/contents.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/file_plan.h"

namespace gsel::checkpoint {

// ---- open files -----------------------------------------------------------------------------------------------------

class OpenFiles::File : public DiskFile {
 public:
  File(OpenFiles& files, std::string path) : path_(std::move(path)), files_(files) {}
  ~File() override { files_.forget(*this); }

  uint64_t bytes() const override { return opened().bytes(); }
  void read(uint64_t offset, void* dst, size_t bytes) override { opened().read(offset, dst, bytes); }
  void write(uint64_t, const void*, size_t) override { fail(GSEL_ERR_INTERNAL, "{} is open to be read", path_); }
  void reserve(uint64_t) override { write(0, nullptr, 0); }
  void sync() override { write(0, nullptr, 0); }

  const std::string path_;
  mutable std::unique_ptr<DiskFile> open_;

 private:
  DiskFile& opened() const {
    if (!open_) files_.open(*this);
    return *open_;
  }
  OpenFiles& files_;
};

std::unique_ptr<DiskFile> OpenFiles::file(const std::string& path) {
  return std::make_unique<File>(*this, path);
}

void OpenFiles::open(const File& file) {
  if (open_.size() == kMost) {
    open_.front()->open_.reset();
    open_.erase(open_.begin());
  }
  file.open_ = disk_.open(file.path_);
  open_.push_back(&file);
}

void OpenFiles::forget(const File& file) {
  std::erase(open_, &file);
}

// ---- a checkpoint ---------------------------------------------------------------------------------------------------

Contents::Contents(Disk& disk, const CheckpointTexts& texts) : disk_(disk), path_(texts.path) {
  manifest_ = Manifest::parse(texts.manifest, path_of(kManifestName));
  const std::string path = path_of(kIndexName);
  index_ = Index::parse(texts.index, path);
  index_.check_coverage(path, file_bytes());
}

uint64_t Contents::file_bytes() const {
  uint64_t bytes = 0;
  for (const ManifestFile& file : manifest_.files) bytes += file.sums.bytes;
  return bytes;
}

std::span<const IndexPiece> Contents::pieces(int32_t tensor) const {
  return std::ranges::equal_range(index_.pieces, tensor, {}, &IndexPiece::tensor);
}

Contents::SourceOfName& Contents::named_source(const std::string& name) {
  const auto found = sources_.find(name);
  if (found != sources_.end()) return *found;
  const std::string path = path_of(name);
  Source made;
  made.sums = std::make_unique<BlockComparer>(path, file(name).sums);
  made.file = files_.file(path);
  SafetensorsHeader header =
      SafetensorsHeader::read(path, made.file->bytes(), [&](uint64_t at, char* dst, size_t bytes) {
        made.file->read(at, dst, bytes);
        made.sums->add(at, dst, bytes);
      });
  made.data_at = header.data_at;
  for (StoredTensor& tensor : header.tensors) {
    std::string key = tensor.key;
    made.tensors.emplace(std::move(key), std::move(tensor));
  }
  return *sources_.emplace(name, std::move(made)).first;
}

void Contents::refuse(const std::string& file, const std::string& key, const std::string& why) const {
  const std::string path = path_of(file);
  throw Error(GSEL_ERR_PARSE, fmt::format("safetensors file {}: {} {}", path, in_quotes(key), why))
      .at({path, 0, 0, key});
}

const Contents::TensorOfKey& Contents::stored(const SourceOfName& from, const std::string& key,
                                              gsel_dtype dtype) const {
  const auto found = from.second.tensors.find(key);
  if (found == from.second.tensors.end()) refuse(from.first, key, "is in the index and not in the file");
  const StoredTensor& tensor = found->second;
  if (tensor.dtype() != dtype)
    refuse(from.first, key,
           fmt::format("has the type {}; expected {}", tensor.type_name(), dtype == GSEL_F32 ? "F32" : "U8"));
  return *found;
}

// Where its elements begin in the file.
uint64_t Contents::begin_of(const IndexPiece& piece) {
  const SourceOfName& from = named_source(piece.file);
  const StoredTensor& tensor = stored(from, piece.key, GSEL_F32).second;
  if (tensor.end - tensor.begin != sizeof(float) * static_cast<uint64_t>(piece.region.count()))
    refuse(piece.file, piece.key,
           fmt::format("has {} bytes, and the index gives it {} elements", tensor.end - tensor.begin,
                       piece.region.count()));
  return from.second.data_at + tensor.begin;
}

void Contents::find(int32_t tensor, const Region& region,
                    const std::function<void(const std::string& file, FileRead)>& add) {
  for (const IndexPiece& piece : pieces(tensor)) {
    SharedRuns runs(piece.region, region);
    auto run = runs.next();
    if (!run) continue;
    const uint64_t begin = begin_of(piece);
    std::optional<FileRead> last;
    for (; run; run = runs.next()) {
      const FileRead read{begin + sizeof(float) * static_cast<uint64_t>(run->first_local),
                          sizeof(float) * static_cast<uint64_t>(run->count), run->second_local};
      if (last && last->offset + last->bytes == read.offset &&
          last->local + static_cast<int64_t>(last->bytes / sizeof(float)) == read.local) {
        last->bytes += read.bytes;
        continue;
      }
      if (last) add(piece.file, *last);
      last = read;
    }
    add(piece.file, *last);
  }
}

StoredUser Contents::stored_user(const IndexUser& user, int32_t rank) {
  const SourceOfName& from = named_source(name_of_file(rank));
  const auto& [key, tensor] = stored(from, user_key(user.name), GSEL_U8);
  if (tensor.shape.size() != 1)
    refuse(from.first, key, fmt::format("has {} dimensions; expected 1, of bytes", tensor.shape.size()));
  return {from.first, key, {from.second.data_at + tensor.begin, tensor.end - tensor.begin, 0}};
}

void Contents::read(int32_t tensor, const Region& region, float* dst) {
  find(tensor, region, [&](const std::string& file, const FileRead& read) {
    source(file).file->read(read.offset, dst + read.local, read.bytes);
  });
}

void Contents::read(const std::string& file, uint64_t offset, void* dst, size_t bytes) {
  source(file).file->read(offset, dst, bytes);
  compare(file, offset, dst, bytes);
}

void Contents::compare(const std::string& file, uint64_t offset, const void* data, size_t bytes) {
  source(file).sums->add(offset, data, bytes);
}

}  // namespace gsel::checkpoint
