// base/file.cc: see file.h.
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"

namespace gsel {

namespace {

[[noreturn]] void unreadable(std::string_view what, const std::string& path, const std::string& why) {
  throw Error(GSEL_ERR_IO, fmt::format("{} {}: {}", what, one_line(path), why)).at({path, 0, 0, {}});
}

}  // namespace

std::string absolute_path(std::string_view what, const std::string& path) {
  if (path.empty()) fail(GSEL_ERR_ARG, "the path of the {} is empty; expected the path of a file", what);
  if (path.find('\0') != path.npos) fail(GSEL_ERR_ARG, "the path of the {} contains a NUL byte", what);
  return std::filesystem::absolute(path).lexically_normal().string();
}

std::string read_file(std::string_view what, const std::string& path, size_t max_bytes) {
  const os::Fd file(uninterrupted([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) unreadable(what, path, errno_text(errno) + "; expected a readable file");
  if (!S_ISREG(info.st_mode)) unreadable(what, path, "is not a regular file; expected a readable file");
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t n = read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) unreadable(what, path, errno_text(errno) + "; expected a readable file");
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > max_bytes)
      unreadable(what, path, fmt::format("has more than {0} bytes; expected a file of at most {0} bytes", max_bytes));
  }
}

namespace {

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = uninterrupted([&] { return write(fd, content.data(), content.size()); });
    if (n < 0) return false;
    content.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

void write_file(const std::string& path, std::string_view content) {
  static std::atomic<uint32_t> files{0};
  const std::string fresh = fmt::format("{}.{}.{}", path, getpid(), files.fetch_add(1));
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  os::Fd file(uninterrupted([&] { return open(fresh.c_str(), flags, 0644); }));
  if (file && write_all(file.get(), content) && rename(fresh.c_str(), path.c_str()) == 0) return;
  const int number = errno;
  if (file) unlink(fresh.c_str());
  throw Error(GSEL_ERR_IO, fmt::format("{} cannot be written: {}; expected a folder that this user may write to", path,
                                       errno_text(number)))
      .at({path, 0, 0, {}});
}

}  // namespace gsel
