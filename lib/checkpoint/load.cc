// checkpoint/load.cc: see load.h. The first rank reads manifest and index for all.
#include "checkpoint/load.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

constexpr uint64_t kMostManifestBytes = uint64_t{1} << 26;
constexpr size_t kMostDifferences = 10;

std::string text_of_file(Disk& disk, const std::string& path, uint64_t most) {
  const auto file = disk.open(path);
  if (file->bytes() > most)
    throw Error(GSEL_ERR_PARSE, fmt::format("{} has {} bytes; expected at most {}", path, file->bytes(), most))
        .at({path, 0, 0, {}});
  std::string text(file->bytes(), '\0');
  file->read(0, text.data(), text.size());
  return text;
}

class Loading {
 public:
  Loading(Communicator& comm, StateDict& state, const std::string& optimizer, const std::string& path, Disk& disk)
      : comm_(comm), state_(state), disk_(disk), optimizer_(optimizer), given_(path) {}

  Loaded run(const std::function<void()>& begins_to_write) {
    std::string said;
    together([&] {
      if (comm_.rank() == 0) said = find();
    });
    said = from_first(std::move(said));
    together([&] { prepare(said); });
    begins_to_write();
    together([&] { read_all(); });
    loaded_.numbers = index_.numbers;
    return loaded_;
  }

 private:
  template <class Work>
  void together(Work&& work) {
    on_all_ranks(comm_, "trainer's state", work);
  }

  // The checkpoint's path, manifest and index, each after its length.
  std::string find() {
    std::string path = given_, manifest;
    if (disk_.exists(given_ + "/" + kManifestName)) {
      manifest = whole_manifest(path);
    } else {
      std::optional<Error> why;
      std::vector<std::string> names = disk_.names(given_);
      std::erase_if(names, [](const std::string& name) { return !name.starts_with("step-"); });
      for (auto name = names.rbegin(); name != names.rend() && manifest.empty(); ++name) try {
          path = given_ + "/" + *name;
          manifest = whole_manifest(path);
        } catch (const Error& e) {
          if (!why) why = e;
        }
      if (manifest.empty() && why)
        throw Error(GSEL_ERR_NOT_FOUND, given_ + " has no whole checkpoint").at({given_, 0, 0, {}}).because(*why);
      if (manifest.empty())
        throw Error(GSEL_ERR_NOT_FOUND, given_ + " has no checkpoint; expected one, or a folder with some")
            .at({given_, 0, 0, {}});
    }
    const std::string index = text_of_file(disk_, path + "/" + kIndexName, kMostIndexBytes);
    std::string all;
    for (const std::string* part : std::initializer_list<const std::string*>{&path, &manifest, &index}) {
      const uint64_t bytes = part->size();
      all.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
      all += *part;
    }
    return all;
  }

  // The text of a manifest whose files are there with their sizes.
  std::string whole_manifest(const std::string& path) {
    const std::string file = path + "/" + kManifestName;
    std::string text = text_of_file(disk_, file, kMostManifestBytes);
    for (const ManifestFile& of : Manifest::parse(text, file).files) {
      const std::string name = path + "/" + of.name;
      if (const uint64_t bytes = disk_.open(name)->bytes(); bytes != of.bytes)
        throw Error(GSEL_ERR_PARSE, fmt::format("{} has {} bytes, and the manifest says {}", name, bytes, of.bytes))
            .at({name, 0, 0, {}});
    }
    return text;
  }

  std::string from_first(std::string text) {
    uint64_t bytes = gather_numbers(comm_, {text.size()}).front();
    text.resize(bytes);
    comm_.collective_on_host(
        make_collective(GSEL_COLLECTIVE_BROADCAST, text.data(), text.data(), bytes, GSEL_U8, 0, 0));
    return text;
  }

