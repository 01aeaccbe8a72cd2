// program_files.cc: see program_files.h.
#include "program_files.h"

#include "axes.h"
#include "program_json.h"

namespace gsel::cli {

Handle<gsel_program> read_program(const std::string& path) {
  const std::string content = read_file(path);
  gsel_program* program = nullptr;
  gsel_error* error = nullptr;
  check(gsel_program_parse(borrow(content), borrow(path), &program, &error), &error);
  return Handle<gsel_program>(program);
}

VerifiedPrograms verified_programs(const std::vector<std::string>& files) {
  VerifiedPrograms out;
  std::vector<const gsel_program*> borrowed;
  for (const std::string& file : files) {
    out.programs.push_back(read_program(file));
    borrowed.push_back(out.programs.back().get());
    out.instructions += gsel_program_length(borrowed.back());
  }
  gsel_error* error = nullptr;
  check(gsel_program_verify(borrowed.data(), static_cast<int32_t>(borrowed.size()), &error), &error);
  return out;
}

void add_traffic(const gsel_program* program, int64_t step, const char* when, std::vector<TrafficRow>& rows) {
  for (const gsel_axis axis : shown_axes(gsel_axis_count()))
    for (gsel_instr_kind kind = 1; !instruction_name(kind).empty(); ++kind) {
      gsel_comm_count count = GSEL_COMM_COUNT_INIT;
      gsel_error* error = nullptr;
      check(gsel_program_traffic(program, step, kind, axis, &count, &error), &error);
      if (count.calls) rows.push_back({when, axis, kind, count.calls, count.bytes_sent});
    }
}

// From the line "mesh tensor=2 data=1 pipeline=1" of the text form; missing axes have one rank.
int32_t axis_size(const gsel_program* program, gsel_axis axis) {
  const std::string form = text(gsel_program_text(program));
  const size_t mesh = form.find("\nmesh ") + 1;
  const std::string line = form.substr(mesh, form.find('\n', mesh) - mesh),
                    key = std::string(" ") + gsel_axis_name(axis) + "=";
  const size_t at = line.find(key);
  return at == line.npos ? 1 : std::stoi(line.substr(at + key.size()));
}

}  // namespace gsel::cli
