/* unit/test_select_launchers.c: torchrun --nproc-per-node, accelerate --gpu_ids, deepspeed --num_gpus, --include,
 * --exclude and --hostfile. Sources:
 *   RUN      pytorch torch/distributed/run.py, determine_local_world_size; TRUN test/distributed/launcher/test_run.py
 *   HF       Hugging Face transformers, guide "Accelerator selection"
 *   ACC      huggingface accelerate src/accelerate/utils/launch.py and src/accelerate/commands/launch.py
 *   DS       deepspeedai/DeepSpeed deepspeed/launcher/runner.py and launch.py; TDS tests/unit/launcher/test_run.py */
#include "support/selection.h"

#define TORCHRUN .compat = "torchrun"
#define ACCELERATE .compat = "accelerate"
#define DEEPSPEED .compat = "deepspeed"
#define LOCAL4 DEEPSPEED, .machine = "nvidia:4"
#define ONE_HOST DEEPSPEED, .machine = "two_hosts", .hostfile = "worker-0 slots=4\n"
#define BOTH "worker-0 slots=4\nworker-1 slots=4\n"
#define TWO_HOSTS DEEPSPEED, .machine = "two_hosts", .hostfile = BOTH
#define W0(i) "worker-0/" #i
#define W1(i) "worker-1/" #i
#define ALL_W0 W0(0) "," W0(1) "," W0(2) "," W0(3)
#define ALL_W1 W1(0) "," W1(1) "," W1(2) "," W1(3)

static void torchrun(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"HF torchrun --nproc_per_node=2", TORCHRUN, .machine = "nvidia:4", .devices = "2", .chosen = "0,1"},
      {"HF CUDA_VISIBLE_DEVICES=0,2 torchrun", TORCHRUN, .machine = "nvidia:4", .devices = "2",
       .env = "CUDA_VISIBLE_DEVICES=0,2", .chosen = "0,2"},
      {"HF CUDA_VISIBLE_DEVICES=2,0 torchrun", TORCHRUN, .machine = "nvidia:4", .devices = "2",
       .env = "CUDA_VISIBLE_DEVICES=2,0", .chosen = "2,0"},
      {"RUN: the default is 1", TORCHRUN, .machine = "nvidia:4", .chosen = "0"},
      {"RUN: PET_NPROC_PER_NODE is the default", TORCHRUN, .machine = "nvidia:4", .env = "PET_NPROC_PER_NODE=3",
       .chosen = "0,1,2"},
      {"TRUN test_nproc_launch_number_configurations", TORCHRUN, .machine = "nvidia:4", .devices = "4",
       .chosen = "0,1,2,3"},
      {"TRUN test_nproc_gpu_launch_configurations gpu", TORCHRUN, .machine = "nvidia:3", .devices = "gpu",
       .chosen = "0,1,2"},
      {"TRUN test_nproc_gpu_launch_configurations auto", TORCHRUN, .machine = "nvidia:3", .devices = "auto",
       .chosen = "0,1,2"},
      {"TRUN test_nproc_xpu_launch_configurations xpu", TORCHRUN, .machine = "pvc4", .devices = "xpu",
       .env = "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE", .chosen = "0,1,2,3"},
      {"TRUN test_nproc_launch_auto_configurations", TORCHRUN, .machine = "cpu", .devices = "auto", .chosen = "0"},
      {"TRUN test_nproc_launch_unknown_configurations", TORCHRUN, .machine = "nvidia:4", .devices = "unknown",
       .code = GSEL_ERR_SYNTAX, .token = "unknown", .message = "ValueError: Unsupported nproc_per_node value: unknown"},
      {"RUN: an int is not checked", TORCHRUN, .machine = "nvidia:2", .devices = "4", .chosen = "0,1",
       .warning = "RANK_OVERFLOW: torchrun starts 4 processes and they see 2 devices: local ranks 2 to 3"},
      {"RUN: the mask lowers what ranks find", TORCHRUN, .machine = "nvidia:4", .devices = "2",
       .env = "CUDA_VISIBLE_DEVICES=3", .chosen = "3", .warning = "RANK_OVERFLOW"},
      {"RUN gpu counts the visible", TORCHRUN, .machine = "nvidia:4", .devices = "gpu",
       .env = "CUDA_VISIBLE_DEVICES=3,1", .chosen = "3,1"},
      {"RUN gpu without CUDA", TORCHRUN, .machine = "cpu", .devices = "gpu", .code = GSEL_ERR_NO_DEVICES,
       .message = "ValueError: Cuda is not available."},
      {"RUN xpu without XPU", TORCHRUN, .machine = "nvidia:2", .devices = "xpu", .code = GSEL_ERR_NO_DEVICES,
       .message = "ValueError: Xpu is not available."},
      {"RUN cpu is os.cpu_count", TORCHRUN, .machine = "a100x8", .devices = "cpu", .chosen = "8"},
      {"RUN: int() takes blanks", TORCHRUN, .machine = "nvidia:4", .devices = " 2 ", .chosen = "0,1"},
      {"RUN: a local world of 0", TORCHRUN, .machine = "nvidia:4", .devices = "0", .code = GSEL_ERR_OUT_OF_RANGE},
      {"RUN: int(\"1.5\")", TORCHRUN, .machine = "nvidia:4", .devices = "1.5", .code = GSEL_ERR_SYNTAX},
      {"RUN: the ROCm build answers to gpu", TORCHRUN, .machine = "amd:2", .devices = "gpu", .chosen = "0,1"},
  };
  CHECK_ROWS(rows);
}

