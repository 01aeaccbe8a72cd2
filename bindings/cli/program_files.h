// program_files.h: reads the programs of ranks from files, and sums up what they send, for the commands that need it.
#pragma once

#include <string>
#include <vector>

#include "client.h"

namespace gsel::cli {

constexpr int kMostPrograms = 1 << 20;

Handle<gsel_program> read_program(const std::string& path);

// Programs of all ranks, in rank order, verified together.
struct VerifiedPrograms {
  std::vector<Handle<gsel_program>> programs;
  int64_t instructions = 0;  // total
};
VerifiedPrograms verified_programs(const std::vector<std::string>& files);

// What a program's rank sends with one kind of instruction on one axis.
struct TrafficRow {
  const char* when;
  gsel_axis axis;
  gsel_instr_kind kind;
  uint64_t calls, bytes;
};
// Adds rows for setup (step -1) or for a step, without kinds that make no call.
void add_traffic(const gsel_program* program, int64_t step, const char* when, std::vector<TrafficRow>& rows);

// The size of the axis in the program's mesh.
int32_t axis_size(const gsel_program* program, gsel_axis axis);

}  // namespace gsel::cli
