/* unit/test_select_lightning.c: devices= and accelerator= as Lightning's Trainer reads them. Sources, all in
 * Lightning-AI/pytorch-lightning:
 *   PARSER   src/lightning/fabric/utilities/device_parser.py
 *   TESTS    tests/tests_fabric/utilities/test_device_parser.py (on 16 pretended devices; -1 and -2 in lists too)
 *   GPU      tests/tests_pytorch/models/test_gpu.py
 *   CONNECT  src/lightning/pytorch/trainer/connectors/accelerator_connector.py, and TCONNECT its tests
 *   CPU, CUDA, MPS, XLA  src/lightning/fabric/accelerators/{cpu,cuda,mps,xla}.py
 *   INT      Python library reference, int; LITERAL  ast.literal_eval */
#include "support/selection.h"

#define LIGHTNING .compat = "lightning"
#define ON(machine_, devices_) LIGHTNING, .machine = machine_, .devices = devices_
#define MISCONFIGURATION "MisconfigurationException: "
#define NONE_AVAILABLE MISCONFIGURATION "GPUs requested but none are available."
#define NOT_UNIQUE MISCONFIGURATION "Device ID's (GPU) must be unique."
#define BAD_TYPE "TypeError: Device IDs (GPU/TPU) must be an int, a string, a sequence of ints, but you passed "
#define BAD_INT "ValueError: invalid literal for int() with base 10: "
#define ALL16 "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define ELASTIC "TORCHELASTIC_RUN_ID=1\nCUDA_VISIBLE_DEVICES=0"

static void counts_indexes_and_texts(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"TESTS test_parse_gpu_ids 1", ON("nvidia:16", "1"), .chosen = "0"},
      {"TESTS test_parse_gpu_ids 3", ON("nvidia:16", "3"), .chosen = "0,1,2"},
      {"TESTS test_parse_gpu_ids -1", ON("nvidia:16", "-1"), .chosen = ALL16},
      {"TESTS test_parse_gpu_ids [0]", ON("nvidia:16", "[0]"), .chosen = "0"},
      {"TESTS test_parse_gpu_ids [1, 3]", ON("nvidia:16", "[1, 3]"), .chosen = "1,3"},
      {"TESTS test_parse_gpu_ids (1, 3)", ON("nvidia:16", "(1, 3)"), .chosen = "1,3"},
      {"TESTS test_parse_gpu_ids '3'", ON("nvidia:16", "\"3\""), .chosen = "0,1,2"},
      {"TESTS test_parse_gpu_ids '1, 3'", ON("nvidia:16", "\"1, 3\""), .chosen = "1,3"},
      {"TESTS test_parse_gpu_ids '2,'", ON("nvidia:16", "\"2,\""), .chosen = "2"},
      {"TESTS test_parse_gpu_ids '-1'", ON("nvidia:16", "\"-1\""), .chosen = ALL16},
      {"PARSER: a text in single quotes is the same text", ON("nvidia:4", "'1, 3'"), .chosen = "1,3"},
      {"PARSER: 2 is a count, [2] and \"2,\" are an index", ON("nvidia:4", "2"), .chosen = "0,1"},
      {"PARSER: \"2\" is a count too", ON("nvidia:4", "\"2\""), .chosen = "0,1"},
      {"PARSER: order is kept", ON("nvidia:4", "[3, 1]"), .chosen = "3,1"},
      {"PARSER: order is kept in a text", ON("nvidia:4", "\"3,0\""), .chosen = "3,0"},
      {"PARSER: int(s.strip())", ON("nvidia:4", "\" -1 \""), .chosen = "0,1,2,3"},
      {"PARSER: int(s.strip())", ON("nvidia:4", "\" 2 \""), .chosen = "0,1"},
      {"PARSER: empty fields are skipped", ON("nvidia:4", "\"1,,2\""), .chosen = "1,2"},
      {"PARSER: empty fields are skipped", ON("nvidia:4", "\",1\""), .chosen = "1"},
      {"INT: single underscores", ON("nvidia:16", "\"1_0\""), .chosen = "0,1,2,3,4,5,6,7,8,9"},
      {"INT: a sign", ON("nvidia:4", "\"+2\""), .chosen = "0,1"},
      {"INT: leading zeros are fine in a text", ON("nvidia:4", "\"02\""), .chosen = "0,1"},
      {"INT: a sign and blanks in a field", ON("nvidia:4", "\"+1 , 3\""), .chosen = "1,3"},
      {"LITERAL: 1, 3 without brackets is a tuple", ON("nvidia:4", "1, 3"), .chosen = "1,3"},
      {"LITERAL: a trailing comma", ON("nvidia:4", "[0, 2,]"), .chosen = "0,2"},
      {"LITERAL: (2) is 2, (2,) a tuple", ON("nvidia:4", "(2)"), .chosen = "0,1"},
      {"LITERAL: (2) is 2, (2,) a tuple", ON("nvidia:4", "(2,)"), .chosen = "2"},
      {"LITERAL: hexadecimal ints", ON("nvidia:4", "0x2"), .chosen = "0,1"},
      {"LITERAL: blanks round the value", ON("nvidia:4", "  2 "), .chosen = "0,1"},
      {"CONNECT devices=\"auto\"", ON("nvidia:4", "\"auto\""), .chosen = "0,1,2,3"},
      {"CONNECT devices=\"auto\", as a bare word", ON("nvidia:4", "auto"), .chosen = "0,1,2,3"},
      {"CONNECT devices=\"auto\" is the default", ON("nvidia:4", NULL), .chosen = "0,1,2,3"},
  };
  CHECK_ROWS(rows);
}

