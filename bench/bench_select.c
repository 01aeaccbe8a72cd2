/* bench_select: how long choosing devices takes: pure resolution, reading an inventory, looking at this machine, and
 * reserving. Inventories are made up here; nothing but detection looks at the machine. Prints, for each case, the
 * median and the 10th and 90th percentile of its calls. */
#define _GNU_SOURCE
#include <gsel/gsel.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CALLS = 2000, FEWEST_CALLS = 20 };
static const double kSecondsPerCase = 0.5;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Prints what went wrong and leaves. */
static void check(gsel_status status, gsel_error* const* err) {
  if (!status) return;
  fprintf(stderr, "bench_select: %s\n", gsel_error_message(*err).data);
  exit(1);
}

/* ---- texts ---- */

struct text {
  char* data;
  size_t length, capacity;
};

static void add(struct text* text, const char* format, ...) {
  for (;;) {
    va_list arguments;
    va_start(arguments, format);
    const size_t room = text->capacity - text->length;
    const size_t needed = (size_t)vsnprintf(text->data ? text->data + text->length : NULL, room, format, arguments);
    va_end(arguments);
    if (needed < room) {
      text->length += needed;
      return;
    }
    text->capacity = 2 * text->capacity + needed + 1;
    text->data = realloc(text->data, text->capacity);
    if (!text->data) exit(1);
  }
}

/* As serials are: the first digits of neighbours differ. */
static unsigned uuid_of(int device) {
  return (unsigned)(device + 1) * 2654435761u;
}

static void add_device(struct text* json, const char* vendor, const char* name, int device, int place) {
  add(json,
      "%s{\"vendor\": \"%s\", \"name\": \"%s\", \"uuid\": \"GPU-%08x%08x\", \"pci\": \"%08x:%02x:00.0\", "
      "\"free_bytes\": %d}",
      place ? ", " : "", vendor, name, uuid_of(device), (unsigned)device, (unsigned)place >> 8, (unsigned)place & 0xff,
      device % 97 << 20);
}

static struct text machines(const char* vendor, const char* name, int hosts, int devices) {
  struct text json = {NULL, 0, 0};
  add(&json, "{\"gsel_inventory\": 1, \"hosts\": [");
  for (int host = 0; host < hosts; ++host) {
    add(&json, "%s{\"name\": \"worker-%d\", \"devices\": [", host ? ", " : "", host);
    for (int place = 0; place < devices; ++place) add_device(&json, vendor, name, host * devices + place, place);
    add(&json, "]}");
  }
  add(&json, "]}");
  return json;
}

static gsel_inventory* parsed(struct text json) {
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  check(gsel_inventory_parse((gsel_str){json.data, json.length}, gsel_str_from("bench"), &inventory, &err), &err);
  free(json.data);
  return inventory;
}

/* head, then `count` entries, every `step`-th device from the last on: uuids, or indexes. */
static char* list_of(const char* head, int uuids, int count, int step) {
  struct text text = {NULL, 0, 0};
  add(&text, "%s", head);
  for (int i = count; i-- > 0;)
    add(&text, uuids ? "%sGPU-%08x%08x" : "%s%u", i + 1 < count ? "," : "",
        uuids ? uuid_of(i * step) : (unsigned)(i * step), (unsigned)(i * step));
  return text.data;
}

static char* addresses_of(int count) {
  struct text text = {NULL, 0, 0};
  for (int i = 0; i < count; ++i)
    add(&text, "%s%08x:%02x:00.0", i ? "," : "pci:", (unsigned)(i * 7) >> 8, (unsigned)(i * 7) & 0xff);
  return text.data;
}

/* ---- measuring ---- */

struct work {
  void (*call)(void* what);
  void* what;
};

static void measure(const char* name, const char* target, struct work work) {
  static double times[MOST_CALLS];
  work.call(work.what);
  const double start = now();
  int calls = 0;
  while (calls < MOST_CALLS && (calls < FEWEST_CALLS || now() - start < kSecondsPerCase)) {
    const double begin = now();
    work.call(work.what);
    times[calls++] = now() - begin;
  }
  qsort(times, (size_t)calls, sizeof *times, ascending);
  printf("| %s | %.1f | %.1f to %.1f | %d | %s |\n", name, 1e6 * times[calls / 2], 1e6 * times[calls / 10],
         1e6 * times[calls * 9 / 10], calls, target);
  fflush(stdout);
}

