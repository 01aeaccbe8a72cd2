// comm/shm/endpoint.cc: see endpoint.h.
#include "comm/shm/endpoint.h"

#include "device/host/stream.h"

namespace gsel::shm {

std::unique_ptr<Control> join(const gsel_join& join) {
  return std::make_unique<Endpoint>(Link::join_family(join));
}

std::unique_ptr<Control> Endpoint::made(Link::Membership membership) {
  return std::make_unique<Endpoint>(std::move(membership));
}

std::unique_ptr<Control> Endpoint::split(int32_t colour, int32_t key, std::string_view label) {
  auto membership = link_.split(colour, key, label);
  return membership ? made(std::move(*membership)) : nullptr;
}

std::unique_ptr<Control> Endpoint::create_group(std::span<const int32_t> ranks) {
  return made(link_.create_group({ranks.begin(), ranks.end()}));
}

std::unique_ptr<Control> Endpoint::shrink(std::span<const int32_t> without) {
  return made(link_.shrink({without.begin(), without.end()}));
}

void Endpoint::exchange(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s) {
  gsel_collective call{};
  call.struct_size = sizeof call;
  call.kind = GSEL_COLLECTIVE_ALLGATHER;
  call.dtype = GSEL_U8;
  call.root = call.source = -1;
  call.send = mine;
  call.recv = all;
  call.count = bytes;
  call.label = {label.data(), label.size()};
  call.timeout_s = timeout_s;
  link_.collective(call);
}

void Endpoint::run(const gsel_collective& checked, gsel_stream* stream) {
  if (stream)
    stream->enqueue([this, copy = checked] { link_.collective(copy); });
  else
    link_.collective(checked);
}

void Endpoint::set_stream(void*) {
  fail(GSEL_ERR_ARG,
       "gsel_comm_set_stream: communicator {} has no accelerator; name one in gsel_comm_options.accelerator", name());
}

}  // namespace gsel::shm
