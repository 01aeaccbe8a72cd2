/* unit/test_select_hip.c: the masks of AMD devices, as ROCr and HIP read them, strictly, and as they are emitted. */
#include "support/emission.h"

#define AS_HIP .compat = "hip"
#define STRICT .accelerator = "hip", .devices = "all"
#define NONE_OR_ALL .accelerator = "hip", .devices = "all | none"
#define ROCR "ROCR_VISIBLE_DEVICES="
#define HIP "HIP_VISIBLE_DEVICES="
#define CUDA "CUDA_VISIBLE_DEVICES="
#define FILTER "ROCR-Runtime, core/runtime/amd_filter_device.cpp"
#define CLR "ROCm clr, rocclr/device/rocm/rocdevice.cpp"
#define ISOLATION "ROCm documentation, GPU isolation techniques"
#define BAD_MASK "an entry that ends the list in silence is refused"

static const struct selection_row rocr[] = {
    {.source = FILTER, .machine = "amd:4", AS_HIP, .chosen = "0,1,2,3", .warning = "-"},
    {.source = FILTER, .machine = "amd:4", AS_HIP, .env = ROCR, .chosen = "", .warning = "hipErrorNoDevice (100)"},
    {.source = FILTER, .machine = "amd:4", AS_HIP, .env = ROCR "2,0", .chosen = "2,0", .warning = "-"},
    {.source = FILTER, .machine = "amd:4", AS_HIP, .env = ROCR "0,0,1", .chosen = "0"},
    {.source = FILTER, .machine = "amd:4", AS_HIP, .env = ROCR "1,9,0", .chosen = "1"},
    {.source = FILTER, .machine = "amd:4", AS_HIP, .env = ROCR "1,-1,0", .chosen = "1"},
    {.source = FILTER, .machine = "amd:4", AS_HIP, .env = ROCR "1,x", .chosen = "1"},
    {.source = FILTER, .machine = "amd:4", AS_HIP, .env = ROCR "1x,2", .chosen = ""},
    {.source = FILTER, .machine = "amd:4", AS_HIP, .env = ROCR " 3 , 1 ", .chosen = "3,1"},
    {.source = FILTER ": strtol with base 0", .machine = "amd:16", AS_HIP, .env = ROCR "0xA,010,+1", .chosen = "10,8,1"},
    {.source = FILTER ": strtol with base 0", .machine = "amd:4", AS_HIP, .env = ROCR "-0,01", .chosen = "0,1"},
    {.source = FILTER ": cut to 32 bits", .machine = "amd:4", AS_HIP, .env = ROCR "4294967297", .chosen = "1"},
    {.source = FILTER ": std::string::at of an empty entry", .machine = "amd:4", AS_HIP, .env = ROCR "0,,1",
     .code = GSEL_ERR_SYNTAX, .token = "", .column = 3, .message = "std::out_of_range"},
    {.source = FILTER ": std::string::at of an empty entry", .machine = "amd:4", AS_HIP, .env = ROCR " ",
     .code = GSEL_ERR_SYNTAX, .column = 1, .message = "std::out_of_range"},
    {.source = FILTER ": std::string::at of an empty entry", .machine = "amd:4", AS_HIP, .env = ROCR ",0",
     .code = GSEL_ERR_SYNTAX, .column = 1},
    {.source = FILTER ": std::getline drops what follows a last comma", .machine = "amd:4", AS_HIP, .env = ROCR "2,",
     .chosen = "2"},
    {.source = FILTER ": over before the empty entry", .machine = "amd:4", AS_HIP, .env = ROCR "7,,", .chosen = ""},
    {.source = FILTER ": entries beyond the device count are not read", .machine = "amd:2", AS_HIP, .env = ROCR "1,0,,x",
     .chosen = "1,0"},
    {.source = FILTER ": KFD order", .machine = "amd4", AS_HIP, .chosen = "1,3,0,2", .warning = NULL},
    {.source = FILTER ": KFD order", .machine = "amd4", AS_HIP, .env = ROCR "0,3", .chosen = "1,2"},
    {.source = FILTER ": a unique prefix", .machine = "mi300x8", AS_HIP, .env = ROCR "GPU-5,GPU-7f", .chosen = "7,0"},
    {.source = FILTER ": any case", .machine = "mi300x8", AS_HIP, .env = ROCR "gpu-5D6A7C7BDA61DFC2", .chosen = "7"},
    {.source = FILTER ": ambiguous", .machine = "mi300x8", AS_HIP, .env = ROCR "GPU-5,GPU-7,0", .chosen = "7"},
    {.source = FILTER ": unknown", .machine = "mi300x8", AS_HIP, .env = ROCR "GPU-5,GPU-00,0", .chosen = "7"},
    {.source = FILTER ": at least one digit", .machine = "mi300x8", AS_HIP, .env = ROCR "GPU-", .chosen = ""},
    {.source = FILTER ": at most 16 digits", .machine = "mi300x8", AS_HIP, .env = ROCR "GPU-5d6a7c7bda61dfc20", .chosen = ""},
    {.source = FILTER ": indexes and uuids may stand together", .machine = "mi300x8", AS_HIP, .env = ROCR "3,GPU-5",
     .chosen = "3,7"},
    {.source = FILTER ", example C: the uuid is device 1 again, which ends the list", .machine = "amd:4", AS_HIP,
     .env = ROCR "1,GPU-0000000000000002", .chosen = "1"},
    {.source = "a device that may not be opened has no node for ROCr", .machine = "guarded4", AS_HIP, .env = ROCR "0",
     .chosen = "3"},
};

