/* unit/test_select_cuda.c: what the CUDA driver makes of its variables, as rows. */
#include "support/selection.h"

#define CUDA .compat = "cuda"
#define MASK "CUDA_VISIBLE_DEVICES="
#define BUS "CUDA_DEVICE_ORDER=PCI_BUS_ID\n"
#define GUIDE "CUDA C++ programming guide, CUDA environment variables"
#define TORCH "pytorch test/test_cuda_nvml_based_avail.py, TestVisibleDeviceParses, matched to driver 525.60.13"
#define NVITOP "nvitop/api/device.py, parse_cuda_visible_devices"
#define MIG_1_0 "MIG-6f11328a-ffda-a610-5a09-a80d49b296b4"
#define MIG_1_1 "MIG-b6485633-f490-1443-360d-61967ca307d7"
#define MIG_2_1 "MIG-23a5fd0e-a5ac-115c-c0ec-34e63db15f09"

static const struct selection_row masks[] = {
    {.source = GUIDE, .machine = "nvidia:4", CUDA, .chosen = "0,1,2,3", .warning = "-"},
    {.source = GUIDE, .machine = "nvidia:4", CUDA, .env = MASK "2,1", .chosen = "2,1", .warning = "-"},
    {.source = GUIDE, .machine = "nvidia:4", CUDA, .env = MASK "0,2,-1,1", .chosen = "0,2"},
    {.source = GUIDE, .machine = "nvidia:4", CUDA, .env = MASK "1,9,0", .chosen = "1"},
    {.source = GUIDE, .machine = "nvidia:4", CUDA, .env = MASK "4", .chosen = "", .warning = "CUDA_ERROR_NO_DEVICE (100)"},
    {.source = "nvitop pull request 26, trace of cuInit", .machine = "nvidia:4", CUDA, .env = MASK, .chosen = "",
     .warning = "CUDA_ERROR_NO_DEVICE (100)"},
    {.source = "ray pull request 7014: a word that cannot parse", .machine = "nvidia:4", CUDA, .env = MASK "NoDevFiles",
     .chosen = ""},
    {.source = "ollama docs/gpu.md: -1 to ignore the GPUs", .machine = "nvidia:4", CUDA, .env = MASK "-1", .chosen = ""},
    {.source = "NVIDIA Container Toolkit words mean nothing here", .machine = "nvidia:4", CUDA, .env = MASK "none",
     .chosen = ""},
    {.source = "NVIDIA Container Toolkit words mean nothing here", .machine = "nvidia:4", CUDA, .env = MASK "all",
     .chosen = ""},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "1gpu2,2ampere", .chosen = "1,2"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "0, 1, 2, -1, 3", .chosen = "0,1,2"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "0, 1, 2, 1", .chosen = ""},
    {.source = TORCH, .machine = "nvidia:8", CUDA, .env = MASK "2, +3, -0, 5", .chosen = "2,3,0,5"},
    {.source = TORCH, .machine = "nvidia:8", CUDA, .env = MASK "one,two,3,4", .chosen = ""},
    {.source = TORCH, .machine = "nvidia:8", CUDA, .env = MASK "4,3,two,one", .chosen = "4,3"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "-", .chosen = ""},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "0,+", .chosen = "0"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "0,,1", .chosen = "0"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK ",0", .chosen = ""},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "0x1", .chosen = "0"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "01", .chosen = "1"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "1.5,2", .chosen = "1,2"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "0,00", .chosen = ""},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK " \t1 ,\t3 ", .chosen = "1,3"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "1-3", .chosen = "1"},
    {.source = TORCH, .machine = "nvidia:4", CUDA, .env = MASK "0;1", .chosen = "0"},
    {.source = "numbers beyond 64 bits are past the end too", .machine = "nvidia:4", CUDA,
     .env = MASK "1,99999999999999999999999999,0", .chosen = "1"},
    {.source = NVITOP ": '0,0' is []", .machine = "nvidia:4", CUDA, .env = MASK "0,0", .chosen = ""},
    {.source = NVITOP ": '16' is []", .machine = "nvidia:8", CUDA, .env = MASK "16", .chosen = ""},
    {.source = NVITOP ": '6,5' is [6, 5]", .machine = "nvidia:8", CUDA, .env = BUS MASK "6,5", .chosen = "6,5", .warning = "-"},
    {.source = "what strict reading says is attached", .machine = "nvidia:4", CUDA, .env = MASK "0,9", .chosen = "0",
     .warning = "OUT_OF_RANGE"},
    {.source = "what strict reading says is attached", .machine = "nvidia:4", CUDA, .env = MASK "0,0", .chosen = "",
     .warning = "DUPLICATE"},
};

