/* gpu/cuda_masks.c: what the CUDA driver of this machine makes of CUDA_VISIBLE_DEVICES, beside what gsel says it does.
 * For each mask and each CUDA_DEVICE_ORDER a child process starts the driver and lists the devices it sees by uuid;
 * gsel_resolve with compat "cuda" answers from the inventory alone. Prints a table; exit status 1 when the two differ,
 * 77 when there is no driver to ask. The order of unlike devices under FASTEST_FIRST is published nowhere and gsel says
 * that it guesses: as many devices, but others or in another order, are shown there and are no failure.
 *
 * Only children open libcuda.so.1, and nothing of CUDA's SDK is needed. */
#include <dlfcn.h>
#include <gsel/gsel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_SKIPPED = 77, EXIT_NO_LIBRARY = 3, NO_DEVICE = 100, UUID_BYTES = 16, MAX_DEVICES = 64, MAX_TEXT = 4096 };

/* ---- the child: what the driver sees ------------------------------------------------------------------------- */

static int see(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return printf("%s\n", dlerror()), EXIT_NO_LIBRARY;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*count_devices)(int*) = (int (*)(int*))dlsym(driver, "cuDeviceGetCount");
  int (*device_at)(int*, int) = (int (*)(int*, int))dlsym(driver, "cuDeviceGet");
  void* symbol = dlsym(driver, "cuDeviceGetUuid_v2"); /* tells a MIG instance's own */
  if (!symbol) symbol = dlsym(driver, "cuDeviceGetUuid");
  int (*uuid_of)(unsigned char*, int) = (int (*)(unsigned char*, int))symbol;
  if (!init || !count_devices || !device_at || !uuid_of) return printf("libcuda.so.1 lacks a function\n"), 1;
  const int status = init(0);
  if (status == NO_DEVICE) return 0;
  if (status) return printf("cuInit: %d\n", status), 1;
  int count = 0;
  if (count_devices(&count)) return printf("cuDeviceGetCount failed\n"), 1;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    unsigned char uuid[UUID_BYTES];
    if (device_at(&device, i) || uuid_of(uuid, device)) return printf("device %d tells no uuid\n", i), 1;
    for (int k = 0; k < UUID_BYTES; ++k) printf("%s%02x", k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "", uuid[k]);
    printf("\n");
  }
  return 0;
}

/* ---- both answers as text: a uuid without its GPU- or MIG- per line -------------------------------------------------
 */

static void set(const char* name, const char* value) {
  value ? setenv(name, value, 1) : unsetenv(name);
}

/* The exit status of the child; what it printed into text[MAX_TEXT]. */
static int ask_driver(const char* mask, const char* order, char* text) {
  int ends[2];
  text[0] = '\0';
  if (pipe(ends)) return 1;
  const pid_t child = fork();
  if (child == 0) {
    set("CUDA_VISIBLE_DEVICES", mask);
    set("CUDA_DEVICE_ORDER", order);
    dup2(ends[1], STDOUT_FILENO);
    execl("/proc/self/exe", "cuda_masks", "--see", (char*)NULL);
    _exit(127);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(ends[0], text + length, MAX_TEXT - 1 - length)) > 0;) length += (size_t)n;
  text[length] = '\0';
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether gsel guessed; its answer, or its error, into text[MAX_TEXT]. */
static int ask_gsel(const gsel_inventory* inventory, const char* mask, const char* order, char* text) {
  gsel_env_var env[2];
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = inventory;
  options.compat = gsel_str_from("cuda");
  options.env = env;
  if (mask) env[options.n_env++] = (gsel_env_var){gsel_str_from("CUDA_VISIBLE_DEVICES"), gsel_str_from(mask)};
  if (order) env[options.n_env++] = (gsel_env_var){gsel_str_from("CUDA_DEVICE_ORDER"), gsel_str_from(order)};
  if (options.n_env == 0) options.flags = GSEL_RESOLVE_NO_ENV;
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  text[0] = '\0';
  if (gsel_resolve(&options, &selection, &err)) gsel_error_format(err, text, MAX_TEXT);
  gsel_error_free(err);
  size_t length = strlen(text);
  for (int32_t i = 0; i < gsel_selection_device_count(selection); ++i) {
    gsel_device_info info = GSEL_DEVICE_INFO_INIT;
    if (gsel_selection_device(selection, i, &info, NULL)) continue;
    const char* uuid = info.partition >= 0 ? info.partition_uuid.data : info.uuid.data;
    if (strlen(uuid) > 4) length += (size_t)snprintf(text + length, MAX_TEXT - length, "%s\n", uuid + 4);
  }
  int guessed = 0;
  for (int32_t i = 0; i < gsel_selection_warning_count(selection); ++i)
    guessed |= strstr(gsel_selection_warning(selection, i).data, "is a guess") != NULL;
  gsel_selection_free(selection);
  return guessed;
}

