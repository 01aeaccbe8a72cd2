// checkpoint/safetensors.cc: see safetensors.h. The JSON is read event by event, so that a header of 100 MB takes the
// memory of its tensors and no tree.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/align.h"
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"

namespace gsel::checkpoint {
namespace {

using nlohmann::json;

struct StoredType {
  const char* name;
  uint8_t bytes;
  gsel_dtype dtype;  // 0: gsel has none
};
// Without F4, F6_E2M3 and F6_E3M2, whose elements are no whole bytes.
constexpr auto kTypes = std::to_array<StoredType>({
    {"BOOL", 1, GSEL_BOOL},      {"U8", 1, GSEL_U8},   {"I8", 1, GSEL_I8},    {"F8_E4M3", 1, GSEL_F8E4M3},
    {"F8_E5M2", 1, GSEL_F8E5M2}, {"F8_E8M0", 1, 0},    {"F8_E4M3FNUZ", 1, 0}, {"F8_E5M2FNUZ", 1, 0},
    {"I16", 2, GSEL_I16},        {"U16", 2, GSEL_U16}, {"F16", 2, GSEL_F16},  {"BF16", 2, GSEL_BF16},
    {"I32", 4, GSEL_I32},        {"U32", 4, GSEL_U32}, {"F32", 4, GSEL_F32},  {"F64", 8, GSEL_F64},
    {"I64", 8, GSEL_I64},        {"U64", 8, GSEL_U64}, {"C64", 8, 0},
});

constexpr size_t kMostDepth = 4, kMostDims = 64;

[[noreturn]] void refuse(const std::string& file, uint64_t offset, const std::string& token, const std::string& why) {
  throw Error(GSEL_ERR_PARSE, fmt::format("safetensors file {}, byte {}: {}", file, offset, why))
      .at({file, 0, 0, token});
}

uint64_t little_endian(const char* bytes) {
  uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | static_cast<unsigned char>(bytes[i]);
  return n;
}

// Events of the JSON: one object, whose fields are tensors, and "__metadata__". Places are not known while it is read:
// errors have the offset of the JSON and the name of the tensor.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  HeaderReader(const std::string& file, SafetensorsHeader& header) : file_(file), header_(header) {}

  bool start_object(size_t) override {
    enter();
    if (depth_ == 1) return true;
    if (depth_ == 2 && !is_metadata_) fields_ = {};
    if (depth_ == 2 || is_unknown()) return true;
    refuse_value("an object");
  }
  bool end_object() override {
    if (depth_ == 2 && !is_metadata_) finish_tensor();
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    enter();
    if (depth_ == 3 && !is_metadata_ && (field_ == "shape" || field_ == "data_offsets")) return true;
    if (depth_ > 2 && is_unknown()) return true;
    refuse_value("an array");
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& name) override {
    if (name.find('\0') != name.npos) refuse_here(fmt::format("a name with a NUL byte, {}", in_quotes(name)));
    if (depth_ == 1) {
      is_metadata_ = name == "__metadata__";
      if (is_metadata_ && had_metadata_) refuse_here("__metadata__ appears twice");
      had_metadata_ |= is_metadata_;
      tensor_ = {};
      tensor_.key = std::move(name);
      field_.clear();
    } else if (depth_ == 2) {
      field_ = std::move(name);
      if (is_metadata_ && header_.metadata.contains(field_))
        refuse_here(fmt::format("{} appears twice", in_quotes(field_)));
      bool* const had = is_metadata_ ? nullptr : fields_.of(field_);
      if (had && std::exchange(*had, true)) refuse_here(fmt::format("{} appears twice", in_quotes(field_)));
    }
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && is_metadata_) {
      header_.metadata.emplace(field_, std::move(text));
    } else if (depth_ == 2 && field_ == "dtype") {
      const auto type = std::ranges::find_if(kTypes, [&](const StoredType& t) { return text == t.name; });
      if (type == kTypes.end())
        refuse_here(fmt::format("the type {}, which this reader does not know", in_quotes(text)));
      tensor_.type = static_cast<uint8_t>(type - kTypes.begin());
    } else if (!is_unknown()) {
      refuse_value("text");
    }
    return true;
  }
  bool number_unsigned(uint64_t n) override {
    if (depth_ == 3 && field_ == "shape" && !is_metadata_) {
      if (n > INT64_MAX) refuse_here("a dimension above 2^63 - 1");
      if (tensor_.shape.size() == kMostDims) refuse_here(fmt::format("more than {} dimensions", kMostDims));
      tensor_.shape.push_back(static_cast<int64_t>(n));
    } else if (depth_ == 3 && field_ == "data_offsets" && !is_metadata_) {
      if (n_offsets_ == 2) refuse_here("more than two data_offsets");
      (n_offsets_++ == 0 ? tensor_.begin : tensor_.end) = n;
    } else if (!is_unknown()) {
      refuse_value("a number");
    }
    return true;
  }
  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(int64_t) override { return other("a number below 0"); }
  bool number_float(double, const std::string& text) override { return other("the number " + text.substr(0, 40)); }
  bool binary(json::binary_t&) override { return other("binary"); }
  bool parse_error(size_t byte, const std::string&, const json::exception& e) override {
    std::string_view why = e.what();
    if (const auto colon = why.find(": "); colon != why.npos) why.remove_prefix(colon + 2);
    refuse(file_, SafetensorsHeader::kPrefixBytes + (byte ? byte - 1 : 0), tensor_.key, "not JSON: " + one_line(why));
  }

