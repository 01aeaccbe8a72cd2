// variables.cc: see variables.h.
#include "variables.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "client.h"
#include "job.h"

namespace gsel::cli {
namespace {

constexpr std::array<std::string_view, 21> kPrefixes{
    "GSEL_",   "NCCL_", "OMP_",  "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_",   "UCX_",    "GLOO_", "CUDA_",
    "NVIDIA_", "HIP_",  "ROCR_", "HSA_",  "GPU_", "ZE_",  "ONEAPI_",   "HABANA_", "ASCEND_", "RCCL_"};

// Variables that only apply to one host, rank or job; agents set those that their ranks need.
constexpr std::array<std::string_view, 8> kOfHere{"GSEL_HOST_ID", "GSEL_JOB",           "GSEL_JOB_NAME",
                                                  "GSEL_DEVICE",  "GSEL_TOKEN_FILE",    "GSEL_RENDEZVOUS",
                                                  "GSEL_RSH",     "GSEL_RESERVE_FOLDER"};

}  // namespace

std::vector<std::string> chosen_environment() {
  Environment chosen;
  for (const auto& [name, value] : own_environment()) {
    const bool is_chosen =
        std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (is_chosen && !std::ranges::count(kOfHere, name)) chosen.emplace(name, value);
  }
  return lines(chosen);
}

std::vector<std::string> exported(const std::vector<std::string>& names) {
  const Environment own = own_environment();
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const size_t equals = name.find('=');
    if (equals == 0 || name.empty()) refuse(GSEL_ERR_ARG, "-x " + name + ": a name is needed, as NAME or NAME=VALUE");
    if (equals != name.npos) {
      out.push_back(name);
      continue;
    }
    const bool is_prefix = name.ends_with("*");
    const std::string begin = is_prefix ? name.substr(0, name.size() - 1) : name;
    const size_t before = out.size();
    for (const auto& [known, value] : own)
      if (is_prefix ? known.starts_with(begin) : known == begin) out.push_back(known + "=" + value);
    if (out.size() == before)
      refuse(GSEL_ERR_NOT_FOUND, "-x " + name + ": no such variable is set here; set it, or give -x NAME=VALUE");
  }
  return out;
}

}  // namespace gsel::cli
