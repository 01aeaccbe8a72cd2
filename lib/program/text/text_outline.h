// program/text/text_outline.h: parses the lines before the instructions: mesh, model, micro-batches, buckets.
#pragma once

#include <initializer_list>
#include <span>

#include "program/program.h"
#include "program/words/words.h"

namespace gsel {

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

}  // namespace gsel
