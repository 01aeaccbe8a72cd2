/* See port.h. */
#include "support/port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

uint16_t free_port(void) {
  for (int turn = 0; turn < 1000; ++turn) {
    uint16_t drawn = 0;
    assert_int_equal(getrandom(&drawn, sizeof drawn, 0), sizeof drawn);
    const uint16_t port = (uint16_t)(10000 + drawn % 22000);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    const int status = bind(fd, (struct sockaddr*)&address, sizeof address);
    close(fd);
    if (status == 0) return port;
  }
  fail_msg("no port from 10000 to 31999 is free");
  return 0;
}
