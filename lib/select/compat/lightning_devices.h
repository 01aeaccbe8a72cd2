// select/compat/lightning_devices.h: reads the values of Lightning's devices=, for each accelerator in its own way.
// Does not know machines, only the number of devices.
#pragma once

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

// Indexes for the CUDA and MPS accelerators. `elastic`: torchelastic started this process.
std::vector<LightningIndex> lightning_gpus(const Input& input, const PythonValue& devices, int64_t there, bool elastic,
                                           Trace& trace);
// Indexes for the TPU accelerator.
std::vector<LightningIndex> lightning_tpus(const Input& input, const PythonValue& devices, int64_t there);
// Indexes for the HPU accelerator.
std::vector<LightningIndex> lightning_hpus(const Input& input, const PythonValue& devices);
// Number of processes for the CPU accelerator.
int64_t lightning_processes(const Input& input, const PythonValue& devices);

// find_usable_cuda_devices: returns visible devices, where `usable` says on which a tensor can be allocated.
std::vector<int64_t> lightning_usable(const Input& input, const PythonValue& call, const std::vector<bool>& usable);

}  // namespace gsel
