/* unit/test_select_spec.c: specs read strictly: spaces of indexes, filters, exclusion, fallbacks, orders, instances,
 * several hosts. The grammar is in docs/selection.md. */
#include "support/selection.h"

#define OK_ON(where, asked, got) \
  { .machine = where, .devices = asked, .chosen = got }
#define NOT_ON(where, asked, kind, what, where_, text)                                                                \
  {                                                                                                                   \
    .machine = where, .devices = asked, .code = GSEL_ERR_##kind, .input = "devices", .token = what, .column = where_, \
    .message = text                                                                                                   \
  }

#define ROWS(...)                                             \
  do {                                                        \
    (void)state;                                              \
    static const struct selection_row rows[] = {__VA_ARGS__}; \
    CHECK_ROWS(rows);                                         \
  } while (0)

static void entries_of_a_list_may_be_of_several_spaces(void** state) {
  ROWS(OK_ON("a100x8", "index:3,uuid:GPU-c4f8,pci:1", "3,0,1"), OK_ON("a100x8", "uuid:GPU-e06, index: 7, 5", "2,7,5"),
       OK_ON("mixed4", "pci:0,uuid:GPU-ba", "0,2"),
       NOT_ON("a100x8", "index:0,uuid:GPU-c4f8", DUPLICATE, "GPU-c4f8", 14, "already in the list"),
       NOT_ON("a100x8", "index:0,uuid:", SYNTAX, "", 14, "empty"),
       NOT_ON("a100x8", "index:0,count:1", SYNTAX, "count:1", 9, "decimal"),
       NOT_ON("two_hosts", "index:0,uuid:GPU-1", AMBIGUOUS, "0", 7, "name a host"));
}

