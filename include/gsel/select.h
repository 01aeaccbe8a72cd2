/* gsel/select.h: selects accelerators: which ones, in which order, and why.
 *
 *     gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
 *     options.devices = gsel_str_from("count:2");
 *     gsel_selection *selection;
 *     if (gsel_resolve(&options, &selection, &err)) ...
 *
 * Resolving is a pure function of (inventory, environment, options): it needs no accelerator, starts no driver
 * context, is safe before fork and never changes the caller's environment. */
#ifndef GSEL_SELECT_H
#define GSEL_SELECT_H

#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

/* ---- inventory: what a machine has ------------------------------------------------------------------- */

typedef struct gsel_inventory gsel_inventory;

/* Facts about one device. Text is borrowed from the object that answered. Unknown numbers are 0, an unknown
 * NUMA node is -1. */
typedef struct gsel_device_info {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t index;              /* position in bus order on its host, from 0 */
  int32_t numa;               /* NUMA node, or -1 */
  gsel_str vendor;            /* "nvidia", "amd", "intel", "habana", "ascend", "apple", "cpu", or another */
  gsel_str name;
  gsel_str uuid;              /* stable identity, such as "GPU-..." */
  gsel_str pci;               /* "00000000:3b:00.0", empty for a CPU */
  uint64_t memory_bytes;
  uint64_t free_bytes;
  int32_t capability_major;   /* compute capability, 0.0 when there is none */
  int32_t capability_minor;
  int32_t compute_units;      /* multiprocessors, or CPU cores */
  int32_t process_count;      /* processes computing on it now, or -1 if unknown */
  gsel_str host;
  gsel_str architecture;      /* "gfx942", "xe-hpc", ...; empty if unknown */
  gsel_str partition_uuid;    /* of the MIG instance that a selection chose, else empty */
  int64_t clock_khz;          /* highest clock of the compute units */
  int32_t partition;          /* of a selection: index of the MIG instance among the device's, or -1 */
  int32_t tile;               /* of a selection: tile of an Intel card, or -1 */
  int32_t partition_count;    /* MIG instances */
  int32_t tiles;
  int32_t compute_mode;       /* GSEL_COMPUTE_MODE_... */
  int32_t integrated;         /* 1: shares the host's memory */
  int32_t accessible;         /* 0: listed by its driver, but this user may not open it */
  int32_t reserved_by;        /* process that has reserved it (gsel/reserve.h), or 0 */
} gsel_device_info;

/* How many processes may compute on an NVIDIA device: any, one, none. */
#define GSEL_COMPUTE_MODE_DEFAULT 0
#define GSEL_COMPUTE_MODE_EXCLUSIVE_PROCESS 1
#define GSEL_COMPUTE_MODE_PROHIBITED 2

#define GSEL_DEVICE_INFO_INIT GSEL_STRUCT_INIT(gsel_device_info)
GSEL_API void gsel_device_info_init(gsel_device_info *info, size_t struct_size);

/* Detects this machine: CPUs through hwloc, accelerators through their drivers' management libraries, opened at run
 * time, and through sysfs (docs/inventory.md lists the sources; a missing source is normal and becomes a note). Creates
 * no context and may be called before fork. With GSEL_VULKAN=1 in the environment Vulkan's devices are enumerated too,
 * which loads the drivers that its loader knows.
 *   out  given to the caller, free with gsel_inventory_free
 * Errors: GSEL_ERR_IO (a driver reported a failure), GSEL_ERR_NOMEM. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_inventory_detect(gsel_inventory **out, gsel_error **err);

/* Reads machines from a JSON file: {"gsel_inventory": 1, "hosts": [{"name", "devices": [...], "links": [...]}]}, with
 * devices in bus order. docs/inventory.md lists the fields, docs/inventory.schema.json is their schema. Errors:
 * GSEL_ERR_IO, GSEL_ERR_PARSE (with line and column or the path of the field). Any thread. Since 0.1. */
GSEL_API gsel_status gsel_inventory_load(gsel_str path, gsel_inventory **out, gsel_error **err);

/* The same from text; messages use `name` in place of the file. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_inventory_parse(gsel_str text, gsel_str name, gsel_inventory **out, gsel_error **err);

/* Number of devices on all hosts, and device `index` of these, grouped by host. The caller sets info->struct_size.
 * GSEL_ERR_ARG when index is out of range. Any thread. Since 0.1. */
GSEL_API int32_t gsel_inventory_device_count(const gsel_inventory *inventory);
GSEL_API gsel_status gsel_inventory_device(const gsel_inventory *inventory, int32_t index, gsel_device_info *info,
                                           gsel_error **err);

/* Number of hosts; name of one, empty when there is no such host. Borrowed. Any thread. Since 0.1. */
GSEL_API int32_t gsel_inventory_host_count(const gsel_inventory *inventory);
GSEL_API gsel_str gsel_inventory_host_name(const gsel_inventory *inventory, int32_t host);

