// unit/test_select_schema.cc: docs/inventory.schema.json and the reader tell the same of every field: its name, its
// type and its bounds. A small checker of the parts of JSON Schema that the schema uses stands here, so that the schema
// is tried itself.
#include <regex.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "select/inventory/inventory.h"
#include "support/check.h"

namespace {

using namespace gsel;
using nlohmann::json;

json load(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail_msg("%s cannot be opened", path.c_str());
  return json::parse(file);
}

const json& schema() {
  static const json tree = load(std::string(getenv("GSEL_TEST_DATA")) + "/../../docs/inventory.schema.json");
  return tree;
}

bool has_type(const json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  fail_msg("the schema names type %s, which this test does not know", type.c_str());
  return false;
}

bool below(const json& a, const json& b) {
  if (a.is_number_unsigned() && b.is_number_unsigned()) return a.get<uint64_t>() < b.get<uint64_t>();
  return a.get<double>() < b.get<double>();
}

bool matches(const std::string& text, const std::string& pattern) {
  regex_t compiled;
  assert_int_equal(regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB), 0);
  const bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

bool valid(const json& value, const json& rule);

bool valid_object(const json& value, const json& rule) {
  for (const json& name : rule.value("required", json::array()))
    if (!value.contains(name.get<std::string>())) return false;
  for (const auto& [name, member] : value.items()) {
    if (!rule["properties"].contains(name)) return false;  // additionalProperties is false throughout
    if (!valid(member, rule["properties"][name])) return false;
  }
  return true;
}

// The words used in the schema; an unknown one fails, so that none is passed over.
bool valid(const json& value, const json& rule) {
  static const std::set<std::string> known = {
      "$ref",        "type",     "const",   "enum",     "minimum", "maximum",    "minLength",
      "minItems",    "pattern",  "items",   "required", "anyOf",   "properties", "additionalProperties",
      "description", "examples", "$schema", "title",    "$defs"};
  for (const auto& [word, unused] : rule.items())
    if (!known.contains(word)) fail_msg("the schema uses %s, which this test does not know", word.c_str());
  if (rule.contains("$ref")) {
    const std::string name = rule["$ref"].get<std::string>().substr(std::string("#/$defs/").size());
    if (!valid(value, schema()["$defs"].at(name))) return false;
  }
  if (rule.contains("const") && value != rule["const"]) return false;
  if (rule.contains("enum") && std::find(rule["enum"].begin(), rule["enum"].end(), value) == rule["enum"].end())
    return false;
  if (rule.contains("type")) {
    const json types = rule["type"].is_array() ? rule["type"] : json::array({rule["type"]});
    if (std::none_of(types.begin(), types.end(), [&](const json& type) { return has_type(value, type); })) return false;
  }
  if (value.is_number() && rule.contains("minimum") && below(value, rule["minimum"])) return false;
  if (value.is_number() && rule.contains("maximum") && below(rule["maximum"], value)) return false;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() < rule.value("minLength", size_t{0})) return false;
    if (rule.contains("pattern") && !matches(text, rule["pattern"].get<std::string>())) return false;
  }
  if (value.is_array()) {
    if (value.size() < rule.value("minItems", size_t{0})) return false;
    for (const json& item : value)
      if (rule.contains("items") && !valid(item, rule["items"])) return false;
  }
  if (rule.contains("anyOf") && std::none_of(rule["anyOf"].begin(), rule["anyOf"].end(), [&](const json& one) {
        return !one.contains("required") || value.contains(one["required"][0].get<std::string>());
      }))
    return false;
  return !value.is_object() || !rule.contains("properties") || valid_object(value, rule);
}

bool readable(const json& tree, std::string& why) {
  try {
    parse_inventory(tree.dump(), "test.json");
    return true;
  } catch (const Error& e) {
    why = e.what();
    return false;
  }
}

// An inventory with every field there is, and places in it: an accelerator, a CPU, an instance, a link.
json whole() {
  return json::parse(R"({"gsel_inventory": 1, "notes": ["n"], "hosts": [{"name": "h", "devices": [
    {"vendor": "nvidia", "name": "N", "uuid": "GPU-1", "pci": "0000:01:00.0", "memory_bytes": 10, "free_bytes": 9,
     "architecture": "a", "compute_capability": "9.0", "multiprocessors": 7, "clock_khz": 5, "process_count": 2, "numa": 3,
     "compute_mode": "prohibited", "tiles": 2, "ordinal": 4, "module": 5, "integrated": true, "accessible": false,
     "speed": {"bf16_flop_per_second": 8, "tf32_flop_per_second": 7, "f32_flop_per_second": 6, "fp8_flop_per_second": 5,
               "memory_bytes_per_second": 4, "link_bytes_per_second": 3, "host_bytes_per_second": 2,
               "network_bytes_per_second": 1},
     "reserved_by": 12, "partitions": [{"uuid": "MIG-1", "gi": 1, "ci": 2, "memory_bytes": 3, "reserved_by": 4}]},
    {"vendor": "amd", "name": "x", "pci": "0000:02:00.0"},
    {"vendor": "cpu", "name": "C", "cores": 4}],
    "links": [{"a": 0, "b": 1, "class": "SYS", "bytes_per_second": 1.5, "latency_s": 0.5}],
    "vulkan": [{"name": "v", "kind": "discrete", "pci": "0000:01:00.0", "uuid": "1", "driver": "d", "driver_id": 4,
                "vendor_id": 5, "device_id": 6, "storage16": false}]}]})");
}

