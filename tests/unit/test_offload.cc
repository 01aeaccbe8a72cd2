// unit/test_offload.cc: offload memory: a file without a name, room reserved, counters, clear errors, nothing left
// behind.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/scratch.h"
#include "train/compile/base_program.h"
#include "train/state/storage.h"

namespace {

using namespace gsel;

struct Folder {
  char path[128];
  Folder() { assert_true(make_scratch(path, sizeof path, "offloaded")); }
  ~Folder() { remove_scratch(path); }
  bool is_empty() const { return std::filesystem::is_empty(path); }
};

template <class Call>
void expect_failure(Call&& call, gsel_status code, const std::string& part) {
  try {
    call();
  } catch (const Error& e) {
    if (e.code() != code || e.message().find(part) == std::string::npos)
      fail_msg("expected %s with \"%s\"\n  got %s with \"%s\"", gsel_status_name(code), part.c_str(),
               gsel_status_name(e.code()), e.what());
    return;
  }
  fail_msg("expected %s with \"%s\", got no failure", gsel_status_name(code), part.c_str());
}

// Bytes of a mapping that this process has in memory.
int64_t resident_bytes(const void* memory) {
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(memory);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0;
    long kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2)
      here = address >= from && address < to;
    else if (here && std::sscanf(line.c_str(), "Rss: %ld kB", &kib) == 1)
      return kib * 1024;
  }
  return -1;
}

void what_was_written_is_there_in_the_next_use_and_counted(void**) {
  const Folder folder;
  const auto device = DeviceContext::open_host();
  Ledger ledger(100);  // of device memory
  {
    OffloadMemory offload(device, folder.path);
    OffloadedArray a(offload, ledger, MemoryPart::offload_state, 100000),
        b(offload, ledger, MemoryPart::offload_params, 50001);
    assert_int_equal(ledger.now()[static_cast<size_t>(MemoryPart::offload_state)], 100000);
    assert_int_equal(ledger.now()[static_cast<size_t>(MemoryPart::offload_params)], 50001);
    assert_int_equal(total_bytes(ledger.now()), 0);

    auto* bytes = static_cast<unsigned char*>(a.begin_use());
    for (int i = 0; i < 100000; ++i) assert_int_equal(bytes[i], 0);
    for (int i = 0; i < 100000; ++i) bytes[i] = static_cast<unsigned char>(i * 7);
    a.end_use(true);
    assert_int_equal(offload.bytes_in, 100000);
    assert_int_equal(offload.bytes_out, 100000);
    auto* others = static_cast<unsigned char*>(b.begin_use());
    for (int i = 0; i < 50001; ++i) assert_int_equal(others[i], 0);
    b.end_use(false);
    assert_int_equal(offload.bytes_in, 150001);
    assert_int_equal(offload.bytes_out, 100000);

    bytes = static_cast<unsigned char*>(a.begin_use());
    for (int i = 0; i < 100000; ++i) assert_int_equal(bytes[i], static_cast<unsigned char>(i * 7));
    a.end_use(false);
  }
  assert_int_equal(ledger.now()[static_cast<size_t>(MemoryPart::offload_state)], 0);
}

void after_a_use_the_process_holds_no_page_of_it(void**) {
  const Folder folder;
  const auto device = DeviceContext::open_host();
  Ledger ledger(0);
  OffloadMemory offload(device, folder.path);
  const uint64_t bytes = 4 << 20;
  OffloadedArray memory(offload, ledger, MemoryPart::offload_state, bytes);
  void* data = memory.begin_use();
  std::memset(data, 1, bytes);
  if (resident_bytes(data) < static_cast<int64_t>(bytes)) {
    print_message("skipped: this system does not tell what a mapping has in memory\n");
    skip();  // resident pages are counted in smaps, which not every kernel or sandbox has
  }
  memory.end_use(true);
  assert_int_equal(resident_bytes(data), 0);
}

void the_file_has_no_name_while_it_is_used_and_afterwards(void**) {
  const Folder folder;
  const auto device = DeviceContext::open_host();
  Ledger ledger(0);
  {
    OffloadMemory offload(device, folder.path);
    OffloadedArray memory(offload, ledger, MemoryPart::offload_state, 12345);
    assert_true(folder.is_empty());
    struct stat info {};
    assert_int_equal(fstat(offload.file(), &info), 0);
    assert_int_equal(info.st_nlink, 0);
    assert_true(info.st_size >= 12345);
    assert_true(info.st_blocks > 0);  // room is reserved before it is written
  }
  assert_true(folder.is_empty());
}