/* A MIG instance of a device. */
typedef struct gsel_partition_info {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str uuid;
  uint64_t memory_bytes;
  int32_t gi; /* GPU instance, or -1 */
  int32_t ci; /* compute instance, or -1 */
} gsel_partition_info;
#define GSEL_PARTITION_INFO_INIT GSEL_STRUCT_INIT(gsel_partition_info)
GSEL_API void gsel_partition_info_init(gsel_partition_info *info, size_t struct_size);
/* Instance `partition` of device `device` (0 .. gsel_device_info.partition_count - 1). GSEL_ERR_ARG. Any thread.
 * Since 0.1. */
GSEL_API gsel_status gsel_inventory_partition(const gsel_inventory *inventory, int32_t device, int32_t partition,
                                              gsel_partition_info *info, gsel_error **err);

/* A connection between two devices of one host. */
typedef struct gsel_interconnect_info {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t a; /* index in bus order on that host */
  int32_t b;
  gsel_str kind; /* "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", or another */
  double bytes_per_second; /* 0: unknown */
  double latency_s;        /* 0: unknown */
} gsel_interconnect_info;
#define GSEL_INTERCONNECT_INFO_INIT GSEL_STRUCT_INIT(gsel_interconnect_info)
GSEL_API void gsel_interconnect_info_init(gsel_interconnect_info *info, size_t struct_size);
/* Interconnects of a host. GSEL_ERR_ARG. Any thread. Since 0.1. */
GSEL_API int32_t gsel_inventory_interconnect_count(const gsel_inventory *inventory, int32_t host);
GSEL_API gsel_status gsel_inventory_interconnect(const gsel_inventory *inventory, int32_t host, int32_t i,
                                                 gsel_interconnect_info *info, gsel_error **err);

/* The inventory as JSON in the format of gsel_inventory_load, and as a text table. Both include the notes (what was
 * searched and not found). Borrowed until gsel_inventory_free. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_inventory_json(const gsel_inventory *inventory);
GSEL_API gsel_str gsel_inventory_text(const gsel_inventory *inventory);

/* Releases; NULL is fine. Any thread. Since 0.1. */
GSEL_API void gsel_inventory_free(gsel_inventory *inventory);

/* ---- resolve ------------------------------------------------------------------------------------------ */

/* A variable of the environment. Layout is frozen. */
typedef struct gsel_env_var {
  gsel_str name;
  gsel_str value;
} gsel_env_var;

/* What to select. All pointers and text are borrowed for the call.
 *   inventory    NULL: gsel_inventory_detect is used
 *   env          [n_env] variables to honour; NULL with n_env 0 means the process's own environment, unless
 *                GSEL_RESOLVE_NO_ENV is set
 *   devices      a spec (docs/selection.md): count:N | index:a,b | pci:a,b | cuda:a,b | visible:a,b | uuid:PREFIX,... |
 *                mig:... | name:GLOB,... | all | none | auto | cuda | cpu | ..., filters joined by &, fallbacks by |.
 *                Not given means auto: every visible accelerator of one vendor; on a machine without accelerators, the
 *                CPU. In some compat systems it is that system's own option.
 *   accelerator  cuda | hip | ze | habana | ascend | mps | cpu | auto; not given means auto
 *   compat       a system, such as lightning, with its own reading of `devices` and variables, which gsel then
 *                reproduces bug for bug; not given means strict. vulkan without an inventory enumerates Vulkan devices,
 *                as GSEL_VULKAN=1 does
 *   order        visible | pci | fastest | most_free | near; not given means the order of the environment, else pci
 *   include, exclude  NAME[:SLOT[,SLOT]] joined by @; not given: every host
 *   hostfile     path of a file of lines "NAME slots=N"; hostfile_text, when given, is its content          */
typedef struct gsel_resolve_options {
  uint32_t struct_size;
  uint32_t reserved;
  const gsel_inventory *inventory;
  const gsel_env_var *env;
  size_t n_env;
  gsel_str devices;
  gsel_str accelerator;
  uint32_t flags;
  uint32_t reserved2;
  gsel_str compat;
  gsel_str order;
  gsel_str include;
  gsel_str exclude;
  gsel_str hostfile;
  gsel_str hostfile_text;
} gsel_resolve_options;

#define GSEL_RESOLVE_NO_ENV 1u   /* honour no variables */
#define GSEL_RESOLVE_PER_RANK 2u /* each device goes to a separate process, see gsel_selection_env */

#define GSEL_RESOLVE_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_resolve_options)
GSEL_API void gsel_resolve_options_init(gsel_resolve_options *options, size_t struct_size);

typedef struct gsel_selection gsel_selection;

