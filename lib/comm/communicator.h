// comm/communicator.h: ranks joined over a backend. Checks arguments once, for every backend; refuses to know how
// bytes travel and what they mean.
#pragma once

#include <gsel/comm.h>

#include <memory>
#include <string>
#include <string_view>

#include "comm/backend.h"

namespace gsel {

// A call as data. `root` is the root of a broadcast or the peer of a message, else -1; `op` is 0 where nothing is
// reduced.
inline gsel_collective make_collective(gsel_collective_kind kind, const void* send, void* recv, uint64_t count,
                                       gsel_dtype dtype, gsel_op op = 0, int32_t root = -1) {
  gsel_collective call{};
  call.struct_size = sizeof call;
  call.kind = kind;
  call.dtype = dtype;
  call.op = op;
  call.root = root;
  call.send = send;
  call.recv = recv;
  call.count = count;
  return call;
}

class Communicator {
 public:
  // Joins; see gsel_comm_init.
  Communicator(std::shared_ptr<Backend> backend, const gsel_join& join);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return world_size_; }
  const std::shared_ptr<Backend>& backend() const { return backend_; }

  // One call; a NULL stream means on the calling thread. Throws what gsel/comm.h lists.
  void collective(const gsel_collective& call, gsel_stream* stream = nullptr);
  void abort(std::string_view reason) noexcept;
  gsel_comm_count counts(gsel_collective_kind kind) const noexcept;
  std::string trace() const;  // JSON of docs/trace.md
  gsel_comm_explanation explain(const gsel_collective& call) const;

 private:
  std::shared_ptr<Backend> backend_;
  gsel_link* link_ = nullptr;
  int32_t rank_ = 0;
  int32_t world_size_ = 1;
};

// Fills what `config` leaves open from the environment and from defaults; see gsel_comm_init.
gsel_join complete_join(const gsel_comm_config& config);

}  // namespace gsel
