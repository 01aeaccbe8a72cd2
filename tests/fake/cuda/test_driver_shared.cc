// fake/cuda/test_driver_shared.cc: what the double of the driver has for ranks that share a GPU: memory that goes to
// another process by a file descriptor, and memory of the host that is registered; test_driver_words.cc has the words
// that streams write and wait for.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "fake/cuda/driver_trial.h"

namespace {

constexpr int kTurns = 200;

void send_file(int socket, int file) {
  char byte = 0, control[CMSG_SPACE(sizeof file)] = {};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof file);
  memcpy(CMSG_DATA(head), &file, sizeof file);
  if (sendmsg(socket, &message, 0) != 1) abort();
}

int receive_file(int socket) {
  int file = -1;
  char byte = 0, control[CMSG_SPACE(sizeof file)] = {};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) abort();
  memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  return file;
}

unsigned long long import_from(Driver& d, int file) {
  unsigned long long physical = 0;
  d.cuMemImportFromShareableHandle(&physical, reinterpret_cast<void*>(static_cast<uintptr_t>(file)), kHandleFile);
  return physical;
}

int export_of(Driver& d, unsigned long long physical) {
  int file = -1;
  d.cuMemExportToShareableHandle(&file, physical, kHandleFile, 0);
  return file;
}

// ---- two processes --------------------------------------------------------------------------------------------------

// Turn t copies byte t to the next one and writes t + 1 to the word. One of the ranks enqueues all its turns at once,
// the other waits for each by looks at an event.
void take_turns(Driver& d, int rank, Pointer memory, uint32_t* word) {
  Any event = nullptr;
  d.cuEventCreate(&event, 2);
  for (int turn = rank; turn < kTurns; turn += 2) {
    const auto number = static_cast<uint32_t>(turn);
    const Pointer from = memory + static_cast<Pointer>(turn);
    d.cuStreamWaitValue32(d.streams[0], pointer_to(word), number, kWaitAtLeast);
    d.cuMemcpyAsync(from + 1, from, 1, d.streams[0]);
    d.cuStreamWriteValue32(d.streams[0], pointer_to(word), number + 1, 0);
    if (rank == 0) continue;
    d.cuEventRecord(event, d.streams[0]);
    int result;
    while ((result = d.cuEventQuery(event)) == kNotReady) sched_yield();
    if (result) say(result);
  }
  d.cuStreamSynchronize(d.streams[0]);
}

void share(int rank, int socket, uint32_t* word) {
  Driver d;
  d.cuMemHostRegister(word, kPage, kRegisterPortable | kRegisterMapped);
  unsigned long long physical;
  if (rank == 0) {
    physical = d.create(2 * kMiB, kHandleFile);
    const int file = export_of(d, physical);
    send_file(socket, file);
    close(file);
  } else {
    const int file = receive_file(socket);
    physical = import_from(d, file);
    close(file);
  }
  const Pointer memory = d.reserve(2 * kMiB);
  d.map(memory, 2 * kMiB, physical, 1);
  d.cuMemRelease(physical);
  if (rank == 0) d.cuMemsetD8Async(memory, 7, 1, d.streams[0]);
  take_turns(d, rank, memory, word);
  while (host_word(word).load() < kTurns) sched_yield();  // the last turn is the other rank's
  fprintf(stderr, "rank %d has %d. ", rank, byte_at(d, memory + kTurns));
  d.cuMemUnmap(memory, 2 * kMiB);
  d.cuMemHostUnregister(word);
}

void test_two_processes_hand_a_token_back_and_forth(void**) {
  for (const char* order : kOrders) {
    const Ended ended = in_child({{"GSEL_FAKE_CUDA_ORDER", order}}, [] {
      uint32_t* word = shared_page();
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
      const pid_t other = fork();
      share(other == 0 ? 1 : 0, ends[other == 0 ? 1 : 0], word);
      if (other == 0) _exit(0);
      int status = -1;
      waitpid(other, &status, 0);
      if (status != 0) say(status);
    });
    assert_int_equal(ended.status, 0);
    assert_non_null(strstr(ended.text.c_str(), "rank 0 has 7. "));
    assert_non_null(strstr(ended.text.c_str(), "rank 1 has 7. "));
    assert_null(strstr(ended.text.c_str(), "fake cuda"));
  }
}