static void accelerate(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"ACC: ids are copied to CUDA_VISIBLE_DEVICES", ACCELERATE, .machine = "nvidia:4", .devices = "0,2",
       .chosen = "0,2"},
      {"ACC: the driver keeps their order", ACCELERATE, .machine = "nvidia:4", .devices = "3,1", .chosen = "3,1"},
      {"ACC: all leaves the variable alone", ACCELERATE, .machine = "nvidia:4", .devices = "all",
       .env = "CUDA_VISIBLE_DEVICES=2", .chosen = "2"},
      {"ACC: all is the default", ACCELERATE, .machine = "nvidia:4", .chosen = "0,1,2,3"},
      {"ACC: what a scheduler set is overwritten (accelerate 1643)", ACCELERATE, .machine = "nvidia:4",
       .devices = "0,1", .env = "CUDA_VISIBLE_DEVICES=2,3", .chosen = "0,1", .warning = "accelerate overwrites"},
      {"ACC: opaque, so the driver drops what it does not find", ACCELERATE, .machine = "nvidia:4", .devices = "1,9,2",
       .chosen = "1"},
      {"ACC: one id goes unchecked on the command line", ACCELERATE, .machine = "nvidia:4", .devices = "2",
       .chosen = "2", .warning = "Less than two GPU ids"},
      {"ACC: ZE_AFFINITY_MASK on Intel machines", ACCELERATE, .machine = "pvc4", .devices = "0,2",
       .env = "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE", .chosen = "0,2"},
      {"ACC: an Intel mask keeps no order", ACCELERATE, .machine = "pvc4", .devices = "2,0",
       .env = "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE", .chosen = "0,2"},
      {"ACC: ASCEND_RT_VISIBLE_DEVICES on Ascend machines; logical ids 0 and 1 stand at 6 and 0 of the bus", ACCELERATE,
       .machine = "ascend8", .devices = "0,1", .chosen = "6,0"},
      {"ACC: the ROCm build reads CUDA_VISIBLE_DEVICES", ACCELERATE, .machine = "amd:4", .devices = "1,0",
       .chosen = "1,0"},
  };
  CHECK_ROWS(rows);
}

