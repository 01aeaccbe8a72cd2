// program/text.cc: the text form of a program, printed and read back. One piece per line, words and key=value pairs;
// '#' begins a comment. docs/program.md is its description.
#include <charconv>
#include <map>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "program/program.h"

namespace gsel {
namespace {

constexpr std::string_view kMagic = "gsel-program 1";
constexpr int32_t kMaxCount = 1 << 20;  // bound on numbers that decide allocations

// ---- printing ------------------------------------------------------------------------------------------------

template <class Piece>
std::string join(const std::vector<int32_t>& ids, const std::vector<Piece>& pieces) {
  std::string text;
  for (int32_t id : ids) text += (text.empty() ? "" : ",") + pieces[id].name;
  return text;
}

template <class Piece>
std::string list(const char* word, const std::vector<int32_t>& ids, const std::vector<Piece>& pieces) {
  return ids.empty() ? "" : fmt::format(" {}={}", word, join(ids, pieces));
}

// ---- reading -------------------------------------------------------------------------------------------------

// A line cut in words, each with its column.
struct Word {
  std::string_view text;
  int32_t column;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  Program read() {
    if (!next_line() || joined() != kMagic) refuse(0, "the first line is not \"gsel-program 1\"");
    while (next_line()) read_line();
    if (section_ != Section::end) refuse_at({}, "the text ends without \"end\"; it was cut short");
    if (program_.rank >= program_.mesh.world_size())
      refuse_at({}, fmt::format("rank {} does not fit a mesh of {} ranks", program_.rank, program_.mesh.world_size()));
    return std::move(program_);
  }

 private:
  enum class Section { outline, setup, step, end };

  [[noreturn]] void refuse_at(const Word& word, const std::string& why) const {
    throw Error(GSEL_ERR_PARSE, fmt::format("{}:{}: {}", file_, line_, why))
        .at({file_, line_, word.column, std::string(word.text)});
  }
  [[noreturn]] void refuse(size_t word, const std::string& why) const {
    refuse_at(word < words_.size() ? words_[word] : Word{}, why);
  }

  // Moves to the next line that has words.
  bool next_line() {
    while (!rest_.empty()) {
      const size_t end = rest_.find('\n');
      std::string_view line = rest_.substr(0, end);
      rest_ = end == std::string_view::npos ? std::string_view{} : rest_.substr(end + 1);
      ++line_;
      line = line.substr(0, line.find('#'));
      words_.clear();
      for (size_t i = 0; i < line.size();) {
        if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
          ++i;
          continue;
        }
        const size_t stop = std::min(line.find_first_of(" \t\r", i), line.size());
        words_.push_back({line.substr(i, stop - i), static_cast<int32_t>(i) + 1});
        i = stop;
      }
      if (!words_.empty()) return true;
    }
    return false;
  }

  std::string joined() const {
    std::string text;
    for (const Word& w : words_) text += (text.empty() ? "" : " ") + std::string(w.text);
    return text;
  }

  int64_t number(const Word& word, std::string_view digits, int64_t low, int64_t high) const {
    int64_t n = 0;
    const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (problem != std::errc{} || stop != digits.data() + digits.size() || n < low || n > high)
      refuse_at(word, fmt::format("\"{}\" is no number from {} to {}", word.text, low, high));
    return n;
  }
  int64_t number(size_t word, int64_t low, int64_t high) const {
    if (word >= words_.size()) refuse(words_.size() - 1, "a number is missing after this word");
    return number(words_[word], words_[word].text, low, high);
  }

  static std::string_view after_equals(std::string_view text) { return text.substr(text.find('=') + 1); }

  using Ids = std::map<std::string, int32_t, std::less<>>;

  int32_t id_of(const Word& word, std::string_view name, const Ids& ids, const char* kind) const {
    const auto found = ids.find(name);
    if (found == ids.end()) refuse_at(word, fmt::format("{} \"{}\" is not declared above", kind, name));
    return found->second;
  }

  std::vector<int32_t> ids_of(const Word& word, const Ids& ids, const char* kind) const {
    std::vector<int32_t> result;
    for (std::string_view names = after_equals(word.text);;) {
      const size_t comma = names.find(',');
      result.push_back(id_of(word, names.substr(0, comma), ids, kind));
      if (comma == std::string_view::npos) return result;
      names = names.substr(comma + 1);
    }
  }

  std::string declare(const char* kind, Ids& ids) {
    if (words_.size() < 2) refuse(0, fmt::format("a {} has no name", kind));
    std::string name(words_[1].text);
    if (!ids.emplace(name, static_cast<int32_t>(ids.size())).second)
      refuse(1, fmt::format("{} \"{}\" is declared twice", kind, name));
    return name;
  }

