// select/reserve/reserve.cc: see reserve.h.
#include "select/reserve/reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"

namespace gsel {
namespace {

constexpr double kPatience_s = 10;
constexpr timespec kPause{0, 10'000'000};

// The name by which all processes of the machine know a device or instance.
std::string lock_name(const Inventory& inventory, const Unit& unit) {
  const Device& device = inventory.devices[static_cast<size_t>(unit.device)];
  const std::string& uuid = uuid_of(inventory, unit);
  if (!uuid.empty()) return uuid;
  if (!device.pci.empty()) return device.vendor + "-" + device.pci;
  return fmt::format("{}-{}", device.vendor, device.index);
}

}  // namespace

void mark_reserved(Inventory& inventory, const LockFolder& folder) {
  for (size_t i = 0; i < inventory.devices.size(); ++i) {
    Device& device = inventory.devices[i];
    if (device.is_cpu()) continue;
    const auto index = static_cast<int32_t>(i);
    device.reserved_by = folder.holder(lock_name(inventory, {index, -1, -1}));
    for (size_t p = 0; p < device.partitions.size(); ++p)
      device.partitions[p].reserved_by = folder.holder(lock_name(inventory, {index, static_cast<int32_t>(p), -1}));
  }
}

Inventory detect_with_reservations(bool vulkan) {
  Inventory inventory = vulkan ? detect_inventory_with_vulkan() : detect_inventory();
  if (const auto folder = LockFolder::open_existing(LockFolder::default_path())) mark_reserved(inventory, *folder);
  return inventory;
}

Reservation::Reservation(const std::shared_ptr<const Inventory>& inventory, const Environment& environment,
                         Request request, const Options& options)
    : folder_(options.folder.empty() ? LockFolder::default_path() : options.folder),
      generation_(os::fork_generation()) {
  request.free_only = true;
  const double deadline = os::now_seconds() + options.wait_s;
  while (!try_to_hold(*inventory, environment, request, os::now_seconds() >= deadline)) nanosleep(&kPause, nullptr);
}

// False when too few devices are free and this is not the last attempt.
bool Reservation::try_to_hold(const Inventory& inventory, const Environment& environment, const Request& request,
                              bool last) {
  const os::Fd all = folder_.hold_all(kPatience_s);
  auto marked = std::make_shared<Inventory>(inventory);
  mark_reserved(*marked, folder_);
  try {
    selection_ = resolve(marked, environment, request);
  } catch (const Error& error) {
    if (last || error.code() != GSEL_ERR_BUSY) throw;
    return false;
  }
  for (const Unit& unit : selection_.units) {
    if (marked->devices[static_cast<size_t>(unit.device)].is_cpu()) continue;
    const std::string name = lock_name(*marked, unit);
    if (std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.name == name; })) continue;
    auto lock = folder_.take(name);
    if (!lock) fail(GSEL_ERR_BUSY, "{} was taken by a process that does not ask first", unit_text(*marked, unit));
    held_.push_back({name, std::move(*lock)});
  }
  return true;
}

Reservation::~Reservation() {
  if (held_.empty() || os::fork_generation() != generation_) return;  // in a forked child the parent keeps it
  os::Fd all;
  try {
    all = folder_.hold_all(kPatience_s);
  } catch (...) {  // the files stay; without a lock they have no meaning
  }
  for (Held& held : held_) folder_.give_back(held.name, std::move(held.lock), static_cast<bool>(all));
}

// ---- the folder of locks --------------------------------------------------------------------------------------------

