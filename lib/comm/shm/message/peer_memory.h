// comm/shm/message/peer_memory.h: memory of the other ranks as this rank reads it: in the memory that all share, or in
// private memory, which the kernel of the operating system copies (process_vm_readv). Does not know what is read.
#pragma once

#include <cstdint>

#include "comm/shm/wait/breaking.h"

namespace gsel::shm {

// Tells the family whose private memory this rank may read: once, before any rank is told that all have joined.
void tell_what_is_read(const Family& family);

class PeerMemory {
 public:
  PeerMemory(const Membership& members, const FlightRecorder& recorder, const Breaking& breaking)
      : at_(members), recorder_(recorder), breaking_(breaking) {}

  // Where this process has what stands at an offset of the shared memory.
  char* shared(uint64_t offset) const;
  // Of a buffer of this rank: its offset in the shared memory; 0: it is private.
  uint64_t offset_of(const void* memory, uint64_t bytes) const { return at_.family().offset_of(memory, bytes); }

  // Whether this rank may read private memory of another, asked for at each call; and of all, asked once.
  bool can_read(int32_t rank) const;
  bool reads_all();
  // Whether another may read this rank's, as it found when it joined.
  bool is_read_by(int32_t rank) const;
  // What a rank has at an address of its process, for a call with this number.
  void read_from(int32_t rank, uint64_t address, char* to, uint64_t bytes, const Call& call, uint64_t number) const;
  // What was read in place counts only if its owner still lends it.
  void throw_if_taken_back() const;

 private:
  [[noreturn]] void fail_reading(int32_t rank, int failure, const Call& call, uint64_t number) const;

  const Membership& at_;
  const FlightRecorder& recorder_;
  const Breaking& breaking_;
  enum class Probe { open, yes, no } reads_all_ = Probe::open;
};

}  // namespace gsel::shm
