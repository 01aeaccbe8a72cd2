// base/user_data.h: a pointer of the embedder's that is kept. The embedder's free function, if any, is called with the
// last copy.
#pragma once

#include <gsel/types.h>

#include <memory>

namespace gsel {

// What can fail is done before the pointer is taken over, so that a call that fails has kept nothing.
class UserData {
 public:
  UserData() : owner_(std::make_shared<Owner>()) {}

  // Once.
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

}  // namespace gsel
