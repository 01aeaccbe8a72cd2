// comm/hosts/assembly.cc: see assembly.h.
#include "comm/hosts/assembly.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/call/collective.h"

namespace gsel::hosts {
namespace {

// Additional wait of the other ranks of a host for its first rank, which knows the cause; and for each level of the
// tree.
constexpr double kForCauseS = 0.7, kLevelS = 0.3;

gsel_collective bytes_call(gsel_collective_kind kind, const void* send, void* recv, uint64_t count, double timeout_s) {
  gsel_collective call{};
  call.struct_size = sizeof call;
  call.kind = kind;
  call.dtype = GSEL_U8;
  call.root = kind == GSEL_COLLECTIVE_BROADCAST ? 0 : -1;
  call.source = -1;
  call.send = send;
  call.recv = recv;
  call.count = count;
  call.timeout_s = timeout_s;
  return call;
}

Frames::Word word_of(const Head& head, bool alike, bool goes_on) {
  return {head.fingerprint ^ (head.bytes + 1) * 0x9e3779b97f4a7c15u, alike, goes_on};
}

}  // namespace

Head head_of(const shm::Call& call, uint64_t bytes) {
  Head head;
  head.fingerprint = shm::fingerprint(call);
  head.count = call.count;
  head.kind = call.kind;
  head.dtype = call.dtype;
  head.op = call.operation.op;
  head.root = call.root;
  head.bytes = bytes;
  std::memcpy(head.operation, call.operation.name, sizeof head.operation);
  std::memcpy(head.label, call.label, sizeof head.label);
  return head;
}

std::string Assembly::text_of(const Head& head) const {
  if (head.root == kRootOfExchange) {
    for (const std::string_view made : {"split", "dup", "grow"})
      if (head.label == made) return fmt::format("gsel_comm_{}()", made);
    return fmt::format("{} [{} bytes]", head.label, head.bytes);
  }
  const bool is_member = head.root >= 0 && head.root < static_cast<int32_t>(roster_.ranks());
  std::string text = describe(head.kind, head.dtype, head.op, is_member ? roster_.shown(head.root) : head.root,
                              head.count, head.operation[0] ? in_quotes(head.operation) : std::string());
  if (head.label[0]) text += fmt::format(" \"{}\"", head.label);
  return text;
}

gsel_str Assembly::next_label(const Head& head) {
  constexpr uint64_t kNumbers = 100'000;  // so that a label has room for a name
  const auto end = fmt::format_to_n(label_, sizeof label_ - 1, "#{} {}", ++gathered_ % kNumbers,
                                    head.label[0] ? std::string_view(head.label) : collective_name(head.kind));
  return {label_, std::min(end.size, sizeof label_ - 1)};
}

Assembly::Gathered Assembly::gather_here(const Head& head, const void* mine, double timeout_s) {
  const size_t n = roster_.here().size();
  const bool is_short = head.bytes <= kShortBytes;
  Record own{};
  own.head = head;
  if (is_short && head.bytes > 0) std::memcpy(own.payload, mine, head.bytes);
  std::vector<Record> records(n);
  gsel_collective call = bytes_call(GSEL_COLLECTIVE_ALLGATHER, &own, records.data(), sizeof own, timeout_s);
  call.label = next_label(head);
  local_.run(call, nullptr);
  Gathered out;
  for (size_t l = 0; l < n; ++l) merge(out.verdict, {{roster_.here()[l], -1}, {records[l].head, {}}});
  if (!out.alike()) return out;
  out.payloads.resize(n * head.bytes);
  for (size_t l = 0; l < n && is_short && head.bytes > 0; ++l)
    std::memcpy(out.payloads.data() + l * head.bytes, records[l].payload, head.bytes);
  if (!is_short)
    local_.run(bytes_call(GSEL_COLLECTIVE_ALLGATHER, mine, out.payloads.data(), head.bytes, timeout_s), nullptr);
  return out;
}

// The result does not depend on the order of merges.
void Assembly::merge(Verdict& verdict, const Verdict& below) {
  if (verdict.differ[0] < 0) {
    verdict = below;
    return;
  }
  const Verdict& lower = below.differ[0] < verdict.differ[0] ? below : verdict;
  const Verdict& upper = &lower == &below ? verdict : below;
  Verdict merged = lower;
  const auto add = [&](int32_t rank, const Head& head) {
    if (rank < 0 || (merged.differ[1] >= 0 && merged.differ[1] < rank)) return;
    if (head.fingerprint == merged.heads[0].fingerprint && head.bytes == merged.heads[0].bytes) return;
    merged.differ[1] = rank;
    merged.heads[1] = head;
  };
  for (const int i : {0, 1}) add(upper.differ[i], upper.heads[i]);
  verdict = merged;
}

// The payloads are in depth-first order of the tree: those of a host, then those of each subtree below it. Writes them
// in the order of ranks, or the result computed from them.
void Assembly::sort_payloads(const Block& said, char* out, uint64_t bytes) const {
  if (said.size() != roster_.ranks() * bytes)
    fail(GSEL_ERR_INTERNAL, "the other hosts gave {} bytes, expected {} of {} ranks", said.size(), bytes,
         roster_.ranks());
  Block sorted(at_first_ ? said.size() : 0);
  char* const all = at_first_ ? sorted.data() : out;
  const Tree tree = roster_.tree();
  const char* at = said.data();
  std::vector<size_t> hosts{0};
  while (!hosts.empty()) {
    const size_t host = hosts.back();
    hosts.pop_back();
    for (const int32_t q : roster_.on(host)) {
      std::memcpy(all + static_cast<size_t>(q) * bytes, at, bytes);
      at += bytes;
    }
    for (size_t h = tree.end_below(host); h > tree.first_below(host); --h) hosts.push_back(h - 1);
  }
  if (at_first_) at_first_->make(all, out);
}

// On the first rank of a host: agrees with the other hosts, along the tree.
void Assembly::agree(Gathered& here, const Head& head, void* all, double timeout_s) {
  const int64_t deadline = os::now_ns() + static_cast<int64_t>(timeout_s * 1e9);
  const std::string asked = text_of(head);
  const auto below = relay_->receive_below(deadline, asked.c_str());
  if (!below) local_.throw_break_reason();
  Verdict& verdict = here.verdict;
  Block& said = here.payloads;
  for (const Block& block : *below) {
    Verdict theirs;
    if (block.size() < sizeof theirs) fail(GSEL_ERR_INTERNAL, "a host below sent {} bytes", block.size());
    std::memcpy(&theirs, block.data(), sizeof theirs);
    merge(verdict, theirs);
    said.insert(said.end(), block.begin() + sizeof theirs, block.end());
  }
  const auto joined = [&](const void* payloads, uint64_t bytes) {
    Block block(sizeof verdict + (here.alike() ? bytes : 0));
    std::memcpy(block.data(), &verdict, sizeof verdict);
    if (block.size() > sizeof verdict) std::memcpy(block.data() + sizeof verdict, payloads, bytes);
    return block;
  };
  const uint64_t bytes = answer_bytes(head);
  Block own;
  if (roster_.own_host() != 0) {
    own = joined(said.data(), said.size());
  } else {
    if (here.alike() && bytes > 0) sort_payloads(said, static_cast<char*>(all), head.bytes);
    own = joined(all, bytes);
  }
  const auto answer = relay_->exchange_above(std::move(own), deadline, asked.c_str());
  if (!answer) local_.throw_break_reason();
  relay_->send_below(*answer, deadline);
  if (answer->size() < sizeof verdict) fail(GSEL_ERR_INTERNAL, "the host above sent {} bytes", answer->size());
  std::memcpy(&verdict, answer->data(), sizeof verdict);
  if (!here.alike()) return;
  if (answer->size() != sizeof verdict + bytes)
    fail(GSEL_ERR_INTERNAL, "the host above sent {} bytes, expected {}", answer->size(), sizeof verdict + bytes);
  if (bytes > 0 && roster_.own_host() != 0) std::memcpy(all, answer->data() + sizeof verdict, bytes);
}

void Assembly::broadcast_here(void* bytes, uint64_t n, double timeout_s) {
  if (roster_.here().size() > 1) local_.run(bytes_call(GSEL_COLLECTIVE_BROADCAST, bytes, bytes, n, timeout_s), nullptr);
}

// A rank that knows of a failure sends nothing more, so that no other rank believes that it takes part.
void Assembly::begin(const Head& head) {
  local_.throw_break_reason();
  newest_ = head;
  begun_.fetch_add(1, std::memory_order_relaxed);
}

std::string Assembly::text() const {
  return text_of(newest_);
}

void Assembly::gather(const Head& head, const void* mine, void* all, double timeout_s) {
  begin(head);
  if (is_alone_with_frames())
    frames_->send(word_of(head, true, false), [&](size_t) {
      return Frames::Came{static_cast<const char*>(mine), head.bytes};
    });
  settle(gather_here(head, mine, timeout_s), head, all, timeout_s);
}

void Assembly::gather_at_first(const Head& head, const void* mine, AtFirst at_first, char* result, double timeout_s) {
  begin(head);
  struct End {
    const AtFirst*& now;
    ~End() { now = nullptr; }
  };
  at_first_ = &at_first;
  const End end{at_first_};
  settle(gather_here(head, mine, timeout_s), head, result, timeout_s);
}

void Assembly::settle(Gathered here, const Head& head, void* all, double timeout_s) {
  const bool alike_here = here.alike();
  const uint64_t bytes = answer_bytes(head);
  const double for_here_s = timeout_s + kForCauseS + kLevelS * static_cast<double>(roster_.tree().levels_below(0));
  if (relay_) try {
      const int64_t deadline = os::now_ns() + static_cast<int64_t>(timeout_s * 1e9);
      if (!frames_ || !gather_by_frames(here, head, static_cast<char*>(all), deadline))
        agree(here, head, all, timeout_s);
      if (!here.alike() && frames_ && frames_->others_go_on()) throw mismatch(here.verdict);
    } catch (const Error& error) {
      local_.break_with(error);
      local_.throw_break_reason();
    }
  Verdict& verdict = here.verdict;
  if (!alike_here || bytes == 0 || bytes > kWithVerdictBytes) {  // ranks that differ may expect other lengths
    broadcast_here(&verdict, sizeof verdict, for_here_s);
    if (verdict.differ[1] >= 0) throw mismatch(verdict);
    if (bytes > 0) broadcast_here(all, bytes, for_here_s);
    return;
  }
  if (roster_.here().size() > 1) {
    answer_.resize(sizeof verdict + bytes);
    std::memcpy(answer_.data(), &verdict, sizeof verdict);
    if (relay_) std::memcpy(answer_.data() + sizeof verdict, all, bytes);
    broadcast_here(answer_.data(), answer_.size(), for_here_s);
    std::memcpy(&verdict, answer_.data(), sizeof verdict);
  }
  if (verdict.differ[1] >= 0) throw mismatch(verdict);
  if (!relay_) std::memcpy(all, answer_.data() + sizeof verdict, bytes);
}

// ---- by frames: the first rank of a host sends for all its ranks, or each rank for itself ---------------------------

// false: some ranks make another call; the tree then finds which.
bool Assembly::gather_by_frames(const Gathered& here, const Head& head, char* all, int64_t deadline_ns) {
  const Frames::Came of_here{here.payloads.data(), here.alike() ? here.payloads.size() : 0};
  if (!is_alone_with_frames()) frames_->send(word_of(head, here.alike(), false), [&](size_t) { return of_here; });
  if (!frames_->receive(deadline_ns, [&] { return text_of(head); })) return false;
  for (size_t h = 0; h < roster_.hosts() && head.bytes > 0 && all; ++h) {
    const auto& there = roster_.on(h);
    const bool is_own = h == roster_.own_host();
    const Frames::Came came = is_own ? of_here : frames_->from(h);
    if (came.n != there.size() * head.bytes)
      fail(GSEL_ERR_INTERNAL, "{} sent {} bytes for {} ranks", roster_.host_text(h), came.n, there.size());
    for (size_t i = 0; i < there.size(); ++i)
      std::memcpy(all + static_cast<size_t>(there[i]) * head.bytes, came.bytes + i * head.bytes, head.bytes);
  }
  return true;
}

void Assembly::start_gather(const Head& head, double timeout_s) {
  begin(head);
  started_ = StartedGather{head, timeout_s, {}, {}};
  if (is_alone_with_frames()) return;  // finish_gather() sends the frames, so that add() can add bytes
  Gathered here = gather_here(head, nullptr, timeout_s);
  if (!here.alike()) {
    started_.reset();
    return settle(std::move(here), head, nullptr, timeout_s);
  }
  started_->here = std::move(here);
  frames_->send(word_of(head, true, true), [](size_t) { return Frames::Came{nullptr, 0}; });
}

void Assembly::finish_gather() {
  if (!started_) return;
  StartedGather said = *std::exchange(started_, {});
  const double more_s = relay_ ? 0 : kForCauseS;
  const int64_t deadline_ns = os::now_ns() + static_cast<int64_t>((said.timeout_s + more_s) * 1e9);
  try {
    if (is_alone_with_frames()) {
      const auto nothing = [](size_t) { return Frames::Came{nullptr, 0}; };
      if (said.bytes_for)
        frames_->send(word_of(said.head, true, true), said.bytes_for);
      else
        frames_->send(word_of(said.head, true, true), nothing);
      said.here = gather_here(said.head, nullptr, said.timeout_s);
    }
    if (frames_->receive(deadline_ns, [&] { return text_of(said.head); })) return;
    if (relay_) {
      agree(said.here, said.head, nullptr, said.timeout_s);
      throw mismatch(said.here.verdict);
    }
  } catch (const Error& error) {
    local_.break_with(error);
  }
  local_.await_break(static_cast<int64_t>(kForCauseS * 1e9));  // the first rank of the host finds the difference
  local_.throw_break_reason();
  fail(GSEL_ERR_MISMATCH, "{}: another host makes another call; make the calls alike on every rank",
       text_of(said.head));
}

Error Assembly::mismatch(const Verdict& verdict) const {
  const auto [a, b] = verdict.differ;
  const std::string one = text_of(verdict.heads[0]), other = text_of(verdict.heads[1]);
  return Error(GSEL_ERR_MISMATCH,
               fmt::format("{} called {}, {} called {}{}; make the calls alike on every rank", roster_.named(a), one,
                           roster_.named(b), other,
                           one == other ? " with other counts or offsets, or another operation" : ""))
      .about_rank(roster_.shown(b));
}

}  // namespace gsel::hosts
