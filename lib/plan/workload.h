// plan/workload.h: what a model costs, block by block, for one sample: parameters, floating point operations, elements
// kept for backward, elements exchanged. Made from the shape of a transformer, from a list of layers, or from a model
// that a program described. Does not know devices, layouts and bytes of a type.
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

// Of one sample. "divided": each rank of the tensor axis has its part. "whole": each has all of it. "sequence": each
// has all of it, or its part of the positions under sequence parallelism. The context axis divides everything but
// parameters. What a layer has that opts out of the tensor axis moves from "divided" to "sequence" (plan/units.h).
struct Costs {
  double layers = 0;  // of the repeated kind
  double params_divided = 0, params_whole = 0;
  double largest_params = 0;                 // of the largest block that ZeRO-3 gathers at once
  double flop_dense = 0;                     // forward: products with parameters, divided
  double flop_core = 0;                      // forward: scores and weighted values of attention, all pairs, divided
  double flop_whole = 0;                     // forward: not divided
  double flop_sequence = 0, core_whole = 0;  // forward: of layers that opted out, products and attention
  double touched_divided = 0, touched_sequence = 0;  // forward: elements that element-wise operations read and write
  Saved saved_divided, saved_sequence;
  Saved saved_gathered;      // inputs of products: as saved_sequence, but whole where a program keeps what it gathered
  Saved saved_core;          // of attention's scores: not kept by fused attention, nor when recomputed
  double reduced = 0;        // forward: elements of all-reduces over the tensor axis; backward has as many
  double reductions = 0;     // and how many calls
  double tensor_layers = 0;  // of layers, those that the tensor axis divides
  double shifted = 0;        // forward: elements of keys and values that go around the context axis
  double logits = 0, logits_sequence = 0;  // elements
  // Of layers that opted out: parameters, whose gradients sequence parallelism sums over the tensor axis; the largest
  // of them; their part of saved_sequence.
  double params_out = 0, largest_out = 0, saved_out = 0;
  Saved saved_head;  // of the head, which is never recomputed; as saved_sequence
  Costs& operator+=(const Costs& other);
  Costs operator*(double n) const;
  double params() const { return params_divided + params_whole; }
  double flop() const { return flop_dense + flop_core + flop_whole + flop_sequence + core_whole; }
};

enum class BlockKind : uint8_t { embedding, layer, head };

// Equal layers one behind the other.
struct Block {
  std::string name;
  BlockKind kind = BlockKind::layer;
  int64_t count = 1;
  bool divisible = true;  // by the tensor axis
  Costs costs;            // of one of them
  double output = 0;      // elements that go to the next layer: what a cut sends, and recomputation starts from
  // Shares of its work between which a program cuts it into stages; none: it is whole.
  std::vector<double> pieces = {};
  bool trains = true;        // has parameters, tied ones with them
  bool recomputable = true;  // the embedding and the head never are
};

// Layers that the tensor axis divides together, and that may opt out of it together.
struct Unit {
  std::string name;          // for people
  std::string layers;        // as strategy.tensor.exclude names them
  bool by_position = false;  // without parts of parameters, ranks can take positions of it under sequence parallelism
  struct Part {
    size_t block;
    Costs costs;  // that the tensor axis divides, of one of the block's equal layers
  };
  std::vector<Part> parts;
};

struct Workload {
  std::string name;
  int64_t sequence = 1;  // positions of a sample; 1 where a sample has none
  std::vector<Block> blocks;
  std::vector<Unit> units;  // kMostUnits at most
  bool tied_out = false;    // the tied parameters opted out
  double tied_params = 0;   // of the embedding, which the head reads as well: again on the last stage of a pipeline
  int64_t heads = 0, kv_heads = 0, hidden = 0, ffn = 0, vocab = 0;  // bounds and shapes of the tensor axis; 0: not told
  bool causal = true;
  std::vector<std::string> notes;  // what was taken for granted of the model
  double params() const;           // elements, tied ones once
  double flop_forward() const;     // of one sample
  int64_t layers() const;          // of kind layer
};

// sequence: tokens of a sample; 0: the longest that the model was made for.
Workload workload_of(const Transformer& shape, int64_t sequence);
// As a program described it: flop_per_sample and saved bytes are its hints. GSEL_ERR_ARG where it gives none.
Workload workload_of(const Model& model, const std::string& name);
// JSON with "layers" (docs/plan.md), or a config.json, whose shape is returned as well. GSEL_ERR_CONFIG with file and
// key.
Workload read_workload(std::string_view text, const std::string& file, int64_t sequence,
                       std::optional<Transformer>* shape = nullptr);

}  // namespace gsel::plan
