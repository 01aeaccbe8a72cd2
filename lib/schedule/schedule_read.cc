// schedule/schedule_read.cc: parses rows of actions as torch.distributed.pipelining writes them: comma-separated cells,
// one row per rank. Actions that move data or gather parameters are accepted and ignored, since a program has its own.
#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "schedule/schedule.h"

namespace gsel {
namespace {

struct Cell {
  std::string_view text;
  ActionPlace place;

  Cell part(size_t begin, size_t length) const {
    return {text.substr(begin, length), {place.line, place.column + static_cast<int32_t>(begin)}};
  }
};

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kOverlap = "OVERLAP_F_B";  // a forward and a backward, executed in turn here
constexpr std::string_view kLeftOut[] = {"SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};

Cell trimmed(const Cell& cell) {
  const size_t begin = cell.text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return cell.part(cell.text.size(), 0);
  return cell.part(begin, cell.text.find_last_not_of(kBlanks) + 1 - begin);
}

// Calls visit for each part between separators, without surrounding blanks.
template <class Visit>
void split(const Cell& whole, char separator, Visit&& visit) {
  for (size_t begin = 0; begin <= whole.text.size();) {
    const size_t end = std::min(whole.text.find(separator, begin), whole.text.size());
    visit(trimmed(whole.part(begin, end - begin)));
    begin = end + 1;
  }
}

int32_t kind_of(std::string_view letter) {
  if (letter == "F") return GSEL_FORWARD;
  if (letter == "I") return GSEL_BACKWARD_INPUT;
  if (letter == "W") return GSEL_BACKWARD_WEIGHT;
  return letter == "B" ? GSEL_BACKWARD : 0;
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text) { out_.name = file; }

  Schedule read() {
    if (text_.size() > kMostBytes)
      refuse(GSEL_ERR_PARSE, {}, fmt::format("the text has {} bytes; at most {} are read", text_.size(), kMostBytes));
    for (std::string_view rest = text_; !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size() - 1);
      const Cell line = trimmed({rest.substr(0, end + 1), {++line_, 1}});
      rest.remove_prefix(end + 1);
      if (!line.text.empty() && line.text.front() != '#') read_row(line);
    }
    if (out_.rows.empty()) refuse(GSEL_ERR_PARSE, {}, "there are no rows; a schedule has one for each rank");
    check_schedule(out_);
    return std::move(out_);
  }

 private:
  static constexpr size_t kMostBytes = size_t{1} << 28;

  void read_row(const Cell& row) {
    out_.rows.emplace_back();
    out_.places.emplace_back();
    split(row, ',', [&](Cell cell) {
      if (cell.text.size() >= 2 && cell.text.front() == '"' && cell.text.back() == '"')
        cell = trimmed(cell.part(1, cell.text.size() - 2));
      if (cell.text.empty()) return;
      if (cell.text.front() == '(')
        read_overlap(cell);
      else
        read_action(cell);
    });
    if (out_.rows.back().empty())
      refuse(GSEL_ERR_PROGRAM, row,
             fmt::format("rank {} has no actions; each rank has a stage or more", out_.n_ranks() - 1));
  }

  // "(0F1;1B0)OVERLAP_F_B"
  void read_overlap(const Cell& cell) {
    const size_t end = cell.text.find(')');
    if (end == std::string_view::npos || cell.text.substr(end + 1) != kOverlap)
      refuse(GSEL_ERR_PARSE, cell, fmt::format("{} is not (...){}", in_quotes(cell.text), kOverlap));
    split(cell.part(1, end - 1), ';', [&](const Cell& part) {
      if (!part.text.empty()) read_action(part);
    });
  }

  void read_action(const Cell& cell) {
    const size_t word = std::min(cell.text.find_first_not_of(kDigits), cell.text.size());
    const size_t after = std::min(cell.text.find_first_of(kDigits, word), cell.text.size());
    const std::string_view verb = cell.text.substr(word, after - word);
    const int32_t kind = kind_of(verb);
    const bool left_out = std::find(std::begin(kLeftOut), std::end(kLeftOut), verb) != std::end(kLeftOut);
    if (word == 0 || (kind == 0 && !left_out) || (kind != 0 && after == cell.text.size())) refuse_cell(cell);
    const int32_t stage = number(cell, cell.part(0, word), "stage", kMostStages);
    const int32_t microbatch = after == cell.text.size()
                                   ? 0
                                   : number(cell, cell.part(after, cell.text.size()), "micro-batch", kMostMicrobatches);
    if (!left_out) add(cell, {kind, stage, microbatch});
  }

  int32_t number(const Cell& cell, const Cell& digits, const char* what, int32_t end) const {
    int32_t n = 0;
    const auto [stop, problem] = std::from_chars(digits.text.data(), digits.text.data() + digits.text.size(), n);
    if (stop != digits.text.data() + digits.text.size()) refuse_cell(cell);
    if (problem != std::errc{} || n >= end)
      refuse(GSEL_ERR_PARSE, cell,
             fmt::format("{} is too large a number of a {}; expected 0 to {}", in_quotes(digits.text), what, end - 1));
    return n;
  }

  void add(const Cell& cell, const gsel_action& action) {
    const int32_t rank = out_.n_ranks() - 1;
    const auto stage = static_cast<size_t>(action.stage);
    if (stage >= out_.rank_of.size()) {
      out_.rank_of.resize(stage + 1, -1);
      first_of_stage_.resize(stage + 1);
    }
    if (out_.rank_of[stage] < 0) {
      out_.rank_of[stage] = rank;
      first_of_stage_[stage] = cell.place;
    }
    if (out_.rank_of[stage] != rank)
      refuse(GSEL_ERR_PROGRAM, cell,
             fmt::format("rank {}, {}: stage {} is on rank {}, see line {}; a stage has one rank", rank,
                         in_quotes(cell.text), stage, out_.rank_of[stage], first_of_stage_[stage].line));
    out_.n_microbatches = std::max(out_.n_microbatches, action.microbatch + 1);
    out_.rows.back().push_back(action);
    out_.places.back().push_back(cell.place);
  }

  [[noreturn]] void refuse_cell(const Cell& cell) const {
    refuse(GSEL_ERR_PARSE, cell,
           fmt::format("{} is no action; one is <stage><F|I|W|B><micro-batch>, such as 2F0", in_quotes(cell.text)));
  }

  [[noreturn]] void refuse(gsel_status code, const Cell& cell, const std::string& why) const {
    Place place{out_.name, cell.place.line, cell.place.column, std::string(cell.text.substr(0, 60))};
    std::string message = cell_prefix(place) + why;
    throw Error(code, std::move(message))
        .about_rank(cell.place.line > 0 ? out_.n_ranks() - 1 : -1)
        .at(std::move(place));
  }

  std::string_view text_;
  int32_t line_ = 0;
  Schedule out_;
  std::vector<ActionPlace> first_of_stage_;
};

}  // namespace

Schedule parse_schedule(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace gsel