 private:
  struct Fields {
    bool dtype = false, shape = false, data_offsets = false;
    bool* of(std::string_view name) {
      return name == "dtype" ? &dtype : name == "shape" ? &shape : name == "data_offsets" ? &data_offsets : nullptr;
    }
  };

  void enter() {
    if (++depth_ > kMostDepth) refuse_here(fmt::format("more than {} levels", kMostDepth));
    if (depth_ == 3 && field_ == "data_offsets") n_offsets_ = 0;
  }
  // Inside of a field that the format does not have: it is passed over, as the format's own library does.
  bool is_unknown() { return depth_ >= 2 && !is_metadata_ && !fields_.of(field_); }
  bool other(const std::string& what) {
    if (!is_unknown()) refuse_value(what);
    return true;
  }
  void finish_tensor() {
    if (!fields_.dtype || !fields_.shape || !fields_.data_offsets || n_offsets_ != 2)
      refuse_here("expected dtype, shape and two data_offsets");
    header_.tensors.push_back(std::move(tensor_));
    tensor_ = {};
    n_offsets_ = 0;
  }
  [[noreturn]] void refuse_here(const std::string& why) {
    const std::string where = tensor_.key.empty() ? std::string() : in_quotes(tensor_.key) + ": ";
    refuse(file_, SafetensorsHeader::kPrefixBytes, tensor_.key, where + why);
  }
  [[noreturn]] void refuse_value(const std::string& what) {
    const char* const expected = depth_ <= 1 ? "an object for each tensor"
                                 : is_metadata_
                                     ? "text alone in __metadata__"
                                     : "dtype as text, shape and data_offsets as arrays of numbers from 0 on";
    refuse_here(fmt::format("{} in {}; expected {}", what, depth_ < 2 ? "the header" : in_quotes(field_), expected));
  }

  const std::string& file_;
  SafetensorsHeader& header_;
  size_t depth_ = 0, n_offsets_ = 0;
  StoredTensor tensor_;
  Fields fields_;
  std::string field_;
  bool is_metadata_ = false, had_metadata_ = false;
};

// A dimension of 0 is no excuse for a product that overflows.
std::optional<uint64_t> bytes_of(const StoredTensor& tensor) {
  uint64_t n = kTypes[tensor.type].bytes;
  bool is_empty = false;
  for (const int64_t dim : tensor.shape) {
    is_empty |= dim == 0;
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(std::max<int64_t>(dim, 1)), &n)) return std::nullopt;
  }
  return is_empty ? 0 : n;
}