static void no_device_is_refused(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"CONNECT devices in ([], 0, \"0\")", ON("nvidia:4", "0"), .code = GSEL_ERR_NO_DEVICES, .token = "0", .column = 1,
       .message = MISCONFIGURATION "`Trainer(devices=0)` value is not a valid input using cuda accelerator."},
      {"CONNECT devices in ([], 0, \"0\")", ON("nvidia:4", "[]"), .code = GSEL_ERR_NO_DEVICES,
       .message = MISCONFIGURATION "`Trainer(devices=[])` value is not a valid input"},
      {"CONNECT devices in ([], 0, \"0\")", ON("nvidia:4", "\"0\""), .code = GSEL_ERR_NO_DEVICES,
       .message = MISCONFIGURATION "`Trainer(devices='0')` value is not a valid input"},
      {"CONNECT: also on the CPU", ON("cpu", "0"), .accelerator = "cpu", .code = GSEL_ERR_NO_DEVICES,
       .message = "using cpu accelerator"},
      {"PARSER: the parser takes \"0 \" as no GPU", ON("nvidia:4", "\"0 \""), .code = GSEL_ERR_NO_DEVICES},
      {"PARSER: the parser takes \"[]\" as no GPU", ON("nvidia:4", "\"[]\""), .code = GSEL_ERR_NO_DEVICES},
      {"PARSER: \"00\" is not \"0\"", ON("nvidia:4", "\"00\""), .code = GSEL_ERR_NO_DEVICES, .message = NONE_AVAILABLE},
      {"PARSER: \"-0\" is not \"0\"", ON("nvidia:4", "\"-0\""), .code = GSEL_ERR_NO_DEVICES, .message = NONE_AVAILABLE},
      {"PARSER: only empty fields", ON("nvidia:4", "\",\""), .code = GSEL_ERR_NO_DEVICES, .message = NONE_AVAILABLE},
      {"PARSER: () is not []", ON("nvidia:4", "()"), .code = GSEL_ERR_NO_DEVICES, .message = NONE_AVAILABLE},
      {"TESTS test_parse_gpu_fail_on_unsupported_inputs -2: range(-2)", ON("nvidia:16", "-2"),
       .code = GSEL_ERR_NO_DEVICES, .message = NONE_AVAILABLE},
      {"PARSER: \"-2\"", ON("nvidia:4", "\"-2\""), .code = GSEL_ERR_NO_DEVICES, .message = NONE_AVAILABLE},
  };
  CHECK_ROWS(rows);
}

