// plan/workload.h: the costs of a model, block by block, for one sample: parameters, floating-point operations,
// elements kept for backward, elements exchanged. Made from the shape of a transformer, a list of layers, or a model
// that a program described. Does not know devices, layouts or bytes of a type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "plan/transformer.h"

namespace gsel::plan {

// Kept from forward to backward: elements of the compute type, and bytes of masks.
struct Saved {
  double elems = 0, mask_bytes = 0;
  double bytes(double element_bytes) const { return elems * element_bytes + mask_bytes; }
  Saved& operator+=(const Saved& other);
};

// Costs of one sample. "divided": each rank of the tensor axis has a shard. "whole": each rank has all of it.
// "sequence": each rank has all of it, or its shard of the positions under sequence parallelism. The context axis
// divides everything except parameters. Costs of a layer that opts out of the tensor axis move from "divided" to
// "sequence" (plan/units.h).
struct Costs {
  double layers = 0;  // repeated layers
  double params_divided = 0, params_whole = 0;
  double largest_params = 0;                 // largest block that ZeRO-3 gathers at once
  double flop_dense = 0;                     // forward: products with parameters, divided
  double flop_core = 0;                      // forward: scores and weighted values of attention, all pairs, divided
  double flop_whole = 0;                     // forward: not divided
  double flop_sequence = 0, core_whole = 0;  // forward: opted-out layers: products, attention
  double touched_divided = 0, touched_sequence = 0;  // forward: elements read and written by element-wise operations
  Saved saved_divided, saved_sequence;
  Saved saved_gathered;      // inputs of products: like saved_sequence, but whole if a program keeps gathered inputs
  Saved saved_core;          // attention scores: not kept by fused attention or with recomputation
  double reduced = 0;        // forward: elements all-reduced over the tensor axis; backward has as many
  double reductions = 0;     // number of these calls
  double tensor_layers = 0;  // layers that the tensor axis divides
  double shifted = 0;        // forward: elements of keys and values sent around the context axis
  double logits = 0, logits_sequence = 0;  // elements
  // Of opted-out layers: parameters, whose gradients sequence parallelism sums over the tensor axis; the largest such
  // parameters; their part of saved_sequence.
  double params_out = 0, largest_out = 0, saved_out = 0;
  Saved saved_head;  // of the head, which is never recomputed; like saved_sequence
  Costs& operator+=(const Costs& other);
  Costs operator*(double n) const;
  double params() const { return params_divided + params_whole; }
  double flop() const { return flop_dense + flop_core + flop_whole + flop_sequence + core_whole; }
};

enum class BlockKind : uint8_t { embedding, layer, head };

// Consecutive equal layers.
struct Block {
  std::string name;
  BlockKind kind = BlockKind::layer;
  int64_t count = 1;
  bool divisible = true;  // by the tensor axis
  Costs costs;            // of one layer
  double output = 0;      // elements that go to the next layer: sent at a cut, and the start of recomputation
  // Work of the sublayers between which a program can cut the block, as shares; empty: it cannot be cut.
  std::vector<double> sublayers = {};
  bool trains = true;        // has parameters, including tied ones
  bool recomputable = true;  // false for the embedding and the head
};

// Layers that the tensor axis divides together, and that can only opt out together.
struct Unit {
  std::string name;          // for messages
  std::string layers;        // as named in strategy.tensor.exclude
  bool by_position = false;  // no divided parameters: under sequence parallelism ranks take shards of the positions
  struct Part {
    size_t block;
    Costs costs;  // divided by the tensor axis, for one of the block's equal layers
  };
  std::vector<Part> parts;
};

struct Workload {
  std::string name;
  int64_t sequence = 1;  // positions of a sample; 1 if a sample has none
  std::vector<Block> blocks;
  std::vector<Unit> units;  // at most kMostUnits
  bool tied_out = false;    // the tied parameters opted out
  double tied_params = 0;   // of the embedding if the head uses them too: counted again on the last stage of a pipeline
  int64_t heads = 0, kv_heads = 0, hidden = 0, ffn = 0, vocab = 0;  // limits and shapes of the tensor axis; 0: unknown
  bool causal = true;
  std::vector<std::string> notes;  // assumptions about the model
  double params() const;           // elements, tied ones once
  double flop_forward() const;     // per sample
  int64_t layers() const;          // blocks of kind layer, with their counts
};

// sequence: tokens per sample; 0: the longest that the model supports.
Workload workload_of(const Transformer& shape, int64_t sequence);
// From a described model: flop_per_sample and saved bytes are its hints. GSEL_ERR_ARG if it has none.
Workload workload_of(const Model& model, const std::string& name);
// From JSON with "layers" (docs/plan.md), or from a config.json, whose shape is also returned. GSEL_ERR_CONFIG with
// file and key.
Workload read_workload(std::string_view text, const std::string& file, int64_t sequence,
                       std::optional<Transformer>* shape = nullptr);

}  // namespace gsel::plan
