// train/trainer.h: a model in training on a communicator: compiled, verified, initialised, then stepped.
#pragma once

#include <memory>
#include <optional>

#include "base/os.h"
#include "train/agree.h"
#include "train/executor.h"
#include "train/inference.h"
#include "train/pass.h"

namespace gsel {

class Trainer {
 public:
  // A collective over comm.
  Trainer(std::shared_ptr<Model> model, Communicator& comm, Config config, gsel_data_fn data, void* data_user_data);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // One step, push.
  void step();
  // The same, pull.
  gsel_work next_work();
  void complete(uint64_t ticket, gsel_status status, std::string_view message);

  const Executor& executor() const { return *executor_; }
  const Program& program() const { return program_; }

  void infer(int32_t value, int64_t n_samples, gsel_data_fn data, void* user_data, void* dst, size_t dst_bytes);
  void read_param(int32_t param, void* dst, size_t dst_bytes);

 private:
  void prepare();
  void refuse_in_child() const;
  Program compile_and_verify() const;
  Particulars particulars() const;
  gsel_status run_callback(const gsel_work& work) const;
  gsel_status call_embedder(const gsel_work& work) const;

  const uint64_t fork_generation_ = os::fork_generation();
  std::shared_ptr<Model> model_;
  Communicator& comm_;
  Config config_;
  gsel_data_fn data_;
  void* data_user_data_;
  Program program_;
  std::unique_ptr<Executor> executor_;
  std::optional<Inference> inference_;
};

}  // namespace gsel