static const struct selection_row hip[] = {
    {.source = "ROCm/hip issue 3001", .machine = "amd:4", AS_HIP, .env = HIP, .chosen = "0,1,2,3",
     .warning = "hides no AMD device"},
    {.source = "ROCm/hip issue 3001", .machine = "amd:4", AS_HIP, .env = HIP "\n" CUDA "1", .chosen = "1"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "\n" CUDA, .chosen = "0,1,2,3"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = CUDA "3,1", .chosen = "3,1", .warning = "-"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "2\n" CUDA "3,1", .chosen = "2"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "0,0,1", .chosen = "0,1"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "3,0,7,1", .chosen = "3,0"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "0, 1", .chosen = "0"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP " 0", .chosen = ""},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "01", .chosen = ""},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "0,+1", .chosen = "0"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "0x1", .chosen = ""},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "0,,1", .chosen = "0"},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP " ", .chosen = ""},
    {.source = CLR, .machine = "amd:4", AS_HIP, .env = HIP "1,", .chosen = "1"},
    {.source = "ollama issue 15752: -1 hides AMD devices too", .machine = "amd:4", AS_HIP, .env = CUDA "-1", .chosen = "",
     .warning = "hipErrorNoDevice (100)"},
    {.source = CLR ": uuids in their own case", .machine = "mi300x8", AS_HIP, .env = HIP "GPU-5D6A", .chosen = ""},
    {.source = CLR ": the first match", .machine = "mi300x8", AS_HIP, .env = HIP "GPU-7,0", .chosen = "0"},
    {.source = CLR ": the first match", .machine = "mi300x8", AS_HIP, .env = HIP "GPU-7,3", .chosen = "0,3"},
    {.source = CLR ": every entry is read", .machine = "amd:2", AS_HIP, .env = HIP "0,0,0,1", .chosen = "0,1"},
    {.source = "GPU_DEVICE_ORDINAL is read for OpenCL", .machine = "amd:4", AS_HIP, .env = "GPU_DEVICE_ORDINAL=2",
     .chosen = "0,1,2,3", .warning = "-"},
    {.source = "a CUDA mask that HIP reads too", .machine = "beside", AS_HIP, .env = CUDA "1", .chosen = ""},
};

