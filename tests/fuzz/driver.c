/* fuzz/driver.c: replays a corpus through a fuzz area without a fuzzer, and then deterministic mutations of it:
 *
 *     fuzz_AREA FILE|FOLDER... [--dict FILE] [--mutate N] [--seed S] [--most-bytes N] [--verbose]
 *
 * Beside what the area claims itself: each input is answered before an alarm goes off, and the memory held for it is in
 * proportion to it. An input that fails is left in the file fuzz_failure and named. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "fuzz/memory.h"

/* An input is a guest for this long; it is a guard against hanging, not a measure of speed. */
enum { MOST_SECONDS = 30 };
/* Of memory: what the largest machine costs, which is 4,096 slots that a hostfile tells of; and for each byte of the
 * input two answers at once, a step for every comma of a mask, each with its JSON. */
enum { BYTES_AT_ALL = 16 << 20, BYTES_PER_BYTE = 1536 };
enum { LONGEST_FILE = 1 << 20, LONGEST_TOKEN = 256 };

struct bytes {
  unsigned char* data;
  size_t size;
};
struct list {
  struct bytes* items;
  size_t count;
};

static struct list corpus, dictionary;
static struct bytes now;        /* what is being tried */
static const char* origin = ""; /* where it comes from */
static size_t most_memory, slowest_ns;

static void* must(void* block) {
  if (block) return block;
  fputs("fuzz: out of memory\n", stderr);
  exit(1);
}

static void append(struct list* list, const void* data, size_t size) {
  list->items = must(realloc(list->items, (list->count + 1) * sizeof *list->items));
  struct bytes* item = &list->items[list->count++];
  item->data = must(malloc(size + 1));
  item->size = size;
  memcpy(item->data, data, size);
  item->data[size] = '\0';
}

/* ---- reading ---- */

static void read_into(struct list* list, const char* path) {
  FILE* file = fopen(path, "rb");
  unsigned char* data = must(malloc(LONGEST_FILE));
  if (!file) {
    fprintf(stderr, "fuzz: %s: %s\n", path, strerror(errno));
    exit(1);
  }
  append(list, data, fread(data, 1, LONGEST_FILE, file));
  fclose(file);
  free(data);
}

static int by_content(const void* a, const void* b) {
  const struct bytes *x = a, *y = b;
  const int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
  return order ? order : (x->size > y->size) - (x->size < y->size);
}

static void read_corpus(const char* path) {
  DIR* folder = opendir(path);
  if (!folder) {
    read_into(&corpus, path);
    return;
  }
  for (struct dirent* entry; (entry = readdir(folder));) {
    if (entry->d_name[0] == '.') continue;
    char name[4096];
    snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    read_into(&corpus, name);
  }
  closedir(folder);
}

/* libFuzzer's form: a token in quotes on each line, with \\, \" and \xHH in it; # begins a comment. */
static void read_dictionary(const char* path) {
  struct list file = {NULL, 0};
  read_into(&file, path);
  for (char* line = strtok((char*)file.items[0].data, "\n"); line; line = strtok(NULL, "\n")) {
    char token[LONGEST_TOKEN];
    size_t size = 0;
    const char* at = strchr(line, '"');
    if (line[0] == '#' || !at) continue;
    for (++at; *at && *at != '"' && size < sizeof token; ++at) {
      unsigned byte;
      if (at[0] == '\\' && at[1] == 'x' && sscanf(at + 2, "%2x", &byte) == 1) {
        token[size++] = (char)byte;
        at += 3;
      } else {
        token[size++] = *at == '\\' && at[1] ? *++at : *at;
      }
    }
    append(&dictionary, token, size);
  }
  free(file.items[0].data);
  free(file.items);
}

/* ---- mutating ---- */

static uint64_t state;

static size_t below(size_t limit) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return limit ? (size_t)((z ^ (z >> 31)) % limit) : 0;
}

/* Puts data in the place of `gone` bytes from `at` on, as far as there is room. */
static void put(struct bytes* input, size_t most, size_t at, size_t gone, const unsigned char* data, size_t size) {
  const size_t tail = input->size - at - gone;
  if (at + size + tail > most) return;
  memmove(input->data + at + size, input->data + at + gone, tail);
  memcpy(input->data + at, data, size);
  input->size = at + size + tail;
}

