// schedule_text.h: draws a simulated schedule with letters: a line for each rank, time from left to right.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gsel::cli {

// A box is as wide as its label if the lines fit in `columns`; else the timeline is compressed and a box is one letter.
// Letters of chunks 1, 3, ... are lower case.
std::string schedule_text(const nlohmann::ordered_json& simulation, size_t columns);

// Width of the terminal; if standard output is none, enough for most timelines.
size_t terminal_columns();

}  // namespace gsel::cli
