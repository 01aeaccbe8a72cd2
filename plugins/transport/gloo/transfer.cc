// plugins/transport/gloo/transfer.cc: transfers from rank to rank: post, test and release.
#include <time.h>

#include "link.h"

namespace gsel_gloo {
namespace {

using gsel_between::after;
using gsel_between::fail;
using gsel_between::failed;

// Longest sleep of a waiting thread before it checks for an abort and for the end of the other rank.
constexpr std::chrono::milliseconds kSlice{2};

std::string plain(const std::string& text) {  // without gloo's source location
  const size_t end = text.find("] ");
  return text.starts_with("[") && end != std::string::npos ? text.substr(end + 2) : text;
}

[[noreturn]] void fail_about(const gsel_link& link, int32_t peer, bool sends, const std::string& why) {
  if (link.aborting) fail(GSEL_ERR_ABORTED, "gloo: the link was ended");
  fail(GSEL_ERR_PEER, "gloo: rank " + std::to_string(peer) + " is gone, while bytes were " +
                          (sends ? "sent to it: " : "awaited from it: ") + plain(why));
}

// Slot 0 is for the guards.
uint64_t slot_of(uint32_t tag) {
  return uint64_t{tag} + 1;
}

// Runs on gloo's thread.
void begin(gsel_posted& posted, uint64_t slot, uint64_t bytes) {
  if (posted.given_up) return;
  try {
    if (!posted.link->aborting && posted.sends) posted.buffer->send(posted.peer, slot, 0, bytes);
    if (!posted.link->aborting && !posted.sends) posted.buffer->recv(posted.peer, slot, 0, bytes);
  } catch (const std::exception& e) {
    posted.failure = e.what();
  }
  posted.begun = true;
}

gsel_status post(gsel_link* link, const gsel_transfer* transfer, gsel_posted** out, gsel_error** err) {
  *out = nullptr;
  try {
    const int32_t peer = transfer->peer;
    if (peer < 0 || peer >= link->world_size || peer == link->rank)
      fail(GSEL_ERR_ARG, "gloo: bytes between rank " + std::to_string(link->rank) + " and rank " +
                             std::to_string(peer) + "; expected another rank of the link");
    const bool sends = transfer->send != nullptr || transfer->recv == nullptr;
    void* memory = sends ? const_cast<void*>(transfer->send) : transfer->recv;
    if (link->aborting) fail(GSEL_ERR_ABORTED, "gloo: the link was ended");
    auto buffer = std::make_unique<TransferBuffer>(link->context, memory, transfer->bytes);
    const std::shared_ptr<gsel_posted> posted(new gsel_posted{link, peer, sends, std::move(buffer)});
    link->thread->run(
        [posted, slot = slot_of(transfer->tag), bytes = transfer->bytes] { begin(*posted, slot, bytes); });
    posted->self = posted;
    *out = posted.get();
    return GSEL_OK;
  } catch (...) {
    return failed(link->host, err);
  }
}

// If the guard has failed, the transfer may have completed before that, so it is checked once more.
gsel_status test(gsel_posted* posted, double seconds, int32_t* done, gsel_error** err) {
  const gsel_link& link = *posted->link;
  *done = 0;
  try {
    TransferBuffer& guard = *link.guards[static_cast<size_t>(posted->peer)];
    const Clock::time_point end = seconds > 0 ? after(seconds) : Clock::time_point{};
    for (;;) {
      const Clock::time_point now = seconds > 0 ? Clock::now() : Clock::time_point{};
      TransferBuffer::State state = posted->buffer->wait(posted->sends, std::min(end, now + kSlice));
      if (state == TransferBuffer::State::kUnderWay && link.aborting)
        fail(GSEL_ERR_ABORTED, "gloo: the link was ended");
      if (state == TransferBuffer::State::kUnderWay && guard.wait(false, {}) == TransferBuffer::State::kFailed) {
        state = posted->buffer->wait(posted->sends, {});
        if (state != TransferBuffer::State::kDone) fail_about(link, posted->peer, posted->sends, guard.failure());
      }
      if (posted->begun && !posted->failure.empty()) fail_about(link, posted->peer, posted->sends, posted->failure);
      if (state == TransferBuffer::State::kFailed)
        fail_about(link, posted->peer, posted->sends, posted->buffer->failure());
      *done = state == TransferBuffer::State::kDone ? 1 : 0;
      if (*done || now >= end) return GSEL_OK;
    }
  } catch (...) {
    return failed(link.host, err);
  }
}

void release(gsel_posted* posted) {
  const std::shared_ptr<gsel_posted> last = std::move(posted->self);
  posted->given_up = true;
  if (!posted->begun) posted->link->thread->await_pause();
  posted->buffer.reset();  // waits if gloo's thread uses this memory
}

gsel_status link_error(gsel_link* link, gsel_error** err) {
  if (!link->aborting) return GSEL_OK;
  if (err) *err = link->host->error_new(GSEL_ERR_ABORTED, "gloo: the link was ended");
  return GSEL_ERR_ABORTED;
}

}  // namespace

TransferBuffer::State TransferBuffer::state(bool sends) const {
  if ((sends ? sendCompletions_ : recvCompletions_) > 0) return State::kDone;
  return ex_ ? State::kFailed : State::kUnderWay;
}

TransferBuffer::State TransferBuffer::wait(bool sends, Clock::time_point until) {
  std::unique_lock lock(m_);
  if (until > Clock::time_point{})
    (sends ? sendCv_ : recvCv_).wait_until(lock, until, [&] { return state(sends) != State::kUnderWay; });
  return state(sends);
}

std::string TransferBuffer::failure() {
  const std::lock_guard lock(m_);
  try {
    throwIfException();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no reason given";
}

NoPipeSignal::NoPipeSignal() {
  sigset_t pipe, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe, &before_);
}

NoPipeSignal::~NoPipeSignal() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec none{};
  if (!was_pending_ && sigismember(&before_, SIGPIPE) == 0) sigtimedwait(&pipe, nullptr, &none);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void add_transfers(gsel_transport_v2& table) {
  table.post = post;
  table.test = test;
  table.release = release;
  table.link_error = link_error;
}

}  // namespace gsel_gloo
