// own_address.h: how other hosts reach this one, and a port that nobody else is given. Does not know: for what.
#pragma once

#include <cstdint>
#include <string>

namespace gsel::cli {

// The address at which ssh reached us; empty: not known.
std::string address_of_connection();

// Of an interface that is up, neither the loopback nor link-local: of GSEL_INTERFACE if it is set; else of one that is
// not of containers or virtual machines, where there is one. Empty: there is none.
std::string address_of_interface();

// A port that is bound and not listened at: the kernel gives it to nobody, and who binds it by name and with
// SO_REUSEADDR can listen there. It is free once this is gone.
class HeldPort {
 public:
  HeldPort();
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  uint16_t number() const { return number_; }  // 0: none could be had

 private:
  int fd_ = -1;
  uint16_t number_ = 0;
};

}  // namespace gsel::cli