  void read_line() {
    const std::string_view head = words_[0].text;
    if (section_ == Section::end) refuse(0, "text after \"end\"");
    if (head == "setup" && words_.size() == 1 && section_ == Section::outline) {
      section_ = Section::setup;
      return;
    }
    if (head == "step" && words_.size() == 1 && section_ != Section::step) {
      section_ = Section::step;
      return;
    }
    if (head == "end" && words_.size() == 1) {
      if (section_ != Section::step) refuse(0, "\"end\" stands before \"step\"");
      section_ = Section::end;
      return;
    }
    if (section_ != Section::outline) return read_instr();
    if (head == "rank") return read_rank();
    if (head == "mesh") return read_mesh();
    if (head == "param") return read_param();
    if (head == "value") return read_value();
    if (head == "layer") return read_layer();
    if (head == "microbatch") return read_microbatch();
    if (head == "bucket") return program_.buckets.push_back(read_bucket());
    refuse(0, fmt::format("\"{}\" is none of rank, mesh, param, value, layer, microbatch, bucket, setup, step, end",
                          head));
  }

  // Nothing may stand behind the words of a line that are read.
  void end_of_line(size_t n_words) const {
    if (words_.size() > n_words) refuse(n_words, fmt::format("\"{}\" is one word too many", words_[n_words].text));
  }

  void once(bool& seen) const {
    if (seen) refuse(0, fmt::format("a second \"{}\" line", words_[0].text));
    seen = true;
  }

  void read_rank() {
    once(seen_rank_);
    program_.rank = static_cast<int32_t>(number(1, 0, kMaxCount));
    end_of_line(2);
  }

  void read_mesh() {
    once(seen_mesh_);
    for (size_t i = 1; i < words_.size(); ++i) {
      const std::string_view key = words_[i].text.substr(0, words_[i].text.find('='));
      gsel_axis axis = 0;
      while (axis < GSEL_AXES && key != axis_name(axis)) ++axis;
      if (axis == GSEL_AXES) refuse(i, fmt::format("\"{}\" is none of tensor=, data=, pipeline=", words_[i].text));
      program_.mesh.size[axis] = static_cast<int32_t>(number(words_[i], after_equals(words_[i].text), 1, 1 << 10));
    }
  }

  void read_param() {
    ProgramParam p;
    p.name = declare("param", params_);
    p.n_elems = number(2, 1, int64_t{1} << 50);
    for (size_t i = 3; i < words_.size(); ++i)
      if (words_[i].text == "frozen")
        p.trainable = false;
      else
        refuse(i, fmt::format("\"{}\" is not \"frozen\"", words_[i].text));
    program_.params.push_back(std::move(p));
  }

  void read_value() {
    ProgramValue v;
    v.name = declare("value", values_);
    for (size_t i = 2; i < words_.size(); ++i)
      if (words_[i].text == "input")
        v.is_input = true;
      else if (words_[i].text == "gradient")
        v.needs_gradient = true;
      else
        refuse(i, fmt::format("\"{}\" is none of input, gradient", words_[i].text));
    program_.values.push_back(std::move(v));
  }

  void read_layer() {
    ProgramLayer layer;
    layer.name = declare("layer", layers_);
    for (size_t i = 2; i < words_.size(); ++i) {
      const Word& w = words_[i];
      if (w.text.starts_with("reads="))
        layer.inputs = ids_of(w, values_, "value");
      else if (w.text.starts_with("writes="))
        layer.outputs = ids_of(w, values_, "value");
      else if (w.text.starts_with("params="))
        layer.params = ids_of(w, params_, "param");
      else if (w.text == "loss")
        layer.is_loss = true;
      else if (w.text == "backward_input")
        layer.needs_backward_input = true;
      else if (w.text == "backward_weight")
        layer.needs_backward_weight = true;
      else
        refuse(i, fmt::format("\"{}\" is none of reads=, writes=, params=, loss, backward_input, backward_weight",
                              w.text));
    }
    program_.layers.push_back(std::move(layer));
  }

  void read_microbatch() {
    const int64_t first = number(1, 0, int64_t{1} << 50);
    program_.microbatches.push_back({first, number(2, 1, int64_t{1} << 50)});
    end_of_line(3);
  }

  std::vector<int32_t> read_bucket() {
    if (words_.size() < 2 || !words_[1].text.starts_with("params=")) refuse(0, "a bucket has no params=");
    end_of_line(2);
    return ids_of(words_[1], params_, "param");
  }