static void what_is_not_there_or_twice_is_refused(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"TESTS test_parse_gpu_fail_on_non_existent_id_2", ON("nvidia:16", "[1, 2, 19]"), .code = GSEL_ERR_OUT_OF_RANGE,
       .token = "19", .column = 8,
       .message = MISCONFIGURATION "You requested gpu: [1, 2, 19] But your machine only has: [0, 1, 2, 3"},
      {"PARSER: a count above what there is", ON("nvidia:4", "5"), .code = GSEL_ERR_OUT_OF_RANGE, .token = "5",
       .message = MISCONFIGURATION "You requested gpu: [0, 1, 2, 3, 4] But your machine only has: [0, 1, 2, 3]"},
      {"PARSER: a count above what there is, as text", ON("nvidia:4", "\"9\""), .code = GSEL_ERR_OUT_OF_RANGE},
      {"PARSER: no number is too long", ON("nvidia:4", "99999999999999999999999"), .code = GSEL_ERR_OUT_OF_RANGE},
      {"PARSER: an index past the end in a text", ON("nvidia:4", "\"0, 4\""), .code = GSEL_ERR_OUT_OF_RANGE,
       .token = "4", .column = 5},
      {"TESTS test_parse_gpu_fail_on_unsupported_inputs [-1]", ON("nvidia:16", "[-1]"), .code = GSEL_ERR_OUT_OF_RANGE,
       .token = "-1", .column = 2, .message = MISCONFIGURATION "You requested gpu: [-1] But"},
      {"PARSER: -1 in a list is no index", ON("nvidia:4", "\"0,-1\""), .code = GSEL_ERR_OUT_OF_RANGE, .token = "-1"},
      {"TESTS test_parse_gpu_fail_on_unsupported_inputs [0, 0]", ON("nvidia:16", "[0, 0]"), .code = GSEL_ERR_DUPLICATE,
       .token = "0", .column = 5, .message = NOT_UNIQUE},
      {"PARSER _check_unique on a text", ON("nvidia:4", "\"1,1\""), .code = GSEL_ERR_DUPLICATE, .message = NOT_UNIQUE},
      {"PARSER: uniqueness is checked before range", ON("nvidia:4", "[9, 9]"), .code = GSEL_ERR_DUPLICATE},
      {"PARSER: 1 and 01 are one number", ON("nvidia:4", "\"1,01\""), .code = GSEL_ERR_DUPLICATE},
  };
  CHECK_ROWS(rows);
}

