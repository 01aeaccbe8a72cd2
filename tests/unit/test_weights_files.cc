// Files of weights and folders of them: what an index says wrong is refused, tensors are found under all names that
// they may have, and what does not fit the model is one error.
#include <map>
#include <memory>
#include <string>

#include "base/config.h"
#include "checkpoint/weights_match.h"
#include "support/check.h"

using namespace gsel::checkpoint;
using gsel::WeightRule;

namespace {

std::vector<WeightRule> rules_of(const std::string& toml) {
  return gsel::parse_config(toml, "f").weights.rules;
}

class MemoryDisk : public Disk {
 public:
  std::map<std::string, std::string> files;

  std::unique_ptr<DiskFile> open(const std::string& path) override {
    if (!files.contains(path)) throw gsel::Error(GSEL_ERR_IO, path + " cannot be opened");
    return std::make_unique<File>(files[path]);
  }
  bool exists(const std::string& path) override { return files.contains(path); }
  std::unique_ptr<DiskFile> create(const std::string& path) override { throw gsel::Error(GSEL_ERR_IO, path); }
  void make_folder(const std::string&) override {}
  void rename(const std::string&, const std::string&) override {}
  void remove(const std::string&) override {}
  std::vector<std::string> names(const std::string&) override { return {}; }
  void sync_folder(const std::string&) override {}
  uint64_t free_bytes(const std::string&) override { return 0; }

 private:
  class File : public DiskFile {
   public:
    explicit File(const std::string& data) : data_(data) {}
    uint64_t bytes() const override { return data_.size(); }
    void read(uint64_t offset, void* dst, size_t bytes) override {
      assert_true(offset <= data_.size() && bytes <= data_.size() - offset);
      data_.copy(static_cast<char*>(dst), bytes, offset);
    }
    void write(uint64_t, const void*, size_t) override {}
    void reserve(uint64_t) override {}
    void sync() override {}

   private:
    const std::string& data_;
  };
};

struct NewTensor {
  const char* name;
  std::vector<int64_t> shape;
  gsel_dtype dtype = GSEL_F32;
};

std::string weights_file(const std::vector<NewTensor>& tensors) {
  SafetensorsHeader header;
  uint64_t at = 0;
  for (const NewTensor& tensor : tensors) {
    uint64_t bytes = tensor.dtype == GSEL_F32 || tensor.dtype == GSEL_I32 ? 4 : 2;
    for (const int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    header.tensors.push_back({tensor.name, stored_type(tensor.dtype), tensor.shape, at, at + bytes});
    at += bytes;
  }
  return header.text() + std::string(at, 'x');
}

void check_files_refused(MemoryDisk& disk, const char* path, const char* message) {
  try {
    const WeightFiles files(disk, path);
  } catch (const gsel::Error& e) {
    if (std::string(e.what()).starts_with(message)) return;
    fail_msg("expected %s\ngot %s", message, e.what());
  }
  fail_msg("%s was taken", path);
}

void a_folder_is_read_as_its_index_says(void**) {
  MemoryDisk disk;
  disk.files["/m/1.safetensors"] = weights_file({{"a", {2}}, {"b", {3}, GSEL_BF16}});
  disk.files["/m/2.safetensors"] = weights_file({{"c", {4}}});
  disk.files["/m/model.safetensors.index.json"] =
      R"({"metadata": {"total_size": 30, "more": [1]}, "weight_map":
      {"a": "1.safetensors", "c": "2.safetensors", "b": "1.safetensors"}})";
  const WeightFiles files(disk, "/m");
  assert_int_equal(files.tensors().size(), 3);
  assert_int_equal(files.tensors().at("a").file, files.tensors().at("b").file);
  assert_int_not_equal(files.tensors().at("a").file, files.tensors().at("c").file);
  assert_int_equal(files.tensors().at("b").stored.dtype(), GSEL_BF16);
  disk.files["/n/model.safetensors"] = weights_file({{"a", {2}}});
  assert_int_equal(WeightFiles(disk, "/n").tensors().size(), 1);
  assert_int_equal(WeightFiles(disk, "/n/model.safetensors").tensors().size(), 1);
  assert_string_not_equal(WeightFiles(disk, "/n").sum().c_str(), files.sum().c_str());
}

