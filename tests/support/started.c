/* See started.h. */
#include "support/started.h"

#include <fcntl.h>
#include <sys/mman.h>

static int32_t started_number(const char* const* names) {
  for (; *names; ++names)
    if (getenv(*names)) return (int32_t)atoi(getenv(*names));
  fprintf(stderr, "started.h: no launcher says which rank this is\n");
  exit(1);
}

void* started_map(const struct started* s, const char* kind, int32_t n, size_t bytes) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s-%d", s->folder, kind, (int)n);
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)bytes)) return MAP_FAILED;
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return memory;
}

/* An MPI starts in all processes at once, also where two alone will communicate. What GSEL_TEST_TRANSPORT names is what
 * moves large payloads, or the ranks are not where they are meant to be. */
static void started_begin(const struct started* s) {
  gsel_comm_options options;
  gsel_comm_explanation way;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  const char* transport = getenv("GSEL_TEST_TRANSPORT");
  float x = 0;
  gsel_comm* comm = NULL;
  gsel_error* failure = NULL;
  char text[512];
  gsel_comm_options_init(&options, sizeof options);
  snprintf(text, sizeof text, "file://%s/place", s->folder);
  options.rank = s->rank;
  options.world_size = s->size;
  options.rendezvous = gsel_str_from(text);
  if (gsel_comm_init(&options, &comm, &failure)) {
    gsel_error_format(failure, text, sizeof text);
    fprintf(stderr, "started.h: %s\n", text);
    exit(1);
  }
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = &x;
  call.count = 1 << 20;
  gsel_comm_explanation_init(&way, sizeof way);
  if (gsel_comm_explain(comm, &call, &way, NULL) || !transport || strcmp(way.transport, transport)) {
    fprintf(stderr, "started.h: the transport is %s, expected %s\n", way.transport,
            transport ? transport : "one that is named");
    exit(1);
  }
  gsel_comm_free(comm);
}

struct started* started_job(void) {
  static const char* const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL};
  static const char* const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
  static struct started s;
  if (s.folder || !getenv("GSEL_TEST_STARTED")) return &s;
  s.folder = getenv("GSEL_TEST_STARTED");
  s.rank = started_number(ranks);
  s.size = started_number(sizes);
  s.arrived = (volatile int32_t*)started_map(&s, "control", 0, sizeof *s.arrived);
  if ((void*)s.arrived == MAP_FAILED) {
    perror(s.folder);
    exit(1);
  }
  started_begin(&s);
  return &s;
}

int is_started(void) {
  return started_job()->folder != NULL;
}

void started_plain(char* text) {
  static const char host[] = " on node0";
  const size_t n = sizeof host - 1;
  for (char* at = text; is_started() && (at = strstr(at, " on node"));)
    if (strlen(at) >= n)
      memmove(at, at + n, strlen(at + n) + 1);
    else
      break;
}

void started_barrier(struct started* s) {
  const int32_t expected = ++s->barriers * s->size;
  __atomic_add_fetch(s->arrived, 1, __ATOMIC_SEQ_CST);
  for (int turn = 0; __atomic_load_n(s->arrived, __ATOMIC_SEQ_CST) < expected; ++turn) {
    if (turn > 1000000) {
      fprintf(stderr, "started.h: process %d waits for others since 100 s\n", (int)s->rank);
      exit(1);
    }
    usleep(100);
  }
}

void started_unlink(struct started* s) {
  char path[512];
  for (; s->rank == 0 && s->unlinked < s->files; ++s->unlinked) {
    snprintf(path, sizeof path, "%s/shared-%d", s->folder, (int)s->unlinked);
    unlink(path);
  }
}

int32_t started_process(const struct started* s, int32_t rank, int32_t n) {
  return rank * s->size / n;
}

int started_suits(int32_t n) {
  return !is_started() || (n > 1 && n <= started_job()->size);
}

void started_place(struct started* s, char* text, size_t capacity) {
  snprintf(text, capacity, "file://%s/place-%d-%d", s->folder, (int)s->worlds, (int)s->joined++);
}