struct Part {
  const char* rule;  // in $defs, empty for the document
  const char* at;    // JSON pointer of an example in whole()
};
const Part kParts[] = {{"", ""},
                       {"host", "/hosts/0"},
                       {"device", "/hosts/0/devices/0"},
                       {"device", "/hosts/0/devices/2"},
                       {"partition", "/hosts/0/devices/0/partitions/0"},
                       {"speed", "/hosts/0/devices/0/speed"},
                       {"link", "/hosts/0/links/0"},
                       {"vulkan", "/hosts/0/vulkan/0"}};

const json& rule_of(const Part& part) {
  return part.rule[0] ? schema()["$defs"].at(part.rule) : schema();
}

void every_recorded_inventory_fits_the_schema(void**) {
  for (const char* name : {"a100x8", "ascend8", "cpu", "gaudi8", "laptop", "linked8", "mi300x8", "mig", "mixed4",
                           "pvc4", "two_hosts", "unlike7", "vulkan"}) {
    const std::string path = std::string(getenv("GSEL_TEST_DATA")) + "/inventory/" + name + ".json";
    if (!valid(load(path), schema())) fail_msg("%s does not fit the schema", name);
  }
}

// What the writer emits, with every field set, holds every property of the schema, each with the type it has there.
void the_writer_emits_what_the_schema_lists(void**) {
  const json written = json::parse(inventory_json(parse_inventory(whole().dump(), "whole")));
  assert_true(valid(written, schema()));
  for (const Part& part : kParts)
    for (const auto& [name, unused] : rule_of(part)["properties"].items()) {
      const bool of_cpu = std::string(part.at) == "/hosts/0/devices/2";
      if (of_cpu ? name != "cores" : name == "cores") continue;
      if (!written.at(json::json_pointer(part.at)).contains(name))
        fail_msg("%s of %s is in the schema, and the writer does not emit it", name.c_str(), part.at);
    }
}

// Refusals for what other fields or other devices say, which JSON Schema cannot: such a value may fit and not be read.
bool goes_with_others(const std::string& why) {
  for (const char* part : {"cores is not a known field", "multiprocessors is not a known field", "bus order",
                           "begins with GPU-", "joins two", "neither uuid nor pci", "the host has",
                           "only an nvidia device", "twice", "no uuid", "speed is there"})
    if (why.find(part) != why.npos) return true;
  return false;
}

// Each property in turn gets values of every type and at the bounds: reader and schema must say the same of each.
void reader_and_schema_agree_on_every_field(void**) {
  const json values = json::parse(
      R"([null, true, "", "x", "default", "1.5", "GPU-1", "MIG-7", "0000:02:00.0", [], {}, [1], [{}], 0, 1, -1, 64, 65,
          2147483647, 2147483648, 9223372036854775807, 9223372036854775808, 18446744073709551615, 1.5])");
  int agreed = 0;
  for (const Part& part : kParts)
    for (const auto& [name, unused] : rule_of(part)["properties"].items())
      for (const json& value : values) {
        json tree = whole();
        json& object = tree[json::json_pointer(part.at)];
        object[name] = value;
        // What JSON Schema cannot say: other fields and other objects that a value must go with.
        const std::string field = name;
        if (field == "memory_bytes" && std::string(part.rule) == "device") object.erase("free_bytes");
        if (field == "free_bytes") object["memory_bytes"] = UINT64_MAX;
        std::string why;
        const bool fits = valid(tree, schema()), reads = readable(tree, why);
        const bool by_relation = fits && !reads && goes_with_others(why);
        if (fits != reads && !by_relation)
          fail_msg("%s.%s = %s: the schema says %s, the reader says %s", part.at, name.c_str(), value.dump().c_str(),
                   fits ? "yes" : "no", reads ? "yes" : why.c_str());
        ++agreed;
      }
  assert_true(agreed > 500);
}

void what_the_schema_does_not_list_is_refused(void**) {
  for (const Part& part : kParts) {
    json tree = whole();
    tree[json::json_pointer(part.at)]["unheard_of"] = 1;
    std::string why;
    assert_false(valid(tree, schema()));
    assert_false(readable(tree, why));
    assert_non_null(strstr(why.c_str(), "unheard_of is not a known field"));
  }
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_recorded_inventory_fits_the_schema),
      cmocka_unit_test(the_writer_emits_what_the_schema_lists),
      cmocka_unit_test(reader_and_schema_agree_on_every_field),
      cmocka_unit_test(what_the_schema_does_not_list_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
