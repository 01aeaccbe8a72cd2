// select/variables.h: names of the environment variables that several readers of masks share.
#pragma once

namespace gsel {

constexpr const char* kCudaMask = "CUDA_VISIBLE_DEVICES";
constexpr const char* kCudaOrder = "CUDA_DEVICE_ORDER";
constexpr const char* kHipMask = "HIP_VISIBLE_DEVICES";
constexpr const char* kRocrMask = "ROCR_VISIBLE_DEVICES";
constexpr const char* kZeMask = "ZE_AFFINITY_MASK";
constexpr const char* kZeHierarchy = "ZE_FLAT_DEVICE_HIERARCHY";
constexpr const char* kZeOrder = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";
constexpr const char* kOneapiSelector = "ONEAPI_DEVICE_SELECTOR";
constexpr const char* kHabanaModules = "HABANA_VISIBLE_MODULES";
constexpr const char* kHabanaDevices = "HABANA_VISIBLE_DEVICES";
constexpr const char* kAscendMask = "ASCEND_RT_VISIBLE_DEVICES";

}  // namespace gsel