static void types_and_texts_that_are_no_numbers(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"PARSER _check_data_type None", ON("nvidia:4", "None"), .code = GSEL_ERR_TYPE, .token = "None",
       .message = BAD_TYPE "None"},
      {"PARSER _check_data_type bool", ON("nvidia:4", "True"), .code = GSEL_ERR_TYPE, .message = BAD_TYPE "True"},
      {"TESTS test_parse_gpu_fail_on_unsupported_inputs False", ON("nvidia:16", "False"), .code = GSEL_ERR_TYPE},
      {"TESTS test_parse_gpu_fail_on_unsupported_inputs 0.1", ON("nvidia:16", "0.1"), .code = GSEL_ERR_TYPE,
       .message = BAD_TYPE "0.1"},
      {"PARSER: 2.0 is no int", ON("nvidia:4", "2.0"), .code = GSEL_ERR_TYPE},
      {"PARSER: 1e0 is a float", ON("nvidia:4", "1e0"), .code = GSEL_ERR_TYPE},
      {"TESTS test_parse_gpu_fail_on_unsupported_inputs [None]", ON("nvidia:16", "[None]"), .code = GSEL_ERR_TYPE,
       .token = "None", .column = 2, .message = BAD_TYPE "a sequence of NoneType."},
      {"TESTS test_parse_gpu_fail_on_unsupported_inputs [\"0\"]", ON("nvidia:16", "[\"0\"]"), .code = GSEL_ERR_TYPE,
       .message = BAD_TYPE "a sequence of str."},
      {"TCONNECT test_accelererator_invalid_type_devices [0, \"1\"]", ON("nvidia:2", "[0, \"1\"]"),
       .accelerator = "gpu", .code = GSEL_ERR_TYPE, .token = "\"1\"", .column = 5},
      {"TCONNECT test_accelererator_invalid_type_devices [\"GPU\"]", ON("nvidia:2", "[\"GPU\"]"), .accelerator = "gpu",
       .code = GSEL_ERR_TYPE},
      {"TCONNECT test_accelererator_invalid_type_devices [[\"0\", \"1\"], [0, 1]]",
       ON("nvidia:2", "[[\"0\", \"1\"], [0, 1]]"), .accelerator = "gpu", .code = GSEL_ERR_TYPE,
       .message = "a sequence of list."},
      {"TCONNECT test_accelererator_invalid_type_devices [False]", ON("nvidia:2", "[False]"), .accelerator = "gpu",
       .code = GSEL_ERR_TYPE, .message = "a sequence of bool."},
      {"PARSER: a float in a list", ON("nvidia:4", "[0, 1.0]"), .code = GSEL_ERR_TYPE, .token = "1.0", .column = 5},
      {"PARSER int(\"\")", ON("nvidia:4", "\"\""), .code = GSEL_ERR_SYNTAX, .message = BAD_INT "''"},
      {"PARSER int(\"abc\")", ON("nvidia:4", "\"abc\""), .code = GSEL_ERR_SYNTAX, .message = BAD_INT "'abc'"},
      {"PARSER int(\"1.5\")", ON("nvidia:4", "\"1.5\""), .code = GSEL_ERR_SYNTAX, .message = BAD_INT "'1.5'"},
      {"PARSER int(\"1-3\")", ON("nvidia:4", "\"1-3\""), .code = GSEL_ERR_SYNTAX},
      {"PARSER int(\"0 1\")", ON("nvidia:4", "\"0 1\""), .code = GSEL_ERR_SYNTAX},
      {"PARSER int of a uuid", ON("a100x8", "\"GPU-c4f82fda\""), .code = GSEL_ERR_SYNTAX},
      {"PARSER int(\"0x1\")", ON("nvidia:4", "\"0x1\""), .code = GSEL_ERR_SYNTAX},
      {"PARSER: a blank field is not an empty one", ON("nvidia:4", "\"0, ,1\""), .code = GSEL_ERR_SYNTAX,
       .message = BAD_INT "''"},
      {"PARSER: one bad field", ON("nvidia:4", "\"0, a\""), .code = GSEL_ERR_SYNTAX, .token = "a", .column = 5},
      {"INT: no double underscore", ON("nvidia:4", "\"1__0\""), .code = GSEL_ERR_SYNTAX},
      {"LITERAL: a bare word is none", ON("nvidia:4", "gpu"), .code = GSEL_ERR_SYNTAX, .token = "gpu", .column = 1},
      {"LITERAL: a bare word is none", ON("nvidia:4", "[0, x]"), .code = GSEL_ERR_SYNTAX, .token = "x", .column = 5},
      {"LITERAL: no closing bracket", ON("nvidia:4", "[0, 1"), .code = GSEL_ERR_SYNTAX},
      {"LITERAL: no closing quote", ON("nvidia:4", "\"0"), .code = GSEL_ERR_SYNTAX},
      {"LITERAL: 01 is a syntax error in Python", ON("nvidia:4", "01"), .code = GSEL_ERR_SYNTAX},
      {"LITERAL: no value", ON("nvidia:4", ""), .code = GSEL_ERR_SYNTAX},
      {"LITERAL: two values", ON("nvidia:4", "1 2"), .code = GSEL_ERR_SYNTAX},
  };
  CHECK_ROWS(rows);
}

