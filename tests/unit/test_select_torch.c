/* unit/test_select_torch.c: what torch.cuda.device_count() makes of the masks before CUDA is up, as rows. */
#include "support/selection.h"

#define TORCH .compat = "torch"
#define MASK "CUDA_VISIBLE_DEVICES="
#define HIP "HIP_VISIBLE_DEVICES="
#define ROCR "ROCR_VISIBLE_DEVICES="
#define PARSES "pytorch test/test_cuda_nvml_based_avail.py, test_env_var_parsing"
#define RESOLVES "pytorch test/test_cuda_nvml_based_avail.py, test_partial_uuid_resolver"
#define COUNTS "pytorch test/test_cuda_nvml_based_avail.py, test_ordinal_parse_visible_devices"
#define SOURCE "torch/cuda/__init__.py, _parse_visible_devices"
#define ROCM "torch/cuda/__init__.py, _parse_visible_devices and _device_count_amdsmi"

/* The upstream tables, whole: a parser's list is read through a machine large enough. */
static const struct selection_row upstream[] = {
    {.source = PARSES, .machine = "nvidia:64", TORCH, .env = MASK "1gpu2,2ampere", .chosen = "1,2"},
    {.source = PARSES, .machine = "nvidia:64", TORCH, .env = MASK "0, 1, 2, -1, 3", .chosen = "0,1,2"},
    {.source = PARSES, .machine = "nvidia:64", TORCH, .env = MASK "0, 1, 2, 1", .chosen = ""},
    {.source = PARSES, .machine = "nvidia:64", TORCH, .env = MASK "2, +3, -0, 5", .chosen = "2,3,0,5"},
    {.source = PARSES, .machine = "nvidia:64", TORCH, .env = MASK "one,two,3,4", .chosen = ""},
    {.source = PARSES, .machine = "nvidia:64", TORCH, .env = MASK "4,3,two,one", .chosen = "4,3"},
    {.source = PARSES, .machine = "torch8", TORCH, .env = MASK "GPU-9e8d35e3", .chosen = "1"},
    {.source = PARSES " (GPU-123, 2)", .machine = "torch8", TORCH, .env = MASK "GPU-9e8d35e3, 2", .chosen = "1"},
    {.source = PARSES " (MIG- is left to the runtime)",
     .machine = "mig",
     TORCH,
     .env = MASK "MIG-b6485633",
     .chosen = "1:1"},
    {.source = RESOLVES, .machine = "torch8", TORCH, .env = MASK "GPU-9e8d35e3", .chosen = "1"},
    {.source = RESOLVES, .machine = "torch8", TORCH, .env = MASK "GPU-e4,GPU-9e8d35e3", .chosen = "2,1"},
    {.source = RESOLVES, .machine = "torch8", TORCH, .env = MASK "GPU-9e8d35e3,GPU-1,GPU-47", .chosen = "1,7,5"},
    {.source = RESOLVES, .machine = "torch8", TORCH, .env = MASK "GPU-123,GPU-9e8d35e3", .chosen = ""},
    {.source = RESOLVES, .machine = "torch8", TORCH, .env = MASK "GPU-9e8d35e3,GPU-123,GPU-47", .chosen = "1"},
    {.source = RESOLVES, .machine = "torch8", TORCH, .env = MASK "GPU-9e8d35e3,GPU-e,GPU-47", .chosen = "1"},
    {.source = RESOLVES, .machine = "torch8", TORCH, .env = MASK "GPU-9e8d35e3,GPU-47,GPU-9e8", .chosen = ""},
    {.source = COUNTS, .machine = "nvidia:2", TORCH, .env = MASK "1, 0", .chosen = "1,0"},
    {.source = COUNTS, .machine = "nvidia:2", TORCH, .env = MASK "1, 5, 0", .chosen = "1"},
};

