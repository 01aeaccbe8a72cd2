// program/text/placements_table.cc: see text.h. A value is listed below the value that it is redistributed from.
#include <algorithm>

#include "base/text.h"
#include "program/redistribution.h"
#include "program/text/text.h"
#include "program/traffic.h"
#include "program/words/words.h"

namespace gsel {
namespace {

using Row = std::vector<std::string>;

// Deeper levels are not indented further.
constexpr size_t kMostIndents = 8;

// Columns are separated by two blanks; numbers are right-aligned.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  auto is_number = [](const std::string& s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; };
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line +=
          is_number(row[i]) ? fmt::format("{:>{}}  ", row[i], widths[i]) : fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

const char* name_of(Redistribution redistribution) {
  static const char* const names[] = {"-", "all-reduce", "all-gather", "reduce-scatter", "slice", "all-to-all"};
  return names[static_cast<size_t>(redistribution)];
}

class Table {
 public:
  explicit Table(const Program& program)
      : program_(program),
        shown_(program.values.size()),
        made_by_(program.values.size()),
        taken_by_(program.values.size()) {
    for (const ProgramLayer& l : program.layers) {
      if (!l.redistributes) continue;
      if (!made_by_[l.outputs.front()]) made_by_[l.outputs.front()] = &l;
      taken_by_[l.inputs.front()].push_back(&l);
    }
  }

  std::string print() {
    std::string text =
        fmt::format("rank {}: coordinate {} of {} on the {} axis; bytes sent are those of {}\n\n", program_.rank,
                    program_.mesh.sharing_index(program_.rank), program_.mesh.sharing_size(),
                    axis_name(program_.mesh.sharing_axis()),
                    program_.microbatches.empty()
                        ? std::string("no micro-batch")
                        : fmt::format("micro-batch 0, {}", with_noun(program_.microbatches[0].count, "sample")));
    if (!program_.params.empty()) text += params() + "\n";
    return text + values();
  }

 private:
  static std::string here(const Shard& shard) { return shard.is_whole() ? "all" : text_of(shard); }

  std::string params() const {
    std::vector<Row> rows = {{"parameter", "elements", "here", "gradient"}};
    for (const ProgramParam& p : program_.params)
      rows.push_back({p.name, fmt::to_string(p.n_elems), here(p.shard),
                      !p.trainable          ? "none"
                      : p.partial_gradient  ? "partial: allreduce_partial"
                      : !p.shard.is_whole() ? "of its shard"
                                            : "alike on every rank"});
    return aligned(rows);
  }

  std::string values() {
    rows_ = {{"value", "bytes", "placement", "here", "forward", "sent", "backward", "sent"}};
    for (size_t v = 0; v < program_.values.size(); ++v)
      if (!made_by_[v]) add(static_cast<int32_t>(v));
    // Values in a cycle of redistributions, in a program that was not verified.
    for (size_t v = 0; v < program_.values.size(); ++v) add(static_cast<int32_t>(v));
    return aligned(rows_);
  }

  // Adds a value and those below it, each once. Iterative, since a program that was not verified may have any number of
  // consecutive redistributions.
  void add(int32_t root) {
    std::vector<std::pair<int32_t, size_t>> open{{root, 0}};
    while (!open.empty()) {
      const auto [v, depth] = open.back();
      open.pop_back();
      if (shown_[v]) continue;
      shown_[v] = true;
      add_row(v, depth);
      const auto& below = taken_by_[v];
      for (auto l = below.rbegin(); l != below.rend(); ++l) open.emplace_back((*l)->outputs.front(), depth + 1);
    }
  }

  void add_row(int32_t v, size_t depth) {
    const ProgramValue& value = program_.values[v];
    Row row = {std::string(2 * std::min(depth, kMostIndents), ' ') + value.name, fmt::to_string(value.sample_bytes),
               std::string(kPlacementWords[static_cast<size_t>(value.placement)]), here(value.shard)};
    if (const ProgramLayer* l = made_by_[v]) {
      add_redistribution(*l, GSEL_FORWARD, row);
      if (l->needs_backward_input) add_redistribution(*l, GSEL_BACKWARD_INPUT, row);
    }
    rows_.push_back(std::move(row));
  }

  void add_redistribution(const ProgramLayer& l, gsel_instr_kind kind, Row& row) const {
    const Redistribution redistribution = redistribution_of(program_, l, kind);
    row.emplace_back(name_of(redistribution));
    gsel_instr instr = make_instr(kind);
    instr.layer = static_cast<int32_t>(&l - program_.layers.data());
    instr.microbatch = 0;
    uint64_t sent = 0;
    if (!program_.microbatches.empty())
      for (const auto& [key, count] : traffic_of(program_, instr)) sent += count.bytes_sent;
    row.push_back(fmt::to_string(sent));
  }

  const Program& program_;
  std::vector<bool> shown_;
  std::vector<const ProgramLayer*> made_by_;                // the redistribution that writes a value
  std::vector<std::vector<const ProgramLayer*>> taken_by_;  // the redistributions that read it
  std::vector<Row> rows_;
};

}  // namespace

std::string placements_table(const Program& program) {
  return Table(program).print();
}

}  // namespace gsel
