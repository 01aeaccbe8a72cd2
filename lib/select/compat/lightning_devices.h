// select/compat/lightning_devices.h: reads the values of Lightning's devices=, for each accelerator in its own way.
// Does not know machines, only the number of devices.
#pragma once

#include <string>
#include <vector>

#include "select/compat/python_literal.h"
#include "select/words/tokens.h"

namespace gsel {

// A number that devices= yields, and where it was written.
struct LightningIndex {
  int64_t value = 0;
  Token token;
  const char* rule = "";
};

// A Python literal, the bare word auto, or find_usable(n), whose n is the first item. GSEL_ERR_SYNTAX.
PythonValue parse_lightning_devices(const Input& input);

// Of the CUDA and MPS accelerators. `elastic`: torchelastic started this process.
std::vector<LightningIndex> lightning_gpus(const Input& input, const PythonValue& devices, int64_t there, bool elastic,
                                           Trace& trace);
// Of the TPU accelerator.
std::vector<LightningIndex> lightning_tpus(const Input& input, const PythonValue& devices, int64_t there);
// Of the HPU accelerator.
std::vector<LightningIndex> lightning_hpus(const Input& input, const PythonValue& devices);
// Of the CPU accelerator: how many processes.
int64_t lightning_processes(const Input& input, const PythonValue& devices);

// find_usable_cuda_devices: returns visible devices, where `usable` says on which a tensor can be allocated.
std::vector<int64_t> lightning_usable(const Input& input, const PythonValue& call, const std::vector<bool>& usable);

}  // namespace gsel