/* "1,0": indices in the inventory, so that a row can be read; what is no list of uuids as it is. */
static void shorten(const gsel_inventory* inventory, const char* lines, char* out, size_t capacity) {
  size_t length = 0;
  snprintf(out, capacity, "%s", *lines ? "" : "none");
  for (const char* line = lines; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    const size_t n = strcspn(line, "\n");
    char label[64];
    snprintf(label, sizeof label, "%.*s", n < 60 ? (int)n : 60, line);
    for (int32_t i = 0; i < gsel_inventory_device_count(inventory); ++i) {
      gsel_device_info info = GSEL_DEVICE_INFO_INIT;
      if (gsel_inventory_device(inventory, i, &info, NULL)) continue;
      if (info.uuid.len > 4 && strncmp(info.uuid.data + 4, line, n) == 0)
        snprintf(label, sizeof label, "%d", info.index);
      for (int32_t p = 0; p < info.partition_count; ++p) {
        gsel_partition_info part = GSEL_PARTITION_INFO_INIT;
        if (gsel_inventory_partition(inventory, i, p, &part, NULL) || part.uuid.len <= 4) continue;
        if (strncmp(part.uuid.data + 4, line, n) == 0) snprintf(label, sizeof label, "%d:%d", info.index, p);
      }
    }
    if (length < capacity)
      length += (size_t)snprintf(out + length, capacity - length, "%s%s", length ? "," : "", label);
  }
}

/* ---- the masks -----------------------------------------------------------------------------------------------------
 */

struct identities {
  char first[96], last[96]; /* uuids of the first and the last NVIDIA device */
  char instances[2][96];    /* of MIG, or empty */
  int count;
};

static struct identities identities_of(const gsel_inventory* inventory) {
  struct identities out = {"", "", {"", ""}, 0};
  int instances = 0;
  for (int32_t i = 0; i < gsel_inventory_device_count(inventory); ++i) {
    gsel_device_info info = GSEL_DEVICE_INFO_INIT;
    if (gsel_inventory_device(inventory, i, &info, NULL) || strcmp(info.vendor.data, "nvidia") != 0) continue;
    if (out.count++ == 0) snprintf(out.first, sizeof out.first, "%s", info.uuid.data);
    snprintf(out.last, sizeof out.last, "%s", info.uuid.data);
    for (int32_t p = 0; p < info.partition_count && instances < 2; ++p) {
      gsel_partition_info part = GSEL_PARTITION_INFO_INIT;
      if (gsel_inventory_partition(inventory, i, p, &part, NULL)) continue;
      snprintf(out.instances[instances++], sizeof out.instances[0], "%s", part.uuid.data);
    }
  }
  return out;
}

static int differences;

static size_t count_lines(const char* text) {
  size_t count = 0;
  for (; *text; ++text) count += *text == '\n';
  return count;
}

static void compare(const gsel_inventory* inventory, const char* mask, const char* order) {
  char driver[MAX_TEXT], own[MAX_TEXT], driver_short[128], own_short[128];
  const int status = ask_driver(mask, order, driver);
  const int guessed = ask_gsel(inventory, mask, order, own);
  const int same = status == 0 && strcmp(driver, own) == 0;
  shorten(inventory, driver, driver_short, sizeof driver_short);
  shorten(inventory, own, own_short, sizeof own_short);
  const int other_order = guessed && status == 0 && count_lines(driver) == count_lines(own);
  differences += !same && !other_order;
  printf("%-14s %-44s %-18s %-18s %s\n", order ? order : "unset", mask ? *mask ? mask : "(empty)" : "unset",
         driver_short, own_short,
         same          ? "same"
         : other_order ? "guessed"
                       : "DIFFERENT");
}

