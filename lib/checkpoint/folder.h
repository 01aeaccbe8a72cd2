// checkpoint/folder.h: a folder of checkpoints: its newest whole one, a new one under a temporary name until all is on
// the disk, and which older ones go. Does not know tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/block_writer.h"
#include "checkpoint/disk.h"
#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"

namespace gsel::checkpoint {

// Of the step in a folder of checkpoints.
std::string name_of_step(int64_t step);
std::string path_of_step(std::string folder, int64_t step);
// One text for a path, however it is given: links are followed as far as there is something.
std::string canonical(const std::string& path);

// GSEL_ERR_ARG: empty, or with control characters. name: of the argument.
void check_path(const std::string& path, const char* name);
// "." for a name alone.
std::string parent_of(std::string path);

// The two JSON files of a checkpoint.
struct CheckpointTexts {
  std::string path, manifest, index;
  bool is_named = false;  // what was given is the checkpoint
};

// given: a checkpoint, or a folder with several: the newest whole one of those before end_step. Whole is one whose
// manifest is right, whose files are there with their sizes, and whose index has the sum that the manifest says.
// GSEL_ERR_NOT_FOUND, GSEL_ERR_PARSE, GSEL_ERR_IO.
CheckpointTexts find_checkpoint(Disk& disk, const std::string& given, int64_t end_step = INT64_MAX);
// Of the path of a checkpoint in a folder: what its name says.
int64_t step_of(const std::string& path);

// A safetensors file that is written from its beginning on, with its sums.
class FileWriter {
 public:
  // There must be none. Takes room for the whole file, and writes the header. idle: called now and then in a put that
  // waits for the disk.
  FileWriter(Disk& disk, const std::string& path, const SafetensorsHeader& header, std::function<void()> idle = {});
  void put(const void* data, size_t bytes);
  // The file is on the disk.
  FileSums finish();

 private:
  std::unique_ptr<DiskFile> file_;
  FileSummer sums_;
  std::unique_ptr<BlockWriter> blocks_;
};

// A checkpoint that is written. Calls that say so are made by one rank for all.
class NewCheckpoint {
 public:
  // nonce: the same on all ranks. damaged: canonical paths of checkpoints that have turned out to be damaged.
  NewCheckpoint(Disk& disk, const std::string& folder, int64_t step, uint64_t nonce,
                std::span<const std::string> damaged = {});

  // One rank. The folders, if there is room for so many bytes of tensors. GSEL_ERR_STATE: there is a whole one of this
  // step.
  void begin(uint64_t bytes);
  // Of a file, while the checkpoint is written.
  std::string path_of(const std::string& file) const { return temporary_ + "/" + file; }
  // One rank, when the files are on the disk. files: the manifest's items. After an error, undo leaves no checkpoint.
  void commit(const std::string& index, std::vector<std::string> files);
  // One rank, after commit: removes all whole checkpoints but this one, the newest, and so many that `keep` are left.
  // 0: keeps all. What cannot be removed is logged.
  void remove_older(int32_t keep) noexcept;
  // After an error: removes this rank's file, or, on one rank, all. What cannot be removed is no checkpoint either: it
  // has no manifest, or its temporary name.
  void undo(const std::string& file) noexcept;
  void undo() noexcept;
  bool is_committed() const { return is_committed_; }

 private:
  void refuse_existing();
  void set_damaged_aside();
  bool name_latest() noexcept;

  Disk& disk_;
  const std::string folder_, nonce_;
  const int64_t step_;
  const std::string final_, temporary_;
  const bool is_known_damaged_;
  bool has_its_name_ = false, is_committed_ = false, has_latest_ = false;
};

}  // namespace gsel::checkpoint
