// comm/transport.cc: see transport.h.
#include "comm/device/transport.h"

#include "base/error.h"
#include "base/host_services.h"

namespace gsel {

Transport::Transport(const gsel_transport_v1& table) : table_(table) {
  gsel_error* err = nullptr;
  const gsel_status status = table_.open(&host_services(), &ctx_, &err);
  throw_if_failed(status, err);
}

Transport::~Transport() {
  table_.close(ctx_);
}

gsel_link* Transport::join(const gsel_join& join) const {
  gsel_link* link = nullptr;
  gsel_error* err = nullptr;
  const gsel_status status = table_.link_join(ctx_, &join, &link, &err);
  throw_if_failed(status, err);
  return link;
}

}  // namespace gsel
