// comm/communicator.cc: see communicator.h.
#include "comm/communicator.h"

#include <algorithm>
#include <cstdlib>

#include "comm/check.h"

namespace gsel {

Communicator::Communicator(std::shared_ptr<Backend> backend, const gsel_join& join)
    : backend_(std::move(backend)), rank_(join.rank), world_size_(join.world_size) {
  if (world_size_ < 1 || rank_ < 0 || rank_ >= world_size_)
    fail(GSEL_ERR_ARG, "rank {} of a world of {}: the rank must be 0 to world_size - 1", rank_, world_size_);
  gsel_join complete = join;
  complete.timeout_s = checked_seconds(join.timeout_s, "timeout_s");
  complete.join_timeout_s = checked_seconds(join.join_timeout_s, "join_timeout_s");
  if (join.order != GSEL_ORDER_RANKS && join.order != GSEL_ORDER_TREE)
    fail(GSEL_ERR_ARG, "order {} is unknown; use GSEL_ORDER_RANKS or GSEL_ORDER_TREE", join.order);
  backend_->run(&gsel_backend_v1::link_join, &complete, &link_);
}

Communicator::~Communicator() {
  backend_->table().link_leave(link_);
}

void Communicator::collective(const gsel_collective& given, gsel_stream* stream) {
  gsel_collective call = given;
  check_call(call, rank_, world_size_);
  gsel_error* err = nullptr;
  const gsel_status status = backend_->table().collective(link_, &call, stream, &err);
  throw_if_failed(status, err);
}

void Communicator::abort(std::string_view reason) noexcept {
  char text[151] = "";
  std::ranges::transform(reason.substr(0, sizeof text - 1), text,
                         [](char c) { return static_cast<unsigned char>(c) < ' ' ? ' ' : c; });  // one line
  backend_->table().link_abort(link_, text);
}

gsel_comm_count Communicator::counts(gsel_collective_kind kind) const noexcept {
  return backend_->table().link_counts(link_, kind);
}

std::string Communicator::trace() const {
  if (!backend_->table().link_trace) fail(GSEL_ERR_UNSUPPORTED, "this backend records no calls");
  char* json = nullptr;
  gsel_error* err = nullptr;
  const gsel_status status = backend_->table().link_trace(link_, &json, &err);
  throw_if_failed(status, err);
  const std::unique_ptr<char, void (*)(void*)> owned(json, std::free);
  return owned.get();
}

gsel_comm_explanation Communicator::explain(const gsel_collective& given) const {
  if (!backend_->table().link_explain) fail(GSEL_ERR_UNSUPPORTED, "this backend does not tell how it runs a call");
  gsel_collective call = given;
  check_call(call, rank_, world_size_);
  gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
  gsel_error* err = nullptr;
  const gsel_status status = backend_->table().link_explain(link_, &call, &out, &err);
  throw_if_failed(status, err);
  return out;
}

}  // namespace gsel
