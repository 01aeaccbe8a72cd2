// support/made_model.h: models made in a line or two for tests that look at programs and memory: callbacks exist and do
// nothing.
#ifndef GSEL_TESTS_MADE_MODEL_H
#define GSEL_TESTS_MADE_MODEL_H

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "model/model.h"
#include "program/program.h"
#include "train/compile/pass.h"

namespace made {

gsel_str text(const std::string& s);

struct LayerSpec {
  std::vector<int32_t> inputs, outputs, params;
  uint32_t flags = 0;
  uint64_t saved = 0;
  uint64_t input_unread = 0, weight_unread = 0, unread_params = 0;
  bool fused = true;
  std::vector<gsel_phase> forward_phases, backward_phases;
};

class Maker {
 public:
  int32_t param(int64_t n, uint32_t flags = 0, gsel_dtype dtype = GSEL_F32);
  int32_t value(int64_t n, uint32_t flags = 0);
  int32_t scalar();
  int32_t layer(const LayerSpec& spec);
  // The loss over these values; finishes the model.
  std::unique_ptr<gsel::Model> finish(const std::vector<int32_t>& read);

 private:
  std::unique_ptr<gsel::Model> model_ = std::make_unique<gsel::Model>();
};

// A chain of layers, one parameter each, of the sizes given; values of `width` f32 per sample. change(l, layer) sets
// the other fields of layer l.
std::unique_ptr<gsel::Model> changed_chain(const std::vector<int64_t>& param_sizes, int64_t width,
                                           const std::function<void(size_t, LayerSpec&)>& change);
std::unique_ptr<gsel::Model> chain(const std::vector<int64_t>& param_sizes, int64_t width = 16,
                                   uint32_t layer_flags = GSEL_LAYER_RECOMPUTABLE);

gsel::Config config(const std::string& text);
gsel::Mesh data_mesh(int32_t ranks);

// The programs of all ranks, as the executor runs them.
std::vector<gsel::Program> programs(const gsel::Model& model, const gsel::Config& config, const gsel::Mesh& mesh);
std::vector<gsel::Program> programs(const gsel::Model& model, const gsel::Config& config, int32_t ranks);

}  // namespace made

#endif
