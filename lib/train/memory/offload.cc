// train/memory/offload.cc: see offload.h. Disk space is reserved when an array is made: writing to a page without space
// would end the process.
#include "train/memory/offload.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/align.h"
#include "base/os.h"
#include "device/host/table.h"

namespace gsel {
namespace {

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::string temporary_folder() {
  const char* folder = secure_getenv("TMPDIR");
  return folder && *folder ? folder : "/tmp";
}

// An unnamed or immediately unlinked file, so that nothing remains however the process ends.
int open_unnamed(const std::string& folder) {
  const int fd = uninterrupted([&] { return open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); });
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string name = folder + "/gsel-offload-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

}  // namespace

OffloadMemory::OffloadMemory(std::shared_ptr<DeviceContext> device, const std::string& folder)
    : device_(std::move(device)), folder_(folder.empty() ? temporary_folder() : folder), file_() {
  if (&device_->table() != &host_device_table()) return;
  file_ = os::Fd(open_unnamed(folder_));
  if (!file_)
    fail(GSEL_ERR_CONFIG,
         "offload memory's file could not be made in {}: {}; train.offload_folder names a folder to write to", folder_,
         errno_text(errno));
}

Memory OffloadMemory::page_locked(uint64_t bytes) const {
  Memory memory(device_, bytes, GSEL_MEMORY_PINNED);
  std::memset(memory.data(), 0, bytes);
  return memory;
}

uint64_t OffloadMemory::extend(uint64_t bytes) {
  const uint64_t wanted = round_up(bytes, page_bytes());
  auto refuse = [&](const std::string& found) {
    fail(GSEL_ERR_NOMEM,
         "offload memory needs {} bytes more beside {} in {}: {}; train.offload_folder names another folder", wanted,
         end_, folder_, found);
  };
  // Checked first: if a file system cannot reserve space, the C library writes to each page until the disk is full.
  struct statvfs disk {};
  if (fstatvfs(file_.get(), &disk) == 0) {
    const uint64_t room = uint64_t{disk.f_bavail} * disk.f_frsize;
    if (disk.f_blocks > 0 && wanted > room) refuse(fmt::format("{} bytes are free", room));
  }
  int code = 0;
  do code = posix_fallocate(file_.get(), static_cast<off_t>(end_), static_cast<off_t>(wanted));
  while (code == EINTR);
  if (code != 0) refuse(errno_text(code));
  return std::exchange(end_, end_ + wanted);
}

OffloadedArray::OffloadedArray(OffloadMemory& offload, Ledger& ledger, MemoryPart part, uint64_t bytes) : part_(part) {
  if (bytes == 0) return;
  if (offload.is_file()) {
    offset_ = offload.extend(bytes);
    void* mapped =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, offload.file(), static_cast<off_t>(offset_));
    if (mapped == MAP_FAILED)
      fail(GSEL_ERR_NOMEM, "{} bytes of offload memory could not be mapped: {}", bytes, errno_text(errno));
    mapped_ = mapped;
  } else {
    page_locked_ = offload.page_locked(bytes);
    mapped_ = page_locked_.data();
  }
  bytes_ = bytes;
  offload_ = &offload;
  ledger.take(part, bytes);  // never fails: the budget excludes offload memory
  ledger_ = &ledger;
}

OffloadedArray::~OffloadedArray() {
  if (!mapped_) return;
  if (!page_locked_.data()) munmap(mapped_, bytes_);
  ledger_->give_back(part_, bytes_);
}

void OffloadedArray::swap(OffloadedArray& other) noexcept {
  std::swap(offload_, other.offload_);
  std::swap(ledger_, other.ledger_);
  std::swap(part_, other.part_);
  std::swap(page_locked_, other.page_locked_);
  std::swap(mapped_, other.mapped_);
  std::swap(offset_, other.offset_);
  std::swap(bytes_, other.bytes_);
}

void* OffloadedArray::begin_use() {
  if (mapped_) offload_->bytes_in += bytes_;
  return mapped_;
}

void OffloadedArray::end_use(bool written) {
  if (!mapped_) return;
  if (written) offload_->bytes_out += bytes_;
  if (!ends_with_its_work()) return;
  if (written && msync(mapped_, bytes_, MS_SYNC) != 0)
    fail(GSEL_ERR_IO, "{} bytes could not be written to offload memory: {}", bytes_, errno_text(errno));
  // Hints: if the system ignores them, only memory is lost.
  madvise(mapped_, bytes_, MADV_DONTNEED);
  posix_fadvise(offload_->file(), static_cast<off_t>(offset_), static_cast<off_t>(bytes_), POSIX_FADV_DONTNEED);
}

}  // namespace gsel