static const struct selection_row stacked[] = {
    {.source = "Parsl issue 3858", .machine = "amd:4", AS_HIP, .env = ROCR "1\n" HIP "1", .chosen = "",
     .warning = "count from 0 among those"},
    {.source = "SwarmUI issue 566", .machine = "amd:4", AS_HIP, .env = ROCR "1\n" CUDA "1", .chosen = "", .warning = "CONFLICT"},
    {.source = ISOLATION, .machine = "amd:4", AS_HIP, .env = ROCR "1\n" HIP "0", .chosen = "1", .warning = "-"},
    {.source = ISOLATION, .machine = "amd:4", AS_HIP, .env = ROCR "3,2,1\n" HIP "2,0", .chosen = "1,3"},
    {.source = ISOLATION, .machine = "amd:4", AS_HIP, .env = ROCR "\n" HIP "0", .chosen = ""},
    {.source = ISOLATION, .machine = "amd:4", AS_HIP, .env = ROCR "2,3\n" HIP, .chosen = "2,3"},
    {.source = ISOLATION, .machine = "mi300x8", AS_HIP, .env = ROCR "GPU-5,2\n" HIP "GPU-5", .chosen = "7"},
    {.source = "Slurm gres.conf: AMD is filtered twice", .machine = "amd:4", AS_HIP,
     .env = ROCR "2,3\n" CUDA "2,3\nGPU_DEVICE_ORDINAL=2,3\nZE_AFFINITY_MASK=2,3", .chosen = "", .warning = "CONFLICT"},
};

static const struct selection_row strict[] = {
    {.source = ISOLATION, .machine = "amd:4", STRICT, .env = ROCR "2,0", .chosen = "2,0", .warning = "-"},
    {.source = ISOLATION, .machine = "amd:4", STRICT, .env = HIP "2,0", .chosen = "2,0", .warning = "-"},
    {.source = ISOLATION, .machine = "amd:4", STRICT, .env = CUDA "3", .chosen = "3", .warning = "-"},
    {.source = ISOLATION, .machine = "amd:4", STRICT, .env = ROCR "3,2,1\n" HIP "2,0", .chosen = "1,3"},
    {.source = "blanks are trimmed", .machine = "amd:4", STRICT, .env = ROCR "2, 0", .chosen = "2,0", .warning = "-"},
    {.source = "blanks are trimmed", .machine = "amd:4", STRICT, .env = HIP "2, 0", .chosen = "2,0",
     .warning = "HIP runtime ends the list"},
    {.source = "any case", .machine = "mi300x8", STRICT, .env = HIP "GPU-5D6A", .chosen = "7", .warning = "own case"},
    {.source = "any case", .machine = "mi300x8", STRICT, .env = ROCR "gpu-5d6a,3", .chosen = "7,3", .warning = "-"},
    {.source = "an empty ROCr mask hides all, and is told", .machine = "amd:4", NONE_OR_ALL, .env = ROCR, .chosen = "",
     .warning = "hides every AMD device"},
    {.source = "an empty ROCr mask hides all", .machine = "amd:4", STRICT, .env = ROCR, .code = GSEL_ERR_NO_DEVICES},
    {.source = "an empty HIP mask hides none, and is told", .machine = "amd:4", STRICT, .env = HIP, .chosen = "0,1,2,3",
     .warning = "hides no AMD device"},
    {.source = "a mask that is not read is told", .machine = "amd:4", STRICT, .env = HIP "1\n" CUDA "2", .chosen = "1",
     .warning = "is not read"},
    {.source = BAD_MASK, .machine = "amd:4", STRICT, .env = ROCR "1,9", .code = GSEL_ERR_OUT_OF_RANGE, .token = "9", .column = 3,
     .message = "4 AMD devices, 0 to 3"},
    {.source = BAD_MASK, .machine = "amd:4", STRICT, .env = ROCR "0,1,0", .code = GSEL_ERR_DUPLICATE, .token = "0", .column = 5},
    {.source = BAD_MASK, .machine = "amd:4", STRICT, .env = ROCR "0,,1", .code = GSEL_ERR_SYNTAX, .token = "", .column = 3},
    {.source = BAD_MASK, .machine = "amd:16", STRICT, .env = ROCR "0x1", .code = GSEL_ERR_SYNTAX, .token = "0x1", .column = 1},
    {.source = BAD_MASK, .machine = "amd:4", STRICT, .env = CUDA "-1", .code = GSEL_ERR_SYNTAX, .token = "-1", .column = 1},
    {.source = BAD_MASK, .machine = "amd:4", STRICT, .env = HIP "+1", .code = GSEL_ERR_SYNTAX, .token = "+1"},
    {.source = BAD_MASK, .machine = "mi300x8", STRICT, .env = ROCR "GPU-7", .code = GSEL_ERR_AMBIGUOUS, .token = "GPU-7",
     .column = 1, .message = "give more digits"},
    {.source = BAD_MASK, .machine = "mi300x8", STRICT, .env = ROCR "0,GPU-00", .code = GSEL_ERR_UNKNOWN_DEVICE,
     .token = "GPU-00", .column = 3},
    {.source = BAD_MASK, .machine = "mi300x8", STRICT, .env = HIP "GPU-", .code = GSEL_ERR_SYNTAX},
    {.source = "one device by index and by uuid", .machine = "mi300x8", STRICT, .env = ROCR "7,GPU-5d", .code = GSEL_ERR_DUPLICATE,
     .token = "GPU-5d", .column = 3},
    {.source = "Parsl issue 3858", .machine = "amd:4", STRICT, .env = ROCR "1\n" HIP "1", .code = GSEL_ERR_CONFLICT,
     .token = "1", .column = 1, .message = "ROCR_VISIBLE_DEVICES=1 left"},
    {.source = "SwarmUI issue 566", .machine = "amd:4", STRICT, .env = ROCR "2,3\n" CUDA "0,2", .code = GSEL_ERR_CONFLICT,
     .token = "2", .column = 3, .message = "CUDA_VISIBLE_DEVICES=0,2"},
    {.source = "a uuid that the layer below hides", .machine = "mi300x8", STRICT, .env = ROCR "1,2\n" HIP "GPU-5d",
     .code = GSEL_ERR_CONFLICT, .token = "GPU-5d", .message = "ROCR_VISIBLE_DEVICES=1,2"},
    {.source = "nothing is left to count", .machine = "amd:4", STRICT, .env = ROCR "\n" HIP "0", .code = GSEL_ERR_CONFLICT},
    {.source = "a uuid of a device that may not be opened", .machine = "guarded4", STRICT, .env = ROCR "GPU-3333",
     .code = GSEL_ERR_PERMISSION, .token = "GPU-3333"},
    {.source = "indexes count what may be opened", .machine = "guarded4", STRICT, .env = ROCR "0", .chosen = "3"},
    {.source = "a CUDA mask beside NVIDIA devices is written for those", .machine = "beside",
     .env = CUDA "GPU-2222", .devices = "all", .chosen = "1", .warning = "read by the HIP runtime too"},
    {.source = "a CUDA mask beside NVIDIA devices is written for those", .machine = "beside", .env = CUDA "1", .devices = "all",
     .chosen = "1", .warning = "read by the HIP runtime too"},
    {.source = "KFD order", .machine = "amd4", STRICT, .env = ROCR "0,3", .chosen = "1,2"},
    {.source = "no mask, bus order", .machine = "amd4", STRICT, .chosen = "0,1,2,3", .warning = "-"},
};