  void prepare(std::string_view said) {
    const auto take = [&said] {
      uint64_t bytes = 0;
      std::memcpy(&bytes, said.data(), sizeof bytes);
      const std::string_view text = said.substr(sizeof bytes, bytes);
      said.remove_prefix(sizeof bytes + bytes);
      return text;
    };
    loaded_.path = take();
    manifest_ = Manifest::parse(take(), loaded_.path + "/" + kManifestName);
    const std::string_view index = take();
    const std::string file = loaded_.path + "/" + kIndexName;
    const auto listed = std::ranges::find(manifest_.files, kIndexName, &ManifestFile::name);
    if (listed == manifest_.files.end() || listed->sum != sum_of(index.data(), index.size()))
      throw Error(GSEL_ERR_PARSE, file + " is not what the manifest says: it has another sum").at({file, 0, 0, {}});
    index_ = Index::parse(index, file);
    match();
    for (const StatePart& part : state_.held()) plan(part);
    for (auto& [name, of] : files_) std::ranges::sort(of.reads, {}, &Read::offset);
  }

  // Which tensor of the checkpoint each of the trainer's is.
  void match() {
    std::vector<std::string> wrong;
    if (index_.optimizer != optimizer_)
      wrong.push_back(fmt::format("it was trained with {}, and this trainer has {}", index_.optimizer, optimizer_));
    std::map<std::string_view, size_t> there;
    for (size_t t = 0; t < index_.tensors.size(); ++t) there.emplace(index_.tensors[t].name, t);
    const auto shape_text = [](const std::vector<int64_t>& shape) {
      return fmt::format("[{}]", fmt::join(shape, ", "));
    };
    for (const StateTensor& tensor : state_.tensors()) {
      const auto found = there.find(tensor.name);
      of_tensor_.push_back(found == there.end() ? 0 : found->second);
      if (found == there.end()) {
        wrong.push_back(in_quotes(tensor.name) + " is not in it");
        continue;
      }
      if (const auto& shape = index_.tensors[found->second].shape; shape != tensor.shape)
        wrong.push_back(fmt::format("{} has shape {} in it, and {} in this model", in_quotes(tensor.name),
                                    shape_text(shape), shape_text(tensor.shape)));
      there.erase(found);
    }
    for (const auto& [name, t] : there) wrong.push_back(in_quotes(name) + " is in it and not in this model");
    if (wrong.empty()) return;
    const size_t more = wrong.size() > kMostDifferences ? wrong.size() - kMostDifferences : 0;
    wrong.resize(wrong.size() - more);
    throw Error(GSEL_ERR_MISMATCH, fmt::format("{} is of another model: {}{}", loaded_.path, fmt::join(wrong, "; "),
                                               more ? fmt::format("; and {} more", more) : std::string()))
        .at({loaded_.path, 0, 0, {}});
  }

  struct Read {
    uint64_t offset = 0, bytes = 0;
    size_t part = 0;    // index in held()
    int64_t local = 0;  // element of the part
  };
  struct Source {
    std::unique_ptr<DiskFile> file;
    std::map<std::string, StoredTensor> tensors;
    uint64_t data_at = 0;
    std::vector<Read> reads;
  };

  Source& source(const std::string& name) {
    const auto found = files_.find(name);
    if (found != files_.end()) return found->second;
    const std::string path = loaded_.path + "/" + name;
    if (std::ranges::find(manifest_.files, name, &ManifestFile::name) == manifest_.files.end())
      throw Error(GSEL_ERR_PARSE,
                  fmt::format("{} names {}, which is not in the manifest", loaded_.path + "/" + kIndexName, name))
          .at({path, 0, 0, {}});
    Source& source = files_[name];
    source.file = disk_.open(path);
    SafetensorsHeader header = SafetensorsHeader::read(
        path, source.file->bytes(), [&](uint64_t at, char* dst, size_t bytes) { source.file->read(at, dst, bytes); });
    source.data_at = header.data_at;
    for (StoredTensor& tensor : header.tensors) {
      std::string key = tensor.key;
      source.tensors.emplace(std::move(key), std::move(tensor));
    }
    return source;
  }

