/* unit/test_select_ze.c: the variables of Intel cards, as Level Zero and SYCL read them, strictly, and as emitted. */
#include "support/emission.h"

#define AS_ZE .compat = "ze"
#define STRICT .accelerator = "ze", .devices = "all"
#define NONE_OR_ALL .accelerator = "ze", .devices = "all | none"
#define MASK "ZE_AFFINITY_MASK="
#define FLAT "ZE_FLAT_DEVICE_HIERARCHY=FLAT\n"
#define COMPOSITE "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE\n"
#define COMBINED "ZE_FLAT_DEVICE_HIERARCHY=COMBINED\n"
#define SELECTOR "ONEAPI_DEVICE_SELECTOR="
#define SPEC "Level Zero specification, environment variables"
#define NEO "intel/compute-runtime, execution_environment.cpp, parseAffinityMask"
#define ORDER "intel/compute-runtime, execution_environment.cpp, comparePciIdBusNumber"
#define SYCL "intel/llvm, sycl/doc/EnvironmentVariables.md, ONEAPI_DEVICE_SELECTOR"
#define PARSER "intel/llvm, sycl/source/detail/device_filter.cpp"
#define PARSER_TEST "intel/llvm, sycl/unittests/detail/selector tests of ONEAPI_DEVICE_SELECTOR"

/* pvc4 has four cards of two tiles; arc3 an integrated device first on the bus, then two cards. */
static const struct selection_row composite[] = {
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = COMPOSITE, .chosen = "0,1,2,3"},
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "0", .chosen = "0", .warning = "-"},
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "1,3", .chosen = "1,3", .warning = "-"},
    {.source = SPEC ": a set", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "3,1", .chosen = "1,3",
     .warning = "takes a set"},
    {.source = SPEC ": one tile is a root device", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "0.1", .chosen = "0.1",
     .warning = "-"},
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "0.1,2", .chosen = "0.1,2"},
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "0,0.1", .chosen = "0", .warning = "DUPLICATE"},
    {.source = SPEC ": both tiles are the card", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "1.0,1.1", .chosen = "1"},
    {.source = NEO ": duplicates merge", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "2,2,0", .chosen = "0,2"},
    {.source = NEO ": unknown devices are skipped", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "9,1", .chosen = "1",
     .warning = "OUT_OF_RANGE"},
    {.source = NEO ": unknown tiles are skipped", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "0.2,1.0", .chosen = "1.0"},
    {.source = NEO ": nothing is left", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "9", .chosen = "",
     .warning = "finds no device"},
    {.source = NEO ": empty is all", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK, .chosen = "0,1,2,3",
     .warning = "the opposite of CUDA"},
    {.source = NEO ": default is all", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "default", .chosen = "0,1,2,3"},
    {.source = NEO ": stoul", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "abc", .code = GSEL_ERR_SYNTAX, .token = "abc",
     .column = 1, .message = "std::invalid_argument"},
    {.source = NEO ": stoul", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "1,GPU-8680", .code = GSEL_ERR_SYNTAX,
     .token = "GPU-8680", .column = 3, .message = "std::invalid_argument"},
    {.source = NEO ": stoul", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "0.x", .code = GSEL_ERR_SYNTAX, .token = "0.x"},
    {.source = NEO ": stoul", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "99999999999999999999",
     .code = GSEL_ERR_SYNTAX, .message = "std::out_of_range"},
    {.source = NEO ": an empty field", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "0,,1", .code = GSEL_ERR_SYNTAX,
     .token = "", .column = 3, .message = "undefined behaviour"},
    {.source = NEO ": stoul reads on past blanks and stops at junk", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK " 1x, 0x2",
     .chosen = "1,2"},
    {.source = NEO ": a negative number is too large", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "-1,0", .chosen = "0"},
    {.source = NEO ": nothing stands after a last comma", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "1,", .chosen = "1"},
    {.source = NEO ": a card of one tile", .machine = "arc3", AS_ZE, .env = MASK "0.0", .chosen = "1"},
};

