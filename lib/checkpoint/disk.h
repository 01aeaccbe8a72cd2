// checkpoint/disk.h: all that checkpoints ask of a file system, in one table, so that a test can put a disk there that
// fails or loses what was not synced. Every call throws GSEL_ERR_IO with the path. Does not know what is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace gsel::checkpoint {

class DiskFile {
 public:
  virtual ~DiskFile() = default;  // closes
  virtual uint64_t bytes() const = 0;
  // All of them; fewer are an error. One thread at a time.
  virtual void read(uint64_t offset, void* dst, size_t bytes) = 0;
  // Several threads may, at different places.
  virtual void write(uint64_t offset, const void* src, size_t bytes) = 0;
  // Takes room for the file, so that a full disk is known before the first byte.
  virtual void reserve(uint64_t bytes) = 0;
  // Once: a system that failed to sync may forget what it failed to write, so that a second call says nothing.
  virtual void sync() = 0;
};

class Disk {
 public:
  virtual ~Disk() = default;
  virtual std::unique_ptr<DiskFile> open(const std::string& path) = 0;    // to read; a regular file
  virtual std::unique_ptr<DiskFile> create(const std::string& path) = 0;  // to write; there must be none
  virtual void make_folder(const std::string& path) = 0;                  // there must be none
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& path) = 0;  // a file, or an empty folder; nothing there is fine
  virtual bool exists(const std::string& path) = 0;
  virtual std::vector<std::string> names(const std::string& folder) = 0;  // sorted, without "." and ".."
  virtual void sync_folder(const std::string& path) = 0;
  virtual uint64_t free_bytes(const std::string& folder) = 0;  // for this user
  virtual int32_t write_threads() const { return 1; }          // that may write to one file at a time
};

Disk& real_disk();

// Memory that reads and writes around the page cache take.
constexpr size_t kDirectAlign = 4096;

struct FreeAligned {
  void operator()(char* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<char, FreeAligned>;

// bytes: a multiple of kDirectAlign. Throws std::bad_alloc.
inline AlignedMemory aligned_memory(size_t bytes) {
  AlignedMemory memory(static_cast<char*>(std::aligned_alloc(kDirectAlign, bytes)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace gsel::checkpoint