static void resolve(void* what) {
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  check(gsel_resolve(what, &selection, &err), &err);
  gsel_selection_free(selection);
}

struct question {
  const char *name, *devices, *compat, *variable, *value, *order;
};

static void measure_question(const gsel_inventory* inventory, const char* machine, const char* target,
                             const struct question* question) {
  const gsel_env_var env = {gsel_str_from(question->variable), gsel_str_from(question->value)};
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = inventory;
  options.devices = gsel_str_from(question->devices);
  options.compat = gsel_str_from(question->compat);
  options.order = gsel_str_from(question->order);
  options.env = &env;
  options.n_env = question->variable ? 1 : 0;
  options.flags = GSEL_RESOLVE_PER_RANK | (question->variable ? 0 : GSEL_RESOLVE_NO_ENV);
  char name[128];
  snprintf(name, sizeof name, "%s: %s", machine, question->name);
  measure(name, target, (struct work){resolve, &options});
}

static void read_inventory(void* what) {
  const struct text* json = what;
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  check(gsel_inventory_parse((gsel_str){json->data, json->length}, gsel_str_from("bench"), &inventory, &err), &err);
  gsel_inventory_free(inventory);
}

static void detect(void* what) {
  (void)what;
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  check(gsel_inventory_detect(&inventory, &err), &err);
  gsel_inventory_free(inventory);
}

struct reserving {
  gsel_resolve_options resolve;
  gsel_reserve_options options;
};

static void reserve(void* what) {
  struct reserving* asked = what;
  gsel_reservation* held = NULL;
  gsel_error* err = NULL;
  check(gsel_reserve(&asked->resolve, &asked->options, &held, &err), &err);
  gsel_reservation_free(held);
}

static void measure_reserving(const gsel_inventory* inventory) {
  char folder[] = "/tmp/bench_select_XXXXXX";
  if (!mkdtemp(folder)) exit(1);
  struct reserving asked = {GSEL_RESOLVE_OPTIONS_INIT, GSEL_RESERVE_OPTIONS_INIT};
  asked.resolve.inventory = inventory;
  asked.resolve.flags = GSEL_RESOLVE_NO_ENV;
  asked.resolve.devices = gsel_str_from("count:2");
  asked.options.folder = gsel_str_from(folder);
  measure("8 devices: 2 reserved and freed", "", (struct work){reserve, &asked});
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command)) exit(1);
}

#define EACH(question, questions) for (const struct question* question = questions; question->name; ++question)