static const struct selection_row hierarchies[] = {
    {.source = NEO ": FLAT on Xe-HPC", .machine = "pvc4", AS_ZE, .chosen = "0.0,0.1,1.0,1.1,2.0,2.1,3.0,3.1"},
    {.source = NEO ": FLAT on Xe-HPC", .machine = "pvc4", AS_ZE, .env = MASK "0,3", .chosen = "0.0,1.1"},
    {.source = NEO ": COMPOSITE elsewhere", .machine = "arc3", AS_ZE, .chosen = "1,2,0"},
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = FLAT MASK "7,2", .chosen = "1.0,3.1"},
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = FLAT MASK "0,1", .chosen = "0.0,0.1"},
    {.source = NEO ": d.t is ignored", .machine = "pvc4", AS_ZE, .env = FLAT MASK "0.1,3", .chosen = "1.1"},
    {.source = NEO ": d.t is ignored", .machine = "pvc4", AS_ZE, .env = FLAT MASK "0.1", .chosen = ""},
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = FLAT MASK "8", .chosen = ""},
    {.source = SPEC, .machine = "pvc4", AS_ZE, .env = COMBINED MASK "5", .chosen = "2.1"},
    {.source = NEO ": another word is the default", .machine = "pvc4", AS_ZE,
     .env = "ZE_FLAT_DEVICE_HIERARCHY=composite\n" MASK "1", .chosen = "0.1", .warning = "SYNTAX"},
    {.source = ORDER ": discrete before integrated", .machine = "arc3", AS_ZE, .env = MASK "0,1", .chosen = "1,2"},
    {.source = ORDER ": discrete before integrated", .machine = "arc3", AS_ZE, .env = MASK "2", .chosen = "0"},
    {.source = ORDER ": by PCI", .machine = "arc3", AS_ZE, .env = "ZE_ENABLE_PCI_ID_DEVICE_ORDER=1\n" MASK "0,1",
     .chosen = "0,1"},
    {.source = ORDER ": by PCI", .machine = "arc3", AS_ZE, .env = "ZE_ENABLE_PCI_ID_DEVICE_ORDER=1", .chosen = "0,1,2"},
    {.source = ORDER, .machine = "arc3", AS_ZE, .env = "ZE_ENABLE_PCI_ID_DEVICE_ORDER=0", .chosen = "1,2,0"},
};

