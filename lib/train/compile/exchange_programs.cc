// train/compile/exchange_programs.cc: see exchange_programs.h.
#include "train/compile/exchange_programs.h"

#include <algorithm>

#include "base/random.h"
#include "program/simulate/launch_order.h"
#include "program/text/text.h"
#include "program/verify/verify.h"
#include "train/compile/insertions.h"
#include "train/ranks/agree.h"

namespace gsel {
namespace {

// ---- keys -----------------------------------------------------------------------------------------------------

// The program without anything that may differ between ranks of one pipeline coordinate.
Program shape_of(Program program) {
  for (std::vector<gsel_instr>* list : {&program.setup, &program.step})
    for (gsel_instr& instr : *list) {
      if (work_of(instr.kind) != InstrWork::message) continue;
      const bool along = std::ranges::count(program.mesh.group(program.rank, GSEL_AXIS_PIPELINE), instr.peer) > 0;
      instr.peer = along ? program.mesh.coordinate(instr.peer, GSEL_AXIS_PIPELINE)
                         : program.mesh.world_size() + instr.peer;  // the verifier rejects it
    }
  program.rank = 0;
  program.notes.clear();
  for (Microbatch& m : program.microbatches) m = {0, 1, m.whole};
  for (ProgramParam& p : program.params) {
    p.n_elems = p.rows = 1;
    p.shard = {};
  }
  for (ProgramValue& v : program.values) {
    v.sample_bytes = 1;
    v.shard = {};
  }
  for (ProgramLayer& l : program.layers)
    for (std::vector<ProgramPhase>* phases : {&l.forward_phases, &l.backward_phases})
      for (ProgramPhase& phase : *phases) phase.bytes = phase.bytes_per_sample = 0;
  return program;
}

// What ranks of one coordinate on the sharing axis have in common: the model.
Program with_model_alone(Program program) {
  program.rank = 0;
  program.notes.clear();
  program.microbatches.clear();
  program.buckets.clear();
  program.setup.clear();
  program.step.clear();
  return program;
}

uint64_t key_of(const Program& program) {
  return derive_key(0, to_text(program));
}

// What each rank sends to all others first.
struct Head {
  uint64_t shape, model, text_bytes, n_microbatches;
};
constexpr size_t kHeadNumbers = sizeof(Head) / sizeof(uint64_t);

bool alike_but_for_samples(const std::vector<Head>& heads, const Mesh& mesh) {
  auto coordinates_are = [&](int32_t rank, gsel_axis axis, int32_t wanted) {
    return rank + (wanted - mesh.coordinate(rank, axis)) * mesh.stride(axis);
  };
  for (int32_t rank = 0; rank < mesh.world_size(); ++rank) {
    const int32_t of_shape = coordinates_are(coordinates_are(rank, GSEL_AXIS_DATA, 0), mesh.sharing_axis(), 0);
    const int32_t of_model = mesh.sharing_index(rank) * mesh.stride(mesh.sharing_axis());
    if (heads[rank].shape != heads[of_shape].shape || heads[rank].model != heads[of_model].model ||
        heads[rank].n_microbatches != heads[0].n_microbatches)
      return false;
  }
  return true;
}

// ---- sending programs -----------------------------------------------------------------------------------------

std::vector<Head> exchange_heads(Communicator& comm, const Program& own, const std::string& text) {
  const std::vector<uint64_t> all = gather_numbers(comm, {key_of(shape_of(own)), key_of(with_model_alone(own)),
                                                          uint64_t{text.size()}, uint64_t{own.microbatches.size()}});
  std::vector<Head> heads;
  for (size_t i = 0; i < all.size(); i += kHeadNumbers) heads.push_back({all[i], all[i + 1], all[i + 2], all[i + 3]});
  return heads;
}

std::vector<std::vector<Microbatch>> exchange_microbatches(Communicator& comm, const Program& own) {
  std::vector<uint64_t> mine;
  for (const Microbatch& m : own.microbatches)
    for (int64_t number : {m.first, m.count, int64_t{m.whole}}) mine.push_back(static_cast<uint64_t>(number));
  const std::vector<uint64_t> all = gather_numbers(comm, mine);
  std::vector<std::vector<Microbatch>> by_coordinate;
  for (int32_t rank : own.mesh.group(own.rank, GSEL_AXIS_DATA)) {
    std::vector<Microbatch>& microbatches = by_coordinate.emplace_back();
    for (size_t m = 0; m < own.microbatches.size(); ++m) {
      const uint64_t* numbers = &all[static_cast<size_t>(rank) * mine.size() + 3 * m];
      microbatches.push_back({static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1]),
                              static_cast<int32_t>(static_cast<int64_t>(numbers[2]))});
    }
  }
  return by_coordinate;
}

