// comm/hosts/table_code.cc: see roster.h. Each list is a number of runs, followed by the runs.
#include <algorithm>
#include <cstring>
#include <limits>

#include "comm/hosts/roster.h"

namespace gsel::hosts {
namespace {

// `hosts` consecutive hosts from `host`, with `ranks` ranks each.
struct RankRun {
  int32_t host;
  uint32_t hosts, ranks;
};
// `count` texts. The first has `bytes` bytes, which follow; its last number grows by `step` for each further text.
struct TextRun {
  uint32_t count;
  uint16_t bytes, step;
};

class Writer {
 public:
  template <class T>
  void put(const T& object) {
    put(&object, sizeof object);
  }
  void put(const void* bytes, size_t n) {
    const auto* at = static_cast<const char*>(bytes);
    code.insert(code.end(), at, at + n);
  }
  std::vector<char> code;
};

class Reader {
 public:
  explicit Reader(const std::vector<char>& code) : code_(code) {}
  template <class T>
  bool get(T& object) {
    return get(&object, sizeof object);
  }
  bool get(void* bytes, size_t n) {
    if (code_.size() - at_ < n) return false;
    std::memcpy(bytes, code_.data() + at_, n);
    at_ += n;
    return true;
  }
  bool is_over() const { return at_ == code_.size(); }

 private:
  const std::vector<char>& code_;
  size_t at_ = 0;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The text with its last number increased, with at least as many digits; empty if it has no number and by > 0.
std::string counted_up(const std::string& text, uint64_t by) {
  constexpr size_t kMostDigits = 18;
  size_t end = text.size();
  while (end > 0 && !is_digit(text[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && end - begin < kMostDigits && is_digit(text[begin - 1])) --begin;
  if (begin == end) return by == 0 ? text : std::string();
  std::string digits = std::to_string(std::stoull(text.substr(begin, end - begin)) + by);
  if (digits.size() < end - begin) digits.insert(0, end - begin - digits.size(), '0');
  return text.substr(0, begin) + digits + text.substr(end);
}

std::vector<RankRun> runs_of(const std::vector<int32_t>& host_of) {
  std::vector<RankRun> runs;
  for (size_t q = 0; q < host_of.size();) {
    RankRun run{host_of[q], 1, 0};
    for (; q < host_of.size() && host_of[q] == run.host; ++q) ++run.ranks;
    if (!runs.empty() && runs.back().ranks == run.ranks &&
        static_cast<int64_t>(runs.back().host) + runs.back().hosts == run.host)
      ++runs.back().hosts;
    else
      runs.push_back(run);
  }
  return runs;
}

void put_texts(Writer& out, const std::vector<std::string>& texts) {
  std::vector<std::pair<TextRun, const std::string*>> runs;
  for (size_t i = 0; i < texts.size();) {
    const std::string& first = texts[i];
    TextRun run{1, static_cast<uint16_t>(std::min<size_t>(first.size(), std::numeric_limits<uint16_t>::max())), 1};
    if (i + 1 < texts.size() && texts[i + 1] == first) run.step = 0;
    while (i + run.count < texts.size() && texts[i + run.count] == counted_up(first, uint64_t{run.count} * run.step))
      ++run.count;
    runs.emplace_back(run, &first);
    i += run.count;
  }
  out.put(static_cast<uint32_t>(runs.size()));
  for (const auto& [run, text] : runs) {
    out.put(run);
    out.put(text->data(), run.bytes);
  }
}

bool get_texts(Reader& in, size_t most, std::vector<std::string>& texts) {
  uint32_t runs = 0;
  if (!in.get(runs)) return false;
  for (; runs > 0; --runs) {
    TextRun run{};
    if (!in.get(run) || run.count > most - texts.size()) return false;
    std::string text(run.bytes, '\0');
    if (!in.get(text.data(), text.size())) return false;
    for (uint64_t i = 0; i < run.count; ++i) texts.push_back(counted_up(text, i * run.step));
  }
  return true;
}

}  // namespace

std::vector<char> encode_table(const HostTable& table) {
  Writer out;
  const std::vector<RankRun> runs = runs_of(table.host_of);
  out.put(static_cast<uint32_t>(runs.size()));
  out.put(runs.data(), runs.size() * sizeof runs[0]);
  put_texts(out, table.names);
  put_texts(out, table.addresses);
  return std::move(out.code);
}

std::optional<HostTable> decode_table(const std::vector<char>& code, size_t ranks) {
  HostTable table;
  Reader in(code);
  uint32_t runs = 0;
  if (!in.get(runs)) return {};
  for (; runs > 0; --runs) {
    RankRun run{};
    if (!in.get(run) || run.ranks == 0 || uint64_t{run.hosts} * run.ranks > ranks - table.host_of.size() ||
        run.host < 0 || static_cast<size_t>(run.host) + run.hosts > ranks)
      return {};
    for (uint32_t h = 0; h < run.hosts; ++h)
      table.host_of.insert(table.host_of.end(), run.ranks, run.host + static_cast<int32_t>(h));
  }
  if (!get_texts(in, ranks, table.names) || !get_texts(in, ranks, table.addresses) || !in.is_over()) return {};
  const auto hosts = static_cast<int32_t>(table.names.size());
  if (table.host_of.size() != ranks || table.addresses.size() != table.names.size() ||
      std::ranges::any_of(table.host_of, [&](int32_t host) { return host >= hosts; }))
    return {};
  return table;
}

}  // namespace gsel::hosts