/* In a mask < is the uuid of the first device, > that of the last; { is the first 8 characters of the former, } the
 * first 5. */
static const char* const masks[] = {
    "",
    "0",
    "1",
    "0,1",
    "1,0",
    "2,0",
    "0,0",
    "1,1,0",
    "0,64",
    "64",
    "64,0",
    "-1",
    "0,-1",
    "0,-1,1",
    "+0",
    "-0",
    "NoDevFiles",
    "none",
    "all",
    "0,none",
    "0gpu",
    "0gpu,1gpu",
    " 0",
    "0 ",
    "0, 1",
    "0 ,1",
    "\t0",
    ",0",
    "0,",
    "0,,1",
    "00",
    "0,00",
    "0x0",
    "0x1",
    "1.5",
    "0;1",
    "4294967296",
    "99999999999999999999",
    "<",
    ">",
    ">,<",
    "<,<",
    "{",
    "}",
    "<0",
    "<,0",
    "0,<",
    " <",
    "< ",
    ">, <",
    "GPU-",
    "GPU-zz",
    "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff",
    "<,GPU-ffffffff",
};

static void fill_in(const char* mask, const struct identities* known, char* out, size_t capacity) {
  size_t length = 0;
  out[0] = '\0';
  for (; *mask && length < capacity; ++mask) {
    const int digits = *mask == '{' ? 8 : *mask == '}' ? 5 : 95;
    if (strchr("<>{}", *mask))
      length +=
          (size_t)snprintf(out + length, capacity - length, "%.*s", digits, *mask == '>' ? known->last : known->first);
    else
      length += (size_t)snprintf(out + length, capacity - length, "%c", *mask);
  }
}

static void compare_all(const gsel_inventory* inventory, const char* order) {
  const struct identities known = identities_of(inventory);
  char mask[512];
  compare(inventory, NULL, order);
  for (size_t i = 0; i < sizeof masks / sizeof *masks; ++i) {
    fill_in(masks[i], &known, mask, sizeof mask);
    compare(inventory, mask, order);
  }
  const char* words[] = {known.first, known.instances[0]};
  for (size_t i = 0; i < 2; ++i) { /* the case of a uuid: of its digits, and of all of it */
    if (!*words[i]) continue;
    for (int from = 4; from >= 0; from -= 4) {
      snprintf(mask, sizeof mask, "%s", words[i]);
      for (char* c = mask + from; *c; ++c)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 32 : from == 0 && *c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
      compare(inventory, mask, order);
    }
  }
  if (!*known.instances[0]) return;
  compare(inventory, known.instances[0], order);
  snprintf(mask, sizeof mask, "%s,%s", known.instances[0], known.instances[1]);
  compare(inventory, mask, order);
  snprintf(mask, sizeof mask, "%s,%s", known.instances[0], known.first);
  compare(inventory, mask, order);
  snprintf(mask, sizeof mask, "%.12s", known.instances[0]);
  compare(inventory, mask, order);
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--see") == 0) return see();
  char text[MAX_TEXT];
  const int status = ask_driver(NULL, NULL, text);
  if (status || !*text) {
    printf("skipped: no CUDA driver with a device to compare with%s%s", *text ? ": " : "\n", text);
    return EXIT_SKIPPED;
  }
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  if (gsel_inventory_detect(&inventory, &err)) {
    printf("%s\n", gsel_error_message(err).data);
    return 1;
  }
  printf("%s\n%-14s %-44s %-18s %-18s\n", gsel_inventory_text(inventory).data, "order", "mask", "driver", "gsel");
  static const char* const orders[] = {NULL, "FASTEST_FIRST", "PCI_BUS_ID"};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; ++i) compare_all(inventory, orders[i]);
  printf("%d differences\n", differences);
  gsel_inventory_free(inventory);
  return differences ? 1 : 0;
}
