// program/text/text_read.cc: parses the text form of a program: its sections and instructions.
#include "program/text/text.h"
#include "program/text/text_outline.h"

namespace gsel {
namespace {

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
    const InstrForm* form = form_of(words()[0].text);
    if (!form) lines_.refuse(0, fmt::format("\"{}\" is no instruction", words()[0].text));
    gsel_instr instr = make_instr(form->kind);
    for (size_t i = 1; i < words().size(); ++i) read_operand(words()[i], *form, instr);
    outline_.checked(words()[0], [&] { check_instr(program_, instr); });
    (section_ == Section::setup ? program_.setup : program_.step).push_back(instr);
    program_.lines.push_back(lines_.line());
  }

  void read_operand(const Word& w, const InstrForm& form, gsel_instr& instr) const {
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
    else if (form.peer && key == form.peer)
      instr.peer = small_number();
    else
      lines_.refuse_at(w, fmt::format("\"{}\" is no operand of {}", w.text, form.word));
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
