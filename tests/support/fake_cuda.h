// support/fake_cuda.h: the plugin `cuda` of this build, on this machine's driver or on the double in tests/fake/cuda;
// and `rocm` on that of HIP.
#pragma once

#include <dlfcn.h>
#include <gsel/device.h>

#include <cstdio>
#include <cstdlib>
#include <string>

inline void* open_module(const char* file, int flags) {
  const std::string path = std::string(getenv("GSEL_TEST_BIN")) + file;
  void* module = dlopen(path.c_str(), RTLD_NOW | flags);
  if (module) return module;
  fprintf(stderr, "%s\n", dlerror());
  exit(1);
}

struct CudaPlugin {
  const ::gsel_plugin_v1* plugin;
  const gsel_device_v1* table;

  explicit CudaPlugin(const char* file = "/lib/gsel/plugins-1/cuda.so")
      : plugin(static_cast<const ::gsel_plugin_v1*>(dlsym(open_module(file, RTLD_LOCAL), "gsel_plugin_v1"))),
        table(static_cast<const gsel_device_v1*>(plugin->table)) {}
};

// The double is loaded first: it counts as the driver then.
struct FakeCuda {
  void* driver = open_module("/tests/fixtures/fake_libcuda.so", RTLD_GLOBAL);
  CudaPlugin loaded;
  const ::gsel_plugin_v1* plugin = loaded.plugin;
  const gsel_device_v1* table = loaded.table;

  int current() const { return reinterpret_cast<int (*)()>(dlsym(driver, "fake_cuda_current"))(); }

  // Violations so far, printed; see fake/cuda/machine.h.
  int report() const {
    const auto count = reinterpret_cast<int (*)()>(dlsym(driver, "fake_cuda_violations"));
    const auto text = reinterpret_cast<const char* (*)(int)>(dlsym(driver, "fake_cuda_violation"));
    for (int i = 0; i < count(); ++i) fprintf(stderr, "violation: %s\n", text(i));
    return count();
  }
};

// As it is tested where there is no hipcc, too: see tests/fake/CMakeLists.txt.
struct FakeHip : FakeCuda {
  void* hip = open_module("/tests/fixtures/fake_libamdhip64.so", RTLD_GLOBAL);
  CudaPlugin rocm{"/tests/fixtures/rocm/rocm.so"};

  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(dlsym(hip, name));
  }
};
