// program/text/text_read.cc: reads a program's text: its outline, then its instructions. Errors name line, column and
// word.
#include <algorithm>
#include <initializer_list>
#include <span>

#include "base/text.h"
#include "base/types.h"
#include "program/program.h"
#include "program/stages.h"
#include "program/text/text.h"
#include "program/verify/checks.h"
#include "program/words/words.h"

namespace gsel {
namespace {

// ---- the outline ---------------------------------------------------------------------------------------------------

class OutlineReader {
 public:
  OutlineReader(TextLines& lines, Program& program) : lines_(lines), program_(program) {}

  // Parses the current line; false if it is no line of an outline.
  bool read_line();
  // Checks the complete outline; errors are reported at the word.
  void check() const;

  const Ids& values() const { return values_; }
  const Ids& layers() const { return layers_; }

  // Reports errors of a program check at the word.
  template <class Check>
  void checked(const Word& word, Check&& check) const {
    try {
      check();
    } catch (const Error& e) {
      lines_.refuse_at(word, e.message());
    }
  }

 private:
  const std::vector<Word>& words() const { return lines_.words(); }
  void once(bool& seen) const;
  void read_rank();
  void read_mesh();
  void read_stages();
  void read_transfers();
  void read_param();
  void read_value();
  void read_layer();
  void read_microbatch();
  void read_bucket();
  void bound_bytes(int64_t sample_bytes, int64_t n_samples);
  gsel_dtype read_dtype(const Word& w, std::string_view name, std::initializer_list<gsel_dtype> known) const;
  int32_t read_stage(const Word& w) const;
  uint64_t read_unread(const Word& w, const ProgramLayer& layer) const;
  gsel_dtype read_any_dtype(const Word& w, std::string_view name) const;
  Placement read_placement(const Word& w) const;
  ProgramPhase read_phase(const Word& w, std::string_view item);
  std::vector<ProgramPhase> read_phases(const Word& w);
  uint32_t read_flags(const Word& w, std::span<const FlagWord> known) const;
  void read_compression(const Word& w, ProgramBucket& bucket) const;

