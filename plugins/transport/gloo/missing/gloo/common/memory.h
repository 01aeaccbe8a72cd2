// plugins/transport/gloo/missing/gloo/common/memory.h: a header that gloo's own headers include and that is missing in
// Debian's libgloo-dev. Non-owning pointers to an object; its destruction waits for their users. Layout and behaviour
// are those of gloo, since libgloo makes and uses such pointers.
#pragma once

#include <memory>
#include <thread>

namespace gloo {

template <typename T>
class ShareableNonOwningPtr;

template <typename T>
class WeakNonOwningPtr final {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>& root) : ptr_(root.ptr_) {}
  explicit operator bool() const noexcept {
    return ptr_.owner_before(std::weak_ptr<T>{}) || std::weak_ptr<T>{}.owner_before(ptr_);
  }
  std::weak_ptr<T> ptr_;
};

template <typename T>
class NonOwningPtr final {
 public:
  NonOwningPtr() = default;
  explicit NonOwningPtr(const WeakNonOwningPtr<T>& weak) : ptr_(weak.ptr_.lock()) {}
  T* operator->() const noexcept { return ptr_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(ptr_); }

 private:
  std::shared_ptr<T> ptr_;
};

template <typename T>
class ShareableNonOwningPtr final {
 public:
  explicit ShareableNonOwningPtr(T* object) : ptr_(object, [](void*) {}) {}
  ShareableNonOwningPtr(const ShareableNonOwningPtr&) = delete;
  ShareableNonOwningPtr& operator=(const ShareableNonOwningPtr&) = delete;
  ~ShareableNonOwningPtr() {
    const std::weak_ptr<T> weak = ptr_;
    ptr_.reset();
    while (!weak.expired()) std::this_thread::yield();
  }
  std::shared_ptr<T> ptr_;
};

}  // namespace gloo
