// api/trace.cc: the flight recorder and what a call will choose, of gsel/comm.h.
#include "comm/shm/trace/trace.h"

#include <gsel/comm.h>

#include "api/comm_handle.h"
#include "api/init_struct.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"

struct gsel_trace {
  std::string json;
};

extern "C" {

void gsel_comm_explanation_init(gsel_comm_explanation* explanation, size_t struct_size) {
  gsel::init_struct(explanation, struct_size);
}

gsel_status gsel_comm_explain(gsel_comm* comm, const gsel_collective* call, gsel_comm_explanation* out,
                              gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::Communicator& communicator = gsel::required(comm, "comm").impl;
    gsel::write_struct(out, communicator.explain(gsel::read_struct(call, "gsel_collective")), "gsel_comm_explanation");
  });
}

gsel_status gsel_comm_trace(const gsel_comm* comm, gsel_trace** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_trace{gsel::required(comm, "comm").impl.trace()};
  });
}

gsel_status gsel_trace_process(int32_t pid, gsel_trace** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_trace{gsel::shm::trace_of_process(pid)};
  });
}

gsel_str gsel_trace_json(const gsel_trace* trace) {
  return trace ? gsel::borrow(trace->json) : gsel_str{nullptr, 0};
}

void gsel_trace_free(gsel_trace* trace) {
  delete trace;
}

}  // extern "C"