static const struct selection_row selectors[] = {
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:*", .chosen = "1,2,0"},
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:gpu", .chosen = "1,2,0"},
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR "*:gpu", .chosen = "1,2,0"},
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:1", .chosen = "2"},
    {.source = SYCL ": a filter keeps the order", .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:2,0", .chosen = "1,0"},
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR "opencl:gpu", .chosen = "", .warning = "no Level Zero device"},
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR "opencl:gpu;level_zero:0", .chosen = "1"},
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR "*:cpu", .chosen = ""},
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:fpga,1", .chosen = "2"},
    {.source = PARSER_TEST ": any case", .machine = "arc3", AS_ZE, .env = SELECTOR "LEVEL_ZERO:GPU", .chosen = "1,2,0"},
    {.source = SYCL, .machine = "arc3", AS_ZE, .env = SELECTOR, .chosen = "1,2,0"},
    {.source = "intel/llvm pull request 7309", .machine = "arc3", AS_ZE, .env = SELECTOR "*:gpu;!level_zero:0", .chosen = "2,0"},
    {.source = "intel/llvm issue 17086: accepts everything else", .machine = "arc3", AS_ZE, .env = SELECTOR "!*:cpu",
     .chosen = "1,2,0"},
    {.source = "intel/llvm pull request 7309", .machine = "arc3", AS_ZE, .env = SELECTOR "!level_zero:1,2", .chosen = "1"},
    {.source = "intel/llvm pull request 7309", .machine = "arc3", AS_ZE, .env = SELECTOR "!*:gpu", .chosen = ""},
    {.source = SYCL ": a sub-device", .machine = "pvc4", AS_ZE, .env = COMPOSITE SELECTOR "level_zero:0.1", .chosen = "0.1"},
    {.source = SYCL ": sub-devices", .machine = "pvc4", AS_ZE, .env = COMPOSITE SELECTOR "level_zero:1.*", .chosen = "1.0,1.1"},
    {.source = SYCL ": sub-devices of all", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "0,2\n" SELECTOR "level_zero:*.*",
     .chosen = "0.0,0.1,2.0,2.1"},
    {.source = SYCL ": sub-sub-devices", .machine = "pvc4", AS_ZE, .env = COMPOSITE SELECTOR "level_zero:0.*.*",
     .chosen = "0.0,0.1"},
    {.source = SYCL ": a device and a part of another", .machine = "pvc4", AS_ZE, .env = COMPOSITE SELECTOR "level_zero:2,0.1",
     .chosen = "0.1,2"},
    {.source = SYCL ": after the mask", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "2,3\n" SELECTOR "level_zero:1",
     .chosen = "3"},
    {.source = SYCL ": after the mask", .machine = "pvc4", AS_ZE, .env = COMPOSITE MASK "2,3\n" SELECTOR "level_zero:2",
     .chosen = "", .warning = "CONFLICT"},
    {.source = "tiles are devices and have no parts", .machine = "pvc4", AS_ZE, .env = FLAT SELECTOR "level_zero:0.1",
     .chosen = ""},
    {.source = PARSER_TEST, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero", .code = GSEL_ERR_SYNTAX, .token = "level_zero",
     .column = 1, .message = "sycl::exception: incomplete selector, try level_zero:*"},
    {.source = PARSER_TEST, .machine = "arc3", AS_ZE, .env = SELECTOR "macaroni:*", .code = GSEL_ERR_SYNTAX,
     .token = "macaroni:*", .message = "backend is required"},
    {.source = PARSER, .machine = "arc3", AS_ZE, .env = SELECTOR ":cpu", .code = GSEL_ERR_SYNTAX, .message = "sycl::exception"},
    {.source = PARSER, .machine = "arc3", AS_ZE, .env = SELECTOR "opencl:", .code = GSEL_ERR_SYNTAX},
    {.source = PARSER, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:cpu:cpu", .code = GSEL_ERR_SYNTAX,
     .message = "too many colons"},
    {.source = PARSER, .machine = "arc3", AS_ZE, .env = SELECTOR "opencl:*;level_zero:x", .code = GSEL_ERR_SYNTAX, .token = "x",
     .column = 21},
    {.source = PARSER, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:gpu.0", .code = GSEL_ERR_SYNTAX, .token = "gpu.0",
     .column = 12},
    {.source = PARSER, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:*.0", .code = GSEL_ERR_SYNTAX},
    {.source = PARSER, .machine = "arc3", AS_ZE, .env = SELECTOR "level_zero:0.0.0.0", .code = GSEL_ERR_SYNTAX},
    {.source = PARSER, .machine = "arc3", AS_ZE, .env = SELECTOR "!level_zero:0;*:gpu", .code = GSEL_ERR_SYNTAX,
     .message = "after all accepting ones"},
};

