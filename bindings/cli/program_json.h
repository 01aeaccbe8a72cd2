// program_json.h: programs of ranks as JSON (docs/program.md): instructions, what they send, and placements of values.
#pragma once

#include <gsel/gsel.h>

#include <nlohmann/json.hpp>
#include <string>

namespace gsel::cli {

// The name of a GSEL_INSTR_* in programs; "" for a kind of a newer library.
std::string instruction_name(gsel_instr_kind kind);

// {"file", "instructions", "step": [{"instruction", "layer", ...}], "text"}
nlohmann::ordered_json instructions_json(const gsel_program* program, const std::string& file);

// {"file", "about", "parameters": [...], "values": [...]}, from the table of gsel_program_placements: each row has its
// cells by column head. Bytes sent by collectives are in forward_sent and backward_sent.
nlohmann::ordered_json placements_json(const gsel_program* program, const std::string& file);

}  // namespace gsel::cli
