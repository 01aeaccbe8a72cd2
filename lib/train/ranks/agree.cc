// train/ranks/agree.cc: see agree.h. Ranks compare one hash of everything. Only if the hashes differ, they exchange all
// properties, so that every rank finds the same difference and can report the values on both sides.
#include "train/ranks/agree.h"

#include <algorithm>

#include "base/random.h"

namespace gsel {
namespace {

// The first rank whose number differs, or -1.
int32_t first_different(const std::vector<uint64_t>& all, uint64_t number) {
  const auto found = std::ranges::find_if(all, [&](uint64_t n) { return n != number; });
  return found == all.end() ? -1 : static_cast<int32_t>(found - all.begin());
}

// ---- properties as bytes ------------------------------------------------------------------------------------------

void put(std::string& bytes, std::string_view text) {
  bytes += fmt::format("{}:{}", text.size(), text);
}

std::string packed(const Particulars& particulars) {
  std::string bytes;
  for (const Particular& p : particulars) {
    put(bytes, p.name);
    put(bytes, std::to_string(p.fields.size()));
    for (const Particular::Field& field : p.fields) {
      put(bytes, field.name);
      put(bytes, field.value);
    }
  }
  return bytes;
}

std::string take(std::string_view& bytes) {
  const size_t colon = bytes.find(':');
  const auto size = static_cast<size_t>(std::stoull(std::string(bytes.substr(0, colon))));
  std::string text(bytes.substr(colon + 1, size));
  bytes.remove_prefix(colon + 1 + size);
  return text;
}

Particulars unpacked(std::string_view bytes) {
  Particulars result;
  while (!bytes.empty()) {
    Particular& p = result.emplace_back();
    p.name = take(bytes);
    p.fields.resize(static_cast<size_t>(std::stoull(take(bytes))));
    for (Particular::Field& field : p.fields) {
      field.name = take(bytes);
      field.value = take(bytes);
    }
  }
  return result;
}

std::vector<Particulars> gather_particulars(Communicator& comm, const std::string& mine) {
  const std::vector<uint64_t> sizes = gather_numbers(comm, {mine.size()});
  uint64_t total = 0;
  for (uint64_t size : sizes) total += size;
  std::string all(total, '\0');
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLGATHERV, mine.data(), all.data(), 0, GSEL_U8);
  call.recv_counts = sizes.data();
  comm.collective_on_host(call);
  std::vector<Particulars> result;
  uint64_t at = 0;
  for (uint64_t size : sizes) {
    result.push_back(unpacked(std::string_view(all).substr(at, size)));
    at += size;
  }
  return result;
}

// ---- the first difference -----------------------------------------------------------------------------------------

const Particular* find(const Particulars& in, const std::string& name) {
  const auto found = std::ranges::find(in, name, &Particular::name);
  return found == in.end() ? nullptr : &*found;
}

const std::string* find(const Particular& in, const std::string& name) {
  const auto found = std::ranges::find(in.fields, name, &Particular::Field::name);
  return found == in.fields.end() ? nullptr : &found->value;
}

// Between rank 0 and another rank; the text is empty if there is none.
class Difference {
 public:
  Difference(const Particulars& zero, const Particulars& other, int32_t rank)
      : zero_(zero), other_(other), rank_(rank) {}

  // Missing properties come first, since they cause differences in the properties after them.
  std::string text() const {
    std::string found = missing_part(zero_, other_, 0, rank_);
    if (found.empty()) found = missing_part(other_, zero_, rank_, 0);
    if (found.empty()) found = other_value();
    if (found.empty()) found = missing_value(other_, zero_, rank_, 0);
    return found.empty() ? other_order() : found;
  }

 private:
  static bool is_value(const Particular& p) { return p.fields.size() == 1 && p.fields[0].name.empty(); }

  std::string between(const Particular& p) const {
    return fmt::format("{} differs between rank 0 and rank {}: ", p.name, rank_);
  }

  std::string missing_part(const Particulars& has, const Particulars& lacks, int32_t has_it, int32_t lacks_it) const {
    for (const Particular& p : has)
      if (!is_value(p) && !find(lacks, p.name))
        return between(p) + fmt::format("rank {} described it, rank {} did not", has_it, lacks_it);
    return {};
  }

