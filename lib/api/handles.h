// api/handles.h: the objects of the interface that several files of api/ use. Trainers share a model's description.
#pragma once

#include <gsel/select.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/foreign.h"
#include "base/text.h"
#include "checkpoint/background.h"
#include "comm/communicator.h"
#include "model/model.h"
#include "program/text/text.h"
#include "select/request/request.h"
#include "select/resolve.h"
#include "train/trainer.h"

namespace gsel {

// A text that is expensive and rarely needed: made on first use, and borrowed by the caller. Any thread.
class LazyText {
 public:
  template <class Make>
  gsel_str get(Make make) const {
    std::call_once(once_, [&] { text_ = make(); });  // tries again after out of memory
    return borrow(text_);
  }

 private:
  mutable std::once_flag once_;
  mutable std::string text_;
};

// A gsel_resolve_options, unpacked: the machine, the environment and the request. select.cc
struct FullRequest {
  // Detects the machine and reads the process's environment if the request has none. GSEL_ERR_ARG, GSEL_ERR_IO.
  explicit FullRequest(const gsel_resolve_options* given);

  // GSEL_ERR_ALREADY_INITIALIZED when the selection is of this process's own machine and environment and has NVIDIA
  // devices, and the CUDA driver of this process is already initialised with other devices.
  void check(const Selection& selection) const;

  std::shared_ptr<const Inventory> inventory;
  Environment environment;
  Request request;

 private:
  bool own_ = false;  // machine and environment are those of this process
};

}  // namespace gsel

struct gsel_comm {
  gsel::Communicator impl;
};
struct gsel_config {
  gsel::Config impl;
};
struct gsel_model {
  std::shared_ptr<gsel::Model> impl = std::make_shared<gsel::Model>();
};
struct gsel_program {
  gsel::Program impl;
  gsel::LazyText text = {}, placements = {};
};

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
struct gsel_trainer {
  // given: nullptr for the trainer's own communicator.
  template <class... Args>
  gsel_trainer(gsel::Communicator* given, std::optional<gsel::Communicator> alone, Args&&... args)
      : own(std::move(alone)),
        made(std::make_unique<gsel::Trainer>(given ? *given : *own, std::forward<Args>(args)...)),
        program(new gsel_program{made->program()}) {}
  gsel::Trainer& impl() { return *made; }
  ~gsel_trainer() { give_up_save_of_lost_ranks(); }
  // A save in the background waits for its ranks as long as their disks take: not for those that are lost.
  void give_up_save_of_lost_ranks() {
    if (made && made->is_cut_off()) background_save->abandon("the trainer's communicator is broken");
  }
  // Waits for the save and discards its outcome.
  void end_background_save() {
    give_up_save_of_lost_ranks();
    background_save = std::make_unique<gsel::checkpoint::BackgroundSave>();
  }
  void replace(std::unique_ptr<gsel::Trainer> other) {
    program.reset(new gsel_program{other->program()});
    made = std::move(other);
    own.reset();
  }
  const gsel::Trainer& impl() const { return *made; }

  gsel::UserData data, optimizer;  // outlive the callbacks that use them
  std::optional<gsel::Communicator> own;
  std::unique_ptr<gsel::Trainer> made;
  std::unique_ptr<gsel::checkpoint::BackgroundSave> background_save =
      std::make_unique<gsel::checkpoint::BackgroundSave>();
  std::unique_ptr<gsel_program> program;  // borrowed by gsel_trainer_program
  std::string step_json;                  // borrowed by gsel_trainer_step_json
};

namespace gsel {

// Unpacks the options of gsel_trainer_create. train.cc
std::unique_ptr<gsel_trainer> make_trainer(gsel_comm* comm, gsel_model* model, const gsel_trainer_options* options);

}  // namespace gsel
