// train/compile/exchange_programs.cc: see exchange_programs.h.
#include "train/compile/exchange_programs.h"

#include <algorithm>
#include <tuple>

#include "base/random.h"
#include "program/optimistic.h"
#include "program/simulate/launch_order.h"
#include "program/stages.h"
#include "program/text/text.h"
#include "program/verify/verify.h"
#include "train/ranks/agree.h"

namespace gsel {

// ---- sums over the sharing axis and the pipeline -------------------------------------------------------------------

namespace {

// In order of classes, then parameters, since bucket ids differ between pipeline ranks. is_summed: by bucket.
std::vector<int32_t> buckets_that(const Program& program, const std::vector<int32_t>& class_of,
                                  const std::vector<bool>& is_summed) {
  std::vector<std::tuple<int32_t, int32_t, int32_t>> found;
  for (int32_t b = 0; b < static_cast<int32_t>(program.buckets.size()); ++b) {
    const std::vector<int32_t>& params = program.buckets[b].params;
    if (is_summed[b]) found.emplace_back(class_of[params.front()], *std::ranges::min_element(params), b);
  }
  std::ranges::sort(found);
  std::vector<int32_t> buckets;
  for (const auto& [of_class, param, bucket] : found) buckets.push_back(bucket);
  return buckets;
}

bool looks_at_gradients(const gsel_instr& instr, const std::vector<int32_t>& summed) {
  return task_of(instr.kind) == InstrTask::check ||
         (task_of(instr.kind) == InstrTask::step && std::ranges::count(summed, instr.bucket));
}

bool reduces(gsel_instr_kind kind) {
  return task_of(kind) == InstrTask::gradients;
}

// Whether a reduction of the bucket is under way at the end of these instructions.
bool is_reducing(const std::vector<gsel_instr>& instrs, int32_t bucket) {
  const auto last = std::ranges::find_if(instrs.rbegin(), instrs.rend(), [&](const gsel_instr& instr) {
    return instr.bucket == bucket && (reduces(instr.kind) || task_of(instr.kind) == InstrTask::wait);
  });
  return last != instrs.rend() && reduces(last->kind);
}

// Moves the WAIT of a bucket's reduction under way from tail to the end of head.
void wait_first(std::vector<gsel_instr>& head, std::vector<gsel_instr>& tail, int32_t bucket) {
  if (!is_reducing(head, bucket)) return;
  const auto wait = std::ranges::find_if(
      tail, [&](const gsel_instr& i) { return task_of(i.kind) == InstrTask::wait && i.bucket == bucket; });
  if (wait == tail.end()) return;
  head.push_back(*wait);
  tail.erase(wait);
}

}  // namespace

void insert_tied_reductions(Program& program) {
  const std::vector<int32_t> class_of = class_of_params(program);
  std::vector<bool> over_sharing;
  for (size_t b = 0; b < program.buckets.size(); ++b)
    over_sharing.push_back(sums_partial(program, static_cast<int32_t>(b)));
  const std::vector<int32_t> partial = buckets_that(program, class_of, over_sharing),
                             tied = buckets_that(program, class_of, sums_tied(program));
  std::vector<int32_t> summed = partial;
  summed.insert(summed.end(), tied.begin(), tied.end());
  if (summed.empty()) return;
  const auto looks =
      std::ranges::find_if(program.step, [&](const gsel_instr& instr) { return looks_at_gradients(instr, summed); });
  std::vector<gsel_instr> head(program.step.begin(), looks), tail(looks, program.step.end());
  for (size_t i = 0; i < summed.size(); ++i) {
    const bool over_tensor = i < partial.size();
    wait_first(head, tail, summed[i]);
    gsel_instr sum = make_instr(over_tensor ? GSEL_INSTR_ALLREDUCE_PARTIAL : GSEL_INSTR_ALLREDUCE_TIED);
    sum.bucket = summed[i];
    if (over_tensor) sum.axis = program.mesh.sharing_axis();
    head.push_back(sum);
  }
  head.insert(head.end(), tail.begin(), tail.end());
  program.step = std::move(head);
}

// ---- POST_VALIDATE -------------------------------------------------------------------------------------------------

namespace {

// Whether a SEND goes to the next stage, whose rank waits for it. Otherwise the value skips stages and is read later.
bool goes_to_next_stage(const Program& program, int32_t position) {
  int32_t i = position;
  const auto is_forward = [](const gsel_instr& instr) {
    const InstrRow& row = instr_row(instr.kind);
    return row.task == InstrTask::forward && !row.recomputes;
  };
  while (i >= 0 && !is_forward(program.step[i])) --i;
  if (i < 0) return true;
  const auto next = static_cast<size_t>(program.layers[program.step[i].layer].stage) + 1;
  return next < program.rank_of_stage.size() &&
         program.rank_of_stage[next] == program.mesh.coordinate(program.step[position].peer, GSEL_AXIS_PIPELINE);
}

// The first message that crosses validation and cannot be held back; -1: none.
int32_t first_crossing(const PostValidations& all, size_t i) {
  int32_t first = -1;
  for (const bool sends : {true, false})
    for (int32_t position : all.crossing(i, sends)) {
      if (sends && !goes_to_next_stage(*all.programs[i], position)) continue;
      if (first < 0 || position < first) first = position;
    }
  return first;
}

// Puts POST_VALIDATE before the instruction at `end`, and after it the instructions that are held back.
void put_in_place(Program& program, int32_t end, const std::vector<int32_t>& held) {
  std::vector<gsel_instr> step;
  for (int32_t i = 0; i < end; ++i)
    if (!std::ranges::binary_search(held, i)) step.push_back(program.step[i]);
  step.push_back(make_instr(GSEL_INSTR_POST_VALIDATE));
  for (int32_t i : held) step.push_back(program.step[i]);
  for (size_t i = static_cast<size_t>(end); i < program.step.size(); ++i)
    if (task_of(program.step[i].kind) != InstrTask::post_validate) step.push_back(program.step[i]);
  program.step = std::move(step);
  program.lines.clear();
}

}  // namespace

void place_post_validations(std::span<Program> programs) {
  PostValidations all;
  for (const Program& program : programs) {
    all.programs.push_back(&program);
    all.ends.push_back(post_validate_position(program));
  }
  if (std::ranges::count(all.ends, -1)) return;  // no optimistic step, or an error that the verifier reports
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < programs.size(); ++i) {
      const int32_t at = first_crossing(all, i);
      if (at < 0) continue;
      all.ends[i] = at;
      moved = true;
    }
  }
  std::vector<std::vector<int32_t>> held;
  for (size_t i = 0; i < programs.size(); ++i) held.push_back(all.crossing(i, true));
  for (size_t i = 0; i < programs.size(); ++i) put_in_place(programs[i], all.ends[i], held[i]);
}

// ---- programs of other ranks ---------------------------------------------------------------------------------------

namespace {

// ---- keys -----------------------------------------------------------------------------------------------------

// The program without anything that may differ between ranks of one pipeline coordinate.
Program shape_of(Program program) {
  for (std::vector<gsel_instr>* list : {&program.setup, &program.step})
    for (gsel_instr& instr : *list) {
      if (task_of(instr.kind) != InstrTask::message) continue;
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
