// base/user_data.h: keeps a pointer of the embedder. The embedder's free function, if any, is called when the last copy
// goes.
#pragma once

#include <gsel/types.h>

#include <memory>

namespace gsel {

// A caller does everything that can fail before it calls take(), so that a failed call has kept nothing.
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

}  // namespace gsel
