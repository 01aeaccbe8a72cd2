/* bench_checkpoint.c: bench_checkpoint FOLDER [GIB [ROUNDS [COMMAND]]]: what a save and a load of a state of GIB GiB
 * cost on the disk of FOLDER, beside plain writes and reads of as many bytes, and how long a save in the background
 * keeps training waiting, beside memcpy of as many bytes into memory whose pages are there. COMMAND, called as `COMMAND
 * FOLDER ELEMS` in each round, does the same with PyTorch: torch_checkpoint.py. One rank, adamw; medians of interleaved
 * rounds. Reads are of a cold cache where this process may drop it (root), which the table says. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <gsel/gsel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ROUNDS = 31, MOST_THREADS = 4 };
#define PIECE ((size_t)8 << 20)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(gsel_status status, gsel_error* const* err) {
  if (!status) return;
  char text[1024];
  gsel_error_format(*err, text, sizeof text);
  fprintf(stderr, "bench_checkpoint: %s\n", text);
  exit(1);
}

static void fail(const char* what) {
  perror(what);
  exit(1);
}

/* ---- a trainer with one parameter ---- */

static gsel_status forward(const gsel_call* call, void* user_data) {
  (void)user_data;
  *(double*)call->outputs[0].data = 0;
  *(double*)call->outputs[1].data = 1;
  return GSEL_OK;
}

static gsel_status backward(const gsel_call* call, void* user_data) {
  float* gradient = call->d_params[0].data;
  (void)user_data;
  for (int64_t i = 0; i < call->d_params[0].n_elems; ++i) gradient[i] = (float)(i % 255 + 1) * 0x1p-10f;
  return GSEL_OK;
}

static gsel_status no_data(const gsel_data_request* request, void* user_data) {
  (void)user_data;
  memset(request->dst.data, 0, sizeof(float));
  return GSEL_OK;
}

static int32_t add_value(gsel_model* model, const char* name, gsel_dtype dtype, uint32_t flags) {
  gsel_error* err = NULL;
  const int64_t one[] = {1};
  int32_t id;
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  options.name = gsel_str_from(name), options.dtype = dtype, options.flags = flags;
  options.dims = one, options.n_dims = flags & GSEL_VALUE_SCALAR ? 0 : 1;
  check(gsel_model_add_value(model, &options, &id, &err), &err);
  return id;
}

static gsel_trainer* make_trainer(gsel_model** model, int64_t elems) {
  gsel_error* err = NULL;
  gsel_trainer* trainer = NULL;
  int32_t w;
  check(gsel_model_create(model, &err), &err);
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from("w"), param.dims = &elems, param.n_dims = 1;
  check(gsel_model_add_param(*model, &param, &w, &err), &err);
  const int32_t x = add_value(*model, "x", GSEL_F32, GSEL_VALUE_INPUT);
  const int32_t sums[] = {add_value(*model, "loss", GSEL_F64, GSEL_VALUE_SCALAR),
                          add_value(*model, "weight", GSEL_F64, GSEL_VALUE_SCALAR)};
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("all"), layer.inputs = &x, layer.n_inputs = 1, layer.outputs = sums, layer.n_outputs = 2;
  layer.params = &w, layer.n_params = 1, layer.flags = GSEL_LAYER_LOSS;
  layer.forward = forward, layer.backward = backward;
  check(gsel_model_add_layer(*model, &layer, NULL, &err), &err);
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_config* config = NULL;
  const char* const text = "[train]\nbatch = 1\noptimizer = \"adamw\"\n";
  check(gsel_config_parse(gsel_str_from(text), gsel_str_from("bench_checkpoint"), &config, &err), &err);
  options.config = config, options.data = no_data;
  check(gsel_trainer_create(NULL, *model, &options, &trainer, &err), &err);
  gsel_config_free(config);
  return trainer;
}

/* ---- what the disk and the memory give ---- */

struct plain {
  const char* path;
  size_t bytes;
  int thread, threads, reads;
};

