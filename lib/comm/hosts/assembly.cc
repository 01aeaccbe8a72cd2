// comm/hosts/assembly.cc: see assembly.h.
#include "comm/hosts/assembly.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/os.h"
#include "comm/collective.h"

namespace gsel::hosts {
namespace {

constexpr size_t kShortBytes = 168;  // travel with the head: 256 bytes in all
constexpr uint64_t kWithVerdictBytes = 65536;
constexpr double kForCauseS = 1;  // the other ranks of a host wait this much longer than its first, which learns why

std::string text_of(const Head& head) {
  if (head.label[0] && head.kind == GSEL_COLLECTIVE_ALLGATHER && head.dtype == GSEL_U8 && head.root == -1)
    return fmt::format("{} [{} bytes]", head.label, head.bytes);
  std::string text = describe(head.kind, head.dtype, head.op, head.root, head.count, head.operation);
  if (head.label[0]) text += fmt::format(" [{}]", head.label);
  return text;
}

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

gsel_str Assembly::next_label(const Head& head) {
  constexpr uint64_t kNumbers = 100'000;  // so that a label has room for a name
  const auto end = fmt::format_to_n(label_, sizeof label_ - 1, "#{} {}", ++gathered_ % kNumbers,
                                    head.label[0] ? std::string_view(head.label) : collective_name(head.kind));
  return {label_, std::min(end.size, sizeof label_ - 1)};
}

Assembly::Gathered Assembly::gather_here(const Head& head, const void* mine, double timeout_s) {
  struct Record {
    Head head;
    char payload[kShortBytes];
  };
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
  for (const Record& record : records)
    out.alike = out.alike && record.head.fingerprint == head.fingerprint && record.head.bytes == head.bytes;
  const size_t heads = n * sizeof(Head);
  out.block.resize(heads + (out.alike ? n * head.bytes : 0));
  for (size_t l = 0; l < n; ++l) {
    std::memcpy(out.block.data() + l * sizeof(Head), &records[l].head, sizeof(Head));
    if (out.alike && is_short && head.bytes > 0)
      std::memcpy(out.block.data() + heads + l * head.bytes, records[l].payload, head.bytes);
  }
  if (out.alike && !is_short)
    local_.run(bytes_call(GSEL_COLLECTIVE_ALLGATHER, mine, out.block.data() + heads, head.bytes, timeout_s), nullptr);
  return out;
}

Assembly::Verdict Assembly::compare(const std::vector<Block>& blocks, char* all, uint64_t bytes) const {
  std::vector<Head> heads(roster_.ranks());
  for (size_t h = 0; h < blocks.size(); ++h) {
    const auto& there = roster_.on(h);
    const char* at = blocks[h].data();
    if (blocks[h].size() < there.size() * sizeof(Head))
      fail(GSEL_ERR_INTERNAL, "{} sent {} bytes for {} ranks", roster_.host_text(h), blocks[h].size(), there.size());
    for (const int32_t q : there) {
      std::memcpy(&heads[static_cast<size_t>(q)], at, sizeof(Head));
      at += sizeof(Head);
    }
  }
  Verdict verdict;
  const auto differs = std::ranges::find_if(heads, [&](const Head& head) {
    return head.fingerprint != heads[0].fingerprint || head.bytes != heads[0].bytes;
  });
  if (differs != heads.end()) {
    verdict.differ[0] = 0;
    verdict.differ[1] = static_cast<int32_t>(differs - heads.begin());
    verdict.heads[0] = heads[0];
    verdict.heads[1] = *differs;
    return verdict;
  }
  for (size_t h = 0; h < blocks.size() && bytes > 0; ++h) {
    const auto& there = roster_.on(h);
    const char* at = blocks[h].data() + there.size() * sizeof(Head);
    if (blocks[h].size() != there.size() * (sizeof(Head) + bytes))
      fail(GSEL_ERR_INTERNAL, "{} sent {} bytes for {} ranks", roster_.host_text(h), blocks[h].size(), there.size());
    for (const int32_t q : there) {
      std::memcpy(all + static_cast<size_t>(q) * bytes, at, bytes);
      at += bytes;
    }
  }
  return verdict;
}

void Assembly::broadcast_here(void* bytes, uint64_t n, double timeout_s) {
  if (roster_.here().size() > 1) local_.run(bytes_call(GSEL_COLLECTIVE_BROADCAST, bytes, bytes, n, timeout_s), nullptr);
}

void Assembly::gather(const Head& head, const void* mine, void* all, double timeout_s) {
  Gathered here = gather_here(head, mine, timeout_s);
  const uint64_t bytes = roster_.ranks() * head.bytes;
  Verdict verdict;
  if (star_) try {
      const int64_t deadline = os::now_ns() + static_cast<int64_t>(timeout_s * 1e9);
      const auto blocks = star_->swap(std::move(here.block), deadline, text_of(head).c_str());
      if (!blocks) local_.throw_what_broke();
      verdict = compare(*blocks, static_cast<char*>(all), head.bytes);
    } catch (const Error& error) {
      local_.break_with(error);
      local_.throw_what_broke();
    }
  if (!here.alike || bytes == 0 || bytes > kWithVerdictBytes) {  // ranks here that differ expect other lengths
    broadcast_here(&verdict, sizeof verdict, timeout_s + kForCauseS);
    if (verdict.differ[1] >= 0) fail_mismatch(verdict);
    if (bytes > 0) broadcast_here(all, bytes, timeout_s + kForCauseS);
    return;
  }
  answer_.resize(sizeof verdict + bytes);
  std::memcpy(answer_.data(), &verdict, sizeof verdict);
  if (star_) std::memcpy(answer_.data() + sizeof verdict, all, bytes);
  broadcast_here(answer_.data(), answer_.size(), timeout_s + kForCauseS);
  std::memcpy(&verdict, answer_.data(), sizeof verdict);
  if (verdict.differ[1] >= 0) fail_mismatch(verdict);
  if (!star_) std::memcpy(all, answer_.data() + sizeof verdict, bytes);
}

void Assembly::fail_mismatch(const Verdict& verdict) const {
  const auto [a, b] = verdict.differ;
  throw Error(GSEL_ERR_MISMATCH,
              fmt::format("{} called {}, {} called {}; make the calls alike on every rank", roster_.named(a),
                          text_of(verdict.heads[0]), roster_.named(b), text_of(verdict.heads[1])))
      .about_rank(roster_.shown(b));
}

}  // namespace gsel::hosts