static void accelerators(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"CONNECT gpu takes CUDA", ON("nvidia:4", "2"), .accelerator = "gpu", .chosen = "0,1"},
      {"CONNECT cuda", ON("nvidia:4", "2"), .accelerator = "cuda", .chosen = "0,1"},
      {"CONNECT auto takes CUDA", ON("nvidia:4", "2"), .accelerator = "auto", .chosen = "0,1"},
      {"CONNECT: a ROCm build answers to cuda", ON("amd:4", "[2]"), .accelerator = "gpu", .chosen = "2"},
      {"CONNECT _choose_gpu_accelerator_backend", ON("cpu", "1"), .accelerator = "gpu", .code = GSEL_ERR_NO_DEVICES,
       .message = "RuntimeError: No supported gpu backend found!"},
      {"TCONNECT test_accelerator_cpu", ON("cpu", NULL), .accelerator = "cuda", .code = GSEL_ERR_NO_DEVICES,
       .token = "cuda",
       .message = MISCONFIGURATION "`CUDAAccelerator` can not run on your system since the accelerator"},
      {"GPU test_root_gpu_property_0_raising -1", ON("cpu", "-1"), .accelerator = "gpu", .code = GSEL_ERR_NO_DEVICES},
      {"TESTS test_parse_gpu_returns_none_when_no_devices_are_available '-1'", ON("cpu", "\"-1\""),
       .accelerator = "cuda", .code = GSEL_ERR_NO_DEVICES},
      {"CONNECT: all devices hidden is none available", ON("nvidia:4", "1"), .accelerator = "cuda",
       .env = "CUDA_VISIBLE_DEVICES=", .code = GSEL_ERR_NO_DEVICES},
      {"CONNECT: auto goes to the CPU without an error", ON("cpu", NULL), .chosen = "0",
       .warning = "goes to the CPU without an error"},
      {"CONNECT: auto goes to the CPU when all is hidden", ON("mixed4", "2"),
       .env = "CUDA_VISIBLE_DEVICES=", .chosen = "4", .warning = "goes to the CPU without an error"},
      {"TCONNECT test_accelerator_cpu_with_devices 5: processes of one CPU", ON("cpu", "5"), .accelerator = "cpu",
       .chosen = "0"},
      {"CPU _parse_cpu_cores \"3\"", ON("cpu", "\"3\""), .accelerator = "cpu", .chosen = "0"},
      {"CPU: True is an int above 0", ON("cpu", "True"), .accelerator = "cpu", .chosen = "0"},
      {"CPU _parse_cpu_cores -1", ON("cpu", "-1"), .accelerator = "cpu", .code = GSEL_ERR_TYPE,
       .message = "TypeError: `devices` selected with `CPUAccelerator` should be an int > 0."},
      {"CPU _parse_cpu_cores [0]", ON("cpu", "[0]"), .accelerator = "cpu", .code = GSEL_ERR_TYPE},
      {"CPU _parse_cpu_cores \"abc\"", ON("cpu", "\"abc\""), .accelerator = "cpu", .code = GSEL_ERR_TYPE},
      {"CPU _parse_cpu_cores None", ON("cpu", "None"), .accelerator = "cpu", .code = GSEL_ERR_TYPE},
      {"CPU: -1 with auto where there is no accelerator", ON("cpu", "-1"), .code = GSEL_ERR_TYPE},
      {"CPU: the CPU of a machine with GPUs", ON("a100x8", "2"), .accelerator = "cpu", .chosen = "8"},
      {"MPS auto_device_count", ON("mac", NULL), .chosen = "0"},
      {"MPS: gpu prefers MPS", ON("mac", "1"), .accelerator = "gpu", .chosen = "0"},
      {"MPS: one device only", ON("mac", "2"), .accelerator = "mps", .code = GSEL_ERR_OUT_OF_RANGE},
      {"MPS is_available", ON("nvidia:4", "1"), .accelerator = "mps", .code = GSEL_ERR_NO_DEVICES,
       .message = "`MPSAccelerator` can not run"},
      {"XLA is_available", ON("nvidia:4", "1"), .accelerator = "tpu", .code = GSEL_ERR_NO_DEVICES},
      {"lightning-habana _parse_hpus 2", ON("gaudi8", "2"), .accelerator = "hpu", .chosen = "0,1"},
      {"lightning-habana _parse_hpus [0]", ON("gaudi8", "[0]"), .accelerator = "hpu", .code = GSEL_ERR_TYPE,
       .message = MISCONFIGURATION "`devices` for `HPUAccelerator` must be int, string or None."},
      {"TCONNECT test_accelerator_invalid_choice", ON("nvidia:4", "1"), .accelerator = "invalid", .message = "invalid"},
  };
  CHECK_ROWS(rows);
}