/* Selects devices.
 *   out  given to the caller, free with gsel_selection_free; NULL on error
 * Errors: one of the selection codes of gsel/error.h, with the wrong token and its column in the input that
 * gsel_error_file names: "devices", "accelerator" or the variable, such as CUDA_VISIBLE_DEVICES; GSEL_ERR_ARG;
 * GSEL_ERR_IO (hostfile). GSEL_ERR_ALREADY_INITIALIZED: options have neither inventory nor env, and the CUDA driver of
 * this process was initialised with different variables. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_resolve(const gsel_resolve_options *options, gsel_selection **out, gsel_error **err);

/* Number of the systems that `compat` accepts; name and summary of system i. Text is never NULL, and empty past the
 * end. Any thread. Since 0.1. */
GSEL_API int32_t gsel_compat_count(void);
GSEL_API gsel_str gsel_compat_name(int32_t i);
GSEL_API gsel_str gsel_compat_summary(int32_t i);

/* Selected devices, in the order selected. Any thread. Since 0.1. */
GSEL_API int32_t gsel_selection_device_count(const gsel_selection *selection);
GSEL_API gsel_status gsel_selection_device(const gsel_selection *selection, int32_t position, gsel_device_info *info,
                                           gsel_error **err);

/* Every device and MIG instance of the inventory with the reason it was kept (position >= 0) or dropped
 * (position -1). Text is borrowed until gsel_selection_free. Any thread. Since 0.1. */
typedef struct gsel_candidate {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t index;     /* of the device, for gsel_inventory_device */
  int32_t position;  /* in the selection, from 0, or -1 */
  gsel_str reason;
  int32_t partition; /* the MIG instance, or -1 */
  int32_t reserved2;
} gsel_candidate;
#define GSEL_CANDIDATE_INIT GSEL_STRUCT_INIT(gsel_candidate)
GSEL_API void gsel_candidate_init(gsel_candidate *candidate, size_t struct_size);
/* Number of candidates, and candidate i. Since 0.1. */
GSEL_API int32_t gsel_selection_candidate_count(const gsel_selection *selection);
GSEL_API gsel_status gsel_selection_candidate(const gsel_selection *selection, int32_t i, gsel_candidate *candidate,
                                              gsel_error **err);

/* How one token of a variable or of the request was read, and by which rule. `layer` is the layer of software that
 * reads it: "container", "cgroup", "ROCr", "HIP", "CUDA", "request", or a framework. Text is borrowed until
 * gsel_selection_free. Any thread. Since 0.1. */
typedef struct gsel_decision {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str layer;
  gsel_str input; /* the variable, or "devices" */
  gsel_str token;
  gsel_str became;
  gsel_str rule;
  int32_t column; /* of the token in the input, from 1 */
  int32_t reserved2;
} gsel_decision;
#define GSEL_DECISION_INIT GSEL_STRUCT_INIT(gsel_decision)
GSEL_API void gsel_decision_init(gsel_decision *decision, size_t struct_size);
/* Number of decisions, and decision i. Since 0.1. */
GSEL_API int32_t gsel_selection_decision_count(const gsel_selection *selection);
GSEL_API gsel_status gsel_selection_decision(const gsel_selection *selection, int32_t i,
                                              gsel_decision *decision, gsel_error **err);

/* Warnings; in a compat system also the errors of strict reading. Borrowed; empty past the end. Any thread. Since 0.1.
 * */
GSEL_API int32_t gsel_selection_warning_count(const gsel_selection *selection);
GSEL_API gsel_str gsel_selection_warning(const gsel_selection *selection, int32_t i);

/* Number of processes that the compat system would start on this host, or -1. Any thread. Since 0.1. */
GSEL_API int32_t gsel_selection_process_count(const gsel_selection *selection);

/* Environment variables with which a child process sees exactly this selection, with UUIDs where they are accepted.
 *   local_rank  -1: the whole selection; r >= 0: only device r, as a launcher gives to local rank r (a single selected
 *               device, or a CPU, serves every rank; GSEL_ERR_RANK_OVERFLOW when there is no device for r)
 *   out         borrowed until gsel_selection_free; *n_out entries
 * gsel_selection_env is for the first host selected. gsel_selection_host_env takes the name of a host
 * (GSEL_ERR_UNKNOWN_HOST) and a local rank on it. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_selection_env(const gsel_selection *selection, int32_t local_rank, const gsel_env_var **out,
                                        size_t *n_out, gsel_error **err);
GSEL_API gsel_status gsel_selection_host_env(const gsel_selection *selection, gsel_str host, int32_t local_rank,
                                             const gsel_env_var **out, size_t *n_out, gsel_error **err);

/* The selection as JSON (status, devices, env, warnings, trace, candidates) and as text. Borrowed until
 * gsel_selection_free. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_selection_json(const gsel_selection *selection);
GSEL_API gsel_str gsel_selection_text(const gsel_selection *selection);

/* Releases; NULL is fine. Any thread. Since 0.1. */
GSEL_API void gsel_selection_free(gsel_selection *selection);

GSEL_EXTERN_C_END

#endif
