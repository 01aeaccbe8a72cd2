// base/write_file.cc: see write_file.h.
#include "base/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/os.h"
#include "base/uninterrupted.h"

namespace gsel {
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