static void positions_among_the_visible(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"CUDA _get_all_visible_cuda_devices: 1,3,6 are 0, 1, 2", ON("nvidia:8", "3"),
       .env = "CUDA_VISIBLE_DEVICES=1,3,6", .chosen = "1,3,6"},
      {"CUDA: indexes count among the visible", ON("nvidia:8", "[2, 0]"), .env = "CUDA_VISIBLE_DEVICES=1,3,6",
       .chosen = "6,1"},
      {"CUDA: a physical index is out of range", ON("nvidia:8", "[6]"), .env = "CUDA_VISIBLE_DEVICES=1,3,6",
       .code = GSEL_ERR_OUT_OF_RANGE},
      {"CUDA: order of the mask", ON("nvidia:4", "\"0,\""), .env = "CUDA_VISIBLE_DEVICES=2,1", .chosen = "2"},
      {"GPU test_torchelastic_gpu_parsing [0, 1, 2]", ON("nvidia:4", "[0, 1, 2]"), .env = ELASTIC, .chosen = "0",
       .warning = "does not check this list"},
      {"GPU test_torchelastic_gpu_parsing 2", ON("nvidia:4", "2"), .env = ELASTIC, .chosen = "0",
       .warning = "RANK_OVERFLOW"},
      {"GPU test_torchelastic_gpu_parsing [0, 2]", ON("nvidia:4", "[0, 2]"), .env = ELASTIC, .chosen = "0"},
      {"PARSER: torchelastic returns even duplicates", ON("nvidia:1", "[0, 0]"), .env = "TORCHELASTIC_RUN_ID=1",
       .chosen = "0,0"},
      {"PARSER: torchelastic with a list of one is checked", ON("nvidia:1", "[1]"), .env = "TORCHELASTIC_RUN_ID=1",
       .code = GSEL_ERR_OUT_OF_RANGE},
      {"PARSER: torchelastic returns a text's indexes too", ON("nvidia:4", "\"5,7\""), .env = ELASTIC, .chosen = "",
       .warning = "does not check this list"},
      {"PARSER: a long count is not checked either, and not written out", ON("nvidia:1", "5000"),
       .env = "TORCHELASTIC_RUN_ID=1", .code = GSEL_ERR_UNSUPPORTED, .token = "5000",
       .message = "Lightning does not check 5000 devices under torchelastic; gsel lists at most 1024"},
      {"PARSER: torchelastic with two visible is checked", ON("nvidia:2", "[0, 0]"), .env = "TORCHELASTIC_RUN_ID=1",
       .code = GSEL_ERR_DUPLICATE},
  };
  CHECK_ROWS(rows);
}

static void find_usable(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"CUDA: default mode answers from 0", ON("nvidia:4", "find_usable(2)"), .chosen = "0,1",
       .warning = "holds nothing"},
      {"CUDA: exclusive mode skips the occupied", ON("exclusive4", "find_usable(1)"), .chosen = "1"},
      {"CUDA: default mode does not see who computes", ON("exclusive4", "find_usable(2)"), .chosen = "1,3"},
      {"CUDA: -1 returns whatever works", ON("exclusive4", "find_usable(-1)"), .chosen = "1,3"},
      {"CUDA: num_devices is -1 by default", ON("exclusive4", "find_usable_cuda_devices()"), .chosen = "1,3"},
      {"CUDA: too few are free", ON("exclusive4", "find_usable(3)"), .code = GSEL_ERR_BUSY,
       .message =
           "RuntimeError: You requested to find 3 devices but only 2 are currently available. The devices [0, 2] "
           "are occupied"},
      {"CUDA: more than there are", ON("nvidia:4", "find_usable(5)"), .code = GSEL_ERR_OUT_OF_RANGE, .token = "5",
       .message = "ValueError: You requested to find 5 devices but this machine only has 4 GPUs."},
      {"CUDA: 0 is an empty list, and no device is tried", ON("nvidia:4", "find_usable(0)"), .chosen = "",
       .warning = "find_usable_cuda_devices(0) returns an empty list"},
      {"CUDA: 0 is an empty list where none is visible too", ON("mac", "find_usable_cuda_devices(0)"), .chosen = "",
       .warning = "empty list"},
      {"CUDA: False == 0", ON("nvidia:4", "find_usable(False)"), .chosen = "", .warning = "empty list"},
      {"CUDA: none visible", ON("cpu", "find_usable(1)"), .code = GSEL_ERR_NO_DEVICES,
       .message = "ValueError: You requested to find 1 devices but there are no visible CUDA devices"},
      {"CUDA: the mask orders the walk", ON("nvidia:4", "find_usable(1)"), .env = "CUDA_VISIBLE_DEVICES=3,2",
       .chosen = "3"},
      {"CUDA: -1 may return an empty list", ON("exclusive4", "find_usable(-1)"), .env = "CUDA_VISIBLE_DEVICES=0",
       .chosen = "", .warning = "empty list"},
      {"CUDA: num_devices is an int", ON("nvidia:4", "find_usable(\"2\")"), .code = GSEL_ERR_TYPE},
  };
  CHECK_ROWS(rows);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_indexes_and_texts),
      cmocka_unit_test(no_device_is_refused),
      cmocka_unit_test(what_is_not_there_or_twice_is_refused),
      cmocka_unit_test(types_and_texts_that_are_no_numbers),
      cmocka_unit_test(accelerators),
      cmocka_unit_test(positions_among_the_visible),
      cmocka_unit_test(find_usable),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
