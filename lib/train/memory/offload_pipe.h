// train/memory/offload_pipe.h: brings arrays of page-locked memory to the device and back, piece by piece, while the
// device computes. A device has three buffers for it: while kernels work in one, the next piece is read into the
// second, and the one before is written back from the third, each on a stream of its own. Pieces come in the same order
// in each round; the first ones of a round are read as soon as it begins.
#pragma once

#include <array>
#include <vector>

#include "train/memory/ledger.h"

namespace gsel {

class OffloadPipe {
 public:
  struct Array {
    void* data;  // page-locked
    uint64_t bytes;
  };
  using Piece = std::vector<Array>;
  static constexpr size_t kBuffers = 3;

  // buffer_bytes: at least those of each piece, whose arrays begin at multiples of kTensorAlign there. The ledger and
  // the arrays must outlive it, and its streams are empty at its end.
  OffloadPipe(std::shared_ptr<DeviceContext> device, Ledger& ledger, uint64_t buffer_bytes, std::vector<Piece> pieces);
  OffloadPipe(const OffloadPipe&) = delete;
  OffloadPipe& operator=(const OffloadPipe&) = delete;

  // Begins a round. Pieces of the round before that were not taken stay as they are.
  void begin();
  // The next piece, in order: the address of its arrays in a buffer, valid for work queued on the compute stream before
  // give_back.
  char* take();
  void give_back();
  // Records the event behind all that has been given back.
  void record_written(Event& event) { event.record(to_host_.get()); }
  // The host waits until no array is read or written. Pieces that were not taken are read again when they are.
  void settle();
  std::array<gsel_stream*, 2> streams() const { return {to_device_.get(), to_host_.get()}; }

  uint64_t bytes_in = 0, bytes_out = 0;  // so far

 private:
  struct Buffer {
    explicit Buffer(const std::shared_ptr<DeviceContext>& device) : read(device), computed(device), written(device) {}
    char* data = nullptr;
    Event read, computed, written;
    bool is_written = false;  // the last event has been recorded
  };
  Buffer& buffer_of(size_t piece) { return buffers_[piece % kBuffers]; }
  void read(size_t piece);
  void copy(size_t piece, bool to_device);
  void read_ahead();
  void order(gsel_stream* stream, const Event& event) const;

  const std::shared_ptr<DeviceContext> device_;
  const std::vector<Piece> pieces_;
  CountedMemory memory_;
  Stream to_device_, to_host_;
  Event begun_;  // of a round: what was queued on the compute stream before
  std::array<Buffer, kBuffers> buffers_;
  size_t n_read_ = 0, next_ = 0;  // in this round
};

}  // namespace gsel
