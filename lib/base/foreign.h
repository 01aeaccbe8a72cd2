// base/foreign.h: what the library and foreign code have of each other: calls of callbacks and plugins, which return a
// status in C and may throw in C++ although they must not; the embedder's pointers; and the functions of the library
// that plugins call, in a table since they do not link to libgsel.
#pragma once

#include <gsel/plugin.h>
#include <gsel/types.h>

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace gsel {

// Returns the status of `call`, or `when_thrown` if it throws; `thrown` then has the text of the exception.
template <class Call>
gsel_status call_foreign(Call&& call, gsel_status when_thrown, std::string& thrown) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::exception& e) {
    thrown = fmt::format("it threw an exception: {}", e.what());
  } catch (...) {
    thrown = "it threw an exception";
  }
  return when_thrown;
}

// Why a callback failed: `text`, the callback's own text, or else the name of its code. A code outside GSEL_ERROR_LIST,
// such as a positive one, is the embedder's own and is printed as a number.
std::string reason_of(gsel_status status, std::string_view text);

// Keeps a pointer of the embedder, whose free function, if any, is called when the last copy goes. A caller does
// everything that can fail before it calls take(), so that a failed call has kept nothing.
class UserData {
 public:
  UserData() : owner_(std::make_shared<Owner>()) {}

  // To be called once.
  void take(void* user_data, gsel_free_fn free_user_data) noexcept {
    owner_->user_data = user_data;
    owner_->free_user_data = free_user_data;
  }
  void* get() const { return owner_->user_data; }

 private:
  struct Owner {
    Owner() = default;
    ~Owner() {
      if (free_user_data) free_user_data(user_data);
    }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    void* user_data = nullptr;
    gsel_free_fn free_user_data = nullptr;
  };
  std::shared_ptr<Owner> owner_;
};

const gsel_host_v1& host_services();

}  // namespace gsel