  void read_instr() {
    const InstrForm* form = form_of(words_[0].text);
    if (!form) refuse(0, fmt::format("\"{}\" is no instruction", words_[0].text));
    gsel_instr instr = make_instr(form->kind);
    for (size_t i = 1; i < words_.size(); ++i) read_operand(words_[i], *form, instr);
    try {
      check_instr(program_, instr);
    } catch (const Error& e) {
      refuse(0, e.message());
    }
    (section_ == Section::setup ? program_.setup : program_.step).push_back(instr);
    program_.lines.push_back(line_);
  }

  void read_operand(const Word& w, const InstrForm& form, gsel_instr& instr) const {
    const std::string_view key = w.text.substr(0, w.text.find('=')), given = after_equals(w.text);
    if (w.text == "gradient")
      instr.flags |= GSEL_INSTR_GRADIENT;
    else if (key == "layer")
      instr.layer = id_of(w, given, layers_, "layer");
    else if (key == "value")
      instr.value = id_of(w, given, values_, "value");
    else if (key == "mb")
      instr.microbatch = static_cast<int32_t>(number(w, given, 0, kMaxCount));
    else if (key == "bucket")
      instr.bucket = static_cast<int32_t>(number(w, given, 0, kMaxCount));
    else if (key == "axis") {
      while (++instr.axis < GSEL_AXES && given != axis_name(instr.axis)) {
      }
      if (instr.axis == GSEL_AXES) refuse_at(w, fmt::format("\"{}\" is none of tensor, data, pipeline", given));
    } else if (form.peer && key == form.peer)
      instr.peer = static_cast<int32_t>(number(w, given, 0, kMaxCount));
    else
      refuse_at(w, fmt::format("\"{}\" is no operand of {}", w.text, form.word));
  }

  std::string_view rest_;
  const std::string& file_;
  int32_t line_ = 0;
  std::vector<Word> words_;
  Section section_ = Section::outline;
  bool seen_rank_ = false, seen_mesh_ = false;
  Program program_;
  Ids params_, values_, layers_;
};

}  // namespace

std::string to_text(const Program& program, const gsel_instr& instr) {
  const InstrForm* form = form_of(instr.kind);
  if (!form) return fmt::format("unknown kind={}", instr.kind);
  std::string text = form->word;
  if (form->layer) text += " layer=" + program.layers[instr.layer].name;
  if (form->value) text += " value=" + program.values[instr.value].name;
  if (form->microbatch) text += fmt::format(" mb={}", instr.microbatch);
  if (form->bucket) text += fmt::format(" bucket={}", instr.bucket);
  if (form->axis) text += fmt::format(" axis={}", axis_name(instr.axis));
  if (form->peer) text += fmt::format(" {}={}", form->peer, instr.peer);
  if (instr.flags & GSEL_INSTR_GRADIENT) text += " gradient";
  return text;
}

std::string where(const Program& program, bool in_setup, size_t position) {
  const gsel_instr& instr = (in_setup ? program.setup : program.step)[position];
  const size_t line = (in_setup ? 0 : program.setup.size()) + position;
  return fmt::format("rank {}, {} instruction {}{}: {}", program.rank, in_setup ? "setup" : "step", position,
                     line < program.lines.size() ? fmt::format(" (line {})", program.lines[line]) : "",
                     to_text(program, instr));
}

std::string to_text(const Program& program) {
  std::string text = fmt::format("{}\nrank {}\nmesh tensor={} data={} pipeline={}\n", kMagic, program.rank,
                                 program.mesh.size[0], program.mesh.size[1], program.mesh.size[2]);
  for (const ProgramParam& p : program.params)
    text += fmt::format("param {} {}{}\n", p.name, p.n_elems, p.trainable ? "" : " frozen");
  for (const ProgramValue& v : program.values)
    text += fmt::format("value {}{}{}\n", v.name, v.is_input ? " input" : "", v.needs_gradient ? " gradient" : "");
  for (const ProgramLayer& l : program.layers)
    text += fmt::format("layer {}{}{}{}{}{}{}\n", l.name, list("reads", l.inputs, program.values),
                        list("writes", l.outputs, program.values), list("params", l.params, program.params),
                        l.is_loss ? " loss" : "", l.needs_backward_input ? " backward_input" : "",
                        l.needs_backward_weight ? " backward_weight" : "");
  for (const Microbatch& m : program.microbatches) text += fmt::format("microbatch {} {}\n", m.first, m.count);
  for (const auto& bucket : program.buckets) text += "bucket params=" + join(bucket, program.params) + "\n";
  text += "setup\n";
  for (const gsel_instr& instr : program.setup) text += to_text(program, instr) + "\n";
  text += "step\n";
  for (const gsel_instr& instr : program.step) text += to_text(program, instr) + "\n";
  return text + "end\n";
}

Program parse_program(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace gsel