// The one that made it has ended.
void test_memory_lives_with_the_last_that_has_it(void**) {
  expect({}, "0 1 0 ", [] {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) abort();
    const pid_t other = fork();
    if (other == 0) {
      Driver d;
      const unsigned long long physical = d.create(2 * kMiB, kHandleFile);
      const Pointer at = d.reserve(2 * kMiB);
      d.map(at, 2 * kMiB, physical, 1);
      d.fill(at, 64);
      d.cuStreamSynchronize(d.streams[0]);
      send_file(ends[1], export_of(d, physical));
      d.cuMemUnmap(at, 2 * kMiB);
      d.cuMemRelease(physical);
      _exit(0);
    }
    const int file = receive_file(ends[0]);
    int status = -1;
    waitpid(other, &status, 0);
    say(status);
    Driver d;
    const unsigned long long physical = import_from(d, file);
    close(file);
    const Pointer at = d.reserve(2 * kMiB);
    d.map(at, 2 * kMiB, physical, 1);
    say(byte_at(d, at));
    say(d.cuMemRelease(physical));
  });
}

// ---- memory by a descriptor -----------------------------------------------------------------------------------------

void test_each_export_is_a_descriptor_of_the_caller_s(void**) {
  expect({}, "1 0 0 1 ", [] {
    Driver d;
    const unsigned long long physical = d.create(2 * kMiB, kHandleFile);
    const int first = export_of(d, physical), second = export_of(d, physical);
    say(first >= 0 && second >= 0 && first != second);
    say(close(first));
    const unsigned long long imported = import_from(d, second);
    say(close(second));
    say(imported != 0 && imported != physical);
  });
}

void test_what_is_not_shared_or_not_shareable_is_refused(void**) {
  expect({}, "801 1 1 1 1 1 ", [] {
    Driver d;
    const Properties fabric{kAllocationPinned, 8, {kLocationDevice, 0}, nullptr, {}};
    unsigned long long physical = 0;
    say(d.cuMemCreate(&physical, 2 * kMiB, &fabric, 0));
    int file = -1;
    say(d.cuMemExportToShareableHandle(&file, d.create(2 * kMiB), kHandleFile, 0));
    physical = d.create(2 * kMiB, kHandleFile);
    say(d.cuMemExportToShareableHandle(&file, physical, 2, 0));
    say(d.cuMemExportToShareableHandle(&file, physical, kHandleFile, 1));
    const int foreign = open("/dev/null", O_RDWR);
    say(d.cuMemImportFromShareableHandle(&physical, reinterpret_cast<void*>(static_cast<uintptr_t>(foreign)),
                                         kHandleFile));
    say(d.cuMemImportFromShareableHandle(&physical, reinterpret_cast<void*>(uintptr_t{4000}), kHandleFile));
  });
}

void test_imported_memory_is_checked_as_one_s_own(void**) {
  const auto imported = [](Driver& d, size_t n_devices) {
    const Pointer at = d.reserve(4 * kMiB);
    d.map(at, 2 * kMiB, import_from(d, export_of(d, d.create(2 * kMiB, kHandleFile))), n_devices);
    return at;
  };
  expect({}, "which device 0 may not access", [=] {
    Driver d;
    d.fill(imported(d, 0), 64);
  });
  expect({}, "goes 1 bytes past the end", [=] {
    Driver d;
    d.fill(imported(d, 1), 2 * kMiB + 1);
  });
  expect({}, "touches freed memory", [=] {
    Driver d;
    const Pointer at = imported(d, 1);
    d.cuMemUnmap(at, 2 * kMiB);
    d.fill(at, 64);
  });
  expect_end({}, "the host touched device memory", [=] {
    Driver d;
    *reinterpret_cast<volatile char*>(imported(d, 1)) = 1;
  });
}

// Through two addresses of one process.
void test_two_mappings_of_memory_race(void**) {
  for (const bool races : {true, false})
    expect({}, races ? "no event orders a fill of 64 bytes" : "0 9 done", [=] {
      Driver d;
      const unsigned long long physical = d.create(2 * kMiB, kHandleFile);
      const Pointer at = d.reserve(4 * kMiB);
      d.map(at, 2 * kMiB, physical, 1);
      d.map(at + 2 * kMiB, 2 * kMiB, import_from(d, export_of(d, physical)), 1);
      d.fill(at, 64);
      if (!races) d.cuStreamSynchronize(d.streams[0]);
      const Any second = stream_of(d);
      say(d.cuMemsetD8Async(at + 2 * kMiB, 9, 64, second));
      d.cuStreamSynchronize(second);
      if (!races) say(byte_at(d, at));
      fprintf(stderr, "done");
    });
}

// ---- registered memory ----------------------------------------------------------------------------------------------