static const struct selection_row quirks[] = {
    {.source = SOURCE, .machine = "nvidia:4", TORCH, .chosen = "0,1,2,3"},
    {.source = SOURCE ": 64 candidates",
     .machine = "nvidia:66",
     TORCH,
     .chosen =
         "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,"
         "38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63"},
    {.source = SOURCE, .machine = "nvidia:4", TORCH, .env = MASK, .chosen = "", .warning = "returns 0"},
    {.source = SOURCE ": int('-')",
     .machine = "nvidia:4",
     TORCH,
     .env = MASK "-",
     .code = GSEL_ERR_SYNTAX,
     .token = "-",
     .column = 1,
     .message = "ValueError"},
    {.source = SOURCE ": int('+')",
     .machine = "nvidia:4",
     TORCH,
     .env = MASK "+",
     .code = GSEL_ERR_SYNTAX,
     .token = "+",
     .column = 1,
     .message = "ValueError: invalid literal for int() with base 10: '+'"},
    {.source = SOURCE ": int('-')",
     .machine = "nvidia:4",
     TORCH,
     .env = MASK "0,-",
     .code = GSEL_ERR_SYNTAX,
     .token = "-",
     .column = 3,
     .message = "ValueError"},
    {.source = SOURCE ": int('-') of -x",
     .machine = "nvidia:4",
     TORCH,
     .env = MASK "1,-x",
     .code = GSEL_ERR_SYNTAX,
     .token = "-x",
     .column = 3},
    {.source = SOURCE ": over before the sign", .machine = "nvidia:4", TORCH, .env = MASK "1,-1,-", .chosen = "1"},
    {.source = SOURCE, .machine = "nvidia:4", TORCH, .env = MASK "0x1", .chosen = "0"},
    {.source = SOURCE, .machine = "nvidia:4", TORCH, .env = MASK "1.5", .chosen = "1"},
    {.source = SOURCE, .machine = "nvidia:4", TORCH, .env = MASK "01", .chosen = "1"},
    {.source = SOURCE, .machine = "nvidia:4", TORCH, .env = MASK "0,00", .chosen = ""},
    {.source = SOURCE, .machine = "nvidia:4", TORCH, .env = MASK "0,,1", .chosen = "0"},
    {.source = SOURCE ": repeated before the cut", .machine = "nvidia:4", TORCH, .env = MASK "0,9,0", .chosen = ""},
    {.source = SOURCE ": Python integers do not overflow",
     .machine = "nvidia:4",
     TORCH,
     .env = MASK "0,99999999999999999999,99999999999999999998",
     .chosen = "0"},
    {.source = SOURCE, .machine = "torch8", TORCH, .env = MASK "GPU-e4, GPU-9e8d35e3", .chosen = "2"},
    {.source = SOURCE, .machine = "torch8", TORCH, .env = MASK " GPU-e4", .chosen = ""},
    {.source = SOURCE, .machine = "torch8", TORCH, .env = MASK "GPU-E4", .chosen = ""},
    {.source = SOURCE ": repeated text is void before it is looked up",
     .machine = "torch8",
     TORCH,
     .env = MASK "GPU-e4,GPU-123,GPU-123",
     .chosen = ""},
    {.source = SOURCE, .machine = "torch8", TORCH, .env = MASK "GPU-e4,MIG-123", .chosen = "2"},
    {.source = "pytorch issue 95784: MIG counted 0 before the runtime was asked",
     .machine = "mig",
     TORCH,
     .env = MASK "MIG-GPU-f0e0cdb7/3/0",
     .chosen = "2:1"},
    {.source = SOURCE ": a void list is not left to the runtime",
     .machine = "mig",
     TORCH,
     .env = MASK "MIG-b6485633,MIG-b6485633",
     .chosen = ""},
    {.source = SOURCE ": NVML knows no MIG",
     .machine = "mig",
     TORCH,
     .env = MASK "1,0",
     .chosen = "1,0",
     .warning = "neither MIG nor permissions"},
    {.source = SOURCE ": NVML order",
     .machine = "unlike7",
     TORCH,
     .env = MASK "4,0",
     .chosen = "4,0",
     .warning = "ignores CUDA_DEVICE_ORDER"},
    {.source = SOURCE ": NVML order",
     .machine = "unlike7",
     TORCH,
     .env = "CUDA_DEVICE_ORDER=FASTEST_FIRST\n" MASK "0",
     .chosen = "0",
     .warning = "ignores CUDA_DEVICE_ORDER"},
    {.source = "no device", .machine = "cpu", TORCH, .chosen = "", .warning = "returns 0"},
    {.source = SOURCE ": a CUDA build reads no HIP variable",
     .machine = "nvidia:4",
     TORCH,
     .env = HIP "1\n" ROCR "2",
     .chosen = "0,1,2,3"},
};