  TextLines& lines_;
  Program& program_;
  bool seen_rank_ = false, seen_mesh_ = false, seen_stages_ = false, seen_transfers_ = false;
  int64_t all_elems_ = 0, sample_bytes_ = 0, n_samples_ = 0;
  Ids params_, values_, layers_;
  std::vector<Word> bucket_heads_, microbatch_heads_;
  Word stages_head_, mesh_head_;
};

constexpr int32_t kMaxRank = 1 << 20;
constexpr int32_t kMaxAxis = 1 << 10;             // ranks of an axis
constexpr int64_t kMaxAmount = int64_t{1} << 50;  // elements, bytes and samples, so that no sum of them overflows

bool OutlineReader::read_line() {
  const std::string_view head = words()[0].text;
  if (head == "rank")
    read_rank();
  else if (head == "mesh")
    read_mesh();
  else if (head == "stages")
    read_stages();
  else if (head == "transfers")
    read_transfers();
  else if (head == "param")
    read_param();
  else if (head == "value")
    read_value();
  else if (head == "layer")
    read_layer();
  else if (head == "microbatch")
    read_microbatch();
  else if (head == "bucket")
    read_bucket();
  else
    return false;
  return true;
}

void OutlineReader::check() const {
  if (program_.rank >= program_.mesh.world_size())
    lines_.refuse_text(
        fmt::format("rank {} does not fit a mesh of {}", program_.rank, with_noun(program_.mesh.world_size(), "rank")));
  checked(seen_stages_ ? stages_head_ : mesh_head_, [&] { check_stages(program_); });
  const std::vector<std::vector<int32_t>> holders = all_holders(program_);
  for (size_t b = 0; b < bucket_heads_.size(); ++b)
    checked(bucket_heads_[b], [&] { check_bucket(program_, static_cast<int32_t>(b), holders); });
  for (size_t m = 0; m < microbatch_heads_.size(); ++m)
    checked(microbatch_heads_[m], [&] { check_microbatch(program_, static_cast<int32_t>(m)); });
}

void OutlineReader::once(bool& seen) const {
  if (seen) lines_.refuse(0, fmt::format("a second \"{}\" line", words()[0].text));
  seen = true;
}

void OutlineReader::read_rank() {
  once(seen_rank_);
  program_.rank = static_cast<int32_t>(lines_.number(1, 0, kMaxRank));
  lines_.end_of_line(2);
}

void OutlineReader::read_mesh() {
  once(seen_mesh_);
  mesh_head_ = words()[0];
  for (size_t i = 1; i < words().size(); ++i) {
    const Word& w = words()[i];
    gsel_axis axis = 0;
    while (axis < kAxes && w.key() != axis_name(axis)) ++axis;
    if (axis == kAxes) lines_.refuse(i, fmt::format("\"{}\" is none of {}", w.text, axis_names()));
    program_.mesh.size[axis] = static_cast<int32_t>(lines_.number(w, w.after_equals(), 1, kMaxAxis));
  }
}

void OutlineReader::read_stages() {
  once(seen_stages_);
  stages_head_ = words()[0];
  program_.rank_of_stage.clear();
  for (size_t i = 1; i < words().size(); ++i)
    program_.rank_of_stage.push_back(static_cast<int32_t>(lines_.number(i, 0, kMaxAxis)));
  if (program_.rank_of_stage.empty()) lines_.refuse(0, "the pipeline ranks of the stages are missing after this word");
}

void OutlineReader::read_transfers() {
  once(seen_transfers_);
  program_.transfers = static_cast<int32_t>(lines_.number(1, 1, kMaxRank));
  lines_.end_of_line(2);
}

gsel_dtype OutlineReader::read_dtype(const Word& w, std::string_view name,
                                     std::initializer_list<gsel_dtype> known) const {
  std::string names;
  for (gsel_dtype dtype : known) {
    if (name == dtype_name(dtype)) return dtype;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", dtype_name(dtype));
  }
  lines_.refuse_at(w, fmt::format("\"{}\" is none of {}", name, names));
}

void OutlineReader::read_param() {
  ProgramParam p;
  p.name = lines_.declare("param", params_);
  p.n_elems = lines_.number(2, 1, kMaxAmount);
  all_elems_ += p.n_elems;
  if (all_elems_ > kMaxAmount)
    lines_.refuse(2, fmt::format("the parameters have {} so far; {} can be told of", with_noun(all_elems_, "element"),
                                 kMaxAmount));
  for (size_t i = 3; i < words().size(); ++i) {
    const Word& w = words()[i];
    if (w.text == "frozen") {
      p.trainable = false;
    } else if (w.text == "partial_gradient") {
      p.partial_gradient = true;
    } else if (w.key() == "shard") {
      p.shard = read_shard(lines_, w, 0);
      check_shard(lines_, w, p.shard, p.n_elems, "element");
    } else if (w.key() == "rows") {
      p.rows = lines_.number(w, w.after_equals(), 1, p.n_elems);
      if (p.n_elems % p.rows)
        lines_.refuse(i, fmt::format("{} cannot be cut into {} equal rows", with_noun(p.n_elems, "element"), p.rows));
    } else if (w.key() == "dtype") {
      p.dtype = read_dtype(w, w.after_equals(), {GSEL_F32, GSEL_BF16, GSEL_F16});
    } else {
      lines_.refuse(i, fmt::format("\"{}\" is none of rows=, dtype=, frozen, shard=, partial_gradient", w.text));
    }
  }
  program_.params.push_back(std::move(p));
}

void OutlineReader::read_value() {
  ProgramValue v;
  v.name = lines_.declare("value", values_);
  Word shard, placement = words()[0];
  for (size_t i = 2; i < words().size(); ++i) {
    const Word& w = words()[i];
    if (w.key() == "bytes")
      v.sample_bytes = lines_.number(w, w.after_equals(), 0, kMaxAmount);
    else if (w.key() == "dtype")
      v.dtype = read_any_dtype(w, w.after_equals());
    else if (w.text == "scalar")
      v.is_scalar = true;
    else if (w.text == "input")
      v.is_input = true;
    else if (w.text == "gradient")
      v.needs_gradient = true;
    else if (w.key() == "placement")
      v.placement = read_placement(placement = w);
    else if (w.key() == "shard")
      v.shard = read_shard(lines_, shard = w, 1);
    else
      lines_.refuse(
          i, fmt::format("\"{}\" is none of bytes=, dtype=, scalar, input, gradient, placement=, shard=", w.text));
  }
  if ((v.placement == Placement::shard) == v.shard.is_whole())
    lines_.refuse_at(v.shard.is_whole() ? placement : shard, "placement=shard and shard= go together");
  if (!v.shard.is_whole()) check_shard(lines_, shard, v.shard, v.sample_bytes, "byte", " of a sample");
  bound_bytes(v.is_scalar ? 0 : v.sample_bytes, 0);
  program_.values.push_back(std::move(v));
}

gsel_dtype OutlineReader::read_any_dtype(const Word& w, std::string_view name) const {
  for (gsel_dtype dtype = 1; dtype_bytes(dtype) > 0; ++dtype)
    if (name == dtype_name(dtype)) return dtype;
  lines_.refuse_at(w, fmt::format("\"{}\" is no element type, such as f32, bf16 or i32", name));
}

Placement OutlineReader::read_placement(const Word& w) const {
  const auto found = std::ranges::find(kPlacementWords, w.after_equals());
  if (found == kPlacementWords.end())
    lines_.refuse_at(w, fmt::format("\"{}\" is none of replicate, copy, shard, partial", w.after_equals()));
  return static_cast<Placement>(found - kPlacementWords.begin());
}

// The bytes of all samples must not overflow.
void OutlineReader::bound_bytes(int64_t sample_bytes, int64_t n_samples) {
  sample_bytes_ = std::max(sample_bytes_, sample_bytes);
  n_samples_ = std::max(n_samples_, n_samples);
  if (n_samples_ > 0 && sample_bytes_ > kMaxAmount / n_samples_)
    lines_.refuse(words().size() - 1, fmt::format("{} bytes for each of {}; {} bytes can be told of", sample_bytes_,
                                                  with_noun(n_samples_, "sample"), kMaxAmount));
}

void OutlineReader::read_layer() {
  ProgramLayer layer;
  layer.name = lines_.declare("layer", layers_);
  for (size_t i = 2; i < words().size(); ++i) {
    const Word& w = words()[i];
    if (w.key() == "reads")
      layer.inputs = lines_.ids(w, values_, "value");
    else if (w.key() == "writes")
      layer.outputs = lines_.ids(w, values_, "value");
    else if (w.key() == "params")
      layer.params = lines_.ids(w, params_, "param");
    else if (w.key() == "unread")
      layer.backward_unread_params = read_unread(w, layer);
    else if (w.key() == "forward_phases")
      layer.forward_phases = read_phases(w);
    else if (w.key() == "backward_phases")
      layer.backward_phases = read_phases(w);
    else if (w.key() == "stage")
      layer.stage = read_stage(w);
    else if (w.text == "loss")
      layer.is_loss = true;
    else if (w.text == "backward_input")
      layer.needs_backward_input = true;
    else if (w.text == "backward_weight")
      layer.needs_backward_weight = true;
    else if (w.text == "redistributes")
      layer.redistributes = layer.divided = true;
    else if (w.text == "divided")
      layer.divided = true;
    else if (w.text == "weight_reads_params")
      layer.weight_reads_params = true;
    else
      lines_.refuse(i, fmt::format("\"{}\" is none of reads=, writes=, params=, loss, backward_input, "
                                   "backward_weight, unread=, forward_phases=, backward_phases=, stage=, "
                                   "redistributes, divided, weight_reads_params",
                                   w.text));
  }
  checked(words()[1], [&] { check_redistribution(program_, layer); });
  program_.layers.push_back(std::move(layer));
}

// Checks against the layers and the stages line read so far.
int32_t OutlineReader::read_stage(const Word& w) const {
  const int64_t last = program_.layers.empty() ? 0 : program_.layers.back().stage;
  const auto n_stages = static_cast<int64_t>(program_.rank_of_stage.size());
  const int64_t stage = lines_.number(w, w.after_equals(), 0, kMaxRank);
  if (stage >= n_stages)
    lines_.refuse_at(w, fmt::format("\"{}\" has no pipeline rank; the stages line above gives one to 0 to {}", w.text,
                                    n_stages - 1));
  if (stage < last)
    lines_.refuse_at(w, fmt::format("\"{}\" follows a layer of stage {}; order layers by stage", w.text, last));
  return static_cast<int32_t>(stage);
}

uint64_t OutlineReader::read_unread(const Word& w, const ProgramLayer& layer) const {
  uint64_t bits = 0;
  for (int32_t p : lines_.ids(w, params_, "param")) {
    const auto position = std::ranges::find(layer.params, p) - layer.params.begin();
    if (position >= std::min<ptrdiff_t>(64, std::ssize(layer.params)))
      lines_.refuse_at(w, fmt::format("param \"{}\" is not among the first 64 of params= before this word",
                                      program_.params[p].name));
    bits |= uint64_t{1} << position;
  }
  return bits;
}

// axis:dtype:bytes+bytes_per_sample, optionally :ring_shift
ProgramPhase OutlineReader::read_phase(const Word& w, std::string_view item) {
  constexpr std::string_view kRingShift = ":ring_shift";
  ProgramPhase phase;
  phase.ring_shifts = item.ends_with(kRingShift);
  const std::string_view phase_text = item.substr(0, item.size() - (phase.ring_shifts ? kRingShift.size() : 0));
  const size_t first = phase_text.find(':'),
               second = first == phase_text.npos ? phase_text.npos : phase_text.find(':', first + 1);
  if (second == phase_text.npos) lines_.refuse_at(w, fmt::format("\"{}\" is not axis:dtype:bytes", item));
  phase.axis = lines_.axis(w, phase_text.substr(0, first));
  phase.dtype = read_dtype(w, phase_text.substr(first + 1, second - first - 1), {GSEL_F32, GSEL_F64});
  const std::string_view bytes = phase_text.substr(second + 1);
  const size_t plus = bytes.find('+');
  phase.bytes = lines_.number(w, bytes.substr(0, plus), 0, kMaxAmount);
  if (plus != bytes.npos) phase.bytes_per_sample = lines_.number(w, bytes.substr(plus + 1), 1, kMaxAmount);
  const auto size = static_cast<int64_t>(dtype_bytes(phase.dtype));
  if (phase.bytes % size || phase.bytes_per_sample % size)
    lines_.refuse_at(w, fmt::format("\"{}\" is not a whole number of elements of {} bytes", item, size));
  bound_bytes(phase.bytes_per_sample, 0);
  return phase;
}

std::vector<ProgramPhase> OutlineReader::read_phases(const Word& w) {
  std::vector<ProgramPhase> phases;
  for (std::string_view item : TextLines::items(w.after_equals())) phases.push_back(read_phase(w, item));
  return phases;
}

void OutlineReader::read_microbatch() {
  Microbatch m;
  m.first = lines_.number(1, 0, kMaxAmount);
  m.count = lines_.number(2, 0, kMaxAmount);
  bound_bytes(0, m.count);
  if (words().size() > 3) {
    const Word& w = words()[3];
    if (w.key() != "of") lines_.refuse(3, fmt::format("\"{}\" is not of=", w.text));
    m.whole = static_cast<int32_t>(lines_.number(w, w.after_equals(), 0, kMaxRank));
    lines_.end_of_line(4);
  }
  microbatch_heads_.push_back(words().back());
  program_.microbatches.push_back(m);
}

uint32_t OutlineReader::read_flags(const Word& w, std::span<const FlagWord> known) const {
  uint32_t flags = 0;
  for (std::string_view item : TextLines::items(w.after_equals())) {
    const auto found = std::ranges::find(known, item, &FlagWord::word);
    if (found == known.end()) {
      std::string words;
      for (const FlagWord& flag : known) words += fmt::format("{}{}", words.empty() ? "" : ", ", flag.word);
      lines_.refuse_at(w, fmt::format("\"{}\" is none of what {} lists: {}", item, w.key(), words));
    }
    flags |= found->flag;
  }
  return flags;
}

// f16, bf16 or low_rank:COLUMNS, optionally @START.
void OutlineReader::read_compression(const Word& w, ProgramBucket& bucket) const {
  std::string_view text = w.after_equals();
  if (const size_t at = text.find('@'); at != text.npos) {
    bucket.compression_start = lines_.number(w, text.substr(at + 1), 0, kMaxAmount);
    text = text.substr(0, at);
  }
  const size_t colon = text.find(':');
  const auto found = std::ranges::find(kCompressWords, text.substr(0, colon));
  bucket.compression = static_cast<int32_t>(found - kCompressWords.begin());
  const bool low_rank = bucket.compression == GSEL_COMPRESS_LOW_RANK;
  if (found == kCompressWords.end() || found == kCompressWords.begin() || low_rank == (colon == text.npos))
    lines_.refuse_at(w, fmt::format("\"{}\" is none of f16, bf16, low_rank:COLUMNS, each perhaps with @START", text));
  if (low_rank) bucket.compression_rank = static_cast<int32_t>(lines_.number(w, text.substr(colon + 1), 1, kMaxRank));
}

void OutlineReader::read_bucket() {
  if (words().size() < 2 || words()[1].key() != "params") lines_.refuse(0, "a bucket has no params=");
  ProgramBucket bucket;
  bucket.params = lines_.ids(words()[1], params_, "param");
  for (size_t i = 2; i < words().size(); ++i) {
    const Word& w = words()[i];
    if (w.key() == "shard")
      bucket.flags |= read_flags(w, kShardWords);
    else if (w.key() == "offload")
      bucket.flags |= read_flags(w, kOffloadWords);
    else if (w.text == "whole_params")
      bucket.flags |= GSEL_BUCKET_WHOLE_PARAMS;
    else if (w.key() == "axis")
      bucket.axis = lines_.axis(w, w.after_equals());
    else if (w.key() == "owner")
      bucket.owner = static_cast<int32_t>(lines_.number(w, w.after_equals(), 0, kMaxAxis));
    else if (w.key() == "compress")
      read_compression(w, bucket);
    else
      lines_.refuse(i,
                    fmt::format("\"{}\" is none of shard=, whole_params, axis=, owner=, offload=, compress=", w.text));
  }
  bucket_heads_.push_back(words()[0]);
  program_.buckets.push_back(std::move(bucket));
}

// ---- instructions --------------------------------------------------------------------------------------------------

constexpr int32_t kMaxCount = 1 << 20;  // limit for numbers that determine allocations
constexpr size_t kMaxWords = 32;        // per line without a list of pipeline ranks

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : lines_(text, file) {}