static const struct selection_row strict[] = {
    {.source = "no mask, the cards", .machine = "pvc4", STRICT, .chosen = "0,1,2,3", .warning = "-"},
    {.source = SPEC, .machine = "pvc4", STRICT, .env = COMPOSITE MASK "1,3", .chosen = "1,3", .warning = "-"},
    {.source = "order is told to be lost", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "3,1", .chosen = "1,3",
     .warning = "takes a set"},
    {.source = "the driver's default hierarchy", .machine = "pvc4", STRICT, .env = MASK "3", .chosen = "1.1"},
    {.source = "an empty mask hides none, and is told", .machine = "pvc4", STRICT, .env = COMPOSITE MASK, .chosen = "0,1,2,3",
     .warning = "the opposite of CUDA"},
    {.source = "an index that does not exist", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "0,4",
     .code = GSEL_ERR_OUT_OF_RANGE, .token = "4", .column = 3, .message = "0 to 3"},
    {.source = "a tile that does not exist", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "0.2",
     .code = GSEL_ERR_OUT_OF_RANGE, .token = "0.2", .message = "2 tiles"},
    {.source = "twice", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "0,0", .code = GSEL_ERR_DUPLICATE, .column = 3},
    {.source = "a part of what stands before", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "0,0.1",
     .code = GSEL_ERR_DUPLICATE, .token = "0.1", .column = 3},
    {.source = "d.t in FLAT", .machine = "pvc4", STRICT, .env = FLAT MASK "0.1", .code = GSEL_ERR_TYPE, .token = "0.1"},
    {.source = "not a number", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "1x", .code = GSEL_ERR_SYNTAX, .token = "1x"},
    {.source = "not a number", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "0.", .code = GSEL_ERR_SYNTAX},
    {.source = "three levels", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "0.1.0", .code = GSEL_ERR_SYNTAX},
    {.source = "an empty entry", .machine = "pvc4", STRICT, .env = COMPOSITE MASK "0,,1", .code = GSEL_ERR_SYNTAX, .token = "",
     .column = 3},
    {.source = "a hierarchy that does not exist", .machine = "pvc4", STRICT, .env = "ZE_FLAT_DEVICE_HIERARCHY=flat",
     .code = GSEL_ERR_SYNTAX, .token = "flat", .message = "COMPOSITE, FLAT or COMBINED"},
    {.source = "an order that does not exist", .machine = "pvc4", STRICT, .env = "ZE_ENABLE_PCI_ID_DEVICE_ORDER=yes",
     .code = GSEL_ERR_SYNTAX, .token = "yes"},
    {.source = SYCL, .machine = "arc3", STRICT, .env = SELECTOR "level_zero:1", .chosen = "2"},
    {.source = "a device that does not exist", .machine = "arc3", STRICT, .env = SELECTOR "level_zero:0,3",
     .code = GSEL_ERR_OUT_OF_RANGE, .token = "3", .column = 14},
    {.source = "a device that the mask hides", .machine = "arc3", STRICT, .env = MASK "1\n" SELECTOR "level_zero:1",
     .code = GSEL_ERR_CONFLICT, .token = "1", .column = 12, .message = "ZE_AFFINITY_MASK=1 left 1 device"},
    {.source = PARSER_TEST, .machine = "arc3", STRICT, .env = SELECTOR "level_zero", .code = GSEL_ERR_SYNTAX},
    {.source = "numbers are digits", .machine = "arc3", STRICT, .env = SELECTOR "level_zero:1x", .code = GSEL_ERR_SYNTAX},
    {.source = "another backend", .machine = "arc3", NONE_OR_ALL, .env = SELECTOR "opencl:cpu", .chosen = "",
     .warning = "no Level Zero device"},
};

static const struct emission_row emitted[] = {
    {{.source = "cards in bus order", .machine = "pvc4", .devices = "index:1,3"},
     "ZE_ENABLE_PCI_ID_DEVICE_ORDER=1\nZE_FLAT_DEVICE_HIERARCHY=COMPOSITE\nZE_AFFINITY_MASK=1,3\n"
     "ONEAPI_DEVICE_SELECTOR=level_zero:gpu", NULL},
    {{.source = "a set has no order", .machine = "pvc4", .devices = "index:3,1"}, "ZE_AFFINITY_MASK=1,3", "ZE_AFFINITY_MASK is a set"},
    {{.source = "no device: an index past the end", .machine = "pvc4", .devices = "none"},
     "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE\nZE_AFFINITY_MASK=4", NULL},
    {{.source = "one tile of a card", .machine = "pvc4", .env = FLAT MASK "3"},
     "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE\nZE_AFFINITY_MASK=1.1", NULL},
    {{.source = "tiles of one card as devices", .machine = "pvc4", .env = FLAT MASK "2,3"},
     "ZE_FLAT_DEVICE_HIERARCHY=FLAT\nZE_AFFINITY_MASK=2,3", NULL},
    {{.source = "bus order, integrated first", .machine = "arc3", .devices = "index:0,2"}, "ZE_AFFINITY_MASK=0,2", NULL},
};

static void test_a_mask_of_cards_is_a_set(void **state) {
  (void)state;
  CHECK_ROWS(composite);
}
static void test_hierarchy_and_order_say_what_an_index_is(void **state) {
  (void)state;
  CHECK_ROWS(hierarchies);
}
static void test_sycl_filters_what_the_mask_leaves(void **state) {
  (void)state;
  CHECK_ROWS(selectors);
}
static void test_strict_reading_refuses_what_intel_skips(void **state) {
  (void)state;
  CHECK_ROWS(strict);
}
static void test_a_child_gets_the_selection(void **state) {
  (void)state;
  CHECK_EMISSION(emitted);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_mask_of_cards_is_a_set),
      cmocka_unit_test(test_hierarchy_and_order_say_what_an_index_is),
      cmocka_unit_test(test_sycl_filters_what_the_mask_leaves),
      cmocka_unit_test(test_strict_reading_refuses_what_intel_skips),
      cmocka_unit_test(test_a_child_gets_the_selection),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