  // Where the elements of a slice begin in its file.
  uint64_t begin_of(const Slice& slice, Source& source) {
    const std::string path = loaded_.path + "/" + slice.file;
    const auto stored = source.tensors.find(slice.key);
    const auto wrong = [&](const std::string& why) {
      throw Error(GSEL_ERR_PARSE, fmt::format("safetensors file {}: {} {}", path, in_quotes(slice.key), why))
          .at({path, 0, 0, slice.key});
    };
    if (stored == source.tensors.end()) wrong("is in the index and not in the file");
    const StoredTensor& tensor = stored->second;
    if (tensor.dtype() != GSEL_F32) wrong(fmt::format("has the type {}; expected F32", tensor.type_name()));
    if (tensor.end - tensor.begin != sizeof(float) * static_cast<uint64_t>(slice.region.count()))
      wrong(fmt::format("has {} bytes, and the index gives it {} elements", tensor.end - tensor.begin,
                        slice.region.count()));
    return source.data_at + tensor.begin;
  }

  void plan(const StatePart& part) {
    const auto p = static_cast<size_t>(&part - state_.held().data());
    const auto tensor = static_cast<int32_t>(of_tensor_[static_cast<size_t>(part.tensor)]);
    loaded_.bytes_held += sizeof(float) * static_cast<uint64_t>(part.region.count());
    for (const Slice& slice : std::ranges::equal_range(index_.slices, tensor, {}, &Slice::tensor)) {
      SharedRuns runs(slice.region, part.region);
      auto run = runs.next();
      if (!run) continue;
      Source& from = source(slice.file);
      const uint64_t begin = begin_of(slice, from);
      for (; run; run = runs.next()) {
        const Read read{begin + sizeof(float) * static_cast<uint64_t>(run->first_local),
                        sizeof(float) * static_cast<uint64_t>(run->count), p, run->second_local};
        Read* const last = from.reads.empty() ? nullptr : &from.reads.back();
        if (last && last->part == p && last->offset + last->bytes == read.offset &&
            last->local + static_cast<int64_t>(last->bytes / sizeof(float)) == read.local)
          last->bytes += read.bytes;
        else
          from.reads.push_back(read);
      }
    }
  }

  void read_all() {
    std::vector<float> buffer;
    for (auto& [name, from] : files_)
      for (const Read& read : from.reads) {
        StatePart part = state_.held()[read.part];
        const auto count = static_cast<int64_t>(read.bytes / sizeof(float));
        for (int64_t first = 0; first < count; first += kChunkElems) {
          const int64_t some = std::min(kChunkElems, count - first);
          buffer.resize(static_cast<size_t>(some));
          from.file->read(read.offset + sizeof(float) * static_cast<uint64_t>(first), buffer.data(),
                          sizeof(float) * buffer.size());
          StatePart piece = part;
          piece.region = part.region.part(read.local + first, some);
          piece.first += read.local + first;
          state_.write(piece, buffer.data());
          loaded_.bytes_read += sizeof(float) * buffer.size();
        }
      }
  }

  static constexpr int64_t kChunkElems = int64_t{1} << 22;

  Communicator& comm_;
  StateDict& state_;
  Disk& disk_;
  const std::string optimizer_, given_;
  Loaded loaded_;
  Manifest manifest_;
  Index index_;
  std::vector<size_t> of_tensor_;  // of the checkpoint, by the trainer's
  std::map<std::string, Source> files_;
};

}  // namespace

Loaded load(Communicator& comm, StateDict& state, const std::string& optimizer, const std::string& path, Disk& disk,
            const std::function<void()>& begins_to_write) {
  return Loading(comm, state, optimizer, path, disk).run(begins_to_write);
}

}  // namespace gsel::checkpoint