  Program read() {
    if (!lines_.next() || lines_.joined() != kProgramMagic)
      lines_.refuse(0, fmt::format("the first line is not \"{}\"", kProgramMagic));
    while (lines_.next()) read_line();
    if (section_ != Section::end) lines_.refuse_text("the text ends without \"end\"; it was cut short");
    outline_.check();
    return std::move(program_);
  }

 private:
  enum class Section { outline, setup, step, end };

  const std::vector<Word>& words() const { return lines_.words(); }

  void read_line() {
    const std::string_view head = words()[0].text;
    if (section_ == Section::end) lines_.refuse(0, "text after \"end\"");
    if (head == "setup" && words().size() == 1 && section_ == Section::outline) {
      section_ = Section::setup;
      return;
    }
    if (head == "step" && words().size() == 1 && section_ != Section::step) {
      section_ = Section::step;
      return;
    }
    if (head == "end" && words().size() == 1) {
      if (section_ != Section::step) lines_.refuse(0, "\"end\" comes before \"step\"");
      section_ = Section::end;
      return;
    }
    refuse_repeated_keys();
    if (section_ != Section::outline) return read_instr();
    if (outline_.read_line()) return;
    lines_.refuse(
        0,
        fmt::format("\"{}\" is none of rank, mesh, stages, transfers, param, value, layer, microbatch, bucket, setup, "
                    "step, end",
                    head));
  }

