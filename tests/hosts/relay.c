/* relay.c: relay [--device NAME] [--delay MS] [--loss PERCENT] [--rate MBIT_PER_S] [--seed N] [--mtu BYTES] NET NET
 * A cable between two network namespaces (paths such as /proc/PID/ns/net) for kernels without netem: a TUN device in
 * either, and this process, which hands packets on after a delay, in their order, at most so many bits a second, and
 * loses some of them by drawing numbers. A line on descriptor 3 says that the devices are there; addresses are for
 * others to give. At SIGTERM it prints what it has moved and lost, a line for each direction, and ends.
 *
 * A TUN device without TUNSETOFFLOAD gives packets with their checksums filled in and none longer than its MTU, so that
 * nothing here looks inside them, but for the version: what is not IPv4 (the kernel's own neighbour discovery) is
 * dropped and not counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 65536, PACKETS_AT_ONCE = 64, PACKETS_UNDER_WAY = 65536 };

struct packet {
  struct packet* next;
  uint64_t due_ns;
  uint32_t bytes;
  char data[];
};

/* From one device to the other. */
struct direction {
  int from, to;
  struct packet *first, **last;
  uint64_t free_ns; /* when the packet before has left a cable of that rate */
  uint64_t n_under_way, n_moved, n_lost, n_overflown;
};

static struct {
  const char* device;
  uint64_t delay_ns, mtu, seed;
  double lost, ns_per_byte;
} options = {"eth0", 0, 1500, 1, 0, 0};

static void give_up(const char* what) {
  fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int is_drawn(double chance) {
  options.seed = options.seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(options.seed >> 11) / (double)(1ull << 53) < chance;
}

/* A TUN device in a network namespace; the process stays there. */
static int open_device(const char* network) {
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  const int space = open(network, O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET)) give_up(network);
  close(space);
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", options.device);
  if (fd < 0 || ioctl(fd, TUNSETIFF, &request)) give_up("/dev/net/tun");
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  request.ifr_mtu = (int)options.mtu;
  if (any < 0 || ioctl(any, SIOCSIFMTU, &request)) give_up("an MTU");
  request.ifr_qlen = PACKETS_UNDER_WAY;
  if (ioctl(any, SIOCSIFTXQLEN, &request)) give_up("a length of the device's queue");
  close(any);
  return fd;
}

static void take(struct direction* d, const char* data, uint32_t bytes, uint64_t now) {
  if (((unsigned char)data[0] >> 4) != 4) return;
  if (is_drawn(options.lost)) {
    ++d->n_lost;
    return;
  }
  struct packet* packet = d->n_under_way < PACKETS_UNDER_WAY ? malloc(sizeof *packet + bytes) : NULL;
  if (!packet) {
    ++d->n_overflown;
    return;
  }
  d->free_ns = (d->free_ns > now ? d->free_ns : now) + (uint64_t)(options.ns_per_byte * bytes);
  packet->next = NULL;
  packet->due_ns = d->free_ns + options.delay_ns;
  packet->bytes = bytes;
  memcpy(packet->data, data, bytes);
  *d->last = packet;
  d->last = &packet->next;
  ++d->n_under_way;
}

static void take_some(struct direction* d) {
  static char data[MOST_BYTES];
  for (int i = 0; i < PACKETS_AT_ONCE; ++i) {
    const ssize_t bytes = read(d->from, data, sizeof data);
    if (bytes <= 0) return;
    take(d, data, (uint32_t)bytes, now_ns());
  }
}

/* What is due. A device that takes no more (it is down) has lost the packet. */
static void give_some(struct direction* d) {
  for (int i = 0; i < PACKETS_AT_ONCE && d->first && d->first->due_ns <= now_ns(); ++i) {
    struct packet* packet = d->first;
    if (write(d->to, packet->data, packet->bytes) == (ssize_t)packet->bytes)
      ++d->n_moved;
    else
      ++d->n_overflown;
    d->first = packet->next;
    if (!d->first) d->last = &d->first;
    --d->n_under_way;
    free(packet);
  }
}

/* Until a packet comes or the next one is due. */
static void wait_for_packets(const struct direction* d, int ends) {
  struct pollfd fds[] = {{d[0].from, POLLIN, 0}, {d[1].from, POLLIN, 0}, {ends, POLLIN, 0}};
  uint64_t due = UINT64_MAX;
  for (int i = 0; i < 2; ++i)
    if (d[i].first && d[i].first->due_ns < due) due = d[i].first->due_ns;
  const uint64_t now = now_ns(), wait = due > now ? due - now : 0;
  const struct timespec t = {(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
  if (ppoll(fds, 3, due == UINT64_MAX ? NULL : &t, NULL) < 0 && errno != EINTR) give_up("ppoll");
}

static double number(const char* text, double most) {
  char* end;
  const double value = strtod(text, &end);
  if (end == text || *end || !(value >= 0) || value > most) {
    fprintf(stderr, "relay: \"%s\" is no number from 0 to %g\n", text, most);
    exit(2);
  }
  return value;
}

static int read_options(int argc, char** argv) {
  int i = 1;
  for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
    const char *name = argv[i] + 2, *value = argv[i + 1];
    if (!strcmp(name, "device"))
      options.device = value;
    else if (!strcmp(name, "delay"))
      options.delay_ns = (uint64_t)(number(value, 1e5) * 1e6);
    else if (!strcmp(name, "loss"))
      options.lost = number(value, 100) / 100;
    else if (!strcmp(name, "rate"))
      options.ns_per_byte = 8e3 / number(value, 1e6);
    else if (!strcmp(name, "seed"))
      options.seed = (uint64_t)number(value, 1e15);
    else if (!strcmp(name, "mtu"))
      options.mtu = (uint64_t)number(value, 65535);
    else
      break;
  }
  return i;
}

int main(int argc, char** argv) {
  const int i = read_options(argc, argv);
  if (argc - i != 2) {
    fprintf(stderr,
            "usage: relay [--device NAME] [--delay MS] [--loss PERCENT] [--rate MBIT_PER_S] [--seed N] [--mtu BYTES] "
            "NET NET\n");
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  const int ends = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  const int a = open_device(argv[i]), b = open_device(argv[i + 1]);
  struct direction d[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
  for (int k = 0; k < 2; ++k) d[k].last = &d[k].first;
  setpriority(PRIO_PROCESS, 0, -20); /* a cable waits for no processor; where that is not permitted, it may */
  dprintf(3, "ready\n");
  close(3);
  for (struct signalfd_siginfo info; read(ends, &info, sizeof info) <= 0;) {
    wait_for_packets(d, ends);
    for (int k = 0; k < 2; ++k) take_some(&d[k]);
    for (int k = 0; k < 2; ++k) give_some(&d[k]);
  }
  for (int k = 0; k < 2; ++k)
    printf("moved %" PRIu64 " lost %" PRIu64 " overflown %" PRIu64 " waiting %" PRIu64 "\n", d[k].n_moved, d[k].n_lost,
           d[k].n_overflown, d[k].n_under_way);
  return 0;
}