int main(void) {
  static const char *small = "under 20 us", *large = "under 20000 us";
  gsel_inventory* eight = parsed(machines("nvidia", "NVIDIA A100-SXM4-80GB", 1, 8));
  gsel_inventory* eight_amd = parsed(machines("amd", "AMD Instinct MI300X", 1, 8));
  const struct text many_json = machines("nvidia", "NVIDIA A100-SXM4-80GB", 1, 10000);
  gsel_inventory* hosts = parsed(machines("nvidia", "NVIDIA A100-SXM4-80GB", 1250, 8));
  gsel_inventory* many = NULL;
  gsel_error* err = NULL;
  check(gsel_inventory_parse((gsel_str){many_json.data, many_json.length}, gsel_str_from("bench"), &many, &err), &err);

  printf("| case | median us | 10th to 90th percentile us | calls | target |\n|---|---|---|---|---|\n");
  const char* mask = "CUDA_VISIBLE_DEVICES";
  char* two_uuids = list_of("", 1, 2, 1);
  const struct question few[] = {{"auto", NULL, NULL, NULL, NULL, NULL},
                                 {"count:2", "count:2", NULL, NULL, NULL, NULL},
                                 {"count:4, order near", "count:4", NULL, NULL, NULL, "near"},
                                 {"index:2,0", "index:2,0", NULL, NULL, NULL, NULL},
                                 {"all under a mask of 2 indexes", "all", NULL, mask, "1,0", NULL},
                                 {"all under a mask of 2 uuids", "all", NULL, mask, two_uuids, NULL},
                                 {"compat cuda under a mask of 2 indexes", NULL, "cuda", mask, "1,0", NULL},
                                 {"compat lightning, [0, 1]", "[0, 1]", "lightning", NULL, NULL, NULL},
                                 {"compat lightning, 2 under a mask", "2", "lightning", mask, "3,2,1", NULL},
                                 {"compat torchrun, gpu", "gpu", "torchrun", NULL, NULL, NULL},
                                 {NULL, NULL, NULL, NULL, NULL, NULL}};
  EACH(question, few) measure_question(eight, "8 devices", small, question);
  const struct question amd[] = {{"compat hip", NULL, "hip", "HIP_VISIBLE_DEVICES", "1,0", NULL},
                                 {"hip under ROCR_VISIBLE_DEVICES", "all", NULL, "ROCR_VISIBLE_DEVICES", "1,0", NULL},
                                 {NULL, NULL, NULL, NULL, NULL, NULL}};
  EACH(question, amd) measure_question(eight_amd, "8 AMD devices", small, question);

  char *uuids = list_of("", 1, 1000, 7), *indexes = list_of("", 0, 1000, 7), *named = list_of("uuid:", 1, 1000, 7),
       *places = list_of("visible:", 0, 1000, 7), *addresses = addresses_of(1000),
       *excluded = list_of("all & !uuid:", 1, 1000, 7);
  const struct question lots[] = {{"all", "all", NULL, NULL, NULL, NULL},
                                  {"count:1000", "count:1000", NULL, NULL, NULL, NULL},
                                  {"all & name:*A100*", "all & name:*A100*", NULL, NULL, NULL, NULL},
                                  {"count:5000, order most_free", "count:5000", NULL, NULL, NULL, "most_free"},
                                  {"all, order fastest", "all", NULL, NULL, NULL, "fastest"},
                                  {"uuid: of 1000", named, NULL, NULL, NULL, NULL},
                                  {"visible: of 1000", places, NULL, NULL, NULL, NULL},
                                  {"pci: of 1000 addresses", addresses, NULL, NULL, NULL, NULL},
                                  {"all & !uuid: of 1000", excluded, NULL, NULL, NULL, NULL},
                                  {"all under a mask of 1000 uuids", "all", NULL, mask, uuids, NULL},
                                  {"all under a mask of 1000 indexes", "all", NULL, mask, indexes, NULL},
                                  {"compat cuda, mask of 1000 uuids", NULL, "cuda", mask, uuids, NULL},
                                  {"compat torch, mask of 1000 indexes", NULL, "torch", mask, indexes, NULL},
                                  {NULL, NULL, NULL, NULL, NULL, NULL}};
  EACH(question, lots) measure_question(many, "10000 devices", large, question);
  const struct question spread[] = {{"all", "all", NULL, NULL, NULL, NULL},
                                    {"count:4", "count:4", NULL, NULL, NULL, NULL},
                                    {"index:7,0", "index:7,0", NULL, NULL, NULL, NULL},
                                    {"all & name:*A100*", "all & name:*A100*", NULL, NULL, NULL, NULL},
                                    {"count:4, order most_free", "count:4", NULL, NULL, NULL, "most_free"},
                                    {"count:4, order near", "count:4", NULL, NULL, NULL, "near"},
                                    {"uuid: of 1000", named, NULL, NULL, NULL, NULL},
                                    {"all under a mask of 2 indexes", "all", NULL, mask, "1,0", NULL},
                                    {"compat deepspeed", NULL, "deepspeed", NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL, NULL}};
  EACH(question, spread) measure_question(hosts, "1250 hosts of 8", large, question);

  struct text json = many_json;
  measure("inventory of 10000 devices read", "", (struct work){read_inventory, &json});
  measure("this machine detected", "under 50000 us", (struct work){detect, NULL});
  measure_reserving(eight);
  free(two_uuids);
  free(uuids);
  free(indexes);
  free(named);
  free(places);
  free(addresses);
  free(excluded);
  free(json.data);
  gsel_inventory_free(many);
  gsel_inventory_free(hosts);
  gsel_inventory_free(eight_amd);
  gsel_inventory_free(eight);
  return 0;
}