void test_registered_memory_is_page_locked(void**) {
  expect({}, "0 type 1 size 8192 same 0 1 0 type 0 1 ", [] {
    Driver d;
    static char memory[2 * kPage];
    const Pointer at = pointer_to(memory);
    const auto ask = [&] {
      int type = -1, names[] = {kAttributeType, kAttributeSize};
      size_t bytes = 0;
      void* values[] = {&type, &bytes};
      d.cuPointerGetAttributes(2, names, values, at + 5000);
      fprintf(stderr, bytes ? "type %d size %zu " : "type %d ", type, bytes);
    };
    say(d.cuMemHostRegister(memory, sizeof memory, kRegisterPortable | kRegisterMapped));
    ask();
    Pointer of_device = 0;
    d.cuMemHostGetDevicePointer(&of_device, memory + 8, 0);
    fprintf(stderr, of_device == at + 8 ? "same " : "other ");
    d.fill(at, 64);
    say(d.cuStreamSynchronize(d.streams[0]));
    say(memory[63]);
    say(d.cuMemHostUnregister(memory));
    ask();
    say(d.cuMemHostGetDevicePointer(&of_device, memory, 0));
  });
}

void test_registrations_that_are_refused(void**) {
  expect({}, "712 712 713 713 1 1 1 801 1 713 0 0 ", [] {
    Driver d;
    static char memory[2 * kPage];
    uint32_t* allocated = host_allocated(d);
    d.cuMemHostRegister(memory, sizeof memory, 0);
    say(d.cuMemHostRegister(memory + kPage, kPage, 0));
    say(d.cuMemHostRegister(allocated, kPage, 0));
    say(d.cuMemHostUnregister(allocated));
    say(d.cuMemHostUnregister(memory + kPage));
    say(d.cuMemFreeHost(memory));
    void* nothing = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say(d.cuMemHostRegister(nothing, kPage, 0));
    say(d.cuMemHostRegister(memory, 0, 0));
    say(d.cuMemHostRegister(memory, kPage, kRegisterReadOnly));
    say(d.cuMemHostRegister(memory, kPage, 16));
    say(d.cuMemHostUnregister(nothing));
    say(d.cuMemHostUnregister(memory));
    say(d.cuMemHostRegister(memory + kPage, kPage, 0));
  });
}

void test_registered_memory_stays_while_it_is_used(void**) {
  expect({}, "is freed while the wait for a word on stream 2 has not run", [] {
    Driver d;
    uint32_t* word = host_registered(d);
    d.cuStreamWaitValue32(d.streams[0], pointer_to(word), 1, kWaitAtLeast);
    d.cuMemHostUnregister(word);
  });
}

// ---- names ----------------------------------------------------------------------------------------------------------

void test_names_are_found_or_lacking(void**) {
  for (const bool lacks : {false, true})
    expect({{"GSEL_FAKE_CUDA_LACKS",
             lacks ? "cuStreamWaitValue32,cuMemExportToShareableHandle,cuMemHostRegister,attribute92" : ""}},
           lacks ? "1 0 0 0 1 0 1 1 " : "1 1 1 1 1 1 1 1 ", [] {
             Driver d;
             const auto find = reinterpret_cast<int (*)(const char*, void**, int, uint64_t, int*)>(
                 dlsym(d.library, "cuGetProcAddress_v2"));
             const struct {
               const char* name;
               int version;
             } all[] = {{"cuStreamWriteValue32", 11070},
                        {"cuStreamWaitValue32", 11070},
                        {"cuMemExportToShareableHandle", 10020},
                        {"cuMemHostRegister", 6050},
                        {"cuMemHostUnregister", 4000}};
             for (const auto& each : all) {
               void* found = nullptr;
               int status = 0;
               find(each.name, &found, each.version, kLegacyStream, &status);
               say(found != nullptr);
             }
             for (const int attribute : {kStreamMemoryV1, kStreamMemory64, kExportsFiles}) {
               int value = 0;
               d.cuDeviceGetAttribute(&value, attribute, 0);
               say(value);
             }
           });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_two_processes_hand_a_token_back_and_forth),
      cmocka_unit_test(test_memory_lives_with_the_last_that_has_it),
      cmocka_unit_test(test_each_export_is_a_descriptor_of_the_caller_s),
      cmocka_unit_test(test_what_is_not_shared_or_not_shareable_is_refused),
      cmocka_unit_test(test_imported_memory_is_checked_as_one_s_own),
      cmocka_unit_test(test_two_mappings_of_memory_race),
      cmocka_unit_test(test_registered_memory_is_page_locked),
      cmocka_unit_test(test_registrations_that_are_refused),
      cmocka_unit_test(test_registered_memory_stays_while_it_is_used),
      cmocka_unit_test(test_names_are_found_or_lacking),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