// Pairwise exchange among `ranks`: at each distance, a rank sends to the rank that far after it and receives from the
// rank that far before it. Returns the texts of the others.
std::vector<std::string> exchange_texts(Communicator& comm, const std::vector<int32_t>& ranks, const std::string& text,
                                        const std::vector<Head>& heads) {
  const auto n = ranks.size();
  const auto mine = static_cast<size_t>(std::ranges::find(ranks, comm.rank()) - ranks.begin());
  std::vector<std::string> texts(n);
  for (size_t distance = 1; distance < n; ++distance) {
    const size_t to = (mine + distance) % n, from = (mine + n - distance) % n;
    texts[from].resize(heads[ranks[from]].text_bytes);
    gsel_collective call =
        make_collective(GSEL_COLLECTIVE_SENDRECV, text.data(), texts[from].data(), text.size(), GSEL_U8, 0, ranks[to]);
    call.source = ranks[from];
    call.recv_count = texts[from].size();
    comm.collective_on_host(call);
  }
  return texts;
}

// ---- received programs ----------------------------------------------------------------------------------------

// A parse error in another rank's text is an error in its compiled program.
Program parse_received(const std::string& text) {
  try {
    Program program = parse_program(text, "a program that another rank compiled");
    program.lines.clear();  // text lines are not needed
    return program;
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_PARSE) throw;
    throw Error(GSEL_ERR_PROGRAM, e.message());
  }
}

std::vector<Program> parse_all(const std::vector<std::string>& texts, const Program& own) {
  std::vector<Program> programs;
  for (const std::string& text : texts) programs.push_back(text.empty() ? own : parse_received(text));
  return programs;
}

Job job_of(const std::vector<Program>& programs, const std::vector<Program>& sharing,
           const std::vector<std::vector<Microbatch>>& microbatches) {
  if (microbatches.empty()) return whole_job(programs);
  Job job{{}, {}, microbatches};
  for (const Program& p : programs) job.programs.push_back(&p);
  for (const Program& p : sharing) job.sharing.push_back(&p);
  return job;
}

}  // namespace

ReceivedPrograms exchange_programs(Communicator& comm, const Program& own) {
  const std::string text = to_text(own);
  if (comm.world_size() == 1) return {{""}, {}, {}};
  const std::vector<Head> heads = exchange_heads(comm, own, text);
  if (!alike_but_for_samples(heads, own.mesh)) {
    std::vector<int32_t> all;
    for (int32_t rank = 0; rank < comm.world_size(); ++rank) all.push_back(rank);
    return {exchange_texts(comm, all, text, heads), {}, {}};
  }
  return {exchange_texts(comm, own.mesh.group(own.rank, GSEL_AXIS_PIPELINE), text, heads),
          exchange_texts(comm, own.mesh.group(own.rank, own.mesh.sharing_axis()), text, heads),
          exchange_microbatches(comm, own)};
}

void verify_together(std::vector<Program>& programs, const std::vector<Program>& sharing,
                     const std::vector<std::vector<Microbatch>>& microbatches) {
  place_post_validations(programs);
  const Job job = job_of(programs, sharing, microbatches);
  const int32_t transfers = enough_transfers(job);
  for (Program& p : programs) p.transfers = transfers;
  verify(job);
}

std::vector<Program> verified(const ReceivedPrograms& received, const Program& own, bool on_device) {
  std::vector<Program> programs = parse_all(received.programs, own);
  verify_together(programs, parse_all(received.sharing, own), received.microbatches);
  if (!on_device || own.mesh.size[GSEL_AXIS_PIPELINE] == 1) return programs;
  Job job;
  for (const Program& p : programs) job.programs.push_back(&p);
  std::vector<std::vector<int64_t>> times = launch_times(job);
  for (size_t i = 0; i < programs.size(); ++i) programs[i].launch_times = std::move(times[i]);
  return programs;
}

}  // namespace gsel