static const struct selection_row uuids[] = {
    {.source = GUIDE ": a uuid may be abbreviated", .machine = "torch8", CUDA, .env = MASK "GPU-9e8d35e3", .chosen = "1",
     .warning = "-"},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-e4,GPU-9e8d35e3", .chosen = "2,1"},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-9e8d35e3,GPU-1,GPU-47", .chosen = "1,7,5"},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-123,GPU-9e8d35e3", .chosen = ""},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-9e8d35e3,GPU-123,GPU-47", .chosen = "1"},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-9e8d35e3,GPU-e,GPU-47", .chosen = "1"},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-9e8d35e3,GPU-47,GPU-9e8", .chosen = ""},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-9e8d35e3, 2", .chosen = "1"},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "2,GPU-9e8d35e3", .chosen = "2"},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-e4, GPU-9e8d35e3", .chosen = "2"},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK " GPU-e4", .chosen = ""},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "GPU-9E8D35E3", .chosen = ""},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "gpu-9e8d35e3", .chosen = ""},
    {.source = TORCH, .machine = "torch8", CUDA, .env = MASK "9e8d35e3", .chosen = "", .warning = "CUDA_ERROR_NO_DEVICE"},
    {.source = "a prefix that every device has is ambiguous", .machine = "torch8", CUDA, .env = MASK "GPU-", .chosen = ""},
    {.source = "the whole uuid", .machine = "torch8", CUDA, .env = MASK "GPU-1c20e77d-1c1a-d9ed-fe37-18b8466a78ad",
     .chosen = "7", .warning = "-"},
};

static const struct selection_row instances[] = {
    {.source = "MIG user guide, driver 470.42.01 and later: MIG-<uuid>", .machine = "mig", CUDA, .env = MASK MIG_1_1,
     .chosen = "1:1", .warning = "-"},
    {.source = NVITOP ": MIG-GPU-<uuid>/13/0", .machine = "mig", CUDA,
     .env = MASK "MIG-GPU-0f5d2e76-7cba-560b-7208-0e91a70e89e2/13/0", .chosen = "1:6"},
    {.source = NVITOP ": MIG-GPU-3eb79704/13/0, the GPU abbreviated", .machine = "mig", CUDA,
     .env = MASK "MIG-GPU-f0e0cdb7/3/0", .chosen = "2:1"},
    {.source = "no such instance", .machine = "mig", CUDA, .env = MASK "MIG-GPU-f0e0cdb7/4/0", .chosen = ""},
    {.source = "not the form of an instance", .machine = "mig", CUDA, .env = MASK "MIG-GPU-f0e0cdb7/3", .chosen = ""},
    {.source = "pytorch issue 130181: one instance for a process", .machine = "mig", CUDA, .env = MASK MIG_2_1 "," MIG_1_0,
     .chosen = "2:1", .warning = "one MIG instance"},
    {.source = NVITOP ": a device beside an instance", .machine = "mig", CUDA,
     .env = MASK "GPU-d00961b3," MIG_1_0, .chosen = "1:0", .warning = "one MIG instance"},
    {.source = NVITOP ": a device beside an instance", .machine = "mig", CUDA,
     .env = MASK MIG_1_0 ",GPU-d00961b3", .chosen = "1:0", .warning = "one MIG instance"},
    {.source = NVITOP ": duplicate identifiers", .machine = "mig", CUDA, .env = MASK MIG_1_0 "," MIG_1_0, .chosen = ""},
    {.source = NVITOP ": index of a divided device", .machine = "mig", CUDA, .env = MASK "0,2", .chosen = "2:0",
     .warning = "one MIG instance"},
    {.source = NVITOP ": index of a divided device", .machine = "mig", CUDA, .env = MASK "1,2", .chosen = "1:0"},
    {.source = NVITOP ": whole devices alone", .machine = "mig", CUDA, .env = MASK "3,0", .chosen = "3,0"},
    {.source = NVITOP ": unset", .machine = "mig", CUDA, .chosen = "1:0", .warning = "one MIG instance"},
    {.source = NVITOP ": uuid of a divided device", .machine = "mig", CUDA, .env = MASK "GPU-f0e0", .chosen = "2:0"},
};