/* A thread's share of the file, in pieces, around the page cache. */
static void* move_plain(void* argument) {
  const struct plain* p = argument;
  void* piece;
  const int fd = open(p->path, (p->reads ? O_RDONLY : O_WRONLY) | O_DIRECT);
  if (fd < 0 || posix_memalign(&piece, 4096, PIECE)) fail(p->path);
  memset(piece, 1, PIECE);
  for (size_t at = PIECE * (size_t)p->thread; at < p->bytes; at += PIECE * (size_t)p->threads)
    if ((p->reads ? pread(fd, piece, PIECE, (off_t)at) : pwrite(fd, piece, PIECE, (off_t)at)) != (ssize_t)PIECE)
      fail(p->path);
  if (!p->reads && fsync(fd)) fail(p->path);
  close(fd);
  free(piece);
  return NULL;
}

static double plain_seconds(const char* path, size_t bytes, int threads, int reads) {
  struct plain of[MOST_THREADS];
  pthread_t started[MOST_THREADS];
  if (!reads) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) fail(path);
    close(fd);
  }
  const double began = now();
  for (int i = 0; i < threads; ++i) {
    of[i] = (struct plain){path, bytes, i, threads, reads};
    if (pthread_create(&started[i], NULL, move_plain, &of[i])) fail("thread");
  }
  for (int i = 0; i < threads; ++i) pthread_join(started[i], NULL);
  return now() - began;
}

static int drop_cache(void) {
  sync();
  FILE* file = fopen("/proc/sys/vm/drop_caches", "w");
  if (!file) return -1;
  const int failed = fputs("3\n", file) < 0;
  return fclose(file) || failed ? -1 : 0;
}

/* ---- rounds ---- */

enum {
  PLAIN_WRITE,
  PLAIN_WRITE_4,
  SAVE,
  TORCH_SAVE,
  PLAIN_READ,
  PLAIN_READ_4,
  LOAD,
  TORCH_LOAD,
  MEMCPY,
  COPY,
  BLOCKED,
  BACKGROUND,
  MEASURES
};
static const char* const kNames[MEASURES] = {
    "plain write, O_DIRECT, 8 MiB pieces, fsync",
    "the same by 4 threads",
    "gsel_trainer_save",
    "torch.distributed.checkpoint, one file, fsync of it",
    "plain read, O_DIRECT, 8 MiB pieces",
    "the same by 4 threads",
    "gsel_trainer_load",
    "torch.distributed.checkpoint, into tensors that are there",
    "memcpy into touched pages",
    "copy of a save in the background",
    "the same, all that training waits",
    "the same, until it is on the disk",
};

