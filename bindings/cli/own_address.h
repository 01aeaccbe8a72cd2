// own_address.h: an address at which other hosts reach this one, and a reserved port.
#pragma once

#include <cstdint>
#include <string>

namespace gsel::cli {

// The address at which ssh reached this host; empty: unknown.
std::string address_of_connection();

// The address of an interface that is up and neither loopback nor link-local: that of GSEL_INTERFACE if set; else
// preferably one that does not belong to containers or virtual machines. Empty: there is none.
std::string address_of_interface();

// A port that is bound but has no listener, so the kernel gives it to nobody else. Another process can listen on it by
// binding it explicitly with SO_REUSEADDR. Released by the destructor.
class HeldPort {
 public:
  HeldPort();
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  uint16_t number() const { return number_; }  // 0: none available

 private:
  int fd_ = -1;
  uint16_t number_ = 0;
};

}  // namespace gsel::cli