static const struct selection_row orders[] = {
    {.source = "pytorch issue 80876: A6000, A6000, 3090, 3090, GV100, TITAN RTX, TITAN RTX", .machine = "unlike7", CUDA,
     .chosen = "3,5,2,6,1,0,4", .warning = "is a guess"},
    {.source = "pytorch issue 80876", .machine = "unlike7", CUDA, .env = "CUDA_DEVICE_ORDER=FASTEST_FIRST",
     .chosen = "3,5,2,6,1,0,4", .warning = "is a guess"},
    {.source = "pytorch issue 80876", .machine = "unlike7", CUDA, .env = MASK "4,0", .chosen = "1,3", .warning = "is a guess"},
    {.source = GUIDE, .machine = "unlike7", CUDA, .env = "CUDA_DEVICE_ORDER=PCI_BUS_ID", .chosen = "0,1,2,3,4,5,6",
     .warning = "-"},
    {.source = GUIDE, .machine = "unlike7", CUDA, .env = BUS MASK "4,0", .chosen = "4,0", .warning = "-"},
    {.source = GUIDE ": other values are not listed", .machine = "unlike7", CUDA, .env = "CUDA_DEVICE_ORDER=pci_bus_id",
     .chosen = "3,5,2,6,1,0,4", .warning = "PCI_BUS_ID and FASTEST_FIRST"},
    {.source = "a uuid needs no order", .machine = "unlike7", CUDA, .env = MASK "GPU-c385,GPU-093c", .chosen = "3,0",
     .warning = "-"},
    {.source = "equal devices have one order", .machine = "a100x8", CUDA, .env = MASK "7,0", .chosen = "7,0", .warning = "-"},
};

static const struct selection_row surroundings[] = {
    {.source = "NVIDIA Container Toolkit: acts at creation", .machine = "nvidia:4", CUDA, .env = "NVIDIA_VISIBLE_DEVICES=2,3",
     .chosen = "0,1,2,3", .warning = "-"},
    {.source = "nvidia-container-toolkit issue 73", .machine = "nvidia:4", CUDA,
     .env = "NVIDIA_VISIBLE_DEVICES=2,3\n" MASK "2,3", .chosen = "2,3", .warning = "repeats NVIDIA_VISIBLE_DEVICES"},
    {.source = "uuids keep their meaning", .machine = "torch8", CUDA, .env = "NVIDIA_VISIBLE_DEVICES=GPU-e4\n" MASK "GPU-e4",
     .chosen = "2", .warning = "-"},
    {.source = "a device that may not be opened is not enumerated", .machine = "guarded4", CUDA, .chosen = "1"},
    {.source = "a device that may not be opened is not enumerated", .machine = "guarded4", CUDA, .env = MASK "0", .chosen = "1"},
    {.source = "no NVIDIA device", .machine = "cpu", CUDA, .chosen = "", .warning = "CUDA_ERROR_NO_DEVICE (100)"},
    {.source = "no NVIDIA device", .machine = "amd:2", CUDA, .env = MASK "0", .chosen = ""},
    {.source = "a request over what CUDA leaves", .machine = "nvidia:4", CUDA, .env = MASK "3,1,2", .devices = "count:2",
     .chosen = "3,1"},
    {.source = "a request over what CUDA leaves", .machine = "nvidia:4", CUDA, .env = MASK "3,1,2", .devices = "visible:1",
     .chosen = "1"},
};

static void test_masks_are_read_as_the_driver_reads_them(void **state) {
  (void)state;
  CHECK_ROWS(masks);
}
static void test_uuids_are_read_as_pytorch_matched_them_to_the_driver(void **state) {
  (void)state;
  CHECK_ROWS(uuids);
}
static void test_a_process_gets_one_mig_instance(void **state) {
  (void)state;
  CHECK_ROWS(instances);
}
static void test_the_order_of_unlike_devices_is_told_to_be_a_guess(void **state) {
  (void)state;
  CHECK_ROWS(orders);
}
static void test_containers_and_permissions_act_before_the_mask(void **state) {
  (void)state;
  CHECK_ROWS(surroundings);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_masks_are_read_as_the_driver_reads_them),
      cmocka_unit_test(test_uuids_are_read_as_pytorch_matched_them_to_the_driver),
      cmocka_unit_test(test_a_process_gets_one_mig_instance),
      cmocka_unit_test(test_the_order_of_unlike_devices_is_told_to_be_a_guess),
      cmocka_unit_test(test_containers_and_permissions_act_before_the_mask),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
