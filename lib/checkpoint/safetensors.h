// checkpoint/safetensors.h: the header of a safetensors file: 8 bytes of length, JSON, then the tensors' data without a
// gap. Reading is stricter than the format's own library, and trusts nothing: a file that this reader takes, that
// library takes as well. Does not read data, and does not know what the tensors are.
// https://github.com/huggingface/safetensors, README.md, "Format".
#pragma once

#include <gsel/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::checkpoint {

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // a limit of the format
constexpr uint64_t kDataAlign = 4096;               // of the data in files that are written here

// A tensor in a file. Row-major, little-endian.
struct StoredTensor {
  std::string key;
  uint8_t type = 0;  // index in the format's table: type_name()
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the beginning of the data

  gsel_dtype dtype() const;  // 0: gsel has no such type
  const char* type_name() const;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // by offset
  std::map<std::string, std::string> metadata;
  uint64_t data_at = 0;  // offset of the data in the file

  // GSEL_ERR_PARSE with file and offset. read(offset, dst, bytes) fills dst or throws; `file_bytes` is the file's size.
  template <class Read>
  static SafetensorsHeader read(const std::string& file, uint64_t file_bytes, Read&& read) {
    char prefix[kPrefixBytes] = {};
    if (file_bytes >= kPrefixBytes) read(uint64_t{0}, prefix, size_t{kPrefixBytes});
    std::string json(json_bytes(file, file_bytes, prefix), '\0');
    read(uint64_t{kPrefixBytes}, json.data(), json.size());
    return parse(file, file_bytes, json);
  }

  // The length and the JSON, padded with blanks so that data begins at a multiple of kDataAlign. The tensors must be
  // consecutive from 0 on. GSEL_ERR_UNSUPPORTED: longer than the format allows.
  std::string text() const;

  static constexpr size_t kPrefixBytes = 8;
  static uint64_t json_bytes(const std::string& file, uint64_t file_bytes, const char* prefix);
  static SafetensorsHeader parse(const std::string& file, uint64_t file_bytes, std::string_view json);
};

// The format's index of gsel's type; there is one for each.
uint8_t stored_type(gsel_dtype dtype);

}  // namespace gsel::checkpoint