static void deepspeed_filters(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      /* TDS test_parser_local */
      {"TDS test_parser_local none", ONE_HOST, .chosen = ALL_W0},
      {"TDS test_parser_local exclude :1", ONE_HOST, .exclude = "worker-0:1", .chosen = W0(0) "," W0(2) "," W0(3)},
      {"TDS test_parser_local exclude :1,2", ONE_HOST, .exclude = "worker-0:1,2", .chosen = W0(0) "," W0(3)},
      {"TDS test_parser_local include :1", ONE_HOST, .include = "worker-0:1", .chosen = W0(1)},
      {"TDS test_parser_local include :1,1", ONE_HOST, .include = "worker-0:1,1", .chosen = W0(1)},
      {"TDS test_parser_local include twice", ONE_HOST, .include = "worker-0:1@worker-0:0,1",
       .chosen = W0(0) "," W0(1)},
      {"TDS test_parser_local include bare", ONE_HOST, .include = "worker-0", .chosen = ALL_W0},
      {"TDS test_parser_local exclude bare", ONE_HOST, .exclude = "worker-0", .chosen = "",
       .warning = "no slot at all"},
      {"TDS test_parser_local exclude all", ONE_HOST, .exclude = "worker-0:0,1,2,3", .chosen = ""},
      /* TDS test_parser_multinode */
      {"TDS test_parser_multinode none", TWO_HOSTS, .chosen = ALL_W0 "," ALL_W1},
      {"TDS test_parser_multinode include", TWO_HOSTS, .include = "worker-1:0,3", .chosen = W1(0) "," W1(3)},
      {"TDS test_parser_multinode exclude", TWO_HOSTS, .exclude = "worker-1", .chosen = ALL_W0},
      {"TDS test_parser_multinode exclude parts", TWO_HOSTS, .exclude = "worker-0:0,1@worker-1:3",
       .chosen = W0(2) "," W0(3) "," W1(0) "," W1(1) "," W1(2)},
      /* TDS test_parse_inclusion_exclusion */
      {"TDS test_parse_inclusion_exclusion bare", TWO_HOSTS, .include = "worker-0", .chosen = ALL_W0},
      {"TDS test_parse_inclusion_exclusion docstring", TWO_HOSTS, .include = "worker-0@worker-1:0,2",
       .chosen = ALL_W0 "," W1(0) "," W1(2)},
      {"TDS test_parse_inclusion_exclusion slots", TWO_HOSTS, .include = "worker-1:0,2", .chosen = W1(0) "," W1(2)},
      {"TDS test_parse_inclusion_exclusion exclude", TWO_HOSTS, .exclude = "worker-0:1",
       .chosen = W0(0) "," W0(2) "," W0(3) "," ALL_W1},
      /* What the merging does */
      {"DS: slots are sorted", ONE_HOST, .include = "worker-0:3,1", .chosen = W0(1) "," W0(3),
       .warning = "the order given is lost"},
      {"DS: hosts come in the order of the hostfile", TWO_HOSTS, .include = "worker-1:0@worker-0:0",
       .chosen = W0(0) "," W1(0)},
      {"DS: a bare host is lost beside its slots", ONE_HOST, .include = "worker-0@worker-0:2", .chosen = W0(2)},
      {"DS: int() takes blanks", ONE_HOST, .include = "worker-0: 1, 2", .chosen = W0(1) "," W0(2)},
      {"DS: the order of hosts is that of the hostfile", DEEPSPEED, .machine = "two_hosts",
       .hostfile = "worker-1 slots=1\nworker-0 slots=2\n", .chosen = W1(0) "," W0(0) "," W0(1)},
  };
  CHECK_ROWS(rows);
}

static void deepspeed_refusals(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"TDS test_parser_mutual_exclusive", TWO_HOSTS, .include = "A", .exclude = "B", .code = GSEL_ERR_CONFLICT,
       .message = "ValueError: include_str and exclude_str are mutually exclusive."},
      {"TDS test_parser_errors include jeff", TWO_HOSTS, .include = "jeff", .code = GSEL_ERR_UNKNOWN_HOST,
       .token = "jeff", .column = 1, .message = "ValueError: Hostname 'jeff' not found in hostfile"},
      {"TDS test_parser_errors exclude jeff", TWO_HOSTS, .exclude = "jeff", .code = GSEL_ERR_UNKNOWN_HOST},
      {"TDS test_parser_errors include slot", TWO_HOSTS, .include = "worker-1:4", .code = GSEL_ERR_OUT_OF_RANGE,
       .token = "4", .column = 10, .message = "ValueError: No slot '4' specified on host 'worker-1'"},
      {"TDS test_parser_errors exclude slot", TWO_HOSTS, .exclude = "worker-1:4", .code = GSEL_ERR_OUT_OF_RANGE},
      {"TDS test_parser_errors format", TWO_HOSTS, .exclude = "worker-1@worker-0:1@5", .code = GSEL_ERR_UNKNOWN_HOST},
      {"TDS test_parse_inclusion_exclusion_errors :4", ONE_HOST, .include = "worker-0:4",
       .code = GSEL_ERR_OUT_OF_RANGE},
      {"TDS test_parse_inclusion_exclusion_errors :99", ONE_HOST, .include = "worker-0:99",
       .code = GSEL_ERR_OUT_OF_RANGE},
      {"TDS test_parse_inclusion_exclusion_errors :0,4", ONE_HOST, .include = "worker-0:0,4",
       .code = GSEL_ERR_OUT_OF_RANGE, .token = "4", .column = 12},
      {"TDS test_parse_inclusion_exclusion_errors exclude :4", ONE_HOST, .exclude = "worker-0:4",
       .code = GSEL_ERR_OUT_OF_RANGE},
      {"TDS test_parse_inclusion_exclusion_errors jeff", ONE_HOST, .include = "jeff", .code = GSEL_ERR_UNKNOWN_HOST},
      {"TDS test_num_plus_parser --num_gpus 1 -i localhost", LOCAL4, .devices = "1", .include = "localhost",
       .code = GSEL_ERR_CONFLICT, .message = "ValueError: Cannot specify num_nodes/gpus with include/exclude"},
      {"TDS test_num_plus_parser --num_gpus 1 -e localhost", LOCAL4, .devices = "1", .exclude = "localhost",
       .code = GSEL_ERR_CONFLICT},
      {"DS int('')", ONE_HOST, .include = "worker-0:", .code = GSEL_ERR_SYNTAX, .column = 10,
       .message = "ValueError: invalid literal for int() with base 10: ''"},
      {"DS int('') behind a comma", ONE_HOST, .include = "worker-0:1,", .code = GSEL_ERR_SYNTAX},
      {"DS: split(':') gives three", ONE_HOST, .include = "worker-0:1:2", .code = GSEL_ERR_SYNTAX,
       .message = "ValueError: too many values to unpack (expected 2)"},
      {"DS: no ranges", ONE_HOST, .include = "worker-0:1-2", .code = GSEL_ERR_SYNTAX, .token = "1-2"},
      {"DS: a word for a slot", ONE_HOST, .include = "worker-0:a", .code = GSEL_ERR_SYNTAX},
      {"DS: a blank before a host", TWO_HOSTS, .include = "worker-1@ worker-0", .code = GSEL_ERR_UNKNOWN_HOST},
      {"DS: a slot below 0", ONE_HOST, .include = "worker-0:-1", .code = GSEL_ERR_OUT_OF_RANGE},
      {"DS argparse type=int", LOCAL4, .devices = "two", .code = GSEL_ERR_SYNTAX, .token = "two"},
  };
  CHECK_ROWS(rows);
}