void an_index_that_says_wrong_things_is_refused(void**) {
  MemoryDisk disk;
  disk.files["/m/1.safetensors"] = weights_file({{"a", {2}}});
  disk.files["/m/2.safetensors"] = weights_file({{"a", {2}}, {"b", {2}}});
  disk.files["/x.safetensors"] = weights_file({{"a", {2}}});
  const auto index = [&](const char* map, const char* message) {
    disk.files["/m/model.safetensors.index.json"] = map;
    check_files_refused(disk, "/m", message);
  };
#define INDEX "index of weights /m/model.safetensors.index.json: "
  index("{", "index of weights /m/model.safetensors.index.json");
  index("[]", INDEX "there is no object weight_map");
  index(R"({"weight_map": ["a"]})", INDEX "there is no object weight_map");
  index(R"({"weight_map": {"a": 1}})", INDEX "weight_map.\"a\" is no text");
  index(R"({"weight_map": {"a": "../x.safetensors"}})",
        INDEX "weight_map.\"a\" is \"../x.safetensors\", which is no name of a file in this folder");
  index(R"({"weight_map": {"a": "/x.safetensors"}})", INDEX "weight_map.\"a\" is \"/x.safetensors\", which is no name");
  index(R"({"weight_map": {"a": "sub/x.safetensors"}})",
        INDEX "weight_map.\"a\" is \"sub/x.safetensors\", which is no");
  index(R"({"weight_map": {"a": ".."}})", INDEX "weight_map.\"a\" is \"..\", which is no name");
  index(R"({"weight_map": {"a": ""}})", INDEX "weight_map.\"a\" is \"\", which is no name");
  index(R"({"weight_map": {"a": "1.safetensors\u0000"}})", INDEX "weight_map.\"a\" is");
  index(R"({"weight_map": {"a": "3.safetensors"}})", "/m/3.safetensors cannot be opened");
  index(R"({"weight_map": {"a": "1.safetensors", "ghost": "1.safetensors"}})",
        INDEX "names 1 tensor that the files do not have: \"ghost\" in 1.safetensors");
  index(R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})",
        "\"a\" is in /m/1.safetensors and in /m/2.safetensors; expected each tensor in one file");
  std::string many = R"({"weight_map": {"a": "1.safetensors")";
  for (int i = 0; i < 15; ++i) many += fmt::format(", \"g{:02}\": \"1.safetensors\"", i);
  disk.files["/m/model.safetensors.index.json"] = many + "}}";
  check_files_refused(disk, "/m", INDEX "names 15 tensors that the files do not have: \"g00\" in 1.safetensors, ");
}

const char* kRules =
    "[weights]\nprefix = \"t.\"\n"
    "[[weights.map]]\nsource = \"a.{i}\"\ntarget = \"p{i}\"\n"
    "[[weights.map]]\nsource = \"emb\"\ntarget = \"table\"\nalias = [\"head\", \"out\"]\n"
    "[[weights.map]]\nsource = \"maybe\"\ntarget = \"q\"\noptional = true\n"
    "[[weights.map]]\nsource = [\"mask\", \"h.{i}.mask.{rest:any}\"]\nignore = true\n";
const std::vector<WeightParam> kParams{{"p0", {2}}, {"p1", {3}}, {"table", {2, 2}}, {"q", {1}}};

WeightMatch matched(MemoryDisk& disk, const WeightPlan& plan, const WeightFiles& files) {
  (void)disk;
  return {plan, kParams, rules_of(kRules), "t.", files, "/f"};
}

