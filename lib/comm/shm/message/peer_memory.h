// comm/shm/message/peer_memory.h: reads memory of other ranks: shared memory, or private memory through the kernel
// (process_vm_readv). Does not know what is read.
#pragma once

#include <cstdint>

#include "comm/shm/wait/breaking.h"

namespace gsel::shm {

// Publishes whose private memory this rank may read: once, before the join ends.
void publish_readable_families(const Family& family);

class PeerMemory {
 public:
  PeerMemory(const Membership& members, const FlightRecorder& recorder, const Breaking& breaking)
      : at_(members), recorder_(recorder), breaking_(breaking) {}

  // The address in this process of an offset of the shared memory.
  char* shared(uint64_t offset) const;
  // The offset in the shared memory of a buffer of this rank; 0: it is private.
  uint64_t offset_of(const void* memory, uint64_t bytes) const { return at_.family().offset_of(memory, bytes); }

  // Whether this rank may read private memory of another rank (tried at each call), or of all ranks (tried once).
  bool can_read(int32_t rank) const;
  bool reads_all();
  // Whether another rank may read this rank's memory, as that rank found when it joined.
  bool is_read_by(int32_t rank) const;
  // Reads memory of a rank's process, for the call with this number.
  void read_from(int32_t rank, uint64_t address, char* to, uint64_t bytes, const Call& call, uint64_t number) const;
  // After a read in place: throws if the communicator is broken, since the owner may have changed the data.
  void throw_if_taken_back() const;

 private:
  [[noreturn]] void fail_reading(int32_t rank, int failure, const Call& call, uint64_t number) const;

  const Membership& at_;
  const FlightRecorder& recorder_;
  const Breaking& breaking_;
  enum class Probe { open, yes, no } reads_all_ = Probe::open;
};

}  // namespace gsel::shm