  std::string missing_value(const Particulars& has, const Particulars& lacks, int32_t has_it, int32_t lacks_it) const {
    for (const Particular& p : has)
      if (is_value(p) && !find(lacks, p.name))
        return between(p) + fmt::format("{} on rank {}, not set on rank {}", p.fields[0].value, has_it, lacks_it);
    return {};
  }

  std::string other_value() const {
    for (const Particular& p : zero_) {
      const Particular* q = find(other_, p.name);
      if (!q) return missing_value({p}, other_, 0, rank_);
      for (const Particular::Field& field : p.fields) {
        const std::string* value = find(*q, field.name);
        if (value && *value == field.value) continue;
        return between(p) + fmt::format("{}{} on rank 0, {} on rank {}", field.name.empty() ? "" : field.name + " ",
                                        field.value, value ? *value : "not there", rank_);
      }
    }
    return {};
  }

  std::string other_order() const {
    for (size_t i = 0; i < zero_.size(); ++i)
      if (zero_[i].name != other_[i].name)
        return between(zero_[i]) +
               fmt::format("it comes before {} on rank 0, after it on rank {}", other_[i].name, rank_);
    return {};
  }

  const Particulars& zero_;
  const Particulars& other_;
  const int32_t rank_;
};

}  // namespace

Particulars particulars_of(const Model& model) {
  Particulars result;
  for (const Param& p : model.params()) result.emplace_back("parameter \"" + p.name + "\"", fields_of(p));
  for (const Value& v : model.values()) result.emplace_back("value \"" + v.name + "\"", fields_of(v));
  for (const Layer& l : model.layers()) result.emplace_back("layer \"" + l.name + "\"", fields_of(model, l));
  return result;
}

Particulars particulars_of(const gsel_optimizer_options* optimizer) {
  std::vector<Particular::Field> fields{{"kind", optimizer ? "the embedder's" : "train.optimizer"}};
  if (optimizer) {
    fields.push_back({"n_states", std::to_string(optimizer->n_states)});
    fields.push_back({"needs", needs_text(optimizer->needs)});
  }
  return {Particular("the optimizer", std::move(fields))};
}

std::vector<uint64_t> gather_numbers(Communicator& comm, const std::vector<uint64_t>& mine) {
  std::vector<uint64_t> all(mine.size() * comm.world_size());
  comm.collective_on_host(make_collective(GSEL_COLLECTIVE_ALLGATHER, mine.data(), all.data(), mine.size(), GSEL_U64));
  return all;
}

bool all_succeed(Communicator& comm, bool mine) {
  return first_different(gather_numbers(comm, {mine ? uint64_t{0} : uint64_t{1}}), 0) < 0;
}

void check_all_succeeded(Communicator& comm, const std::optional<Error>& failure, std::string_view made) {
  constexpr size_t kWords = 128;  // the failed flag, and the reason
  std::vector<uint64_t> mine(kWords);
  if (failure) {
    std::string why = failure->message();
    for (auto cause = failure->cause(); cause; cause = cause->cause()) why += ": caused by: " + cause->message();
    mine[0] = 1;
    why.copy(reinterpret_cast<char*>(&mine[1]), (kWords - 1) * sizeof(uint64_t) - 1);
  }
  const std::vector<uint64_t> all = gather_numbers(comm, mine);
  if (failure) throw *failure;
  for (int32_t rank = 0; rank < comm.world_size(); ++rank) {
    const uint64_t* theirs = &all[static_cast<size_t>(rank) * kWords];
    if (theirs[0] != 0)
      throw Error(GSEL_ERR_PEER, fmt::format("rank {} could not make its {}: {}", rank, made,
                                             reinterpret_cast<const char*>(theirs + 1)))
          .about_rank(rank);
  }
}

void check_agreement(Communicator& comm, const Particulars& particulars) {
  const std::string mine = packed(particulars);
  const uint64_t key = derive_key(0, mine);
  if (first_different(gather_numbers(comm, {key}), key) < 0) return;
  const std::vector<Particulars> all = gather_particulars(comm, mine);
  for (int32_t other = 1; other < comm.world_size(); ++other) {
    const std::string text = Difference(all.front(), all[static_cast<size_t>(other)], other).text();
    if (text.empty()) continue;
    throw Error(GSEL_ERR_MISMATCH, text + "; make it alike on every rank").about_rank(comm.rank() == other ? 0 : other);
  }
  fail(GSEL_ERR_INTERNAL, "ranks describe the same model and settings, and the keys of what they describe differ");
}

}  // namespace gsel
