// comm/shm/single_copy.cc: private memory of other processes, read by the kernel on our behalf.
#include <sys/uio.h>

#include <cerrno>

#include "comm/shm/link.h"

namespace gsel::shm {

bool Link::can_read(int32_t) const {
  return false;
}

void Link::read_from(int32_t rank, uint64_t address, char* to, uint64_t bytes) {
  while (bytes > 0) {
    const iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(member(rank).pid, &local, 1, &remote, 1, 0);
    if (got <= 0)
      break_link(GSEL_ERR_PEER, rank, fmt::format("rank {} could not be read: {}", rank, errno_text(errno)));
    to += got;
    address += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

}  // namespace gsel::shm