static void each_space_counts_its_own_way(void** state) {
  ROWS(OK_ON("a100x8", "pci:3,1", "3,1"), OK_ON("a100x8", "pci:0000:47:00.0", "2"), OK_ON("a100x8", "pci:47:00.0", "2"),
       OK_ON("a100x8", "pci:00000000:0F:00.0, 0", "1,0"),
       NOT_ON("a100x8", "pci:8", OUT_OF_RANGE, "8", 5, "8 accelerators"),
       NOT_ON("a100x8", "pci:48:00.0", UNKNOWN_DEVICE, "48:00.0", 5, "no device"),
       NOT_ON("a100x8", "pci:4f", SYNTAX, "4f", 5, "decimal digits"),
       NOT_ON("a100x8", "pci:0:0:0", SYNTAX, "0:0:0", 5, "bus address"), OK_ON("a100x8", "cuda:7,2", "7,2"),
       NOT_ON("a100x8", "cuda:8", OUT_OF_RANGE, "8", 6, "8 NVIDIA devices"),
       /* CUDA's default order of unlike devices is not published (pytorch 80876 shows one). */
       NOT_ON("mixed4", "cuda:1", AMBIGUOUS, "1", 6, "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
       {.machine = "mixed4", .devices = "cuda:1", .env = "CUDA_DEVICE_ORDER=PCI_BUS_ID", .chosen = "1"},
       {.machine = "a100x8", .devices = "visible:1", .env = "CUDA_VISIBLE_DEVICES=5,3", .chosen = "3"},
       {.machine = "a100x8", .devices = "cuda:3", .env = "CUDA_VISIBLE_DEVICES=5,3", .chosen = "3"},
       {.machine = "a100x8",
        .devices = "visible:2",
        .env = "CUDA_VISIBLE_DEVICES=5,3",
        .code = GSEL_ERR_OUT_OF_RANGE,
        .token = "2",
        .column = 9,
        .message = "2 visible accelerators, visible:0 to visible:1"},
       OK_ON("a100x8", "uuid:c4f8,E06EF", "0,2"), OK_ON("pvc4", "index:1", "1"),
       NOT_ON("laptop", "cuda:1", OUT_OF_RANGE, "1", 6, "1 NVIDIA device,"));
}

static void words_stand_for_sets(void** state) {
  ROWS(OK_ON("a100x8", "none", ""), OK_ON("a100x8", "cuda", "0,1,2,3,4,5,6,7"), OK_ON("cpu", "cpu", "0"),
       OK_ON("cpu", "cpu & count:1", "0"), NOT_ON("cpu", "cpu & count:2", OUT_OF_RANGE, "2", 13, "one CPU"),
       NOT_ON("cpu", "cpu & free>=90TiB", NO_DEVICES, "cpu & free>=90TiB", 1, "does not allow"),
       NOT_ON("cpu", "cpu & index:0", CONFLICT, "index:0", 7, "names accelerators"),
       OK_ON("mi300x8", "hip & count:2", "0,1"), OK_ON("laptop", "cuda", "1"), OK_ON("laptop", "ze", "0"),
       NOT_ON("a100x8", "hip", NO_DEVICES, "hip", 1, "no accelerator"),
       NOT_ON("a100x8", "gpu", SYNTAX, "gpu", 1, "cuda, hip or ze"),
       NOT_ON("a100x8", "cout:2", SYNTAX, "cout", 1, "count was meant?"),
       NOT_ON("a100x8", "index", SYNTAX, "index", 1, "colon"),
       NOT_ON("a100x8", "GPU-c4f8", SYNTAX, "GPU-c4f8", 1, "uuid:GPU-c4f8"),
       NOT_ON("a100x8", "none & cuda", CONFLICT, "none", 1, "alone"),
       NOT_ON("a100x8", "count:2 & index:1", CONFLICT, "index:1", 11, "count:2 says already"));
}

static void auto_takes_discrete_accelerators_of_one_vendor(void** state) {
  ROWS({.machine = "laptop", .chosen = "1"}, OK_ON("laptop", "auto", "1"), OK_ON("laptop", "count:1", "1"),
       OK_ON("laptop", "all", "0,1"), OK_ON("laptop", "integrated", "0"), OK_ON("laptop", "all & !integrated", "1"),
       {.machine = "laptop", .env = "CUDA_VISIBLE_DEVICES=", .chosen = "0"}, OK_ON("beside", "auto & cuda", "0,1"),
       {.machine = "beside", .devices = "count:1", .code = GSEL_ERR_AMBIGUOUS, .message = "cuda & count:1"},
       OK_ON("cpu", "auto", "0"));
}

static void filters_narrow_and_exclamation_marks_exclude(void** state) {
  ROWS(OK_ON("unlike7", "name:*3090*", "2,6"), OK_ON("unlike7", "name:*gv100*,*rtx a6000*", "1,3,5"),
       OK_ON("unlike7", "arch>=8.0 & count:3", "2,3,5"), OK_ON("unlike7", "arch:7.0", "1"),
       OK_ON("unlike7", "arch:7.*", "0,1,4"), OK_ON("unlike7", "memory>=40GiB", "3,5"),
       OK_ON("a100x8", "all & !index:0,1,2,3,4", "5,6,7"), OK_ON("a100x8", "count:2 & ! index: 0 , 2", "1,3"),
       OK_ON("a100x8", "all & !uuid:GPU-c4 & !name:*H100*", "1,2,3,4,5,6,7"),
       OK_ON("mi300x8", "arch:gfx942 & count:1", "0"), OK_ON("a100x8", "count:1 & free>=1 & memory >= 79 GiB", "0"),
       OK_ON("a100x8", "!cuda | cpu", "8"),
       NOT_ON("unlike7", "count:3 & memory>=40GiB", OUT_OF_RANGE, "3", 7, "2 of 7 accelerators"),
       NOT_ON("a100x8", "count:1 & free>=200GB", NO_DEVICES, "count:1 & free>=200GB", 1,
              "free, which free>=200GB does not allow"),
       NOT_ON("a100x8", "index:1 & name:*V100*", CONFLICT, "1", 7, "name:*V100* does not allow"),
       NOT_ON("a100x8", "free>=lots", SYNTAX, "lots", 7, "20GiB"),
       NOT_ON("a100x8", "free>20GiB", SYNTAX, "free", 1, "at least"),
       NOT_ON("a100x8", "free<=1", SYNTAX, "free", 1, "at least"), NOT_ON("a100x8", "arch>=x", SYNTAX, "x", 7, "8.0"),
       NOT_ON("a100x8", "!count:1", SYNTAX, "count", 2, "excluded"),
       NOT_ON("a100x8", "!all", SYNTAX, "all", 2, "excluded"),
       NOT_ON("a100x8", "!index:9", OUT_OF_RANGE, "9", 8, "8 accelerators"),
       NOT_ON("a100x8", "name:", SYNTAX, "", 6, "empty"), NOT_ON("a100x8", "cuda &", SYNTAX, "", 7, "empty"),
       NOT_ON("a100x8", "cuda & hip", CONFLICT, "hip", 8, "joined by |"),
       NOT_ON("a100x8", "name:A100", NO_DEVICES, "name:A100", 1, "name:*A100*"),
       NOT_ON("a100x8", "numa:x", SYNTAX, "x", 6, "decimal"));
}

static void fallbacks_are_tried_in_order(void** state) {
  ROWS(OK_ON("cpu", "cuda|cpu", "0"), OK_ON("a100x8", "cuda | cpu", "0,1,2,3,4,5,6,7"),
       {.machine = "cpu",
        .devices = "cuda|cpu",
        .chosen = "0",
        .warning = "not taken: devices=cuda|cpu: \"cuda\" at column 1"},
       OK_ON("a100x8", "count:9 | count:2", "0,1"), OK_ON("a100x8", "uuid:GPU-00 | index:3", "3"),
       OK_ON("a100x8", "count:1 & name:*H100* | none", ""),
       OK_ON("mi300x8", "cuda & count:2 | hip & count:2 | cpu", "0,1"),
       NOT_ON("a100x8", "count:9|count:10", OUT_OF_RANGE, "9", 7, "none of 2 choices"),
       /* A choice that cannot be meant is refused, and not passed over. */
       NOT_ON("a100x8", "index:1,1|cpu", DUPLICATE, "1", 9, "already in the list"),
       NOT_ON("a100x8", "uuid:GPU-b27c|cpu", AMBIGUOUS, "GPU-b27c", 6, ""),
       NOT_ON("a100x8", "cuda|tpu", SYNTAX, "tpu", 6, "no form"), NOT_ON("a100x8", "cuda|", SYNTAX, "", 6, "empty"),
       OK_ON("two_hosts", "index:0 & host:worker-9 | index:1 & host:worker-1", "worker-1/1"));
}

static void orders_have_stated_ties(void** state) {
  ROWS({.machine = "unlike7", .devices = "all", .order = "pci", .chosen = "0,1,2,3,4,5,6"},
       {.machine = "unlike7", .devices = "all", .order = "fastest", /* pytorch 80876 */ .chosen = "3,5,2,6,1,0,4"},
       {.machine = "unlike7", .devices = "count:2", .order = "most_free", .chosen = "3,5"},
       {.machine = "a100x8", .devices = "all", .order = "pci", .env = "CUDA_VISIBLE_DEVICES=3,1,2", .chosen = "1,2,3"},
       {.machine = "a100x8",
        .devices = "all",
        .order = "visible",
        .env = "CUDA_VISIBLE_DEVICES=3,1,2",
        .chosen = "3,1,2"},
       {.machine = "linked8", .devices = "count:2", .order = "near", .chosen = "0,1"},
       {.machine = "linked8", .devices = "count:2 & !index:0", .order = "near", .chosen = "2,3"},
       {.machine = "linked8", .devices = "count:4", .order = "near", .chosen = "0,1,2,3"},
       {.machine = "a100x8",
        .devices = "index:3,1",
        .order = "fastest",
        .chosen = "3,1",
        .warning = "order does not apply"},
       {.machine = "a100x8",
        .order = "slowest",
        .code = GSEL_ERR_SYNTAX,
        .input = "order",
        .token = "slowest",
        .message = "most_free"});
}

static void a_process_sees_one_instance_of_mig(void** state) {
  ROWS(OK_ON("mig", "mig:0", "1:0"), OK_ON("mig", "mig:1.2", "1:2"), OK_ON("mig", "mig:MIG-6f11", "1:0"),
       OK_ON("mig", "uuid:mig-B648", "1:1"), OK_ON("mig", "mig:MIG-GPU-0f5d/7/0", "1:0"), OK_ON("mig", "index:0", "0"),
       OK_ON("mig", "count:1 & !index:0 & !index:1", "2:0"), OK_ON("mig", "count:1 & !uuid:GPU-d009 & !mig:0", "1:1"),
       NOT_ON("mig", "mig:0,1", UNSUPPORTED, "mig:0,1", 1, "one MIG instance alone"),
       NOT_ON("mig", "all", UNSUPPORTED, "all", 1, "one MIG instance alone"),
       NOT_ON("mig", "index:1", AMBIGUOUS, "1", 7, "MIG-6f11328a"),
       NOT_ON("mig", "mig:99", OUT_OF_RANGE, "99", 5, "instance"), NOT_ON("mig", "mig:x", SYNTAX, "x", 5, "0.1"),
       NOT_ON("mig", "mig:MIG-ffff", UNKNOWN_DEVICE, "MIG-ffff", 5, "no device"),
       NOT_ON("mig", "mig:MIG-GPU-0f5d/7/5", UNKNOWN_DEVICE, "MIG-GPU-0f5d/7/5", 5, "no instance 7/5"),
       {.machine = "mig", .env = "CUDA_VISIBLE_DEVICES=MIG-6f11", .chosen = "1:0"},
       {.machine = "mig",
        .env = "CUDA_VISIBLE_DEVICES=MIG-6f11,MIG-b648",
        .code = GSEL_ERR_UNSUPPORTED,
        .message = "one MIG instance"});
}

static void what_cannot_be_used_is_left_out_or_refused_when_named(void** state) {
  ROWS({.machine = "exclusive4",
        .devices = "index:0",
        .code = GSEL_ERR_BUSY,
        .token = "0",
        .message = "exclusive_process"},
       {.machine = "guarded4", .devices = "index:0", .code = GSEL_ERR_PERMISSION, .token = "0"});
}

static void hosts_are_chosen_by_name_and_slot(void** state) {
  ROWS(OK_ON("two_hosts", "count:1", "worker-0/0,worker-1/0"),
       OK_ON("two_hosts", "index:3,1", "worker-0/3,worker-0/1,worker-1/3,worker-1/1"),
       OK_ON("two_hosts", "host:worker-1 & count:2", "worker-1/0,worker-1/1"),
       OK_ON("two_hosts", "index:2 & host:*-0", "worker-0/2"),
       NOT_ON("two_hosts", "index:0 & host:worker-2", UNKNOWN_HOST, "worker-2", 16, "worker-0 was meant?"),
       OK_ON("two_hosts", "all & !host:worker-0", "worker-1/0,worker-1/1,worker-1/2,worker-1/3"),
       {.machine = "two_hosts",
        .devices = "all",
        .include = "worker-1:2,0@worker-0:3",
        .chosen = "worker-1/2,worker-1/0,worker-0/3"},
       {.machine = "two_hosts",
        .devices = "all",
        .include = "worker-1",
        .exclude = "worker-1:0",
        .chosen = "worker-1/1,worker-1/2,worker-1/3"},
       {.machine = "two_hosts", .devices = "count:1", .hostfile = "worker-1 slots=2\n", .chosen = "worker-1/0"},
       {.machine = "two_hosts", .include = "worker-2", .code = GSEL_ERR_UNKNOWN_HOST, .token = "worker-2", .column = 1},
       {.machine = "two_hosts", .include = "worker-1:4", .code = GSEL_ERR_OUT_OF_RANGE, .token = "4", .column = 10},
       {.machine = "two_hosts", .include = "worker-1:1,1", .code = GSEL_ERR_DUPLICATE, .token = "1", .column = 12},
       {.machine = "two_hosts", .hostfile = "worker-0 slots=9\n", .code = GSEL_ERR_OUT_OF_RANGE});
}

static void near_misses_of_names_are_pointed_out(void** state) {
  ROWS({.machine = "a100x8",
        .env = "CUDA_VISIBLE_DEVICE=1",
        .chosen = "0,1,2,3,4,5,6,7",
        .warning = "CUDA_VISIBLE_DEVICES was meant?"},
       {.machine = "a100x8",
        .env = "HIP_VISIBLE_DEVICE=1",
        .chosen = "0,1,2,3,4,5,6,7",
        .warning = "HIP_VISIBLE_DEVICES was meant?"},
       {.machine = "a100x8", .env = "CUDA_VISIBLE_DEVICES=1", .chosen = "1", .warning = "-"},
       {.machine = "a100x8", .env = "VISIBLE=1\nMY_DEVICES=3", .chosen = "0,1,2,3,4,5,6,7", .warning = "-"});
}

static void unknown_systems_and_fields_are_refused(void** state) {
  ROWS({.machine = "a100x8",
        .compat = "lightening",
        .code = GSEL_ERR_SYNTAX,
        .input = "compat",
        .token = "lightening",
        .message = "lightning was meant?"},
       {.machine = "two_hosts", .compat = "cuda", .code = GSEL_ERR_UNSUPPORTED, .message = "one host"},
       {.machine = "a100x8",
        .compat = "cuda",
        .include = "a",
        .code = GSEL_ERR_CONFLICT,
        .message = "mean nothing to cuda"});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_space_counts_its_own_way),
      cmocka_unit_test(entries_of_a_list_may_be_of_several_spaces),
      cmocka_unit_test(words_stand_for_sets),
      cmocka_unit_test(auto_takes_discrete_accelerators_of_one_vendor),
      cmocka_unit_test(filters_narrow_and_exclamation_marks_exclude),
      cmocka_unit_test(fallbacks_are_tried_in_order),
      cmocka_unit_test(orders_have_stated_ties),
      cmocka_unit_test(a_process_sees_one_instance_of_mig),
      cmocka_unit_test(what_cannot_be_used_is_left_out_or_refused_when_named),
      cmocka_unit_test(hosts_are_chosen_by_name_and_slot),
      cmocka_unit_test(near_misses_of_names_are_pointed_out),
      cmocka_unit_test(unknown_systems_and_fields_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
