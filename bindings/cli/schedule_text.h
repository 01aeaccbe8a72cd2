// schedule_text.h: a simulated schedule drawn with letters: a line for each rank, time from left to right.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gsel::cli {

// A box is as wide as its label where the lines then fit `columns`; else the timeline is squeezed, and a box is its
// letter alone. Letters of chunks 1, 3, ... are small.
std::string schedule_text(const nlohmann::ordered_json& simulation, size_t columns);

// Of the terminal; where standard output is none, enough for most timelines.
size_t terminal_columns();

}  // namespace gsel::cli
