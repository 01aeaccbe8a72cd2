// train/agree.cc: see agree.h. Ranks compare one hash for each item that can differ, so that a message can name the
// item, and little is sent.
#include "train/agree.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/random.h"

namespace gsel {
namespace {

std::string shape(const std::vector<int64_t>& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

// The first rank whose number differs from ours, or -1.
int32_t first_different(const std::vector<uint64_t>& all, size_t stride, size_t at, uint64_t mine) {
  for (size_t rank = 0; rank * stride < all.size(); ++rank)
    if (all[rank * stride + at] != mine) return static_cast<int32_t>(rank);
  return -1;
}

std::string phases(const std::vector<gsel_phase>& all) {
  std::string result = "[";
  for (const gsel_phase& p : all)
    result += fmt::format("{}axis {} op {} flags {} {} {}+{} per sample", result.size() > 1 ? "; " : "", p.axis, p.op,
                          p.flags, dtype_name(p.dtype), p.elems, p.elems_per_sample);
  return result + "]";
}

std::string reading_of(const Layer& l) {
  return fmt::format(
      "inputs {}, outputs {}, parameters {}, flags {}, backward {}{}{}, {} saved bytes, unread {:#x} {:#x} {:#x}, "
      "phases {} {}",
      shape({l.inputs.begin(), l.inputs.end()}), shape({l.outputs.begin(), l.outputs.end()}),
      shape({l.params.begin(), l.params.end()}), l.flags, l.backward ? "fused " : "", l.backward_input ? "input " : "",
      l.backward_weight ? "weight" : "", l.saved_bytes_per_sample, l.backward_input_unread, l.backward_weight_unread,
      l.backward_unread_params, phases(l.forward_phases), phases(l.backward_phases));
}

}  // namespace

Particulars particulars_of(const Model& model) {
  Particulars result;
  for (const Param& p : model.params())
    result.emplace_back(
        "parameter \"" + p.name + "\"",
        fmt::format("{} {} flags {}, learning rate times {}, shard rule {} {} {} {}", dtype_name(p.dtype),
                    shape(p.dims), p.flags, p.lr_factor, p.shard, p.shard_dim, p.shard_blocks, p.shard_granularity));
  for (const Value& v : model.values())
    result.emplace_back(
        "value \"" + v.name + "\"",
        fmt::format("{} {} flags {}, placed {} {} {} {}, positions {}", dtype_name(v.dtype), shape(v.dims), v.flags,
                    v.declared, v.shard_dim, v.shard_granularity, v.shard_blocks, v.sequence_dim));
  for (const Layer& l : model.layers()) result.emplace_back("layer \"" + l.name + "\"", reading_of(l));
  return result;
}

Particulars particulars_of(const gsel_optimizer_options* optimizer) {
  const std::string reading =
      optimizer ? fmt::format("the embedder's, with {} states, needs {}", optimizer->n_states, optimizer->needs)
                : "train.optimizer";
  return {{"the optimizer", reading}};
}

std::vector<uint64_t> gather_numbers(Communicator& comm, const std::vector<uint64_t>& mine) {
  std::vector<uint64_t> all(mine.size() * comm.world_size());
  comm.collective(make_collective(GSEL_COLLECTIVE_ALLGATHER, mine.data(), all.data(), mine.size(), GSEL_U64));
  return all;
}

bool all_succeed(Communicator& comm, bool mine) {
  const std::vector<uint64_t> failed = gather_numbers(comm, {mine ? uint64_t{0} : uint64_t{1}});
  return first_different(failed, 1, 0, 0) < 0;
}

void check_all_succeeded(Communicator& comm, const std::optional<Error>& failure, std::string_view made) {
  const std::vector<uint64_t> failed = gather_numbers(comm, {failure ? uint64_t{1} : uint64_t{0}});
  if (failure) throw *failure;
  const int32_t rank = first_different(failed, 1, 0, 0);
  if (rank >= 0)
    throw Error(GSEL_ERR_PEER, fmt::format("rank {} could not make its {}; its own error says why", rank, made))
        .about_rank(rank);
}

void check_agreement(Communicator& comm, const Particulars& particulars) {
  std::vector<uint64_t> hashes;
  for (const auto& [name, reading] : particulars) hashes.push_back(derive_key(derive_key(0, name), reading));
  uint64_t total = particulars.size();
  for (uint64_t h : hashes) total = derive_key(total, h);

  const std::vector<uint64_t> heads = gather_numbers(comm, {total, hashes.size()});
  if (first_different(heads, 2, 0, total) < 0) return;

  uint64_t common = hashes.size();
  for (size_t rank = 0; rank < heads.size() / 2; ++rank) common = std::min(common, heads[rank * 2 + 1]);
  hashes.resize(common);
  const std::vector<uint64_t> all = gather_numbers(comm, hashes);
  // The first position where any two ranks differ, so that all ranks name the same one.
  for (size_t i = 0; i < common; ++i) {
    const int32_t other = first_different(all, common, i, all[i]);
    if (other < 0) continue;
    const int32_t named = comm.rank() == other ? 0 : other;
    throw Error(
        GSEL_ERR_MISMATCH,
        fmt::format(
            "{} differs between rank 0 and rank {}: on rank {} it reads \"{}\"; describe it alike on every rank",
            particulars[i].first, other, comm.rank(), particulars[i].second))
        .about_rank(named);
  }
  const int32_t other = first_different(heads, 2, 1, heads[1]);
  throw Error(GSEL_ERR_MISMATCH,
              fmt::format("rank 0 and rank {} described models of different length: {} pieces on rank {}", other,
                          particulars.size(), comm.rank()))
      .about_rank(other);
}

}  // namespace gsel
