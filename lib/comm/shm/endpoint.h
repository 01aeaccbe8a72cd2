// comm/shm/endpoint.h: one rank's end of a communicator of one host: its control and the backend of its memory, both
// over memory that the ranks share. Forwards to its parts, each of which has a file that says what it does.
#pragma once

#include <gsel/transport.h>

#include "comm/backend.h"
#include "comm/control.h"
#include "comm/shm/link.h"

namespace gsel::shm {

class Endpoint final : public Control, public Backend {
 public:
  explicit Endpoint(Link::Membership membership)
      : Control(membership.rank, membership.arena->layout().world_size), link_(std::move(membership)) {}

  const char* name() const noexcept override { return link_.name(); }
  int32_t shown(int32_t rank) const override { return link_.shown(rank); }
  std::string named(int32_t rank) const override { return link_.named(rank); }
  void exchange(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s) override;
  void announce(const gsel_collective& checked) override { link_.announce(checked); }
  void look_after_announced() const override { link_.look_after_announced(); }
  void abort(const char* reason, int32_t about) noexcept override { link_.abort(reason, about); }
  void break_with(const Error& error) const noexcept override { link_.break_with(error); }
  void throw_what_broke() const override { link_.throw_what_broke(); }
  bool is_broken() const override { return link_.is_broken(); }
  bool await_break(int64_t nanoseconds) const override { return link_.await_break(nanoseconds); }
  void stop_awaiting_break() const noexcept override { link_.stop_awaiting_break(); }
  std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) noexcept override {
    return link_.begin_joint_call(kind, argument);
  }
  gsel_comm_count counts(gsel_collective_kind kind) const override { return link_.counts(kind); }
  std::string trace() const override { return link_.trace(); }
  void set_timeout(double seconds) override { link_.set_timeout(seconds); }
  std::unique_ptr<Control> split(int32_t colour, int32_t key, std::string_view label) override;
  std::unique_ptr<Control> create_group(std::span<const int32_t> ranks) override;
  std::unique_ptr<Control> dup() override { return made(link_.dup()); }
  std::unique_ptr<Control> shrink(std::span<const int32_t> without) override;
  void resync() override { link_.resync(); }
  Backend& host() override { return *this; }

  void run(const gsel_collective& checked, gsel_stream* stream) override;
  void group(std::span<const gsel_collective> checked) override { link_.group(checked.data(), checked.size()); }
  std::unique_ptr<Pending> start(std::span<const gsel_collective> checked) override {
    return link_.start(checked.data(), checked.size());
  }
  void allow_overlap() override { link_.allow_overlap(); }
  gsel_comm_explanation explain(const gsel_collective& checked) override { return link_.explain(checked); }
  void* alloc(uint64_t bytes) override { return link_.family("gsel_mem_alloc").alloc(bytes); }
  void free(void* memory) override { link_.family("gsel_mem_free").free(memory); }
  void register_memory(void* memory, uint64_t bytes) override {
    link_.family("gsel_mem_register").register_memory(memory, bytes);
  }
  void unregister_memory(void* memory) override { link_.family("gsel_mem_unregister").unregister_memory(memory); }
  void set_stream(void* native) override;
  void synchronize() override { link_.throw_what_broke("gsel_comm_synchronize"); }
  void throw_async_error() override { link_.throw_what_broke("gsel_comm_get_async_error"); }

 private:
  static std::unique_ptr<Control> made(Link::Membership membership);

  Link link_;
};

// Joins the ranks of one host; see gsel_comm_init.
std::unique_ptr<Control> join(const gsel_join& join);

}  // namespace gsel::shm