static int remove_one(const char* path, const struct stat* status, int kind, struct FTW* at) {
  (void)status, (void)kind, (void)at;
  return remove(path);
}
static void remove_all(const char* path) {
  nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void save_and_load(gsel_trainer* trainer, const char* folder, double* times) {
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  char path[4096];
  snprintf(path, sizeof path, "%s/saved", folder);
  check(gsel_trainer_save(trainer, gsel_str_from(path), NULL, &report, &err), &err);
  times[SAVE] = report.seconds;
  drop_cache();
  check(gsel_trainer_load(trainer, gsel_str_from(path), &report, &err), &err);
  times[LOAD] = report.seconds;
  remove_all(path);
  check(gsel_trainer_save_begin(trainer, gsel_str_from(path), NULL, &report, &err), &err);
  times[COPY] = report.copy_seconds;
  times[BLOCKED] = report.blocked_seconds;
  check(gsel_trainer_save_wait(trainer, &report, &err), &err);
  times[BACKGROUND] = report.seconds;
  remove_all(path);
}

static char torch_version[64]; /* "" where it is not installed */

static void save_and_load_torch(const char* command, const char* folder, int64_t elems, double* times) {
  char line[4096];
  snprintf(line, sizeof line, "%s '%s' %lld", command, folder, (long long)elems);
  FILE* out = popen(line, "r");
  if (!out) fail("popen");
  if (!fgets(line, sizeof line, out)) line[0] = 0;
  const int failed = pclose(out) != 0;
  const int read = sscanf(line, "%lf %lf %63s", &times[TORCH_SAVE], &times[TORCH_LOAD], torch_version);
  if (!failed && (read == 3 || !strcmp(line, "not installed\n"))) return;
  fprintf(stderr, "bench_checkpoint: %s has failed\n", command);
  exit(1);
}

static void one_round(gsel_trainer* trainer, const char* folder, size_t bytes, double* times) {
  char path[4096];
  snprintf(path, sizeof path, "%s/plain", folder);
  times[PLAIN_WRITE] = plain_seconds(path, bytes, 1, 0);
  times[PLAIN_READ] = plain_seconds(path, bytes, 1, 1);
  times[PLAIN_WRITE_4] = plain_seconds(path, bytes, 4, 0);
  times[PLAIN_READ_4] = plain_seconds(path, bytes, 4, 1);
  remove(path);
  save_and_load(trainer, folder, times);
}

/* By at most 1 GiB, which no cache holds, so that the memory of all that is measured fits. */
static double memcpy_seconds(size_t bytes) {
  const size_t most = (size_t)1 << 30, some = bytes < most ? bytes : most;
  char *from = malloc(some), *to = malloc(some);
  if (!from || !to) fail("memory");
  memset(from, 1, some), memset(to, 2, some);
  const double began = now();
  for (size_t at = 0; at < bytes; at += some) memcpy(to, from, bytes - at < some ? bytes - at : some);
  const double took = now() - began;
  if (to[some / 2] != 1) exit(1);
  free(from), free(to);
  return took;
}

int main(int argc, char** argv) {
  const double gib = argc > 2 ? atof(argv[2]) : 4;
  const int rounds = argc > 3 ? atoi(argv[3]) : 5;
  static double times[MEASURES][MOST_ROUNDS];
  if (argc < 2 || !(gib >= 0.01 && gib <= 1024) || rounds < 1 || rounds > MOST_ROUNDS) {
    fprintf(stderr, "usage: bench_checkpoint FOLDER [GIB [ROUNDS [COMMAND]]]\n");
    return 2;
  }
  const int64_t elems = (int64_t)(gib * (double)((size_t)1 << 30)) / 12;
  const size_t bytes = 12 * (size_t)elems / PIECE * PIECE;
  gsel_error* err = NULL;
  gsel_model* model;
  gsel_trainer* trainer = make_trainer(&model, elems);
  const int is_cold = drop_cache() == 0;
  for (int i = -1; i < rounds; ++i) { /* the first one touches the memory of the copy */
    double once[MEASURES] = {0};
    check(gsel_trainer_step(trainer, NULL, &err), &err);
    one_round(trainer, argv[1], bytes, once);
    once[MEMCPY] = memcpy_seconds(bytes);
    if (argc > 4 && i >= 0) save_and_load_torch(argv[4], argv[1], elems, once);
    for (int m = 0; m < MEASURES && i >= 0; ++m) times[m][i] = once[m];
  }
  printf("| %.2f GiB, %d rounds, reads %s | s, median (least-most) | GB/s |\n|---|--:|--:|\n", gib, rounds,
         is_cold ? "of a cold cache" : "of a warm cache");
  for (int m = 0; m < MEASURES; ++m) {
    if ((m == TORCH_SAVE || m == TORCH_LOAD) && !*torch_version) {
      if (argc > 4) printf("| %s | not installed | |\n", kNames[m]);
      continue;
    }
    qsort(times[m], (size_t)rounds, sizeof(double), ascending);
    printf("| %s | %.2f (%.2f-%.2f) | %.2f |\n", kNames[m], times[m][rounds / 2], times[m][0], times[m][rounds - 1],
           1e-9 * (double)bytes / times[m][rounds / 2]);
  }
  if (*torch_version)
    printf(
        "\nPyTorch %s, without a process group: writes and reads through the page cache, syncs its files and not the "
        "folder.\n",
        torch_version);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  return 0;
}
