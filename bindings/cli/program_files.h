// program_files.h: programs of ranks in files, and what they send, for the commands that look into them.
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
  int64_t instructions = 0;  // of all
};
VerifiedPrograms verified_programs(const std::vector<std::string>& files);

// What a program's rank sends by one kind of instruction on one axis.
struct TrafficRow {
  const char* when;
  gsel_axis axis;
  gsel_instr_kind kind;
  uint64_t calls, bytes;
};
// Of setup (step -1) or of a step, without kinds that make no call.
void add_traffic(const gsel_program* program, int64_t step, const char* when, std::vector<TrafficRow>& rows);

// The ranks that its mesh has on the axis.
int32_t axis_size(const gsel_program* program, gsel_axis axis);

}  // namespace gsel::cli
