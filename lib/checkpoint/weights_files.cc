// checkpoint/weights_files.cc: see weights_files.h.
#include "checkpoint/weights_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_object.h"
#include "base/text.h"

namespace gsel::checkpoint {
namespace {

constexpr const char* kHubIndex = "model.safetensors.index.json";
constexpr const char* kHubFile = "model.safetensors";
constexpr uint64_t kMostHubIndexBytes = uint64_t{1} << 28;
constexpr size_t kMostListed = 10;

std::string hub_index_text(Disk& disk, const std::string& path) {
  const auto file = disk.open(path);
  if (file->bytes() > kMostHubIndexBytes)
    throw Error(GSEL_ERR_PARSE,
                fmt::format("{} has {} bytes; expected at most {}", path, file->bytes(), kMostHubIndexBytes))
        .at({path, 0, 0, {}});
  std::string text(file->bytes(), '\0');
  file->read(0, text.data(), text.size());
  return text;
}

bool leads_out(const std::string& name) {
  return name.empty() || name.front() == '.' || name.find('/') != name.npos || name.find('\0') != name.npos;
}

// The file of each tensor.
std::map<std::string, std::string> hub_index_of(std::string_view text, const std::string& path) {
  const JsonSource source{"index of weights", path, text};
  const auto parsed = parse_json(text, source);
  const auto refuse = [&](const std::string& token, const std::string& why) {
    throw Error(GSEL_ERR_PARSE, fmt::format("index of weights {}: {}", path, why)).at({path, 0, 0, token});
  };
  if (!parsed->is_object() || !parsed->contains("weight_map") || !(*parsed)["weight_map"].is_object())
    refuse("weight_map", "there is no object weight_map, which has the file of each tensor");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : (*parsed)["weight_map"].items()) {
    if (!file.is_string())
      refuse(name, fmt::format("weight_map.{} is no text; expected a file's name", in_quotes(name)));
    const std::string of = file.get<std::string>();
    if (leads_out(of))
      refuse(name, fmt::format("weight_map.{} is {}, which is no name of a file in this folder", in_quotes(name),
                               in_quotes(of)));
    files.emplace(name, of);
  }
  return files;
}

}  // namespace

WeightFiles::WeightFiles(Disk& disk, const std::string& path) : disk_(disk) {
  Sum headers;
  const std::string index = path + "/" + kHubIndex, single = path + "/" + kHubFile;
  if (disk.exists(index))
    open_folder(path, index, headers);
  else if (disk.exists(single))
    open(single, headers);
  else
    open(path, headers);
  sum_ = headers.text();
}

void WeightFiles::open(const std::string& path, Sum& headers) {
  const size_t i = files_.size();
  File& file = files_.emplace_back(File{path, disk_.open(path)});
  const SafetensorsHeader header =
      SafetensorsHeader::read(path, file.file->bytes(), [&](uint64_t at, char* dst, size_t bytes) {
        file.file->read(at, dst, bytes);
        headers.add(dst, bytes);
      });
  for (const StoredTensor& tensor : header.tensors) {
    const auto [at, is_new] = tensors_.emplace(tensor.key, Tensor{i, tensor, header.data_at + tensor.begin});
    if (!is_new)
      throw Error(GSEL_ERR_PARSE, fmt::format("{} is in {} and in {}; expected each tensor in one file",
                                              in_quotes(tensor.key), files_[at->second.file].path, path))
          .at({path, 0, 0, tensor.key});
  }
}

void WeightFiles::open_folder(const std::string& folder, const std::string& index, Sum& headers) {
  const std::string text = hub_index_text(disk_, index);
  const std::map<std::string, std::string> file_of = hub_index_of(text, index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  for (const std::string& name : names) open(folder + "/" + name, headers);
  std::vector<std::string> wrong;
  for (const auto& [tensor, file] : file_of) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || files_[found->second.file].path != folder + "/" + file)
      wrong.push_back(fmt::format("{} in {}", in_quotes(tensor), file));
  }
  if (wrong.empty()) return;
  const size_t n = wrong.size();
  wrong.resize(std::min(n, kMostListed));
  throw Error(GSEL_ERR_PARSE,
              fmt::format("index of weights {}: names {} that the files do not have: {}{}", index,
                          with_noun(n, "tensor"), fmt::join(wrong, ", "),
                          n > kMostListed ? fmt::format(", and {} more", n - kMostListed) : std::string()))
      .at({index, 0, 0, {}});
}

}  // namespace gsel::checkpoint