static void mutate_once(struct bytes* input, size_t most) {
  static unsigned char copy[LONGEST_FILE];
  const size_t at = below(input->size + 1), length = below(input->size - at + 1);
  const size_t part = length > 16 && below(4) ? below(16) : length; /* mostly short parts */
  const struct bytes* other = &corpus.items[below(corpus.count)];
  const size_t from = below(other->size + 1);
  switch (below(9)) {
    case 0:
      if (at < input->size) input->data[at] ^= (unsigned char)(1u << below(8));
      return;
    case 1:
      copy[0] = (unsigned char)below(256);
      return put(input, most, at, at < input->size && below(2), copy, 1);
    case 2:
    case 3:
    case 4:
      if (!dictionary.count) return;
      other = &dictionary.items[below(dictionary.count)];
      return put(input, most, at, below(2) ? part : 0, other->data, other->size);
    case 5:
      return put(input, most, at, part, copy, 0);
    case 6: /* a part twice */
      memcpy(copy, input->data + at, part);
      return put(input, most, at, 0, copy, part);
    case 7: /* from here on another input */
      return put(input, most, at, input->size - at, other->data + from, other->size - from);
    default: /* a part of another */
      return put(input, most, at, part, other->data + from, below(other->size - from + 1));
  }
}

/* ---- trying ---- */

static void leave_failure(int signal_number) {
  const char* why = signal_number == SIGALRM ? ": no answer" : "";
  const int file = open("fuzz_failure", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int written = file >= 0 && write(file, now.data, now.size) == (ssize_t)now.size;
  dprintf(2, "fuzz: signal %d%s, %s; the input of %zu bytes is %s\n", signal_number, why, origin, now.size,
          written ? "in the file fuzz_failure" : "lost");
  signal(SIGABRT, SIG_DFL);
  signal(signal_number, SIG_DFL);
  raise(signal_number == SIGALRM ? SIGABRT : signal_number);
}

static uint64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void try_input(const struct bytes* input, const char* from) {
  /* A copy of its own size, so that reading past the end is seen. */
  now.data = must(malloc(input->size ? input->size : 1));
  now.size = input->size;
  memcpy(now.data, input->data, input->size);
  origin = from;
  alarm(MOST_SECONDS);
  memory_mark();
  const size_t held = memory_held();
  const uint64_t begin = clock_ns();
  LLVMFuzzerTestOneInput(now.data, now.size);
  const size_t ns = clock_ns() - begin, memory = memory_most() - held;
  alarm(0);
  CLAIM(memory <= BYTES_AT_ALL + BYTES_PER_BYTE * now.size, "%zu bytes were held for an input of %zu", memory,
        now.size);
  if (memory > most_memory) most_memory = memory;
  if (ns > slowest_ns) slowest_ns = ns;
  free(now.data);
}

static size_t number(const char* text) {
  char* end;
  const unsigned long long value = text ? strtoull(text, &end, 10) : 0;
  if (!text || *end || end == text) {
    fprintf(stderr, "fuzz: %s: a number is needed\n", text ? text : "the last option");
    exit(1);
  }
  return value;
}

/* What a sanitizer finds ends in abort(), so that the input is left behind. */
const char* __asan_default_options(void);
const char* __ubsan_default_options(void);
const char* __asan_default_options(void) {
  return "abort_on_error=1";
}
const char* __ubsan_default_options(void) {
  return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}

int main(int argc, char** argv) {
  size_t mutations = 0, seed = 1, most = 4096;
  int verbose = 0;
  for (int i = 1; i < argc; ++i) {
    const char* next = argv[i + 1]; /* argv[argc] is NULL */
    if (!strcmp(argv[i], "--verbose"))
      verbose = 1;
    else if (!strcmp(argv[i], "--mutate"))
      mutations = number(next), ++i;
    else if (!strcmp(argv[i], "--seed"))
      seed = number(next), ++i;
    else if (!strcmp(argv[i], "--most-bytes"))
      most = number(next), ++i;
    else if (!strcmp(argv[i], "--dict") && next)
      read_dictionary(argv[++i]);
    else
      read_corpus(argv[i]);
  }
  if (!corpus.count || most > LONGEST_FILE) {
    fputs("fuzz: a corpus is needed, and inputs of at most 1 MiB\n", stderr);
    return 1;
  }
  qsort(corpus.items, corpus.count, sizeof *corpus.items, by_content); /* the same everywhere */
  static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) signal(signals[i], leave_failure);

  for (size_t i = 0; i < corpus.count; ++i) try_input(&corpus.items[i], "of the corpus");
  struct bytes input = {must(malloc(LONGEST_FILE)), 0};
  char from[64];
  for (size_t i = 0; i < mutations; ++i) {
    state = (uint64_t)seed * 0x2545f4914f6cdd1du + i;
    const struct bytes* base = &corpus.items[below(corpus.count)];
    input.size = base->size < most ? base->size : most;
    memcpy(input.data, base->data, input.size);
    for (size_t times = 1 + below(6); times > 0; --times) mutate_once(&input, most);
    snprintf(from, sizeof from, "mutation %zu of seed %zu", i, seed);
    try_input(&input, from);
  }
  free(input.data);
  if (verbose)
    printf("%zu inputs of the corpus, %zu mutations; at most %zu bytes held and %zu us for one\n", corpus.count,
           mutations, most_memory, slowest_ns / 1000);
  return 0;
}
