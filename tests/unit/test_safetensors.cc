// Headers of safetensors files: what is written is read back, and what the format forbids is refused with file and
// byte, however the header lies about lengths, offsets, nesting and names.
#include <string>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "support/check.h"
#include "support/draw.h"

using gsel::checkpoint::SafetensorsHeader;
using gsel::checkpoint::StoredTensor;
using gsel::test::Draw;

namespace {

std::string length_of(uint64_t n) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(n >> 8 * i);
  return bytes;
}

SafetensorsHeader read(const std::string& file) {
  return SafetensorsHeader::read("a.safetensors", file.size(), [&](uint64_t at, char* dst, size_t bytes) {
    assert_true(at <= file.size() && bytes <= file.size() - at);  // nothing is asked for behind the end
    file.copy(dst, bytes, at);
  });
}

std::string file_of(const std::string& json, size_t data_bytes) {
  return length_of(json.size()) + json + std::string(data_bytes, 'x');
}

void refuses(const std::string& file, const char* why) {
  try {
    read(file);
  } catch (const gsel::Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_PARSE);
    assert_string_equal(e.place().file.c_str(), "a.safetensors");
    if (!strstr(e.what(), "safetensors file a.safetensors, byte ") || !strstr(e.what(), why))
      fail_msg("expected \"%s\", got \"%s\"", why, e.what());
    return;
  }
  fail_msg("expected an error with \"%s\"", why);
}
void refuses_json(const std::string& json, const char* why, size_t data_bytes = 24) {
  refuses(file_of(json, data_bytes), why);
}

void what_is_written_is_read_back(void**) {
  SafetensorsHeader header;
  header.metadata = {{"format", "gsel"}, {"a \"quoted\" name", "a\nline"}};
  uint64_t at = 0;
  const auto add = [&](const char* key, gsel_dtype dtype, std::vector<int64_t> shape, uint64_t bytes) {
    header.tensors.push_back({key, gsel::checkpoint::stored_type(dtype), std::move(shape), at, at + bytes});
    at += bytes;
  };
  add("scalar", GSEL_F64, {}, 8);
  add("empty", GSEL_F32, {3, 0}, 0);
  add("\xc3\xa4 \"w\"", GSEL_BF16, {2, 3}, 12);
  add("b", GSEL_BOOL, {5}, 5);
  const std::string text = header.text();
  assert_int_equal(text.size() % 4096, 0);
  const SafetensorsHeader got = read(text + std::string(at, 'x'));
  assert_int_equal(got.data_at, text.size());
  assert_true(got.metadata == header.metadata);
  assert_int_equal(got.tensors.size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    assert_true(got.tensors[i].key == header.tensors[i].key && got.tensors[i].shape == header.tensors[i].shape);
    assert_int_equal(got.tensors[i].dtype(), header.tensors[i].dtype());
    assert_true(got.tensors[i].begin == header.tensors[i].begin && got.tensors[i].end == header.tensors[i].end);
  }
  assert_true(read(SafetensorsHeader().text()).tensors.empty());
}

void what_others_may_write_is_read(void**) {
  const SafetensorsHeader header = read(file_of(
      R"({"b":{"data_offsets":[4,8],"extra":{"x":[1]},"shape":[1],"dtype":"F32"}, "a":{"dtype":"C64","shape":[0],"data_offsets":[0,0]},)"
      R"("":{"dtype":"F8_E8M0","shape":[2,2],"data_offsets":[0,4]}}   )",
      8));
  assert_int_equal(header.tensors.size(), 3);
  assert_int_equal(header.tensors[0].dtype(), 0); /* gsel has no complex numbers */
  assert_string_equal(header.tensors[0].type_name(), "C64");
  assert_string_equal(header.tensors[2].key.c_str(), "b");
}

constexpr const char* kGood = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";

void lengths_that_lie_are_refused(void**) {
  read(file_of(kGood, 24));
  refuses("", "the file ends; expected 8 bytes");
  refuses("1234567", "the file ends");
  refuses(length_of(100) + kGood, "a header of 100 bytes, and the file has");
  refuses(length_of(100'000'001) + kGood, "a header of 100000001 bytes; the format allows 100000000");
  refuses(length_of(uint64_t{1} << 63) + kGood, "the format allows");
  refuses(length_of(UINT64_MAX - 3) + kGood, "the format allows");
  refuses(length_of(0), "does not begin with {");
  refuses_json(kGood, "1 bytes that belong to no tensor", 25);
  refuses_json(kGood, "has data_offsets [0, 24), and the file has 23 bytes of data", 23);
}

