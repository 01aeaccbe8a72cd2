// unit/test_comm_family.cc: where buffers stand in the memory of a family, from inside: what calls ask on their way.
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "base/error.h"
#include "base/os.h"
#include "comm/shm/memory/family.h"
#include "support/check.h"

using namespace gsel;
using namespace gsel::shm;

namespace {

constexpr uint64_t kControl = uint64_t{2} << 20;

std::shared_ptr<SharedMemory> two_ranks() {
  const os::Fd fd = SharedMemory::create(kPage, kControl, 2);
  return SharedMemory::map(fd.get(), kControl);
}

char* private_pages(uint64_t bytes) {
  return static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

void test_offsets_name_the_bytes_of_a_buffer(void**) {
  const auto memory = two_ranks();
  Family first(memory, std::vector<Member>(2), 0, os::Life()), second(memory, std::vector<Member>(2), 1, os::Life());
  auto* allocated = static_cast<char*>(first.alloc(3 * kPage));
  auto* of_other = static_cast<char*>(second.alloc(kPage));
  char* own = private_pages(5 * kPage);  // one behind them, lest other memory of the family lies there
  own[5] = 42;
  assert_int_equal(first.offset_of(own, kPage), 0);
  first.register_memory(own, 4 * kPage);

  // Written here, read there.
  const uint64_t at = first.offset_of(own + 5, 1);
  assert_int_not_equal(at, 0);
  assert_int_equal(*memory->at(at), 42);
  *memory->at(at) = 43;
  assert_int_equal(own[5], 43);
  assert_ptr_equal(memory->at(first.offset_of(allocated + 100, 7)), allocated + 100);
  assert_int_not_equal(first.offset_of(of_other, kPage) >> kExtentShift, at >> kExtentShift);  // an extent each

  // Ends: the last byte belongs to it, one more does not.
  assert_int_equal(first.offset_of(own + 4 * kPage - 1, 1), first.offset_of(own, 1) + 4 * kPage - 1);
  assert_int_equal(first.offset_of(own + 1, 4 * kPage), 0);
  assert_int_equal(first.offset_of(own + 4 * kPage, 1), 0);
  assert_int_equal(first.offset_of(own, UINT64_MAX), 0);
  assert_int_equal(first.offset_of(&at, sizeof at), 0);
  assert_int_equal(second.offset_of(own, 1), 0);               // registered by the other rank only
  assert_int_equal(first.offset_of(memory->control(), 1), 0);  // the control part is nobody's buffer

  first.unregister_memory(own);
  assert_int_equal(first.offset_of(own, 1), 0);
  assert_int_equal(own[5], 43);
  munmap(own, 5 * kPage);
}

void test_a_family_of_one_shares_nothing(void**) {
  Family alone(nullptr, std::vector<Member>(1), 0, os::Life());
  auto* memory = static_cast<char*>(alone.alloc(2 * kPage));
  char* own = private_pages(kPage);
  alone.register_memory(own, kPage);
  assert_int_equal(alone.offset_of(memory, kPage), 0);
  assert_int_equal(alone.offset_of(own, kPage), 0);
  munmap(own, kPage);
}

// Asking while another thread registers others: each answer is right.
void test_offsets_may_be_asked_from_any_thread(void**) {
  const auto memory = two_ranks();
  Family family(memory, std::vector<Member>(2), 0, os::Life());
  char* own = private_pages(kPage);
  char* others = private_pages(8 * kPage);
  family.register_memory(own, kPage);
  const uint64_t at = family.offset_of(own, kPage);
  assert_int_not_equal(at, 0);
  std::thread changes([&] {
    for (int i = 0; i < 300; ++i) {
      char* other = others + static_cast<uint64_t>(i % 4) * 2 * kPage;
      family.register_memory(other, kPage);
      family.unregister_memory(other);
    }
  });
  int wrong = 0;
  for (int i = 0; i < 20000; ++i) wrong += family.offset_of(own, kPage) != at;
  changes.join();
  assert_int_equal(wrong, 0);
}

void test_a_piece_is_released_when_nobody_uses_it_and_not_before(void**) {
  const auto memory = two_ranks();
  Family family(memory, std::vector<Member>(2), 0, os::Life());
  bool used = true;
  const uint64_t piece = family.allocate(kPage);
  *memory->at(piece) = 1;
  family.release_once(piece, [&] { return !used; });
  const uint64_t next = family.allocate(kPage);
  assert_int_not_equal(next, piece);
  assert_int_equal(*memory->at(piece), 1);
  used = false;
  assert_int_equal(family.allocate(kPage), piece);
  assert_int_equal(*memory->at(piece), 0);
  assert_int_not_equal(os::available_memory(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_offsets_name_the_bytes_of_a_buffer),
      cmocka_unit_test(test_a_family_of_one_shares_nothing),
      cmocka_unit_test(test_offsets_may_be_asked_from_any_thread),
      cmocka_unit_test(test_a_piece_is_released_when_nobody_uses_it_and_not_before),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