static const struct emission_row emitted[] = {
    {{.source = "by uuid, and the layer above takes all of it", .machine = "mi300x8", .devices = "index:7,0"},
     ROCR "GPU-5d6a7c7bda61dfc2,GPU-7f61ba0294de63e2\n" HIP "0,1", NULL},
    {{.source = "an inherited mask cannot filter twice", .machine = "mi300x8", .devices = "all", .env = ROCR "3,2\n" HIP "1"},
     ROCR "GPU-bbf31fa3ecb8aa58\n" HIP "0", NULL},
    {{.source = "no device", .machine = "mi300x8", .devices = "none"}, ROCR, NULL},
    {{.source = "each vendor its own variables", .machine = "beside", .devices = "index:2"},
     CUDA "\n" ROCR "GPU-33333333aaaaaaaa\n" HIP "0", NULL},
};

static void test_rocr_reads_its_mask(void **state) {
  (void)state;
  CHECK_ROWS(rocr);
}
static void test_hip_reads_its_mask(void **state) {
  (void)state;
  CHECK_ROWS(hip);
}
static void test_masks_stack(void **state) {
  (void)state;
  CHECK_ROWS(stacked);
}
static void test_strict_reading_refuses_what_amd_drops(void **state) {
  (void)state;
  CHECK_ROWS(strict);
}
static void test_a_child_gets_the_selection_and_no_second_filter(void **state) {
  (void)state;
  CHECK_EMISSION(emitted);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rocr_reads_its_mask),
      cmocka_unit_test(test_hip_reads_its_mask),
      cmocka_unit_test(test_masks_stack),
      cmocka_unit_test(test_strict_reading_refuses_what_amd_drops),
      cmocka_unit_test(test_a_child_gets_the_selection_and_no_second_filter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
