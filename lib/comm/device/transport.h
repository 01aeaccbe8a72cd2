// comm/device/transport.h: an opened transport, the table of gsel/transport.h with its context, and its links. Does not
// know how bytes travel or which transport a communicator uses.
#pragma once

#include <gsel/transport.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/interface/control.h"

namespace gsel {

class Transport {
 public:
  explicit Transport(const gsel_transport_v2& table);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const gsel_transport_v2& table() const { return table_; }
  void* ctx() const { return ctx_; }

 private:
  const gsel_transport_v2& table_;
  void* ctx_ = nullptr;
};

struct Accelerator;
struct Offered;

// One rank's link, and the control as the transport sees it. The destructor leaves the link. An abort may hang in a
// driver, so it runs on a thread of its own, which shares ownership.
class TransportLink : public std::enable_shared_from_this<TransportLink> {
 public:
  // offered: of the accelerator. Waits for the other ranks; throws the error of link_join. The control must live until
  // detach().
  static std::shared_ptr<TransportLink> join(std::shared_ptr<const Accelerator> accelerator, const Offered& offered,
                                             Control& control, double timeout_s, double join_timeout_s, uint32_t flags,
                                             std::string_view address = {});
  ~TransportLink();
  TransportLink(const TransportLink&) = delete;
  TransportLink& operator=(const TransportLink&) = delete;

  const gsel_transport_v2& table() const { return table_; }
  gsel_link* get() const { return link_; }

  // Whether the link can make the call. *reason: why not.
  bool supports(const gsel_collective& call, std::string* reason = nullptr) const;
  void throw_error() const;  // the first failure so far
  std::string note() const;  // a note for users in explanations; may be empty
  // Aborts the link's work. Returns immediately; any thread.
  void abort() noexcept;
  // Before the control is destroyed: waits a while for an abort under way. false: it has not returned.
  bool detach() noexcept;

 private:
  TransportLink(std::shared_ptr<const Accelerator> accelerator, const Offered& offered, Control& control);
  void end_work();
  Control& control() const;  // GSEL_ERR_STATE after detach()
  static gsel_status exchange(void* self, const void* mine, void* all, uint64_t bytes, gsel_error** err);
  static gsel_status announce(void* self, const gsel_collective* call, gsel_error** err);
  static gsel_status look(void* self, gsel_error** err);
  static int32_t await_break(void* self, double seconds);

  const std::shared_ptr<const Accelerator> accelerator_;
  const Offered& offered_;
  const gsel_transport_v2& table_;
  gsel_control_v1 control_table_{};
  std::atomic<Control*> control_;
  gsel_link* link_ = nullptr;
  std::atomic<bool> aborting_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool abort_under_way_ = false;
};

}  // namespace gsel