static void deepspeed_hostfiles(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"TDS test_hostfile_good: comments and empty lines", DEEPSPEED, .machine = "two_hosts",
       .hostfile =
           "\n    worker-0 slots=2\n    worker-1 slots=2\n\n    #worker-1 slots=3\n    # this is a comment\n\n    ",
       .chosen = W0(0) "," W0(1) "," W1(0) "," W1(1)},
      {"TDS test_hostfile_good: hosts that the inventory lacks", DEEPSPEED, .machine = "two_hosts",
       .hostfile = "worker-1 slots=1\nworker-2 slots=2\n123.23.12.10 slots=1\n",
       .chosen = W1(0) ",worker-2/0,worker-2/1,123.23.12.10/0", .warning = "the inventory has no host worker-2"},
      {"TDS test_hostfiles_bad duplicate", DEEPSPEED, .machine = "two_hosts",
       .hostfile = "\n    worker-1 slots=2\n    worker-2 slots=1\n    worker-1 slots=1\n    ",
       .code = GSEL_ERR_DUPLICATE, .token = "worker-1",
       .message = "ValueError: Hostfile contains multiple entries for worker-1, unable to proceed with launching"},
      {"TDS test_hostfiles_bad whitespace", DEEPSPEED, .machine = "two_hosts",
       .hostfile = "\n    this is bad slots=1\n    ", .code = GSEL_ERR_SYNTAX,
       .message = "ValueError: Hostfile contains a bad entry: this is bad slots=1, unable to proceed"},
      {"TDS test_hostfiles_bad no slots", DEEPSPEED, .machine = "two_hosts", .hostfile = "\n    missingslots\n    ",
       .code = GSEL_ERR_SYNTAX},
      {"TDS test_hostfiles_bad empty", DEEPSPEED, .machine = "two_hosts", .hostfile = "\n    ", .code = GSEL_ERR_SYNTAX,
       .message = "ValueError: Hostfile is empty or not formatted correctly"},
      {"TDS test_hostfiles_bad mix", DEEPSPEED, .machine = "two_hosts",
       .hostfile = "\n    worker-1 slots=2\n    this is bad slots=1\n    worker-2 slots=4\n    missingslots\n\n    ",
       .code = GSEL_ERR_SYNTAX, .message = "this is bad"},
      {"DS: text behind the number is ignored", DEEPSPEED, .machine = "two_hosts",
       .hostfile = "worker-0 slots=1 max_slots=4\n", .chosen = W0(0)},
      {"DS: slots=0 is accepted", DEEPSPEED, .machine = "two_hosts", .hostfile = "worker-0 slots=0\nworker-1 slots=1\n",
       .chosen = W1(0)},
      {"DS: with a hostfile the mask is not consulted", DEEPSPEED, .machine = "two_hosts", .hostfile = BOTH,
       .include = "worker-0:0,1", .env = "CUDA_VISIBLE_DEVICES=3", .chosen = W0(0) "," W0(1),
       .warning = "does not consult CUDA_VISIBLE_DEVICES"},
      {"DS: localhost in a hostfile", DEEPSPEED, .machine = "nvidia:4", .hostfile = "localhost slots=2\n",
       .chosen = "0,1"},
      {"DS: more slots than devices", DEEPSPEED, .machine = "nvidia:2", .hostfile = "localhost slots=3\n",
       .chosen = "0,1", .warning = "RANK_OVERFLOW: deepspeed on localhost starts 3 processes"},
      {"gsel holds no job out of proportion", DEEPSPEED, .machine = "nvidia:2", .hostfile = "far slots=9999999999999\n",
       .code = GSEL_ERR_UNSUPPORTED},
  };
  CHECK_ROWS(rows);
}