void names_prefix_copies_and_ignored_tensors_are_found(void**) {
  MemoryDisk disk;
  const WeightPlan plan(rules_of(kRules), kParams);
  disk.files["/f"] = weights_file({{"t.a.0", {2}},
                                   {"a.1", {3}, GSEL_F16},
                                   {"t.emb", {2, 2}},
                                   {"head", {2, 2}},
                                   {"mask", {9}, GSEL_I32},
                                   {"t.h.3.mask.x.y", {9}}});
  const WeightFiles files(disk, "/f");
  const WeightMatch match = matched(disk, plan, files);
  assert_int_equal(match.n_ignored, 3);
  assert_true(match.is_filled == std::vector<bool>({true, true, true, false}));
  const auto& table = match.sources[2];
  assert_string_equal(table.name.c_str(), "t.emb");
  assert_int_equal(table.copies.size(), 1);
  assert_string_equal(table.copies[0].first.c_str(), "head");
  // A tensor that is there under another of its names alone.
  disk.files["/f"] = weights_file({{"a.0", {2}}, {"a.1", {3}}, {"out", {2, 2}}, {"t.maybe", {1}}});
  const WeightFiles others(disk, "/f");
  const WeightMatch other = matched(disk, plan, others);
  assert_string_equal(other.sources[2].name.c_str(), "out");
  assert_true(other.is_filled == std::vector<bool>({true, true, true, true}));
}

void what_does_not_fit_is_one_error(void**) {
  MemoryDisk disk;
  const WeightPlan plan(rules_of(kRules), kParams);
  const auto refused = [&](const std::vector<NewTensor>& tensors, const char* message) {
    disk.files["/f"] = weights_file(tensors);
    const WeightFiles files(disk, "/f");
    try {
      matched(disk, plan, files);
    } catch (const gsel::Error& e) {
      if (e.code() == GSEL_ERR_MISMATCH && std::string(e.what()) == message) return;
      fail_msg("expected %s\ngot %s", message, e.what());
    }
    fail_msg("expected %s", message);
  };
  refused({{"a.0", {2}}, {"b.1", {3}}, {"emb", {2, 2}}, {"c", {1}}},
          "/f and the model differ: 1 parameter without a tensor: \"p1\" (missing \"a.1\"); 2 tensors without a "
          "parameter: \"b.1\", \"c\"");
  refused(
      {{"a.0", {3}}, {"a.1", {3}, GSEL_I32}, {"emb", {2, 2}}},
      "/f and the model differ: 2 tensors of another shape or type: \"a.0\" has shape [3], and \"p0\" needs shape [2], "
      "\"a.1\" has type I32; expected F32, BF16 or F16");
  refused({{"a.0", {2}}, {"a.1", {3}}, {"emb", {2, 2}}, {"head", {4}}},
          "/f and the model differ: 1 tensor of another shape or type: \"head\" has shape [4], and \"table\" needs "
          "shape [2, 2]");
  refused({{"a.0", {2}}, {"a.1", {3}}, {"emb", {2, 2}}, {"head", {2, 2}, GSEL_BF16}},
          "/f and the model differ: 1 tensor of another shape or type: \"head\" has type BF16, and \"emb\", of which "
          "it is a "
          "copy, F32");
  std::vector<NewTensor> many{{"emb", {2, 2}}};
  static const char* const names[] = {"u00", "u01", "u02", "u03", "u04", "u05",
                                      "u06", "u07", "u08", "u09", "u10", "u11"};
  for (const char* name : names) many.push_back({name, {1}});
  refused(many,
          "/f and the model differ: 2 parameters without a tensor: \"p0\" (missing \"a.0\"), \"p1\" (missing \"a.1\"); "
          "12 tensors without a parameter: \"u00\", \"u01\", \"u02\", \"u03\", \"u04\", \"u05\", \"u06\", "
          "\"u07\", \"u08\", \"u09\", and 2 more");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_folder_is_read_as_its_index_says),
      cmocka_unit_test(an_index_that_says_wrong_things_is_refused),
      cmocka_unit_test(names_prefix_copies_and_ignored_tensors_are_found),
      cmocka_unit_test(what_does_not_fit_is_one_error),
  };
  return cmocka_run_group_tests_name("weights files", tests, nullptr, nullptr);
}
