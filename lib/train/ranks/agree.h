// train/ranks/agree.h: checks, before anything runs, that all ranks were given the same model and settings.
#pragma once

#include <gsel/train.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "model/model.h"

namespace gsel {

// A property that must be equal on all ranks: its name, and fields with name and value as text. A property with a
// single value has one field without a name.
struct Particular {
  struct Field {
    std::string name, value;
    bool operator==(const Field&) const = default;
  };
  std::string name;
  std::vector<Field> fields;

  Particular() = default;
  Particular(std::string n, std::vector<Field> f) : name(std::move(n)), fields(std::move(f)) {}
  Particular(std::string n, std::string value) : name(std::move(n)), fields{{"", std::move(value)}} {}
};
using Particulars = std::vector<Particular>;
// Parameters, values and layers as text fields; flags and kinds by their names in the public headers.
std::vector<Particular::Field> fields_of(const Param& param);
std::vector<Particular::Field> fields_of(const Value& value);
std::vector<Particular::Field> fields_of(const Model& model, const Layer& layer);
std::string needs_text(int32_t needs);  // GSEL_NEEDS_*
Particulars particulars_of(const Model& model);
Particulars particulars_of(const gsel_optimizer_options* optimizer);  // nullptr: train.optimizer

// A collective: n numbers of every rank, by rank.
std::vector<uint64_t> gather_numbers(Communicator& comm, const std::vector<uint64_t>& mine);

// A collective. Compares properties by name. GSEL_ERR_MISMATCH names the first that differs, two ranks, and their
// values; the same on all ranks.
void check_agreement(Communicator& comm, const Particulars& particulars);

// A collective: throws this rank's failure; on other ranks GSEL_ERR_PEER naming a rank that failed. `made`: what the
// ranks tried to make.
void check_all_succeeded(Communicator& comm, const std::optional<Error>& failure, std::string_view made);

// Collectives around local work, so that a rank that fails alone does not leave the others waiting. all_succeed returns
// whether it succeeded on all ranks; on_all_ranks throws as check_all_succeeded does.
bool all_succeed(Communicator& comm, bool mine);
template <class Function>
bool succeeds_on_all_ranks(Communicator& comm, Function&& function) {
  bool mine = true;
  try {
    function();
  } catch (...) {  // the failure is not reported
    mine = false;
  }
  return all_succeed(comm, mine);
}
template <class Function>
void on_all_ranks(Communicator& comm, std::string_view made, Function&& function) {
  std::optional<Error> failure;
  try {
    function();
  } catch (...) {
    failure = current_error();
  }
  check_all_succeeded(comm, failure, made);
}

}  // namespace gsel