namespace {

constexpr mode_t kShared = 01777, kFile = 0666;
constexpr const char* kAll = ".all";
constexpr long kShortestWait_ns = 20'000, kLongestWait_ns = 400'000;

bool is_writable_folder(const char* path) {
  struct stat info {};
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && access(path, W_OK | X_OK) == 0;
}

os::Fd open_folder(const std::string& path) {
  return os::Fd(uninterrupted([&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
}

// The file name for a device name.
std::string file_name(const std::string& name) {
  std::string out;
  for (unsigned char c : name) out += std::isalnum(c) || c == '-' || c == '.' ? static_cast<char>(c) : '_';
  return out.empty() || out.front() == '.' ? "_" + out : out.substr(0, 200);
}

// Locks of the open file description. Unlike flock's, they can be queried without being taken.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// False when another process has the lock.
bool try_lock(int fd) {
  struct flock lock = whole_file(F_WRLCK);
  if (uninterrupted([&] { return fcntl(fd, F_OFD_SETLK, &lock); }) == 0) return true;
  if (errno != EAGAIN && errno != EACCES)
    fail(GSEL_ERR_IO, "reservations: a file cannot be locked: {}", errno_text(errno));
  return false;
}

bool is_locked(int fd) {
  struct flock lock = whole_file(F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

std::string LockFolder::default_path() {
  if (const char* given = secure_getenv("GSEL_RESERVE_FOLDER"); given && given[0]) {
    if (given[0] != '/') fail(GSEL_ERR_ARG, "GSEL_RESERVE_FOLDER={}: an absolute path is needed", given);
    return given;
  }
  return is_writable_folder("/run/lock") ? "/run/lock/gsel" : "/tmp/gsel-lock";
}

LockFolder::LockFolder(const std::string& path) : path_(one_line(path)) {
  if (path.find('\0') != path.npos) fail(GSEL_ERR_ARG, "reservations: the path of the folder contains a NUL byte");
  if (mkdir(path.c_str(), kShared) == 0) {
    if (chmod(path.c_str(), kShared) != 0)  // the umask may have removed bits
      fail(GSEL_ERR_IO, "reservations: {}: its mode cannot be set: {}", path_, errno_text(errno));
  } else if (errno != EEXIST) {
    fail(errno == EACCES || errno == EROFS ? GSEL_ERR_PERMISSION : GSEL_ERR_IO,
         "reservations: {} cannot be made: {}; set GSEL_RESERVE_FOLDER", path_, errno_text(errno));
  }
  folder_ = open_folder(path);
  if (!folder_)
    fail(errno == EACCES ? GSEL_ERR_PERMISSION : GSEL_ERR_IO,
         "reservations: {} cannot be opened as a folder: {}; set GSEL_RESERVE_FOLDER", path_, errno_text(errno));
}

std::optional<LockFolder> LockFolder::open_existing(const std::string& path) {
  os::Fd folder = open_folder(path);
  if (!folder) return {};
  return LockFolder(path, std::move(folder));
}

// An existing file is opened without O_CREAT, which the kernel may forbid for another user's file in a sticky folder.
os::Fd LockFolder::open_lock(const std::string& name, bool make) const {
  const auto open_with = [&](int flags) {
    return os::Fd(uninterrupted(
        [&] { return openat(folder_.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, kFile); }));
  };
  for (int attempt = 0; attempt < 8; ++attempt) {
    for (int access : {O_RDWR, O_RDONLY}) {
      os::Fd file = open_with(access);
      if (file) return file;
    }
    if (errno != ENOENT || !make) return os::Fd();
    os::Fd file = open_with(O_RDWR | O_CREAT | O_EXCL);
    if (file) {
      (void)!fchmod(file.get(), kFile);  // so that other users can take it once it is stale
      return file;
    }
    if (errno != EEXIST) break;
  }
  fail(errno == EACCES ? GSEL_ERR_PERMISSION : GSEL_ERR_IO, "reservations: {}/{} cannot be opened: {}", path_, name,
       errno_text(errno));
}

os::Fd LockFolder::hold_all(double seconds) const {
  os::Fd file = open_lock(kAll, true);
  if (!file) fail(GSEL_ERR_PERMISSION, "reservations: {}/{} cannot be opened: {}", path_, kAll, errno_text(errno));
  const double deadline = os::now_seconds() + seconds;
  for (long wait_ns = kShortestWait_ns; !try_lock(file.get()); wait_ns = std::min(2 * wait_ns, kLongestWait_ns)) {
    if (os::now_seconds() >= deadline)
      fail(GSEL_ERR_BUSY, "reservations: another process has kept {}/{} locked for {}", path_, kAll,
           seconds_text(seconds));
    const timespec wait{0, wait_ns};
    nanosleep(&wait, nullptr);
  }
  return file;
}

std::optional<os::Fd> LockFolder::take(const std::string& name) const {
  os::Fd file = open_lock(file_name(name), true);
  if (!file)
    fail(GSEL_ERR_PERMISSION, "reservations: {}/{} cannot be opened: {}", path_, file_name(name), errno_text(errno));
  if (!try_lock(file.get())) return {};
  const std::string number = std::to_string(getpid()) + "\n";
  if (ftruncate(file.get(), 0) == 0)
    (void)!uninterrupted([&] { return pwrite(file.get(), number.data(), number.size(), 0); });
  return file;
}

void LockFolder::give_back(const std::string& name, os::Fd lock, bool remove) const noexcept {
  try {
    if (remove) unlinkat(folder_.get(), file_name(name).c_str(), 0);
  } catch (const std::bad_alloc&) {  // the file stays; without a lock it has no meaning
  }
  struct flock none = whole_file(F_UNLCK);
  fcntl(lock.get(), F_OFD_SETLK, &none);  // also releases the copies that forked children inherited
}

int32_t LockFolder::holder(const std::string& name) const {
  const os::Fd file = open_lock(file_name(name), false);
  if (!file || !is_locked(file.get())) return 0;
  char text[16] = "";
  const ssize_t length = uninterrupted([&] { return pread(file.get(), text, sizeof text, 0); });
  int32_t process = 0;
  if (length > 0) std::from_chars(text, text + length, process);
  return process > 0 ? process : -1;
}

}  // namespace gsel
