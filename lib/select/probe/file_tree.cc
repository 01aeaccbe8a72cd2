// select/probe/file_tree.cc: see file_tree.h.
#include "select/probe/file_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "select/inventory/inventory.h"

namespace gsel {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kMaxBytes = 64 << 10;  // kernel files have one page or a few

}  // namespace

FileTree FileTree::of_this_machine() {
  const char* root = secure_getenv("GSEL_SYSFS_ROOT");
  if (!root) return FileTree("");
  if (root[0] != '/') fail(GSEL_ERR_ARG, "GSEL_SYSFS_ROOT={}: an absolute path is needed", root);
  if (access(root, R_OK | X_OK) != 0)
    fail(GSEL_ERR_IO, "GSEL_SYSFS_ROOT={} cannot be read: {}", root, errno_text(errno));
  std::string folder = root;
  while (!folder.empty() && folder.back() == '/') folder.pop_back();
  return FileTree(std::move(folder));
}

bool FileTree::exists(const std::string& path) const {
  return access((root_ + path).c_str(), F_OK) == 0;
}

bool FileTree::usable(const std::string& path) const {
  return access((root_ + path).c_str(), R_OK | W_OK) == 0;
}

std::vector<std::string> FileTree::names(const std::string& folder) const {
  std::vector<std::string> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir((root_ + folder).c_str()), closedir);
  while (const dirent* entry = dir ? readdir(dir.get()) : nullptr)
    if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> FileTree::numbered(const std::string& folder, std::string_view prefix) const {
  std::vector<std::pair<uint64_t, std::string>> found;
  for (std::string& name : names(folder)) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view digits = std::string_view(name).substr(prefix.size());
    if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) continue;
    if (const auto number = parse_number(digits)) found.emplace_back(*number, std::move(name));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (auto& [number, name] : found) out.push_back(std::move(name));
  return out;
}

std::optional<std::string> FileTree::text(const std::string& path) const {
  const std::string whole = root_ + path;
  const os::Fd file(uninterrupted([&] { return open(whole.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  std::string out;
  char buffer[4096];
  while (out.size() < kMaxBytes) {
    const ssize_t n = read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    out.append(buffer, static_cast<size_t>(n));
  }
  return std::string(trimmed(out, kBlanks));
}

std::optional<int64_t> FileTree::number(const std::string& path) const {
  const auto content = text(path);
  if (!content) return std::nullopt;
  if (content->starts_with('-')) {
    const auto value = parse_number(std::string_view(*content).substr(1));
    if (!value || *value > INT64_MAX) return std::nullopt;
    return -static_cast<int64_t>(*value);
  }
  const auto value = parse_number(*content);
  if (!value || *value > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::map<std::string, std::string> FileTree::fields(const std::string& path, char separator) const {
  std::map<std::string, std::string> out;
  const std::string content = text(path).value_or("");
  std::string_view rest = content;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t cut = line.find(separator);
    if (cut != line.npos) out.emplace(trimmed(line.substr(0, cut), kBlanks), trimmed(line.substr(cut + 1), kBlanks));
  }
  return out;
}

std::optional<uint64_t> parse_number(std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// The kernel writes at least four digits of the domain, gsel always eight.
std::string pci_folder(const std::string& pci) {
  const size_t zeros = std::min<size_t>(pci.find_first_not_of('0'), 4);
  return "/sys/bus/pci/devices/" + pci.substr(zeros);
}

int32_t pci_numa(const FileTree& files, const std::string& pci) {
  const int64_t node = files.number(pci_folder(pci) + "/numa_node").value_or(-1);
  return node >= 0 && node <= INT32_MAX ? static_cast<int32_t>(node) : -1;
}

std::vector<PciFunction> pci_functions(const FileTree& files, int64_t vendor_id) {
  std::vector<PciFunction> out;
  for (const std::string& name : files.names("/sys/bus/pci/devices")) {
    const std::string folder = "/sys/bus/pci/devices/" + name;
    PciFunction function;
    function.pci = normalise_pci(name);
    if (function.pci.empty() || files.number(folder + "/vendor") != vendor_id) continue;
    function.device_id = files.number(folder + "/device").value_or(0);
    function.class_id = files.number(folder + "/class").value_or(0);
    out.push_back(std::move(function));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.pci < b.pci; });
  return out;
}

}  // namespace gsel
