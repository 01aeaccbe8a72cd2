// train/report/step_record.h: the record of a step as JSON (docs/step.md), and as a file for `gsel trace`. Does not know
// how a step is run.
#pragma once

#include <string>

#include "program/program.h"
#include "train/execute/step_record.h"

namespace gsel {

// The record as a document of docs/step.md; intervals only when `with_intervals`.
std::string to_json(const Program& program, const StepRecord& record, bool with_intervals);

// Writes FOLDER/step-RANK.json atomically. GSEL_ERR_IO naming the file.
void write_timeline(const std::string& folder, const Program& program, const StepRecord& record);

}  // namespace gsel