void what_is_no_header_is_refused(void**) {
  refuses_json(std::string(" ") + kGood, "does not begin with {");
  refuses_json(std::string("\xef\xbb\xbf") + kGood, "does not begin with {");
  refuses_json(std::string(kGood) + "\n", "does not end with }");
  refuses_json(R"({"a":1})", "a number in the header; expected an object for each tensor");
  refuses_json(R"({"a":[]})", "an array");
  refuses_json(R"({"a":{"dtype":"F32","shape":[2,3]}})", "expected dtype, shape and two data_offsets");
  refuses_json(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0]}})",
               "expected dtype, shape and two data_offsets");
  refuses_json(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24,24]}})", "more than two data_offsets");
  refuses_json(R"({"a":{"dtype":"F99","shape":[2,3],"data_offsets":[0,24]}})", "the type \"F99\"");
  refuses_json(R"({"a":{"dtype":"F32","shape":[2,-3],"data_offsets":[0,24]}})", "a number below 0");
  refuses_json(R"({"a":{"dtype":"F32","shape":[2,3.0],"data_offsets":[0,24]}})", "the number 3.0");
  refuses_json(R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,24]}})", "the number 1844674");
  refuses_json(R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,24]}})", "above 2^63 - 1");
  refuses_json(R"({"a":{"dtype":"F32","shape":[[2],3],"data_offsets":[0,24]}})", "an array");
  refuses_json(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", "\"dtype\" appears twice");
  refuses_json(R"({"__metadata__":{"x":1}})", "a number");
  refuses_json(R"({"__metadata__":{"x":"1","x":"2"}})", "\"x\" appears twice");
  refuses_json(R"({"a\u0000":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", "a name with a NUL byte");
  refuses_json("{\"a\":{\"dtype\":\"F32\",}}", "not JSON");
  refuses_json(R"({"a":{"extra":[[[[1]]]]}})", "more than 4 levels");
  refuses_json("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", "an array");
  refuses_json("{\"a\":{\"x\":" + std::string(100000, '[') + std::string(100000, ']') + "}}", "more than 4 levels");
}

void places_that_lie_are_refused(void**) {
  const auto two = [](const char* a, const char* b) {
    return std::string(R"({"a":{"dtype":"U8","shape":[12],"data_offsets":)") + a +
           R"(},"b":{"dtype":"U8","shape":[12],"data_offsets":)" + b + "}}";
  };
  read(file_of(two("[0,12]", "[12,24]"), 24));
  read(file_of(two("[12,24]", "[0,12]"), 24));
  refuses_json(two("[0,12]", "[11,23]"), "\"b\" begins at byte 11 of the data, and the tensors before it end at 12");
  refuses_json(two("[0,12]", "[13,25]"), "\"b\" has data_offsets [13, 25)");
  refuses_json(two("[0,12]", "[0,12]"), "without gaps or overlaps");
  refuses_json(two("[1,13]", "[13,24]"), "begins at byte 1 of the data");
  refuses_json(two("[12,0]", "[12,24]"), "data_offsets [12, 0)");
  refuses_json(two("[0,12]", "[12,18446744073709551615]"), "and the file has 24 bytes");
  refuses_json(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,24]}})",
               "has 24 bytes, and its type and shape need 16");
  refuses_json(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "product overflows", 0);
  refuses_json(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", "product overflows",
               0);
  refuses_json(
      R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
      "\"a\" appears twice", 0);
}

// Bytes of a good file changed by chance: an error of this reader, or a header all of whose tensors are inside.
void damage_is_an_error_or_harmless(void**) {
  Draw draw(11);
  const std::string good = file_of(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"U8","shape":[],"data_offsets":[24,25]}})",
      25);
  int taken = 0;
  for (int i = 0; i < 30000; ++i) {
    std::string file = good;
    for (int n = draw.from(1, 3); n > 0; --n) {
      const auto at = static_cast<size_t>(draw.from(0, static_cast<int32_t>(file.size()) - 1));
      const int how = draw.from(0, 3);
      if (how == 0) file[at] = static_cast<char>(draw.from(0, 255));
      if (how == 1) file[at] = "{}[],:\"0123456789.- "[draw.from(0, 19)];
      if (how == 2) file.erase(at, static_cast<size_t>(draw.from(1, 5)));
      if (how == 3)
        file.insert(at, file.substr(static_cast<size_t>(draw.from(0, static_cast<int32_t>(file.size()) - 1)), 9));
    }
    try {
      const SafetensorsHeader header = read(file);
      ++taken;
      for (const StoredTensor& tensor : header.tensors)
        assert_true(tensor.begin <= tensor.end && header.data_at + tensor.end <= file.size());
    } catch (const gsel::Error& e) {
      assert_int_equal(e.code(), GSEL_ERR_PARSE);
    }
  }
  assert_in_range(taken, 100, 20000);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read_back), cmocka_unit_test(what_others_may_write_is_read),
      cmocka_unit_test(lengths_that_lie_are_refused), cmocka_unit_test(what_is_no_header_is_refused),
      cmocka_unit_test(places_that_lie_are_refused),  cmocka_unit_test(damage_is_an_error_or_harmless),
  };
  return cmocka_run_group_tests_name("safetensors", tests, nullptr, nullptr);
}
