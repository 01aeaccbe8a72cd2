// comm/hosts/file_store.cc: an address store that is a file in a folder that all hosts see, such as on NFS. The file's
// name is the user's path, then the job and a random number of rank 0. The file is created complete, by a rename, and
// removed when the ranks have met. It can contain a token, since only the user can read it, and files of other users
// are ignored. The file of a killed rank 0 stays; its expiry time shows that it is stale.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "comm/hosts/address_store.h"
#include "comm/hosts/stream.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kClocksDifferS = 60, kProbeNs = 500'000'000;
constexpr ssize_t kMostFileBytes = 4096;
constexpr size_t kRandomDigits = 16;
constexpr std::string_view kDraft = ".new";
constexpr int32_t kDraftTries = 3;

class FileStore : public AddressStore {
 public:
  FileStore(const MeetingPlace& place, const std::string& job) : place_(place) {
    const size_t slash = place.path.rfind('/');
    folder_ = place.path.substr(0, slash + 1);
    begin_ = fmt::format("{}.gsel-{}-", place.path.substr(slash + 1), job);
  }
  ~FileStore() override {
    if (!own_.empty()) unlink(own_.c_str());
  }

  void post(const Endpoint& endpoint, int64_t) override {
    for (const Found& other : list()) check_other(other);
    remove_drafts();
    uint64_t random = 0;
    os::random_bytes(&random, sizeof random);
    const std::string name = fmt::format("{}{}{:016x}", folder_, begin_, random);
    const std::string text = endpoint_text(endpoint) + "\n";
    for (int32_t tries = kDraftTries; !write_file(name, text); --tries)
      if (errno != ENOENT || tries == 0) fail_io(name + std::string(kDraft));
    own_ = name;
    if (const os::Fd folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); folder) fsync(folder.get());
  }

  std::vector<Endpoint> read(int64_t, std::string* why) override {
    std::vector<Endpoint> out;
    *why = "rank 0 has written no file there";
    for (Found& found : list()) {
      if (found.is_stale)
        *why = stale_text(found);
      else
        out.push_back(std::move(found.endpoint));
    }
    return out;
  }

 private:
  struct Found {
    std::string path;
    Endpoint endpoint;
    int64_t written_s;
    bool is_stale;
  };

  // false, with errno; ENOENT: another rank 0 has removed the draft as stale.
  static bool write_file(const std::string& name, const std::string& text) {
    const std::string draft = name + std::string(kDraft);
    const os::Fd file(open(draft.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return false;
    const bool is_written = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                            fsync(file.get()) == 0 && rename(draft.c_str(), name.c_str()) == 0;
    if (is_written) return true;
    const int why = errno;
    unlink(draft.c_str());
    errno = why;
    return false;
  }

  // Removes drafts of a rank 0 that was killed while it wrote, since they contain a token.
  void remove_drafts() const {
    for (const std::string& name : names(kDraft)) {
      const std::string path = folder_ + name;
      struct stat about = {};
      if (lstat(path.c_str(), &about) != 0 || about.st_uid != geteuid()) continue;
      log(GSEL_LOG_WARN, "comm", "{} is stale: a rank 0 has not written it to the end", path);
      unlink(path.c_str());
    }
  }

  // Names of this job's files that end with `end`.
  std::vector<std::string> names(std::string_view end) const {
    std::vector<std::string> out;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(folder_.c_str()), closedir);
    if (!folder)
      fail(GSEL_ERR_IO, "ranks are to meet at {}, and {} cannot be read: {}; every host must see that folder",
           place_.text, folder_, errno_text(errno));
    while (const dirent* entry = readdir(folder.get())) {
      const std::string_view name = entry->d_name;
      if (name.starts_with(begin_) && name.size() == begin_.size() + kRandomDigits + end.size() && name.ends_with(end))
        out.emplace_back(name);
    }
    return out;
  }

  [[noreturn]] static void fail_io(const std::string& path) {
    throw Error(GSEL_ERR_IO,
                fmt::format("rank 0 cannot write {}, by which the others are to find it: {}", path, errno_text(errno)))
        .about_rank(0);
  }

  static std::string stale_text(const Found& found) {
    return fmt::format("{} is stale: rank 0 on {} (pid {}) waited until {} s ago and did not remove it", found.path,
                       found.endpoint.host, found.endpoint.pid, time(nullptr) - found.endpoint.until_s);
  }

  // This job's files, newest first.
  std::vector<Found> list() const {
    std::vector<Found> out;
    for (const std::string& name : names({}))
      if (auto found = read_file(folder_ + name)) out.push_back(std::move(*found));
    std::ranges::sort(out, std::ranges::greater(), &Found::written_s);
    return out;
  }

  static std::optional<Found> read_file(const std::string& path) {
    const os::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat about = {};
    char text[kMostFileBytes];
    if (!file || fstat(file.get(), &about) != 0 || about.st_uid != geteuid() || !S_ISREG(about.st_mode)) return {};
    const ssize_t got = ::read(file.get(), text, sizeof text);
    auto endpoint = parse_endpoint({text, static_cast<size_t>(std::max<ssize_t>(got, 0))});
    if (!endpoint) return {};
    endpoint->path = path;
    return Found{path, *endpoint, about.st_mtime, endpoint->until_s + kClocksDifferS < time(nullptr)};
  }

  // Throws if another rank 0 still listens, since each could get the other's ranks; else removes the file.
  void check_other(const Found& other) const {
    std::string why;
    const int64_t end = os::now_ns() + kProbeNs;
    for (const std::string& address : other.endpoint.addresses)
      if (!other.is_stale && os::now_ns() < end &&
          connect_to({.text = {}, .host = address, .port = std::to_string(other.endpoint.port)}, end, &why))
        throw Error(
            GSEL_ERR_MISMATCH,
            fmt::format("rank 0 of another job, on {} (pid {}), waits at {} already; name another file for each job",
                        other.endpoint.host, other.endpoint.pid, place_.text))
            .about_rank(0);
    log(GSEL_LOG_WARN, "comm", "{}",
        other.is_stale ? stale_text(other)
                       : fmt::format("{} is stale: on {} (pid {}) nobody listens any more", other.path,
                                     other.endpoint.host, other.endpoint.pid));
    unlink(other.path.c_str());
  }

  const MeetingPlace place_;
  std::string folder_, begin_;
  std::string own_;  // the file that this rank has written
};

}  // namespace

std::unique_ptr<AddressStore> file_store(const MeetingPlace& place, const std::string& job) {
  return std::make_unique<FileStore>(place, job);
}

}  // namespace gsel::hosts
