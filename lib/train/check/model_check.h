// train/check/model_check.h: checks a model's callbacks against the contract of gsel/model.h, layer by layer. The
// inputs of each layer are what the layers before it have written. Does not know ranks, strategies and who asked.
#pragma once

#include "train/check/layer_check.h"
#include "train/execute/executor.h"

namespace gsel::check {

// The model is finished. options: as read, whole. GSEL_ERR_CALLBACK when a callback, an initialiser or the data fails.
Findings check_model(const Model& model, const gsel_model_check_options& options);

// ---- its parts ------------------------------------------------------------------------------------------------------

// The ways in which ranks of the sharing axis (tensor or context) can divide a model, as the model declares it and by
// positions: those that the model has anything for. What cannot be divided is noted.
std::vector<Divided> divisions_of(const Model& model, int32_t ranks, Findings& findings);

// Asks the embedder's data for an input as a trainer does, on guarded memory: several times for the same samples, at
// other addresses and on other poison. True: `value` has what was written. False: a breach was found.
// GSEL_ERR_CALLBACK when the data fails, or has no samples.
bool ask_for_data(const DataSource& data, std::span<const int64_t> sample_ids, int32_t id, Buffer& value,
                  Findings& findings);

// Runs the embedder's optimizer on guarded memory, on whole parameters and on the same elements in pieces, as
// strategies that divide parameters call it: on each trained parameter, on some thousand elements of it at most where
// it takes pieces. GSEL_ERR_CALLBACK when it fails.
void check_optimizer(const Model& model, const gsel_optimizer_options& optimizer, uint64_t seed, bool checks_pieces,
                     Findings& findings);

}  // namespace gsel::check
