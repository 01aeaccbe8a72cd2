// select/compat/systems.cc: the table of systems whose reading gsel reproduces. Each reading has its own file.
#include "select/compat/compat.h"

namespace gsel {

Reading reading_of(Visible visible, const char* warning, Trace& trace) {
  if (visible.units.empty()) trace.warn(warning);
  Reading out;
  out.units = std::move(visible.units);
  out.hidden_by = std::move(visible.hidden_by);
  return out;
}

const std::vector<System>& systems() {
  static const std::vector<System> all = {
      {"cuda", "the CUDA driver: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER", false, false, true, read_cuda},
      {"torch", "PyTorch before CUDA is up: torch.cuda.device_count()", false, false, true, read_torch},
      {"hip", "ROCr and HIP: ROCR_, HIP_ and CUDA_VISIBLE_DEVICES", false, false, true, read_hip},
      {"ze", "Level Zero and SYCL: ZE_AFFINITY_MASK, ONEAPI_DEVICE_SELECTOR", false, false, true, read_ze},
      {"habana", "Gaudi: HABANA_VISIBLE_MODULES and LOCAL_RANK", false, false, true, read_habana},
      {"ascend", "Ascend: ASCEND_RT_VISIBLE_DEVICES", false, false, true, read_ascend},
      {"vulkan", "llama.cpp, whisper.cpp, ollama over Vulkan: GGML_VK_VISIBLE_DEVICES", false, false, false,
       read_vulkan},
      {"tensorflow", "TensorFlow: set_visible_devices and memory growth", true, false, true, read_tensorflow},
      {"lightning", "Lightning: Trainer(devices=..., accelerator=...)", true, false, true, read_lightning},
      {"torchrun", "torchrun --nproc-per-node", true, false, true, read_torchrun},
      {"accelerate", "accelerate launch --gpu_ids", true, false, true, read_accelerate},
      {"deepspeed", "deepspeed --num_gpus, --include, --exclude, --hostfile", true, true, true, read_deepspeed},
  };
  return all;
}

const System* system_named(std::string_view name) {
  for (const System& row : systems())
    if (name == row.name) return &row;
  return nullptr;
}

}  // namespace gsel
