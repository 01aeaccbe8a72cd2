// program_json.cc: see program_json.h.
#include "program_json.h"

#include <array>
#include <sstream>
#include <vector>

#include "client.h"
#include "usage.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 25> kKinds{
    "",          "input",          "forward",           "backward_input", "backward_weight", "backward", "send",
    "recv",      "broadcast",      "allreduce",         "wait",           "loss_allreduce",  "norm",     "step",
    "allgather", "release",        "reduce_scatter",    "reduce",         "recompute",       "scatter",  "gather",
    "overflow",  "allreduce_tied", "allreduce_partial", "post_validate"};

struct Cell {
  size_t begin, end;
  std::string text;
};

// Splits a line into cells, which are separated by two or more blanks.
std::vector<Cell> cells_of(const std::string& line) {
  std::vector<Cell> cells;
  for (size_t at = line.find_first_not_of(' '); at < line.size();) {
    const size_t end = std::min(line.find("  ", at), line.size());
    cells.push_back({at, end, line.substr(at, end - at)});
    at = line.find_first_not_of(' ', end);
  }
  return cells;
}

// A cell belongs to the column whose head is above any part of it; a missing cell is null.
Json row_json(const std::vector<Cell>& heads, const std::string& line) {
  Json row;
  const std::vector<Cell> cells = cells_of(line);
  std::string before;
  for (const Cell& head : heads) {
    const std::string key = head.text == "sent" ? before + "_sent" : head.text;
    if (head.text != "sent") before = head.text;
    row[key] = nullptr;
    for (const Cell& cell : cells)
      if (cell.begin < head.end && head.begin < cell.end)
        row[key] = is_count(cell.text) ? Json(std::stoull(cell.text)) : Json(cell.text);
  }
  return row;
}

}  // namespace

std::string instruction_name(gsel_instr_kind kind) {
  return kind >= 0 && kind < static_cast<gsel_instr_kind>(kKinds.size()) ? kKinds[static_cast<size_t>(kind)] : "";
}

Json instructions_json(const gsel_program* program, const std::string& file) {
  Json step = Json::array();
  for (int32_t i = 0; i < gsel_program_length(program); ++i) {
    gsel_instr instr{};
    gsel_error* error = nullptr;
    check(gsel_program_instr(program, i, &instr, &error), &error);
    Json one{{"instruction", instruction_name(instr.kind)}};
    const auto set = [&](const char* key, int32_t value) {
      if (value >= 0) one[key] = value;
    };
    set("layer", instr.layer);
    set("value", instr.value);
    set("microbatch", instr.microbatch);
    set("bucket", instr.bucket);
    if (instr.axis >= 0) one["axis"] = gsel_axis_name(instr.axis);
    set("peer", instr.peer);
    if (instr.flags & GSEL_INSTR_GRADIENT) one["gradient"] = true;
    if (instr.flags & GSEL_INSTR_OPTIMISTIC) one["optimistic"] = true;
    step.push_back(std::move(one));
  }
  const size_t length = step.size();
  return {
      {"file", file}, {"instructions", length}, {"step", std::move(step)}, {"text", text(gsel_program_text(program))}};
}

Json placements_json(const gsel_program* program, const std::string& file) {
  Json out{{"file", file}, {"about", ""}, {"parameters", Json::array()}, {"values", Json::array()}};
  std::istringstream lines(text(gsel_program_placements(program)));
  std::string line;
  std::getline(lines, line);
  out["about"] = line;
  std::vector<Cell> heads;
  while (std::getline(lines, line)) {
    if (line.find_first_not_of(' ') == line.npos)
      heads.clear();
    else if (heads.empty())
      heads = cells_of(line);
    else
      out[heads.front().text == "parameter" ? "parameters" : "values"].push_back(row_json(heads, line));
  }
  return out;
}

}  // namespace gsel::cli
