// api/select_handle.h: the objects of gsel/select.h. Texts are made once, on first use.
#pragma once

#include <gsel/select.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "select/resolve.h"

namespace gsel {

// A text that is expensive and rarely needed. Any thread.
class LazyText {
 public:
  template <class Make>
  gsel_str get(Make make) const noexcept {
    try {
      std::call_once(once_, [&] { text_ = make(); });
    } catch (...) {
      return {"", 0};  // out of memory; the next call tries again
    }
    return borrow(text_);
  }

 private:
  mutable std::once_flag once_;
  mutable std::string text_;
};

void describe(const Inventory& inventory, const Unit& unit, gsel_device_info* info);

}  // namespace gsel

struct gsel_inventory {
  explicit gsel_inventory(gsel::Inventory inventory)
      : impl(std::make_shared<const gsel::Inventory>(std::move(inventory))) {}
  std::shared_ptr<const gsel::Inventory> impl;
  gsel::LazyText json, text;
};

struct gsel_selection {
  // The variables of one answer, borrowed by the caller as an array.
  struct Variables {
    explicit Variables(gsel::EnvLines from) : lines(std::move(from)) {
      for (const auto& [name, value] : lines) array.push_back({gsel::borrow(name), gsel::borrow(value)});
    }
    Variables(const Variables&) = delete;
    gsel::EnvLines lines;
    std::vector<gsel_env_var> array;
  };

  explicit gsel_selection(gsel::Selection selection) : impl(std::move(selection)) {}

  // Borrowed until the selection is freed. Any thread.
  const Variables& variables(int32_t host, int32_t local_rank) const {
    const std::lock_guard lock(mutex);
    const auto key = std::make_pair(host, local_rank);
    auto it = environments.find(key);
    if (it == environments.end())
      it = environments.try_emplace(key, gsel::selection_env(impl, host, local_rank).lines).first;
    return it->second;
  }

  gsel::Selection impl;
  gsel::LazyText json, text;
  mutable std::mutex mutex;
  mutable std::map<std::pair<int32_t, int32_t>, Variables> environments;
};
