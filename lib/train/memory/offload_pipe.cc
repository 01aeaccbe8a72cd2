// train/memory/offload_pipe.cc: see offload_pipe.h.
#include "train/memory/offload_pipe.h"

#include <utility>

#include "base/align.h"

namespace gsel {

OffloadPipe::OffloadPipe(std::shared_ptr<DeviceContext> device, Ledger& ledger, uint64_t buffer_bytes,
                         std::vector<Piece> pieces)
    : device_(std::move(device)),
      pieces_(std::move(pieces)),
      memory_(device_, ledger, MemoryPart::staging, kBuffers * buffer_bytes),
      to_device_(device_),
      to_host_(device_),
      begun_(device_),
      buffers_{Buffer(device_), Buffer(device_), Buffer(device_)} {
  for (size_t i = 0; i < kBuffers; ++i) buffers_[i].data = memory_.at(i * buffer_bytes);
}

void OffloadPipe::order(gsel_stream* stream, const Event& event) const {
  device_->run(&gsel_device_v1::stream_wait_event, stream, event.get());
}

void OffloadPipe::copy(size_t piece, bool to_device) {
  char* at = buffer_of(piece).data;
  for (const Array& array : pieces_[piece]) {
    void *to = to_device ? at : array.data, *from = to_device ? array.data : at;
    device_->run(&gsel_device_v1::copy, to, static_cast<const void*>(from), array.bytes,
                 int32_t{to_device ? GSEL_COPY_TO_DEVICE : GSEL_COPY_TO_HOST},
                 to_device ? to_device_.get() : to_host_.get());
    (to_device ? bytes_in : bytes_out) += array.bytes;
    at += round_up(array.bytes, kTensorAlign);
  }
}

// Into a buffer whose last piece has been written back.
void OffloadPipe::read(size_t piece) {
  Buffer& buffer = buffer_of(piece);
  if (buffer.is_written) order(to_device_.get(), buffer.written);
  copy(piece, true);
  buffer.read.record(to_device_.get());
}

// What the last round has written, or the compute stream before this one, is read in it.
void OffloadPipe::begin() {
  begun_.record_compute();
  order(to_device_.get(), begun_);
  for (const Buffer& buffer : buffers_)
    if (buffer.is_written) order(to_device_.get(), buffer.written);
  next_ = n_read_ = 0;
  read_ahead();
}

void OffloadPipe::read_ahead() {
  for (; n_read_ < std::min(next_ + kBuffers, pieces_.size()); ++n_read_) read(n_read_);
}

char* OffloadPipe::take() {
  if (next_ >= pieces_.size()) fail(GSEL_ERR_INTERNAL, "a step takes more than {} pieces of offload memory", next_);
  read_ahead();
  Buffer& buffer = buffer_of(next_);
  buffer.read.hold_compute();
  return buffer.data;
}

void OffloadPipe::give_back() {
  Buffer& buffer = buffer_of(next_);
  buffer.computed.record_compute();
  order(to_host_.get(), buffer.computed);
  copy(next_++, false);
  buffer.written.record(to_host_.get());
  buffer.is_written = true;
  read_ahead();
}

void OffloadPipe::settle() {
  n_read_ = next_;
  for (gsel_stream* stream : streams()) device_->wait(stream);
}

}  // namespace gsel
