// test_select_hosts.cc: hostfiles and host filters as strict reading takes them. The forms are those of deepspeed
// (deepspeedai/DeepSpeed deepspeed/launcher/runner.py, _parse_hostfile and parse_resource_filter) and its tests
// (tests/unit/launcher/test_run.py), the refusals are gsel's own: where deepspeed sorts, merges, drops or ignores.
#include <fmt/ranges.h>

#include "select/request/hosts.h"
#include "support/check.h"

namespace {

using gsel::Device;
using gsel::Error;
using gsel::Inventory;
using gsel::Request;
using gsel::Trace;
using gsel::Unit;

// Hosts a of 4, b of 2 accelerators, c of none; a and c have a CPU.
Inventory three_hosts() {
  Inventory inventory;
  const auto add = [&](const char* name, int accelerators, bool cpu) {
    std::vector<Device> devices(static_cast<size_t>(accelerators) + cpu);
    for (Device& device : devices) device.vendor = "nvidia";
    if (cpu) devices.back().vendor = "cpu";
    inventory.add({name, 0, 0, {}}, devices);
  };
  add("worker-a", 4, true);
  add("worker-b", 2, false);
  add("worker-c", 0, true);
  return inventory;
}

// Every accelerator; without: a device that a mask hides.
std::vector<Unit> accelerators(const Inventory& inventory, int32_t without = -1) {
  std::vector<Unit> units;
  for (size_t i = 0; i < inventory.devices.size(); ++i)
    if (!inventory.devices[i].is_cpu() && static_cast<int32_t>(i) != without)
      units.push_back({static_cast<int32_t>(i), -1, -1});
  return units;
}

struct Row {
  const char* why;
  const char *hostfile, *include, *exclude;  // nullptr: not given
  const char* left;                          // indices in the inventory; nullptr: refused
  gsel_status code = GSEL_OK;
  const char* token = "";
  int column = 0, line = 0;
  int hidden = -1;
};

// a is 0..3 (4 its CPU), b is 5 and 6, c's CPU is 7.
constexpr Row kRows[] = {
    {"nothing is asked", nullptr, nullptr, nullptr, "0,1,2,3,5,6"},
    {"a bare host is all of it", nullptr, "worker-b", nullptr, "5,6"},
    {"the order of include is kept", nullptr, "worker-b:1@worker-a:3,1", nullptr, "6,3,1"},
    {"one host in two terms", nullptr, "worker-a:2@worker-b@worker-a:0", nullptr, "2,5,6,0"},
    {"blanks are trimmed", nullptr, " worker-a : 1 , 0 ", nullptr, "1,0"},
    {"exclude a slot", nullptr, nullptr, "worker-a:1", "0,2,3,5,6"},
    {"exclude a host", nullptr, nullptr, "worker-a", "5,6"},
    {"exclude parts of each host", nullptr, nullptr, "worker-a:0,1@worker-b:1", "2,3,5"},
    {"include a host but for a slot", nullptr, "worker-a", "worker-a:2", "0,1,3"},
    {"include and exclude of different hosts", nullptr, "worker-a:0", "worker-b", "0"},
    {"exclude what a mask hides already", nullptr, nullptr, "worker-a:0", "1,2,3,5,6", GSEL_OK, "", 0, 0, 0},
    {"a hostfile orders and cuts", "worker-b slots=1\nworker-a slots=2\n", nullptr, nullptr, "5,0,1"},
    {"comments and blank lines", "# all\n\n  worker-b slots=2 # both\r\n", nullptr, nullptr, "5,6"},
    {"a hostfile and include", "worker-a slots=2\nworker-b slots=2\n", "worker-b:1@worker-a:0", nullptr, "6,0"},

    {"bad slot", nullptr, "worker-a:4", nullptr, nullptr, GSEL_ERR_OUT_OF_RANGE, "4", 10},
    {"bad slot of exclude", nullptr, nullptr, "worker-b:0,2", nullptr, GSEL_ERR_OUT_OF_RANGE, "2", 12},
    {"a host without accelerators", nullptr, "worker-c:0", nullptr, nullptr, GSEL_ERR_OUT_OF_RANGE, "0", 10},
    {"unknown host", nullptr, "jeff", nullptr, nullptr, GSEL_ERR_UNKNOWN_HOST, "jeff", 1},
    {"unknown host of exclude", nullptr, nullptr, "worker-a@worker-d", nullptr, GSEL_ERR_UNKNOWN_HOST, "worker-d", 10},
    {"localhost, and several hosts", nullptr, "localhost", nullptr, nullptr, GSEL_ERR_UNKNOWN_HOST, "localhost", 1},
    {"a slot twice", nullptr, "worker-a:1,1", nullptr, nullptr, GSEL_ERR_DUPLICATE, "1", 12},
    {"a slot twice in two terms", nullptr, "worker-a:1@worker-a:0,1", nullptr, nullptr, GSEL_ERR_DUPLICATE, "1", 23},
    {"01 is 1", nullptr, "worker-a:1,01", nullptr, nullptr, GSEL_ERR_DUPLICATE, "01", 12},
    {"a host twice", nullptr, "worker-a@worker-a", nullptr, nullptr, GSEL_ERR_DUPLICATE, "worker-a", 10},
    {"a host, then its slots", nullptr, "worker-a@worker-a:1", nullptr, nullptr, GSEL_ERR_DUPLICATE, "worker-a", 10},
    {"slots, then their host", nullptr, "worker-a:1@worker-a", nullptr, nullptr, GSEL_ERR_DUPLICATE, "worker-a", 12},
    {"the same slot in and out", nullptr, "worker-a:0,1", "worker-a:1", nullptr, GSEL_ERR_CONFLICT, "1", 10},
    {"the same host in and out", nullptr, "worker-a", "worker-a", nullptr, GSEL_ERR_CONFLICT, "worker-a", 1},
    {"a slot in, its host out", nullptr, "worker-a:0", "worker-a", nullptr, GSEL_ERR_CONFLICT, "worker-a", 1},
    {"a hidden device is included", nullptr, "worker-a:0", nullptr, nullptr, GSEL_ERR_CONFLICT, "0", 10, 0, 0},
    {"no device of the kind", nullptr, "worker-c", nullptr, nullptr, GSEL_ERR_CONFLICT, "worker-c", 1},
    {"no slots behind the colon", nullptr, "worker-a:", nullptr, nullptr, GSEL_ERR_SYNTAX, "", 10},
    {"a comma at the end", nullptr, "worker-a:1,", nullptr, nullptr, GSEL_ERR_SYNTAX, "", 12},
    {"two colons", nullptr, "worker-a:1:2", nullptr, nullptr, GSEL_ERR_SYNTAX, "1:2", 10},
    {"a range", nullptr, "worker-a:1-2", nullptr, nullptr, GSEL_ERR_SYNTAX, "1-2", 10},
    {"a word", nullptr, "worker-a:x", nullptr, nullptr, GSEL_ERR_SYNTAX, "x", 10},
    {"a sign", nullptr, "worker-a:+1", nullptr, nullptr, GSEL_ERR_SYNTAX, "+1", 10},
    {"no host", nullptr, ":1", nullptr, nullptr, GSEL_ERR_SYNTAX, "", 1},
    {"an empty term", nullptr, "worker-a@@worker-b", nullptr, nullptr, GSEL_ERR_SYNTAX, "", 10},
    {"an empty filter", nullptr, "", nullptr, nullptr, GSEL_ERR_SYNTAX, "", 1},

    {"hostfile: an unknown host", "worker-a slots=1\nworker-x slots=1\n", nullptr, nullptr, nullptr,
     GSEL_ERR_UNKNOWN_HOST, "worker-x", 1, 2},
    {"hostfile: more slots than devices", "worker-b slots=3\n", nullptr, nullptr, nullptr, GSEL_ERR_OUT_OF_RANGE,
     "worker-b", 1, 1},
    {"hostfile: a host twice", "worker-a slots=1\n\nworker-a slots=1\n", nullptr, nullptr, nullptr, GSEL_ERR_DUPLICATE,
     "worker-a", 1, 3},
    {"hostfile: no slots", "worker-a\n", nullptr, nullptr, nullptr, GSEL_ERR_SYNTAX, "", 9, 1},
    {"hostfile: no number", "worker-a slots=\n", nullptr, nullptr, nullptr, GSEL_ERR_SYNTAX, "slots=", 10, 1},
    {"hostfile: blank round =", "worker-a slots = 2\n", nullptr, nullptr, nullptr, GSEL_ERR_SYNTAX, "slots", 10, 1},
    {"hostfile: text behind", "worker-a slots=2 max_slots=4\n", nullptr, nullptr, nullptr, GSEL_ERR_SYNTAX,
     "max_slots=4", 18, 1},
    {"hostfile: junk behind the number", "worker-a slots=2x\n", nullptr, nullptr, nullptr, GSEL_ERR_SYNTAX, "slots=2x",
     10, 1},
    {"hostfile: no slot", "worker-a slots=0\n", nullptr, nullptr, nullptr, GSEL_ERR_OUT_OF_RANGE, "slots=0", 10, 1},
    {"hostfile: words", "this is bad slots=1\n", nullptr, nullptr, nullptr, GSEL_ERR_SYNTAX, "is", 6, 1},
    {"hostfile: nothing", "\n# nobody\n", nullptr, nullptr, nullptr, GSEL_ERR_SYNTAX, "", 0, 0},
    {"hostfile: include of another host", "worker-a slots=2\n", "worker-b", nullptr, nullptr, GSEL_ERR_UNKNOWN_HOST,
     "worker-b", 1, 0},
    {"hostfile: include past its slots", "worker-a slots=2\n", "worker-a:3", nullptr, nullptr, GSEL_ERR_OUT_OF_RANGE,
     "3", 10, 0},
};

Request request_of(const Row& row) {
  Request request;
  if (row.hostfile) request.hostfile = row.hostfile;
  if (row.include) request.include = row.include;
  if (row.exclude) request.exclude = row.exclude;
  return request;
}

bool is_as_expected(const Row& row) {
  const Inventory inventory = three_hosts();
  std::string got;
  bool good = false;
  try {
    Trace trace;
    std::vector<int32_t> indices;
    for (const Unit& unit :
         gsel::apply_host_filters(inventory, accelerators(inventory, row.hidden), request_of(row), trace))
      indices.push_back(unit.device);
    got = fmt::format("{}", fmt::join(indices, ","));
    good = row.left && got == row.left;
  } catch (const Error& error) {
    const gsel::Place& place = error.place();
    got = fmt::format("{} (token \"{}\", line {}, column {}): {}", gsel_status_name(error.code()), place.token,
                      place.line, place.column, error.message());
    good = !row.left && error.code() == row.code && place.token == row.token && place.line == row.line &&
           place.column == row.column;
  }
  if (!good) print_error("%s: got %s\n", row.why, got.c_str());
  return good;
}

void hosts_are_filtered_strictly(void**) {
  int wrong = 0;
  for (const Row& row : kRows) wrong += !is_as_expected(row);
  assert_int_equal(wrong, 0);
}

void a_near_name_is_offered(void**) {
  const Inventory inventory = three_hosts();
  Request request;
  request.include = "worker_a:0";
  Trace trace;
  try {
    gsel::apply_host_filters(inventory, accelerators(inventory), request, trace);
    fail_msg("an unknown host was taken");
  } catch (const Error& error) {
    assert_non_null(strstr(error.what(), "did you mean \"worker-a\"?"));
  }
}

void localhost_is_the_only_host(void**) {
  Inventory inventory;
  std::vector<Device> devices(2);
  for (Device& device : devices) device.vendor = "nvidia";
  inventory.add({"box", 0, 0, {}}, devices);
  Request request;
  request.hostfile = "127.0.0.1 slots=2\n";
  request.include = "localhost:1";
  Trace trace;
  const std::vector<Unit> units = gsel::apply_host_filters(inventory, accelerators(inventory), request, trace);
  assert_int_equal(units.size(), 1);
  assert_int_equal(units[0].device, 1);
}

void a_blank_beside_a_host_is_warned_of(void**) {
  Trace trace;
  const auto terms = gsel::parse_filter({"include", "a:1, 2@ b"}, trace);
  assert_int_equal(terms.size(), 2);
  assert_int_equal(terms[0].slots[1].column, 6);
  assert_string_equal(terms[1].host.text.c_str(), "b");
  assert_int_equal(terms[1].host.column, 9);
  assert_int_equal(trace.warnings.size(), 1);
}

void a_large_job_is_filtered_without_waiting(void**) {
  Inventory inventory;
  std::string include;
  for (int host = 0; host < 1250; ++host) {
    std::vector<Device> devices(8);
    for (Device& device : devices) device.vendor = "nvidia";
    const std::string name = fmt::format("node{}", host);
    inventory.add({name, 0, 0, {}}, devices);
    include += fmt::format("{}{}:7,6,5,4,3,2,1,0", host ? "@" : "", name);
  }
  Request request;
  request.include = include;
  Trace trace;
  assert_int_equal(gsel::apply_host_filters(inventory, accelerators(inventory), request, trace).size(), 10000);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(hosts_are_filtered_strictly),
      cmocka_unit_test(a_near_name_is_offered),
      cmocka_unit_test(localhost_is_the_only_host),
      cmocka_unit_test(a_blank_beside_a_host_is_warned_of),
      cmocka_unit_test(a_large_job_is_filtered_without_waiting),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
