// select/probe/file_tree.h: /proc, /sys and /dev as a tree of small texts, under a folder that tests may replace by a
// recorded one. A file that cannot be read counts as absent: a probe never fails for a file. Does not know what the
// files mean.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

class FileTree {
 public:
  // `root` without a slash at its end: empty for this machine.
  explicit FileTree(std::string root) : root_(std::move(root)) {}

  // Of this machine, or of the folder that GSEL_SYSFS_ROOT names, which is for tests. GSEL_ERR_ARG when that is no
  // absolute path.
  static FileTree of_this_machine();

  // A recorded tree tells of another machine, so that libraries of this one would tell the wrong thing.
  bool recorded() const { return !root_.empty(); }

  bool exists(const std::string& path) const;
  // May this user read and write it, as opening a device node needs?
  bool usable(const std::string& path) const;
  // Names in a folder that are `prefix` and a number, by number.
  std::vector<std::string> numbered(const std::string& folder, std::string_view prefix) const;
  // All names in a folder, sorted.
  std::vector<std::string> names(const std::string& folder) const;

  // The text of a file, without blanks at its end; nothing when it cannot be read.
  std::optional<std::string> text(const std::string& path) const;
  // A file that holds one number, decimal or with 0x.
  std::optional<int64_t> number(const std::string& path) const;
  // "key value" or "key: value" or "key=value" lines.
  std::map<std::string, std::string> fields(const std::string& path, char separator) const;

 private:
  std::string root_;
};

// Decimal or 0x text as a number; nothing when it is anything else.
std::optional<uint64_t> parse_number(std::string_view text);

// The folder of a PCI device in sysfs, and what stands in it.
std::string pci_folder(const std::string& pci);
int32_t pci_numa(const FileTree& files, const std::string& pci);

// PCI devices of a vendor, by address: vendor and device ids as the kernel shows them, such as 0x10de.
struct PciFunction {
  std::string pci;  // normalised
  int64_t device_id = 0;
  int64_t class_id = 0;  // 24 bits: class, subclass, interface
};
std::vector<PciFunction> pci_functions(const FileTree& files, int64_t vendor_id);

}  // namespace gsel