  void refuse_repeated_keys() const {
    if (words()[0].text == "stages") return;
    if (words().size() > kMaxWords) lines_.refuse(kMaxWords, "the line has too many words");
    for (size_t i = 2; i < words().size(); ++i)
      for (size_t k = 1; k < i; ++k)
        if (words()[i].has_key() && words()[k].has_key() && words()[i].key() == words()[k].key())
          lines_.refuse(i, fmt::format("\"{}=\" is given twice", words()[i].key()));
  }

  void read_instr() {
    const InstrRow* row = find_instr_row(words()[0].text);
    if (!row) lines_.refuse(0, fmt::format("\"{}\" is no instruction", words()[0].text));
    gsel_instr instr = make_instr(row->kind);
    for (size_t i = 1; i < words().size(); ++i) read_operand(words()[i], *row, instr);
    outline_.checked(words()[0], [&] { check_instr(program_, instr); });
    (section_ == Section::setup ? program_.setup : program_.step).push_back(instr);
    program_.lines.push_back(lines_.line());
  }

  void read_operand(const Word& w, const InstrRow& row, gsel_instr& instr) const {
    const std::string_view key = w.key(), given = w.after_equals();
    auto small_number = [&] { return static_cast<int32_t>(lines_.number(w, given, 0, kMaxCount)); };
    if (w.text == "gradient")
      instr.flags |= GSEL_INSTR_GRADIENT;
    else if (w.text == "optimistic")
      instr.flags |= GSEL_INSTR_OPTIMISTIC;
    else if (key == "layer")
      instr.layer = lines_.id(w, given, outline_.layers(), "layer");
    else if (key == "value")
      instr.value = lines_.id(w, given, outline_.values(), "value");
    else if (key == "mb")
      instr.microbatch = small_number();
    else if (key == "bucket")
      instr.bucket = small_number();
    else if (key == "axis")
      instr.axis = lines_.axis(w, given);
    else if (row.peer && key == row.peer)
      instr.peer = small_number();
    else
      lines_.refuse_at(w, fmt::format("\"{}\" is no operand of {}", w.text, row.word));
  }

  TextLines lines_;
  Program program_;
  OutlineReader outline_{lines_, program_};
  Section section_ = Section::outline;
};

}  // namespace

Program parse_program(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace gsel