void a_folder_that_cannot_be_written_is_named(void**) {
  const Folder folder;
  const auto device = DeviceContext::open_host();
  const std::string missing = std::string(folder.path) + "/missing", file = std::string(folder.path) + "/file";
  expect_failure([&] { OffloadMemory(device, missing); }, GSEL_ERR_CONFIG, missing + ": ENOENT");
  std::ofstream(file) << "not a folder";
  expect_failure([&] { OffloadMemory(device, file); }, GSEL_ERR_CONFIG, "train.offload_folder");
  if (geteuid() != 0) {
    assert_int_equal(chmod(folder.path, 0500), 0);
    expect_failure([&] { OffloadMemory(device, folder.path); }, GSEL_ERR_CONFIG, "EACCES");
    assert_int_equal(chmod(folder.path, 0700), 0);
  }
}

void a_full_disk_is_told_before_anything_is_mapped(void**) {
  const Folder folder;
  const auto device = DeviceContext::open_host();
  Ledger ledger(0);
  OffloadMemory offload(device, folder.path);
  const uint64_t too_much = uint64_t{1} << 55;
  expect_failure([&] { OffloadedArray(offload, ledger, MemoryPart::offload_state, too_much); }, GSEL_ERR_NOMEM,
                 "train.offload_folder");
  assert_int_equal(ledger.now()[static_cast<size_t>(MemoryPart::offload_state)], 0);
  struct stat info {};
  assert_int_equal(fstat(offload.file(), &info), 0);
  assert_int_equal(info.st_size, 0);
  OffloadedArray small(offload, ledger, MemoryPart::offload_state, 64);  // it can go on
  assert_non_null(small.begin_use());
  assert_true(folder.is_empty());
}

// One step of a bucket whose state and shard are both offloaded reads and writes each once; a gather reads the shard.
void storage_counts_what_a_step_moves_to_and_from_offload_memory(void**) {
  const Folder folder;
  const auto model = made::chain({1000, 13});
  const Config config =
      made::config(fmt::format("[train]\nprecision = \"bf16\"\nbatch = 4\noffload_folder = \"{}\"\n", folder.path));
  const Optimizer optimizer(config, *model, nullptr);
  Program program = base_program(*model, config, made::data_mesh(4), 2);
  program.buckets[0].axis = GSEL_AXIS_DATA;
  program.buckets[0].flags = GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT | GSEL_BUCKET_SHARD_PARAM |
                             GSEL_BUCKET_OFFLOAD_STATE | GSEL_BUCKET_OFFLOAD_PARAM;
  Ledger ledger(0);
  ParamStorage storage(DeviceContext::open_host(), *model, program, config, optimizer, 0, ledger);
  storage.initialise(5);
  const uint64_t in = storage.offload_bytes_in(), out = storage.offload_bytes_out(), elems = 254;

  BucketShard shard = storage.shard(0);
  for (int64_t i = 0; i < shard.count; ++i) {
    shard.values[i] = static_cast<float>(i);
    static_cast<uint16_t*>(shard.rounded)[i] = static_cast<uint16_t>(i);
  }
  storage.done_with(0, true);
  assert_int_equal(storage.offload_bytes_in() - in, (2 + 4 + 8) * elems);
  assert_int_equal(storage.offload_bytes_out() - out, (2 + 4 + 8) * elems);

  uint16_t window[4 * 254];
  storage.open_params(0, window);
  storage.place_shard(0, nullptr);
  assert_int_equal(storage.offload_bytes_in() - in, (2 + 4 + 8 + 2) * elems);
  assert_int_equal(storage.offload_bytes_out() - out, (2 + 4 + 8) * elems);
  for (uint64_t i = 0; i < elems; ++i) assert_int_equal(window[2 * elems + i], i);

  shard = storage.shard(0);
  for (int64_t i = 0; i < shard.count; ++i) assert_true(shard.values[i] == static_cast<float>(i));
  storage.done_with(0, false);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_was_written_is_there_in_the_next_use_and_counted),
      cmocka_unit_test(after_a_use_the_process_holds_no_page_of_it),
      cmocka_unit_test(the_file_has_no_name_while_it_is_used_and_afterwards),
      cmocka_unit_test(a_folder_that_cannot_be_written_is_named),
      cmocka_unit_test(a_full_disk_is_told_before_anything_is_mapped),
      cmocka_unit_test(storage_counts_what_a_step_moves_to_and_from_offload_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
