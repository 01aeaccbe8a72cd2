// checkpoint/folder.cc: see folder.h.
#include "checkpoint/folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace gsel::checkpoint {
namespace {

constexpr uint64_t kMostManifestBytes = uint64_t{1} << 28;
constexpr uint64_t kMostIndexBytes = uint64_t{1} << 30;
constexpr uint64_t kSpareBytes = uint64_t{1} << 20;  // on the disk, for the index and what the file system needs
constexpr const char* kTrashPrefix = ".trash-";
constexpr const char* kStepPrefix = "step-";

std::string text_of_file(Disk& disk, const std::string& path, uint64_t most) {
  const auto file = disk.open(path);
  if (file->bytes() > most)
    throw Error(GSEL_ERR_PARSE, fmt::format("{} has {} bytes; expected at most {}", path, file->bytes(), most))
        .at({path, 0, 0, {}});
  std::string text(file->bytes(), '\0');
  file->read(0, text.data(), text.size());
  return text;
}

[[noreturn]] void fail_missing(const std::string& path) {
  throw Error(GSEL_ERR_PARSE, path + " is missing").at({path, 0, 0, {}});
}

// Files have the sizes that the manifest says. text: of it. GSEL_ERR_PARSE where they have not, GSEL_ERR_IO where they
// cannot be read.
Manifest whole_manifest(Disk& disk, const std::string& path, std::string& text) {
  const std::string file = path + "/" + kManifestName;
  if (!disk.exists(file)) fail_missing(file);
  text = text_of_file(disk, file, kMostManifestBytes);
  Manifest manifest = Manifest::parse(text, file);
  for (const ManifestFile& of : manifest.files) {
    const std::string name = path + "/" + of.name;
    if (!disk.exists(name)) fail_missing(name);
    if (const uint64_t bytes = disk.open(name)->bytes(); bytes != of.sums.bytes)
      throw Error(GSEL_ERR_PARSE, fmt::format("{} has {} bytes, and the manifest says {}", name, bytes, of.sums.bytes))
          .at({name, 0, 0, {}});
  }
  return manifest;
}

// The index has the sum that the manifest says, too.
CheckpointTexts whole_texts(Disk& disk, const std::string& path) {
  const std::string index_file = path + "/" + kIndexName;
  CheckpointTexts texts;
  texts.path = path;
  const Manifest manifest = whole_manifest(disk, path, texts.manifest);
  texts.index = text_of_file(disk, index_file, kMostIndexBytes);
  if (manifest.file(kIndexName, path + "/" + kManifestName).sums.whole !=
      sum_of(texts.index.data(), texts.index.size()))
    throw Error(GSEL_ERR_PARSE, index_file + " is not what the manifest says: it has another sum")
        .at({index_file, 0, 0, {}});
  return texts;
}

bool is_name_of_step(std::string_view name) {
  return name.starts_with(kStepPrefix) && name.size() == name_of_step(0).size() &&
         name.find_first_not_of("0123456789", std::string_view(kStepPrefix).size()) == name.npos;
}

// The last part of a path.
std::string_view name_of(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

// The newest first: all names are of one length.
std::vector<std::string> names_of_steps(Disk& disk, const std::string& folder) {
  std::vector<std::string> names = disk.names(folder);
  std::erase_if(names, [](const std::string& name) { return !is_name_of_step(name); });
  std::ranges::reverse(names);
  return names;
}

bool is_whole(Disk& disk, const std::string& path) {
  try {
    std::string text;
    whole_manifest(disk, path, text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether a folder is not a whole checkpoint. A file that cannot be read says nothing about that: its error is thrown.
bool is_damaged(Disk& disk, const std::string& path) {
  try {
    whole_texts(disk, path);
    return false;
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_PARSE) throw;
    return true;
  }
}

void remove_folder(Disk& disk, const std::string& path) {
  for (const std::string& name : disk.names(path)) disk.remove(path + "/" + name);
  disk.remove(path);
}

void put_file(Disk& disk, const std::string& path, const std::string& text) {
  const auto file = disk.create(path);
  file->write(0, text.data(), text.size());
  file->sync();
}

}  // namespace

std::string name_of_step(int64_t step) {
  return fmt::format("{}{:012}", kStepPrefix, step);
}

std::string path_of_step(std::string folder, int64_t step) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder + "/" + name_of_step(step);
}

std::string canonical(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path found = std::filesystem::weakly_canonical(path, failure);
  return failure ? path : found.string();
}

void check_path(const std::string& path, const char* name) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (path.empty()) fail(GSEL_ERR_ARG, "{} is empty; expected a path", name);
  if (std::ranges::any_of(path, is_control))
    fail(GSEL_ERR_ARG, "{} is {}, with control characters; expected a path", name, in_quotes(path));
}

std::string parent_of(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

CheckpointTexts find_checkpoint(Disk& disk, const std::string& given, int64_t end_step) {
  if (!disk.exists(given))
    throw Error(GSEL_ERR_NOT_FOUND, given + " does not exist; expected a checkpoint, or a folder with some")
        .at({given, 0, 0, {}});
  if (is_name_of_step(name_of(given)) || disk.exists(given + "/" + kManifestName)) {
    CheckpointTexts texts = whole_texts(disk, given);
    texts.is_named = true;
    return texts;
  }
  std::optional<Error> why;
  for (const std::string& name : names_of_steps(disk, given)) {
    if (step_of(name) >= end_step) continue;
    const std::string path = path_of_step(given, step_of(name));
    try {
      return whole_texts(disk, path);
    } catch (const Error& e) {
      if (e.code() != GSEL_ERR_PARSE) throw;
      log(GSEL_LOG_WARN, "checkpoint", "{} is no whole checkpoint, and is left out: {}", path, e.message());
      if (!why) why = e;
    }
  }
  if (why) throw Error(GSEL_ERR_PARSE, given + " has no whole checkpoint").at({given, 0, 0, {}}).because(*why);
  throw Error(GSEL_ERR_NOT_FOUND, given + " has no checkpoint; expected one, or a folder with some")
      .at({given, 0, 0, {}});
}

int64_t step_of(const std::string& path) {
  const size_t digits = name_of_step(0).size() - std::string_view(kStepPrefix).size();
  return std::stoll(path.substr(path.size() - digits));
}

FileWriter::FileWriter(Disk& disk, const std::string& path, const SafetensorsHeader& header,
                       std::function<void()> idle) {
  const std::string head = header.text();
  file_ = disk.create(path);
  const uint64_t bytes = head.size() + (header.tensors.empty() ? 0 : header.tensors.back().end);
  file_->reserve(bytes);
  blocks_ = std::make_unique<BlockWriter>(*file_, bytes, disk.write_threads(), std::move(idle));
  put(head.data(), head.size());
}

void FileWriter::put(const void* data, size_t bytes) {
  blocks_->put(data, bytes);
  sums_.add(data, bytes);
}

FileSums FileWriter::finish() {
  blocks_->finish();
  file_->sync();
  return sums_.sums();
}

NewCheckpoint::NewCheckpoint(Disk& disk, const std::string& folder, int64_t step, uint64_t nonce,
                             std::span<const std::string> damaged)
    : disk_(disk),
      folder_(folder),
      nonce_(fmt::format("{:016x}", nonce)),
      step_(step),
      final_(path_of_step(folder, step)),
      temporary_(fmt::format("{}/.saving-{}-{}", folder, step, nonce_)),
      is_known_damaged_(std::ranges::find(damaged, canonical(final_)) != damaged.end()) {}

void NewCheckpoint::begin(uint64_t bytes) {
  if (!disk_.exists(folder_)) {
    disk_.make_folder(folder_);
    disk_.sync_folder(parent_of(folder_));
  }
  refuse_existing();
  if (const uint64_t free = disk_.free_bytes(folder_); free < bytes + kSpareBytes)
    throw Error(GSEL_ERR_IO,
                fmt::format("{} has {} bytes free, and the checkpoint needs {}", folder_, free, bytes + kSpareBytes))
        .at({folder_, 0, 0, {}});
  disk_.make_folder(temporary_);
}

void NewCheckpoint::commit(const std::string& index, std::vector<std::string> files) {
  put_file(disk_, path_of(kIndexName), index);
  FileSummer sums;
  sums.add(index.data(), index.size());
  if (index.size() > kMostIndexBytes)
    throw Error(GSEL_ERR_UNSUPPORTED,
                fmt::format("{} has {} bytes, and no load takes more than {}; save from fewer ranks",
                            path_of(kIndexName), index.size(), kMostIndexBytes))
        .at({path_of(kIndexName), 0, 0, {}});
  files.push_back(ManifestFile{kIndexName, sums.sums()}.text());
  put_file(disk_, path_of(kManifestName), Manifest::text(step_, files));
  disk_.sync_folder(temporary_);
  set_damaged_aside();
  disk_.rename(temporary_, final_);
  has_its_name_ = true;
  disk_.sync_folder(folder_);
  is_committed_ = true;
  has_latest_ = name_latest();
}

void NewCheckpoint::refuse_existing() {
  if (disk_.exists(final_) && !is_known_damaged_ && !is_damaged(disk_, final_))
    throw Error(GSEL_ERR_STATE, final_ + " is there already; remove it, or save into another folder")
        .at({final_, 0, 0, {}});
}

// What has the name of this step and is no whole checkpoint.
void NewCheckpoint::set_damaged_aside() {
  refuse_existing();
  if (!disk_.exists(final_)) return;
  const std::string aside = fmt::format("{}/.damaged-{}-{}", folder_, name_of_step(step_), nonce_);
  disk_.rename(final_, aside);
  log(GSEL_LOG_WARN, "checkpoint", "{} was no whole checkpoint, and is called {} now", final_, aside);
}

// For people: a checkpoint is whole without it.
bool NewCheckpoint::name_latest() noexcept {
  const std::string latest = folder_ + "/.latest-" + nonce_;
  bool is_there = false;
  try {
    is_there = true;
    put_file(disk_, latest, name_of_step(step_) + "\n");
    disk_.rename(latest, folder_ + "/" + kLatestName);
    is_there = false;
    disk_.sync_folder(folder_);
    return true;
  } catch (...) {
    log(GSEL_LOG_WARN, "checkpoint", "{}/{} does not name {}: {}", folder_, kLatestName, name_of_step(step_),
        current_error().message());
    try {
      if (is_there) disk_.remove(latest);
    } catch (...) {  // there is none
    }
    return false;
  }
}

// Where the disk has just failed, nothing is removed. A folder loses its name before its files go, so that what has a
// checkpoint's name is whole. Files that an earlier call left over go as well.
void NewCheckpoint::remove_older(int32_t keep) noexcept {
  if (keep <= 0 || !has_latest_) return;
  try {
    int32_t kept = 1;  // this one
    bool is_newest = true, removes = false;
    for (const std::string& name : names_of_steps(disk_, folder_)) {
      if (!is_whole(disk_, folder_ + "/" + name)) continue;
      const bool is_this = name == name_of_step(step_);
      if (!is_this && (is_newest || kept < keep)) {
        ++kept;
      } else if (!is_this) {
        disk_.rename(folder_ + "/" + name, fmt::format("{}/{}{}-{}", folder_, kTrashPrefix, name, nonce_));
        removes = true;
      }
      is_newest = false;
    }
    if (removes) disk_.sync_folder(folder_);
    for (const std::string& name : disk_.names(folder_))
      if (name.starts_with(kTrashPrefix)) remove_folder(disk_, folder_ + "/" + name);
  } catch (...) {
    log(GSEL_LOG_WARN, "checkpoint", "an older checkpoint is not removed: {}", current_error().message());
  }
}

void NewCheckpoint::undo(const std::string& file) noexcept {
  try {
    if (!is_committed_) disk_.remove(path_of(file));
  } catch (...) {
  }
}

void NewCheckpoint::undo() noexcept {
  try {
    if (is_committed_) return;
    if (has_its_name_) disk_.rename(final_, temporary_);
    remove_folder(disk_, temporary_);
  } catch (...) {
  }
}

}  // namespace gsel::checkpoint
