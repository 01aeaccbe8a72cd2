// comm/device/transport.h: an opened transport: the table of gsel/transport.h with its context. What makes links of
// ranks goes through here; no caller knows how bytes travel.
#pragma once

#include <gsel/transport.h>

#include <memory>

namespace gsel {

class Transport {
 public:
  explicit Transport(const gsel_transport_v1& table);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const gsel_transport_v1& table() const { return table_; }
  void* ctx() const { return ctx_; }
  // See gsel_transport_v1.link_join; throws what it returns.
  gsel_link* join(const gsel_join& join) const;

 private:
  const gsel_transport_v1& table_;
  void* ctx_ = nullptr;
};

}  // namespace gsel
