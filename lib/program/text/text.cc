// program/text/text.cc: prints the text form of a program: one item per line, as words and key=value pairs
// (docs/program.md). Default values are left out. Instructions are printed by words/words.cc; parsing is in
// text_read.cc.
#include "program/text/text.h"

#include <functional>
#include <span>

#include "base/text.h"
#include "base/types.h"
#include "program/words/words.h"

namespace gsel {
namespace {

// " key=a,b,c", or nothing for an empty list.
template <class Items, class Print>
std::string list(const char* key, const Items& items, Print&& print) {
  std::string text;
  for (const auto& item : items) {
    text += text.empty() ? fmt::format(" {}=", key) : ",";
    text += std::invoke(print, item);
  }
  return text;
}

template <class Item>
std::string names(const char* key, const std::vector<int32_t>& ids, const std::vector<Item>& items) {
  return list(key, ids, [&](int32_t id) { return items[id].name; });
}

std::string flag_list(const char* key, std::span<const FlagWord> words, uint32_t flags) {
  std::vector<std::string_view> given;
  for (const FlagWord& w : words)
    if (flags & w.flag) given.push_back(w.word);
  return list(key, given, [](std::string_view word) { return std::string(word); });
}

std::string option(const char* key, int64_t value, int64_t absent) {
  return value == absent ? "" : fmt::format(" {}={}", key, value);
}

std::string word(bool given, const char* text) {
  return given ? fmt::format(" {}", text) : "";
}

std::string dtype(gsel_dtype dtype) {
  return dtype == GSEL_F32 ? "" : fmt::format(" dtype={}", dtype_name(dtype));
}

std::string shard(const Shard& shard) {
  return shard.is_whole() ? "" : fmt::format(" shard={}", text_of(shard));
}

std::string line_of(const ProgramParam& p) {
  return fmt::format("param {} {}{}{}{}{}{}\n", p.name, p.n_elems, option("rows", p.rows, 1), dtype(p.dtype),
                     word(!p.trainable, "frozen"), shard(p.shard), word(p.partial_gradient, "partial_gradient"));
}

std::string line_of(const ProgramValue& v) {
  return fmt::format("value {}{}{}{}{}{}{}{}\n", v.name, option("bytes", v.sample_bytes, 0), dtype(v.dtype),
                     word(v.is_scalar, "scalar"), word(v.is_input, "input"), word(v.needs_gradient, "gradient"),
                     v.placement == Placement::replicate
                         ? ""
                         : fmt::format(" placement={}", kPlacementWords[static_cast<size_t>(v.placement)]),
                     shard(v.shard));
}

std::string text_of_phase(const ProgramPhase& phase) {
  return fmt::format("{}:{}:{}{}{}", axis_name(phase.axis), dtype_name(phase.dtype), phase.bytes,
                     phase.bytes_per_sample ? fmt::format("+{}", phase.bytes_per_sample) : "",
                     phase.ring_shifts ? ":ring_shift" : "");
}

std::string line_of(const Program& program, const ProgramLayer& l) {
  std::vector<int32_t> unread;
  for (size_t i = 0; i < l.params.size() && i < 64; ++i)
    if (l.backward_unread_params >> i & 1) unread.push_back(l.params[i]);
  return fmt::format("layer {}{}{}{}{}{}{}{}{}{}{}{}{}{}\n", l.name, names("reads", l.inputs, program.values),
                     names("writes", l.outputs, program.values), names("params", l.params, program.params),
                     word(l.is_loss, "loss"), word(l.needs_backward_input, "backward_input"),
                     word(l.needs_backward_weight, "backward_weight"), names("unread", unread, program.params),
                     list("forward_phases", l.forward_phases, text_of_phase),
                     list("backward_phases", l.backward_phases, text_of_phase), option("stage", l.stage, 0),
                     word(l.redistributes, "redistributes"), word(l.divided && !l.redistributes, "divided"),
                     word(l.weight_reads_params, "weight_reads_params"));
}

std::string compression_of(const ProgramBucket& b) {
  if (b.compression == GSEL_COMPRESS_NONE) return "";
  std::string text = fmt::format(" compress={}", kCompressWords[b.compression]);
  if (b.compression == GSEL_COMPRESS_LOW_RANK) text += fmt::format(":{}", b.compression_rank);
  if (b.compression_start) text += fmt::format("@{}", b.compression_start);
  return text;
}

std::string line_of(const Program& program, const ProgramBucket& b) {
  return fmt::format("bucket{}{}{}{}{}{}{}\n", names("params", b.params, program.params),
                     flag_list("shard", kShardWords, b.flags), word(b.flags & GSEL_BUCKET_WHOLE_PARAMS, "whole_params"),
                     b.axis < 0 ? "" : fmt::format(" axis={}", axis_name(b.axis)), option("owner", b.owner, -1),
                     flag_list("offload", kOffloadWords, b.flags), compression_of(b));
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text = fmt::format("{}\n", kProgramMagic);
  for (const std::string& note : program.notes) text += fmt::format("# {}\n", one_line(note));
  text += fmt::format("rank {}\nmesh", program.rank);
  for (const gsel_axis axis : kInnerToOuter)
    if (axis != GSEL_AXIS_CONTEXT || program.mesh.size[axis] > 1)
      text += fmt::format(" {}={}", axis_name(axis), program.mesh.size[axis]);
  text += '\n';
  if (program.rank_of_stage != std::vector<int32_t>{0})
    text += fmt::format("stages {}\n", fmt::join(program.rank_of_stage, " "));
  if (program.transfers != kLeastTransfers) text += fmt::format("transfers {}\n", program.transfers);
  for (const ProgramParam& p : program.params) text += line_of(p);
  for (const ProgramValue& v : program.values) text += line_of(v);
  for (const ProgramLayer& l : program.layers) text += line_of(program, l);
  for (const Microbatch& m : program.microbatches)
    text += fmt::format("microbatch {} {}{}\n", m.first, m.count, option("of", m.whole, -1));
  for (const ProgramBucket& b : program.buckets) text += line_of(program, b);
  text += "setup\n";
  for (const gsel_instr& instr : program.setup) text += to_text(program, instr) + "\n";
  text += "step\n";
  for (const gsel_instr& instr : program.step) text += to_text(program, instr) + "\n";
  return text + "end\n";
}

}  // namespace gsel
