// plugins/transport/cuda_ipc/arena.cc: see arena.h. Memory of the device is made with cuMemCreate, whose handle travels
// as a file descriptor; unlike memory of the older IPC calls it lives until the last rank has unmapped it.
#include "arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/common/failure.h"

namespace gsel_ipc {
namespace {

using namespace gsel_between;

constexpr size_t kLinesOfPair = 2 * kSlots;  // slots, then boxes
enum FileOf : size_t { kDeviceFile, kHostFile };

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

using Pattern = std::array<uint32_t, 16>;

Pattern pattern_of(int32_t rank) {
  Pattern words{};
  for (uint32_t i = 0; i < words.size(); ++i) words[i] = 0x9e3779b9u * (static_cast<uint32_t>(rank) * 16 + i + 1);
  return words;
}

}  // namespace

Arena::Arena(const Driver& driver, const gsel_join& join)
    : driver_(driver),
      rank_(join.rank),
      world_size_(join.world_size),
      on_device_(static_cast<size_t>(join.world_size)),
      on_host_(static_cast<size_t>(join.world_size)) {
  Report report;
  Files own;
  try {
    attempt(report, [&] { own = make_own(); });
    attempt(report, [&] { write_pattern(join); });
    agree(join, report, "cuda_ipc");
    const std::vector<uint64_t> sizes = exchanged(join, on_device_[static_cast<size_t>(rank_)].bytes);
    neighbours_ = hand_over(join, own);
    for (int32_t q = 0; q < world_size_; ++q)
      if (q != rank_)
        attempt(report, [&] {
          map_host(q, neighbours_[static_cast<size_t>(q)].files[kHostFile].get());
          map_device(q, neighbours_[static_cast<size_t>(q)].files[kDeviceFile].get(), sizes[static_cast<size_t>(q)]);
          if (pid_of(q) != getpid()) check_pattern(join, q);
        });
    for (Neighbour& neighbour : neighbours_) neighbour.files = {};
    agree(join, report, "cuda_ipc");
  } catch (...) {
    release();
    throw;
  }
}

Arena::~Arena() {
  release();
}

Files Arena::make_own() {
  int device = 0;
  check(driver_, driver_.current_device(&device), "the current device");
  properties_.type = kPinned;
  properties_.handle_types = kFileDescriptor;
  properties_.location = access_.location = {kLocationOfDevice, device};
  access_.flags = kReadWrite;
  size_t granularity = 0;
  check(driver_, driver_.granularity(&granularity, &properties_, kMinimum), "the granularity of memory");
  const auto others = static_cast<size_t>(world_size_);
  const uint64_t bytes = round_up(kSlots * (kSlotBytes + others * kBoxBytes) + sizeof(Pattern), granularity);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  host_bytes_ = round_up((others * kLinesOfPair + 1) * sizeof(Line), page);

  OnDevice& mine = on_device_[static_cast<size_t>(rank_)];
  check(driver_, driver_.create(&mine.handle, bytes, &properties_, 0),
        std::to_string(bytes) + " bytes that ranks share");
  mine.has_handle = true;
  int device_fd = -1;
  check(driver_, driver_.export_handle(&device_fd, mine.handle, kFileDescriptor, 0), "a file of memory");
  Files files;
  files[kDeviceFile] = File(device_fd);
  fcntl(device_fd, F_SETFD, FD_CLOEXEC);
  map_device(rank_, device_fd, bytes);
  files[kHostFile] = File(memfd_create("gsel-ipc", MFD_CLOEXEC));
  if (files[kHostFile].get() < 0 || ftruncate(files[kHostFile].get(), static_cast<off_t>(host_bytes_)) != 0)
    fail(GSEL_ERR_NOMEM, std::string("cuda_ipc: memory that ranks share: ") + std::strerror(errno));
  map_host(rank_, files[kHostFile].get());
  return files;
}

void Arena::map_device(int32_t rank, int fd, uint64_t bytes) {
  OnDevice& of = on_device_[static_cast<size_t>(rank)];
  const std::string whose = "memory of rank " + std::to_string(rank);
  of.bytes = bytes;
  if (!of.has_handle) {
    check(driver_,
          driver_.import_handle(&of.handle, reinterpret_cast<void*>(static_cast<uintptr_t>(fd)), kFileDescriptor),
          whose);
    of.has_handle = true;
  }
  check(driver_, driver_.reserve(&of.at, bytes, 0, 0, 0), "addresses for " + whose);
  check(driver_, driver_.map(of.at, bytes, 0, of.handle, 0), "mapping " + whose);
  of.is_mapped = true;
  if (const int result = driver_.set_access(of.at, bytes, &access_, 1); result != kSuccess)
    check(driver_, result,
          "access to " + whose + " for the device of rank " + std::to_string(rank_) +
              "; devices without peer access use \"nccl\" or \"host\"");
}

void Arena::map_host(int32_t rank, int fd) {
  OnHost& of = on_host_[static_cast<size_t>(rank)];
  void* at = mmap(nullptr, host_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail(GSEL_ERR_NOMEM, std::string("cuda_ipc: memory that ranks share: ") + std::strerror(errno));
  of.at = static_cast<char*>(at);
  if (const int result = driver_.register_host(at, host_bytes_, kPortable | kMapped); result != kSuccess) {
    munmap(std::exchange(of.at, nullptr), host_bytes_);
    check(driver_, result, "page-locking memory that ranks share");
  }
  check(driver_, driver_.address_of_host(&of.device, at, 0), "the address of page-locked memory");
}

// Access that was granted may still not work, as between some devices behind a virtual machine's IOMMU. The pattern is
// after all boxes.
void Arena::write_pattern(const gsel_join& join) {
  const Pattern words = pattern_of(rank_);
  copy(join, box(rank_, world_size_, 0), words.data(), sizeof words, GSEL_COPY_TO_DEVICE);
}

void Arena::check_pattern(const gsel_join& join, int32_t rank) const {
  Pattern found{};
  copy(join, found.data(), box(rank, world_size_, 0), sizeof found, GSEL_COPY_TO_HOST);
  if (found != pattern_of(rank))
    fail(GSEL_ERR_DEVICE, "cuda_ipc: what rank " + std::to_string(rank) +
                              " has written to its memory is not what rank " + std::to_string(rank_) +
                              " reads there, though the driver grants access; use \"nccl\" or \"host\"");
}

// On a stream of its own, which waits for no other.
void Arena::copy(const gsel_join& join, void* to, const void* from, uint64_t bytes, int32_t direction) {
  const gsel_device_v1& device = *join.device_table;
  gsel_stream* stream = nullptr;
  must([&](gsel_error** err) { return device.stream_create(join.device_ctx, 0, &stream, err); });
  gsel_error* err = nullptr;
  gsel_status status = device.copy(join.device_ctx, to, from, bytes, direction, stream, &err);
  if (status == GSEL_OK) status = device.stream_wait(join.device_ctx, stream, &err);
  device.stream_free(join.device_ctx, stream);
  if (status != GSEL_OK) throw std::pair(status, err);
}

void Arena::release() noexcept {
  for (OnHost& of : on_host_) {
    if (!of.at) continue;
    driver_.unregister_host(of.at);
    munmap(of.at, host_bytes_);
    of.at = nullptr;
  }
  for (OnDevice& of : on_device_) {
    if (of.is_mapped) driver_.unmap(of.at, of.bytes);
    if (of.at) driver_.free_address(of.at, of.bytes);
    if (of.has_handle) driver_.release(of.handle);
    of = {};
  }
}

char* Arena::slot(int32_t of, int which) const {
  return reinterpret_cast<char*>(on_device_[static_cast<size_t>(of)].at) + static_cast<uint64_t>(which) * kSlotBytes;
}

char* Arena::box(int32_t from, int32_t to, int which) const {
  const auto number = static_cast<uint64_t>(to) * kSlots + static_cast<uint64_t>(which);
  return slot(from, 0) + kSlots * kSlotBytes + number * kBoxBytes;
}

LineAt Arena::line(Kind kind, int which, int32_t writer, int32_t reader) const {
  const OnHost& of = on_host_[static_cast<size_t>(reader)];
  const size_t number =
      static_cast<size_t>(writer) * kLinesOfPair + (kind == Kind::box ? kSlots : 0) + static_cast<size_t>(which);
  return {reinterpret_cast<Line*>(of.at) + number, of.device + number * sizeof(Line)};
}

Line& Arena::ending(int32_t of) const {
  return reinterpret_cast<Line*>(on_host_[static_cast<size_t>(of)].at)[static_cast<size_t>(world_size_) * kLinesOfPair];
}

}  // namespace gsel_ipc
