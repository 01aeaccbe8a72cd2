// train/check/model_check.h: checks a model's callbacks against the contract of gsel/model.h, layer by layer. Each
// layer gets the outputs of the layers before it. Does not know ranks and strategies.
#pragma once

#include "train/check/layer_check.h"
#include "train/execute/executor.h"

namespace gsel::check {

// On memory of the device. model: finished. options: complete. GSEL_ERR_CALLBACK when a callback, an initialiser or the
// data function fails; errors of the device.
Findings check_model(const std::shared_ptr<DeviceContext>& device, const Model& model,
                     const gsel_model_check_options& options);

// ---- what check_model calls ----------------------------------------------------------------------------------------

// The ways to divide the model over ranks of the sharing axis (tensor or context): by the model's shard dims, and by
// positions; only ways that apply to the model. Notes what cannot be divided.
std::vector<Divided> divisions_of(const Model& model, int32_t ranks, Findings& findings);

// Fills an input from the embedder's data function, on guarded memory: several times for the same samples, at other
// addresses and with other poison. True: `value` has the data. False: a breach was found. GSEL_ERR_CALLBACK when the
// function fails or has no samples.
bool ask_for_data(const std::shared_ptr<DeviceContext>& device, const DataSource& data,
                  std::span<const int64_t> sample_ids, int32_t id, Buffer& value, Findings& findings);

// Runs the embedder's optimizer on guarded memory for each trained parameter: on the whole parameter, and on runs of
// it, as strategies that shard parameters do. If the optimizer accepts runs, at most some thousand elements are used.
// GSEL_ERR_CALLBACK when it fails.
void check_optimizer(const std::shared_ptr<DeviceContext>& device, const Model& model,
                     const gsel_optimizer_options& optimizer, uint64_t seed, bool checks_pieces, Findings& findings);

}  // namespace gsel::check
