/* nets/shim.h: system calls that fail when they are told to. shim.c stands before the C library for the whole program:
 * the n-th call of one function, made by one rank inside the library, fails with one errno. Threads that a rank's calls
 * start count as the rank. */
#ifndef GSEL_TESTS_NETS_SHIM_H
#define GSEL_TESTS_NETS_SHIM_H

/* X(function): those that the library, the C++ library and the plugins call. */
#define SHIM_SITES(X)                                                                                                 \
  X(accept4)                                                                                                          \
  X(access)                                                                                                           \
  X(aligned_alloc)                                                                                                    \
  X(bind) X(calloc) X(chmod) X(connect) X(dlopen) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(eventfd) X(fallocate) \
      X(fchmod) X(fcntl) X(fopen) X(fstat) X(ftruncate) X(futex) X(getrandom) X(getsockopt) X(listen) X(lstat)        \
          X(madvise) X(malloc) X(membarrier) X(memfd_create) X(mkdir) X(mkostemp) X(mmap) X(msync) X(open) X(openat)  \
              X(opendir) X(pidfd_open) X(pipe2) X(poll) X(posix_fallocate) X(pread) X(process_vm_readv)               \
                  X(pthread_create) X(pwrite) X(read) X(readlink) X(realloc) X(realpath) X(recvmsg) X(rename)         \
                      X(sched_getaffinity) X(sendmsg) X(setsockopt) X(socket) X(stat) X(unlink) X(write)

#define SHIM_SITE(function) SHIM_##function,
typedef enum shim_site { SHIM_SITES(SHIM_SITE) SHIM_N_SITES } shim_site;
#undef SHIM_SITE

typedef struct shim_plan {
  int rank; /* -1: nothing fails */
  shim_site site;
  long nth; /* from 1 */
  int error;
  int on; /* 1: all later ones fail too */
} shim_plan;

const char* shim_name(shim_site site);
/* The errnos that a function is tried with, ended by 0. */
const int* shim_errors(shim_site site);

/* Counts anew. */
void shim_set(const shim_plan* plan);
/* Calls of the plan's rank since then, and whether one was made to fail. */
long shim_calls(shim_site site);
int shim_struck(void);
/* Threads that the library started and that ended without blocking signals, which are the embedder's. */
int shim_open_to_signals(void);
/* Blocks of memory that the program holds. */
long shim_blocks(void);

/* From here on no allocation fails, until 0 is given. */
void shim_spare_memory(int spared);

/* Around a call of the library. */
void shim_enter(int rank);
void shim_leave(void);

#endif
