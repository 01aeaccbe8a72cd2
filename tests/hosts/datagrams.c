/* datagrams.c: datagrams serve PORT            sends every datagram back to where it came from, until it is ended
 *              datagrams ask ADDRESS PORT N BYTES GAP_US
 * sends N datagrams, one each GAP_US, and prints how many have come back, the shortest time that one was away, and the
 * time from the first sent to the last come back, in microseconds. It ends when all are back, or 2 s after the last. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 1400, PATIENCE_US = 2000000 };

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static int serve(int fd, const struct sockaddr_in* at) {
  char data[MOST_BYTES];
  if (bind(fd, (const struct sockaddr*)at, sizeof *at)) return perror("datagrams: bind"), 1;
  printf("serving\n");
  fflush(stdout);
  for (;;) {
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    const ssize_t bytes = recvfrom(fd, data, sizeof data, 0, (struct sockaddr*)&from, &length);
    if (bytes > 0) sendto(fd, data, (size_t)bytes, 0, (struct sockaddr*)&from, length);
  }
}

struct answers {
  uint64_t n, shortest_us, last_us;
};

/* Takes what comes until a moment. */
static void take(int fd, struct answers* a, uint64_t until_us) {
  for (uint64_t now = now_us(); now < until_us; now = now_us()) {
    struct pollfd one = {fd, POLLIN, 0};
    char data[MOST_BYTES];
    uint64_t sent;
    if (poll(&one, 1, (int)((until_us - now) / 1000)) <= 0) continue;
    if (recv(fd, data, sizeof data, 0) < (ssize_t)sizeof sent) continue;
    memcpy(&sent, data, sizeof sent);
    a->last_us = now_us();
    if (a->last_us - sent < a->shortest_us) a->shortest_us = a->last_us - sent;
    ++a->n;
  }
}

static int ask(int fd, const struct sockaddr_in* at, uint64_t n, size_t bytes, uint64_t gap_us) {
  struct answers a = {0, UINT64_MAX, now_us()};
  const uint64_t began = now_us();
  char data[MOST_BYTES] = "";
  if (bytes < sizeof began || bytes > sizeof data) return fprintf(stderr, "datagrams: 8 to 1400 bytes\n"), 2;
  if (connect(fd, (const struct sockaddr*)at, sizeof *at)) return perror("datagrams: connect"), 1;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t now = now_us();
    memcpy(data, &now, sizeof now);
    if (send(fd, data, bytes, 0) != (ssize_t)bytes) return perror("datagrams: send"), 1;
    take(fd, &a, now + gap_us);
  }
  for (uint64_t sent = now_us(); a.n < n && now_us() < (a.last_us > sent ? a.last_us : sent) + PATIENCE_US;)
    take(fd, &a, now_us() + 1000);
  printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", a.n, a.shortest_us, a.last_us - began);
  return 0;
}

int main(int argc, char** argv) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), room = 1 << 20;
  struct sockaddr_in at = {.sin_family = AF_INET};
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  if (argc == 3 && !strcmp(argv[1], "serve")) {
    at.sin_port = htons((uint16_t)atoi(argv[2]));
    return serve(fd, &at);
  }
  if (argc != 7 || strcmp(argv[1], "ask") || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1) {
    fprintf(stderr, "usage: datagrams serve PORT | ask ADDRESS PORT N BYTES GAP_US\n");
    return 2;
  }
  at.sin_port = htons((uint16_t)atoi(argv[3]));
  return ask(fd, &at, strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10), strtoull(argv[6], NULL, 10));
}