static const struct selection_row rocm[] = {
    {.source = ROCM, .machine = "amd:4", TORCH, .chosen = "0,1,2,3"},
    {.source = ROCM, .machine = "amd:4", TORCH, .env = MASK "2,1", .chosen = "2,1"},
    {.source = ROCM ": HIP beats CUDA", .machine = "amd:4", TORCH, .env = HIP "3\n" MASK "0,1", .chosen = "3"},
    {.source = ROCM ": an empty HIP mask is a mask",
     .machine = "amd:4",
     TORCH,
     .env = HIP "\n" MASK "0,1",
     .chosen = ""},
    {.source = ROCM ": ROCR alone is counted",
     .machine = "amd:4",
     TORCH,
     .env = ROCR "3,2",
     .chosen = "0,1",
     .warning = "as many devices as there are fields"},
    {.source = ROCM ": ROCR alone is counted", .machine = "amd:4", TORCH, .env = ROCR "nonsense", .chosen = "0"},
    {.source = ROCM ": an empty ROCR has one field",
     .machine = "amd:4",
     TORCH,
     .env = ROCR,
     .chosen = "0",
     .warning = "as many devices"},
    {.source = ROCM ": cut to what there is", .machine = "amd:2", TORCH, .env = ROCR "0,1,2,3", .chosen = "0,1"},
    {.source = ROCM ": ROCR hides CUDA", .machine = "amd:4", TORCH, .env = ROCR "1\n" MASK "2,3", .chosen = "0"},
    {.source = ROCM,
     .machine = "amd:4",
     TORCH,
     .env = ROCR "1\n" HIP "0,1",
     .code = GSEL_ERR_CONFLICT,
     .token = "0,1",
     .message = "RuntimeError: HIP_VISIBLE_DEVICES contains more devices than ROCR_VISIBLE_DEVICES"},
    {.source = ROCM, .machine = "amd:4", TORCH, .env = ROCR "2,3\n" HIP "1", .chosen = "1", .warning = "as if ROCR"},
    {.source = ROCM ": serials in lower case",
     .machine = "mi300x8",
     TORCH,
     .env = HIP "GPU-7bee,GPU-5d6a",
     .chosen = "1,7"},
    {.source = ROCM ": serials in lower case", .machine = "mi300x8", TORCH, .env = HIP "GPU-7BEE", .chosen = ""},
    {.source = ROCM ": ambiguous", .machine = "mi300x8", TORCH, .env = HIP "GPU-5d,GPU-7", .chosen = "7"},
    {.source = ROCM ": no MIG", .machine = "mi300x8", TORCH, .env = HIP "MIG-5d", .chosen = ""},
    {.source = ROCM ": int('-')", .machine = "amd:4", TORCH, .env = HIP "0,-", .code = GSEL_ERR_SYNTAX, .column = 3},
    {.source = "a CUDA build where NVIDIA devices are", .machine = "beside", TORCH, .env = HIP "0", .chosen = "0,1"},
    {.source = "a ROCm build when asked for",
     .machine = "beside",
     TORCH,
     .accelerator = "hip",
     .env = HIP "0",
     .chosen = "2"},
};

static void test_the_upstream_tables_hold(void** state) {
  (void)state;
  CHECK_ROWS(upstream);
}
static void test_quirks_of_the_parser_hold(void** state) {
  (void)state;
  CHECK_ROWS(quirks);
}
static void test_rocm_builds_read_three_variables(void** state) {
  (void)state;
  CHECK_ROWS(rocm);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_upstream_tables_hold),
      cmocka_unit_test(test_quirks_of_the_parser_hold),
      cmocka_unit_test(test_rocm_builds_read_three_variables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
