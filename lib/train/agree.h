// train/agree.h: whether all ranks were given the same model and settings, asked before anything runs.
#pragma once

#include <gsel/train.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "model/model.h"
#include "program/program.h"

namespace gsel {

// Things that must be alike on all ranks: what to call it, and how it reads here.
using Particulars = std::vector<std::pair<std::string, std::string>>;
Particulars particulars_of(const Model& model);
Particulars particulars_of(const gsel_optimizer_options* optimizer);  // nullptr: train.optimizer

// Of what all ranks are to run, as this one made it.
uint64_t agreement_key(std::span<const Program> programs);

// A collective. GSEL_ERR_MISMATCH names the first particular that differs, how it reads here, and a rank that differs.
void check_agreement(Communicator& comm, const Particulars& particulars);

// A collective: throws this rank's failure, or GSEL_ERR_PEER naming a rank that failed, on every rank. `made` is what
// each was to make.
void check_all_succeeded(Communicator& comm, const std::optional<Error>& failure, std::string_view made);

}  // namespace gsel