void check_places(const std::string& file, uint64_t data_at, uint64_t data_bytes, std::vector<StoredTensor>& tensors) {
  std::ranges::sort(tensors, [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.begin, a.end, a.key) < std::tie(b.begin, b.end, b.key);
  });
  uint64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    const auto wrong = [&](const std::string& why) {
      refuse(file, data_at + std::min(tensor.begin, data_bytes), tensor.key, in_quotes(tensor.key) + " " + why);
    };
    if (tensor.end < tensor.begin || tensor.end > data_bytes)
      wrong(fmt::format("has data_offsets [{}, {}), and the file has {} bytes of data", tensor.begin, tensor.end,
                        data_bytes));
    if (tensor.begin != end)
      wrong(
          fmt::format("begins at byte {} of the data, and the tensors before it end at {}; expected tensors without "
                      "gaps or overlaps",
                      tensor.begin, end));
    const auto bytes = bytes_of(tensor);
    if (!bytes) wrong("has dimensions whose product overflows");
    if (*bytes != tensor.end - tensor.begin)
      wrong(fmt::format("has {} bytes, and its type and shape need {}", tensor.end - tensor.begin, *bytes));
    end = tensor.end;
  }
  if (end != data_bytes)
    refuse(file, data_at + end, {}, fmt::format("{} bytes that belong to no tensor", data_bytes - end));
}

void check_keys(const std::string& file, const std::vector<StoredTensor>& tensors) {
  std::vector<const std::string*> keys;
  keys.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) keys.push_back(&tensor.key);
  std::ranges::sort(keys, [](const std::string* a, const std::string* b) { return *a < *b; });
  const auto twice =
      std::ranges::adjacent_find(keys, [](const std::string* a, const std::string* b) { return *a == *b; });
  if (twice != keys.end())
    refuse(file, SafetensorsHeader::kPrefixBytes, **twice, in_quotes(**twice) + " appears twice");
}

}  // namespace

uint8_t stored_type(gsel_dtype dtype) {
  const auto type = std::ranges::find_if(kTypes, [&](const StoredType& t) { return t.dtype == dtype; });
  if (dtype == 0 || type == kTypes.end())
    fail(GSEL_ERR_ARG, "the type {} has no name in safetensors files", dtype_name(dtype));
  return static_cast<uint8_t>(type - kTypes.begin());
}

gsel_dtype StoredTensor::dtype() const {
  return kTypes[type].dtype;
}
const char* StoredTensor::type_name() const {
  return kTypes[type].name;
}

uint64_t SafetensorsHeader::json_bytes(const std::string& file, uint64_t file_bytes, const char* prefix) {
  if (file_bytes < kPrefixBytes)
    refuse(file, file_bytes, {},
           fmt::format("the file ends; expected {} bytes with the length of the header", kPrefixBytes));
  const uint64_t bytes = little_endian(prefix);
  if (bytes > kMostHeaderBytes)
    refuse(file, 0, {}, fmt::format("a header of {} bytes; the format allows {}", bytes, kMostHeaderBytes));
  if (bytes > file_bytes - kPrefixBytes)
    refuse(file, 0, {}, fmt::format("a header of {} bytes, and the file has {}", bytes, file_bytes));
  return bytes;
}

SafetensorsHeader SafetensorsHeader::parse(const std::string& file, uint64_t file_bytes, std::string_view json_text) {
  if (json_text.empty() || json_text.front() != '{') refuse(file, kPrefixBytes, {}, "the header does not begin with {");
  const size_t last = json_text.find_last_not_of(' ');
  if (json_text[last] != '}')
    refuse(file, kPrefixBytes + last, {}, "the header does not end with }, and blanks after it");
  SafetensorsHeader header;
  HeaderReader reader(file, header);
  json::sax_parse(json_text, &reader);
  header.data_at = kPrefixBytes + json_text.size();
  check_keys(file, header.tensors);
  check_places(file, header.data_at, file_bytes - header.data_at, header.tensors);
  return header;
}

std::string SafetensorsHeader::text() const {
  std::string text(kPrefixBytes, '\0');
  const auto quoted = [](const std::string& s) { return json(s).dump(); };
  text += '{';
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [name, value] : metadata) text += fmt::format("{}:{},", quoted(name), quoted(value));
    text.back() = '}';
    text += ',';
  }
  for (const StoredTensor& tensor : tensors)
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", quoted(tensor.key),
                        tensor.type_name(), fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize(round_up(text.size(), kDataAlign), ' ');
  const uint64_t bytes = text.size() - kPrefixBytes;
  if (bytes > kMostHeaderBytes)
    fail(GSEL_ERR_UNSUPPORTED, "a safetensors header of {} bytes for {}; the format allows {}", bytes,
         with_noun(tensors.size(), "tensor"), kMostHeaderBytes);
  for (size_t i = 0; i < kPrefixBytes; ++i) text[i] = static_cast<char>(bytes >> 8 * i);
  return text;
}

}  // namespace gsel::checkpoint
