// select/probe/file_tree.h: /proc, /sys and /dev as a tree of small texts, under a folder that tests can replace by a
// recording. A file that cannot be read counts as absent: a probe never fails because of a file. Does not know what the
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
  // `root` has no slash at its end; it is empty for this machine.
  explicit FileTree(std::string root) : root_(std::move(root)) {}

  // The tree of this machine, or of the folder that GSEL_SYSFS_ROOT names, for tests. GSEL_ERR_ARG when that is no
  // absolute path.
  static FileTree of_this_machine();

  // A recorded tree describes another machine, so the libraries of this machine must not be asked.
  bool recorded() const { return !root_.empty(); }

  bool exists(const std::string& path) const;
  // Whether this user may read and write the file, as needed to open a device node.
  bool usable(const std::string& path) const;
  // Names in a folder that consist of `prefix` and a number, sorted by number.
  std::vector<std::string> numbered(const std::string& folder, std::string_view prefix) const;
  // All names in a folder, sorted.
  std::vector<std::string> names(const std::string& folder) const;

  // The text of a file, without trailing blanks; nothing when it cannot be read.
  std::optional<std::string> text(const std::string& path) const;
  // A file that holds one number, decimal or with 0x.
  std::optional<int64_t> number(const std::string& path) const;
  // Reads lines "key value", "key: value" or "key=value".
  std::map<std::string, std::string> fields(const std::string& path, char separator) const;

 private:
  std::string root_;
};

// Parses decimal or 0x text; nothing for any other text.
std::optional<uint64_t> parse_number(std::string_view text);

// The folder of a PCI device in sysfs, and its NUMA node.
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
