// program_json.h: programs of ranks as JSON (docs/program.md): their instructions, what they send, how they place
// values.
#pragma once

#include <gsel/gsel.h>

#include <nlohmann/json.hpp>
#include <string>

namespace gsel::cli {

// By GSEL_INSTR_*, as programs name them; "" for a kind of a newer library.
std::string instruction_name(gsel_instr_kind kind);

// {"file", "instructions", "step": [{"instruction", "layer", ...}], "text"}
nlohmann::ordered_json instructions_json(const gsel_program* program, const std::string& file);

// {"file", "about", "parameters": [...], "values": [...]}, from the table of gsel_program_placements: the cells of a
// row by the heads of their columns. What the collectives send stands in forward_sent and backward_sent.
nlohmann::ordered_json placements_json(const gsel_program* program, const std::string& file);

}  // namespace gsel::cli
