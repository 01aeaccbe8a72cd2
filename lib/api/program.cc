// api/program.cc: gsel/program.h.
#include <vector>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "program/text/text.h"
#include "program/traffic.h"
#include "program/verify/verify.h"

extern "C" {

gsel_status gsel_program_parse(gsel_str text, gsel_str name, gsel_program** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_program{gsel::parse_program(gsel::view(text), gsel::text(name))};
  });
}

gsel_str gsel_program_text(const gsel_program* program) {
  return gsel::query(gsel_str{nullptr, 0}, [&] {
    return gsel::required(program, "program").text.get([&] { return gsel::to_text(program->impl); });
  });
}

gsel_str gsel_program_placements(const gsel_program* program) {
  return gsel::query(gsel_str{nullptr, 0}, [&] {
    return gsel::required(program, "program").placements.get([&] { return gsel::placements_table(program->impl); });
  });
}

int32_t gsel_program_length(const gsel_program* program) {
  return program ? static_cast<int32_t>(program->impl.step.size()) : 0;
}

gsel_status gsel_program_instr(const gsel_program* program, int32_t i, gsel_instr* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const auto& step = gsel::required(program, "program").impl.step;
    if (i < 0 || static_cast<size_t>(i) >= step.size())
      gsel::fail(GSEL_ERR_ARG, "instruction {} was asked for; the step has {}", i, step.size());
    gsel::required(out, "out") = step[i];
  });
}

gsel_status gsel_program_verify(const gsel_program* const* programs, int32_t n, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (n < 1) gsel::fail(GSEL_ERR_ARG, "{} programs were given; give one per rank", n);
    std::vector<const gsel::Program*> list;
    gsel::required(programs, "programs");
    for (int32_t i = 0; i < n; ++i) list.push_back(&gsel::required(programs[i], "programs[i]").impl);
    gsel::verify(list);
  });
}

gsel_status gsel_program_traffic(const gsel_program* program, int64_t step, gsel_instr_kind kind, gsel_axis axis,
                                 gsel_comm_count* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel::Program& impl = gsel::required(program, "program").impl;
    const gsel::Traffic traffic = step < 0 ? gsel::setup_traffic(impl) : gsel::step_traffic(impl, step);
    const auto found = traffic.find({axis, kind});
    gsel::write_struct(out, found == traffic.end() ? gsel_comm_count{} : found->second, "gsel_comm_count");
  });
}

void gsel_program_free(gsel_program* program) {
  delete program;
}

}  // extern "C"