static void deepspeed_locally(void** state) {
  (void)state;
  static const struct selection_row rows[] = {
      {"HF deepspeed --num_gpus 2", LOCAL4, .devices = "2", .chosen = "0,1"},
      {"DS: all by default", LOCAL4, .chosen = "0,1,2,3", .warning = "-"},
      {"DS: -1 is the default", LOCAL4, .devices = "-1", .chosen = "0,1,2,3"},
      {"DS: --num_gpus 0 is all", LOCAL4, .devices = "0", .chosen = "0,1,2,3"},
      {"DS: --num_gpus is not checked", LOCAL4, .devices = "6", .chosen = "0,1,2,3",
       .warning = "RANK_OVERFLOW: deepspeed on localhost starts 6 processes and they see 4 devices"},
      {"DS --include localhost:1,3", LOCAL4, .include = "localhost:1,3", .chosen = "1,3"},
      {"DS --exclude localhost:0", LOCAL4, .exclude = "localhost:0", .chosen = "1,2,3"},
      {"DS: only localhost is known", LOCAL4, .include = "worker-0:1", .code = GSEL_ERR_UNKNOWN_HOST},
      {"TDS test_visible_devices_resolve_to_the_requested_slots", LOCAL4, .env = "CUDA_VISIBLE_DEVICES=0,2",
       .chosen = "0,2"},
      {"DS: the order of the mask is sorted away", LOCAL4, .env = "CUDA_VISIBLE_DEVICES=2,0", .chosen = "0,2",
       .warning = "the order given is lost"},
      {"DS: uuids in the mask fail", DEEPSPEED, .machine = "a100x8", .env = "CUDA_VISIBLE_DEVICES=GPU-c4f82fda",
       .code = GSEL_ERR_SYNTAX, .message = "ValueError: invalid literal for int() with base 10: 'GPU-c4f82fda'"},
      {"DS: the mask is ignored beside --include", LOCAL4, .include = "localhost:1", .env = "CUDA_VISIBLE_DEVICES=3",
       .chosen = "1", .warning = "ignoring it"},
      {"DS: the mask is ignored beside --num_gpus", LOCAL4, .devices = "2", .env = "CUDA_VISIBLE_DEVICES=3",
       .chosen = "0,1", .warning = "ignoring it"},
      {"DS: --num_gpus 0 and a mask meet as flags", LOCAL4, .devices = "0", .env = "CUDA_VISIBLE_DEVICES=1",
       .code = GSEL_ERR_CONFLICT},
      {"DS: an index past the end", LOCAL4, .env = "CUDA_VISIBLE_DEVICES=0,4", .code = GSEL_ERR_OUT_OF_RANGE,
       .message = "No slot '4' specified on host 'localhost'"},
      {"DS: an empty mask hides all", LOCAL4, .env = "CUDA_VISIBLE_DEVICES=", .code = GSEL_ERR_NO_DEVICES,
       .message = "RuntimeError: Unable to proceed, no GPU resources available"},
      {"gsel: the host's own name is taken for localhost", LOCAL4, .include = "local:1", .chosen = "1",
       .warning = "local is taken for localhost"},
      {"gsel: several hosts serve as a hostfile", DEEPSPEED, .machine = "two_hosts", .include = "worker-1:0,3",
       .chosen = W1(0) "," W1(3), .warning = "there is no hostfile"},
      {"gsel: several hosts serve as a hostfile", DEEPSPEED, .machine = "two_hosts", .devices = "2",
       .chosen = W0(0) "," W0(1) "," W1(0) "," W1(1)},
      {"DS: no GPU", DEEPSPEED, .machine = "cpu", .code = GSEL_ERR_NO_DEVICES},
  };
  CHECK_ROWS(rows);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(torchrun),           cmocka_unit_test(accelerate),          cmocka_unit_test(deepspeed_filters),
      cmocka_unit_test(deepspeed_refusals), cmocka_unit_test(deepspeed_hostfiles), cmocka_unit_test(deepspeed_locally),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
