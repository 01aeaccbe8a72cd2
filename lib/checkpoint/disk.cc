// checkpoint/disk.cc: see disk.h.
#include "checkpoint/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/align.h"
#include "base/error.h"
#include "base/os.h"

namespace gsel::checkpoint {
namespace {

[[noreturn]] void fail_at(const std::string& path, const char* what, int number) {
  throw Error(GSEL_ERR_IO, fmt::format("{} cannot be {}: {}", path, what, errno_text(number))).at({path, 0, 0, {}});
}

constexpr size_t kLongRead = size_t{1} << 20, kBounceBytes = size_t{8} << 20;

class RealFile : public DiskFile {
 public:
  RealFile(std::string path, os::Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  uint64_t bytes() const override { return static_cast<uint64_t>(status().st_size); }

  void read(uint64_t offset, void* dst, size_t bytes) override {
    if (bytes >= kLongRead && read_direct(offset, static_cast<char*>(dst), bytes)) return;
    for (auto* to = static_cast<char*>(dst); bytes > 0;) {
      const ssize_t n = pread(fd_.get(), to, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_at(path_, "read", errno);
      if (n == 0)
        throw Error(GSEL_ERR_IO, fmt::format("{} ends at byte {}; expected {} more", path_, offset, bytes))
            .at({path_, 0, 0, {}});
      to += n, offset += static_cast<uint64_t>(n), bytes -= static_cast<size_t>(n);
    }
  }

  // Aligned blocks go around the page cache where the file system can, which saves its fresh pages, and leaves it to
  // those who read.
  void write(uint64_t offset, const void* src, size_t bytes) override {
    bool is_direct = can_be_direct_ && (reinterpret_cast<uintptr_t>(src) | offset | bytes) % kDirectAlign == 0;
    for (const auto* from = static_cast<const char*>(src); bytes > 0;) {
      const ssize_t n = pwrite(is_direct ? direct_.get() : fd_.get(), from, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && is_direct && errno == EINVAL) {
        is_direct = can_be_direct_ = false;
        continue;
      }
      if (n < 0) fail_at(path_, "written", errno);
      from += n, offset += static_cast<uint64_t>(n), bytes -= static_cast<size_t>(n);
    }
  }

  // Not posix_fallocate, which writes zeros where the file system cannot reserve.
  void reserve(uint64_t bytes) override {
    while (bytes > 0 && fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
      if (errno == EOPNOTSUPP) return;
      if (errno != EINTR) fail_at(path_, "given room", errno);
    }
  }

  // access: O_RDONLY or O_WRONLY
  void allow_direct(int access) {
    const std::string same = fmt::format("/proc/self/fd/{}", fd_.get());
    direct_ = os::Fd(::open(same.c_str(), access | O_CLOEXEC | O_DIRECT));
    can_be_direct_ = static_cast<bool>(direct_);
  }

  void sync() override {
    if (fsync(fd_.get()) != 0) fail_at(path_, "synced", errno);
  }

  struct stat status() const {
    struct stat status {};
    if (fstat(fd_.get(), &status) != 0) fail_at(path_, "looked at", errno);
    return status;
  }

 private:
  // Around the page cache, whose fresh pages cost more than the disk: aligned blocks into aligned memory, and the rest
  // through memory that is used again. False: it cannot be, or the file is shorter, which the plain way tells.
  bool read_direct(uint64_t offset, char* dst, size_t bytes) {
    if (!can_be_direct_) return false;
    while (bytes > 0) {
      const size_t skip = offset % kDirectAlign;
      const bool is_alike = reinterpret_cast<uintptr_t>(dst) % kDirectAlign == skip;
      const bool is_straight = is_alike && skip == 0 && bytes >= kDirectAlign;
      if (!is_straight && !bounce_) bounce_ = aligned_memory(kBounceBytes);
      const size_t wanted = is_straight ? bytes / kDirectAlign * kDirectAlign
                            : is_alike  ? kDirectAlign
                                        : std::min<size_t>(round_up(skip + bytes, kDirectAlign), kBounceBytes);
      char* const to = is_straight ? dst : bounce_.get();
      const ssize_t n = pread(direct_.get(), to, wanted, static_cast<off_t>(offset - skip));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 || static_cast<size_t>(n) <= skip) return can_be_direct_ = false;
      const size_t some = std::min(static_cast<size_t>(n) - skip, bytes);
      if (!is_straight) std::memcpy(dst, to + skip, some);
      dst += some, offset += some, bytes -= some;
    }
    return true;
  }

  const std::string path_;
  const os::Fd fd_;
  os::Fd direct_;
  std::atomic<bool> can_be_direct_{false};
  AlignedMemory bounce_;
};

class RealDisk : public Disk {
 public:
  int32_t write_threads() const override { return 2; }
  // Does not wait for the other end of a pipe.
  std::unique_ptr<DiskFile> open(const std::string& path) override {
    os::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) fail_at(path, "opened", errno);
    auto file = std::make_unique<RealFile>(path, std::move(fd));
    if (!S_ISREG(file->status().st_mode)) throw Error(GSEL_ERR_IO, path + " is no regular file").at({path, 0, 0, {}});
    file->allow_direct(O_RDONLY);
    return file;
  }

  std::unique_ptr<DiskFile> create(const std::string& path) override {
    os::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) fail_at(path, "created", errno);
    auto file = std::make_unique<RealFile>(path, std::move(fd));
    file->allow_direct(O_WRONLY);
    return file;
  }

  void make_folder(const std::string& path) override {
    if (mkdir(path.c_str(), 0777) != 0) fail_at(path, "made", errno);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_at(from, ("renamed to " + to).c_str(), errno);
  }

  void remove(const std::string& path) override {
    if (::remove(path.c_str()) != 0 && errno != ENOENT) fail_at(path, "removed", errno);
  }

  bool exists(const std::string& path) override {
    struct stat status {};
    if (stat(path.c_str(), &status) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) fail_at(path, "looked at", errno);
    return false;
  }

  std::vector<std::string> names(const std::string& folder) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
    if (!open) fail_at(folder, "listed", errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(open.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    if (errno != 0) fail_at(folder, "listed", errno);
    std::ranges::sort(names);
    return names;
  }

  void sync_folder(const std::string& path) override {
    const os::Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) fail_at(path, "opened", errno);
    if (fsync(fd.get()) != 0) fail_at(path, "synced", errno);
  }

  uint64_t free_bytes(const std::string& folder) override {
    struct statvfs status {};
    if (statvfs(folder.c_str(), &status) != 0) fail_at(folder, "asked for its free bytes", errno);
    return uint64_t{status.f_bavail} * status.f_frsize;
  }
};

}  // namespace

Disk& real_disk() {
  static RealDisk disk;
  return disk;
}

}  // namespace gsel::checkpoint
