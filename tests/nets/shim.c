/* nets/shim.c: see shim.h. The functions here have the names of the C library's and are exported by the program, so
 * that libraries find them first. */
#include "nets/shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

static __thread int inside; /* rank + 1 */
static shim_plan plan = {-1, SHIM_N_SITES, 0, 0, 0};
static __thread int memory_spared;
static long calls[SHIM_N_SITES];
static int struck, open_to_signals;
static long blocks;

/* ---- what is tried ---- */

const char* shim_name(shim_site site) {
#define NAME(function) #function,
  static const char* const names[] = {SHIM_SITES(NAME)};
#undef NAME
  return names[site];
}

const int* shim_errors(shim_site site) {
  static const struct {
    shim_site site;
    int errors[5];
  } of[] = {
      {SHIM_accept4, {EINTR, EMFILE, ECONNABORTED, ENOMEM}},
      {SHIM_access, {EACCES}},
      {SHIM_aligned_alloc, {ENOMEM}},
      {SHIM_bind, {EADDRINUSE, ENOMEM}},
      {SHIM_calloc, {ENOMEM}},
      {SHIM_chmod, {EPERM}},
      {SHIM_connect, {EINTR, ECONNREFUSED, EAGAIN, ENOMEM}},
      {SHIM_dlopen, {ENOMEM}},
      {SHIM_epoll_create1, {EMFILE, ENOMEM}},
      {SHIM_epoll_ctl, {ENOMEM, ENOSPC}},
      {SHIM_epoll_wait, {EINTR}},
      {SHIM_eventfd, {EMFILE, ENOMEM}},
      {SHIM_fallocate, {EINTR, ENOSPC, EOPNOTSUPP}},
      {SHIM_fchmod, {EPERM}},
      {SHIM_fcntl, {EPERM, EMFILE}},
      {SHIM_fopen, {EMFILE, ENOENT}},
      {SHIM_fstat, {EIO}},
      {SHIM_ftruncate, {EIO, EFBIG}},
      {SHIM_futex, {EINTR, EAGAIN, ETIMEDOUT}},
      {SHIM_getrandom, {EINTR, ENOSYS}},
      {SHIM_getsockopt, {ENOBUFS}},
      {SHIM_listen, {EADDRINUSE}},
      {SHIM_lstat, {EACCES}},
      {SHIM_madvise, {EINVAL, ENOMEM}},
      {SHIM_malloc, {ENOMEM}},
      {SHIM_membarrier, {ENOSYS}},
      {SHIM_memfd_create, {EMFILE, ENOMEM, ENOSYS}},
      {SHIM_mkdir, {EACCES}},
      {SHIM_mkostemp, {EACCES, EMFILE}},
      {SHIM_mmap, {ENOMEM, EPERM}},
      {SHIM_msync, {EIO}},
      {SHIM_open, {EINTR, EMFILE, EACCES}},
      {SHIM_openat, {EINTR, EMFILE, EACCES}},
      {SHIM_opendir, {EMFILE, EACCES}},
      {SHIM_pidfd_open, {EMFILE, ENOSYS, ESRCH}},
      {SHIM_pipe2, {EMFILE, ENFILE}},
      {SHIM_poll, {EINTR, ENOMEM}},
      {SHIM_posix_fallocate, {EINTR, ENOSPC, ENOMEM}},
      {SHIM_pread, {EINTR, EIO}},
      {SHIM_process_vm_readv, {EPERM, ENOMEM}},
      {SHIM_pthread_create, {EAGAIN}},
      {SHIM_pwrite, {EINTR, ENOSPC}},
      {SHIM_read, {EINTR, EIO}},
      {SHIM_readlink, {EACCES}},
      {SHIM_realloc, {ENOMEM}},
      {SHIM_realpath, {EACCES}},
      {SHIM_recvmsg, {EINTR, ENOMEM}},
      {SHIM_rename, {EACCES}},
      {SHIM_sched_getaffinity, {EINVAL}},
      {SHIM_sendmsg, {EINTR, ENOBUFS, ETOOMANYREFS}},
      {SHIM_setsockopt, {ENOPROTOOPT}},
      {SHIM_socket, {EMFILE, ENOMEM, EACCES}},
      {SHIM_stat, {EACCES}},
      {SHIM_unlink, {EACCES}},
      {SHIM_write, {EINTR, ENOSPC, EIO}},
  };
  static const int none[] = {0};
  for (size_t i = 0; i < sizeof of / sizeof *of; ++i)
    if (of[i].site == site) return of[i].errors;
  return none;
}

void shim_set(const shim_plan* given) {
  plan = *given;
  struck = 0;
  for (int i = 0; i < SHIM_N_SITES; ++i) calls[i] = 0;
}

long shim_calls(shim_site site) {
  return __atomic_load_n(&calls[site], __ATOMIC_RELAXED);
}
int shim_struck(void) {
  return __atomic_load_n(&struck, __ATOMIC_RELAXED);
}
int shim_open_to_signals(void) {
  return __atomic_load_n(&open_to_signals, __ATOMIC_RELAXED);
}
long shim_blocks(void) {
  return __atomic_load_n(&blocks, __ATOMIC_RELAXED);
}

void shim_spare_memory(int spared) {
  memory_spared = spared;
}

void shim_enter(int rank) {
  inside = rank + 1;
}
void shim_leave(void) {
  inside = 0;
}

/* Whether this call is to fail; errno is set then. */
static int fails(shim_site site) {
  if (!inside || inside != plan.rank + 1) return 0;
  const long n = __atomic_add_fetch(&calls[site], 1, __ATOMIC_RELAXED);
  if (plan.site != site || (plan.on ? n < plan.nth : n != plan.nth)) return 0;
  __atomic_store_n(&struck, 1, __ATOMIC_RELAXED);
  errno = plan.error;
  return 1;
}

/* ---- memory ---- */

static int fails_memory(shim_site site) {
  return !memory_spared && fails(site);
}

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);

static void* counted(void* block) {
  if (block) __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
  return block;
}

SEEN void* malloc(size_t bytes) {
  return fails_memory(SHIM_malloc) ? NULL : counted(__libc_malloc(bytes));
}
SEEN void* calloc(size_t count, size_t bytes) {
  return fails_memory(SHIM_calloc) ? NULL : counted(__libc_calloc(count, bytes));
}
SEEN void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails_memory(SHIM_aligned_alloc) ? NULL : counted(__libc_memalign(alignment, bytes));
}
SEEN void* memalign(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}
SEEN void* realloc(void* block, size_t bytes) {
  if (fails_memory(SHIM_realloc)) return NULL;
  void* moved = __libc_realloc(block, bytes);
  return block ? moved : counted(moved);
}
SEEN void free(void* block) {
  if (block) __atomic_sub_fetch(&blocks, 1, __ATOMIC_RELAXED);
  __libc_free(block);
}

/* ---- threads: those that a rank starts inside the library are the rank's ---- */

struct birth {
  void* (*body)(void*);
  void* argument;
  int inside;
};

static void* born(void* given) {
  struct birth birth = *(struct birth*)given;
  free(given);
  inside = birth.inside;
  void* result = birth.body(birth.argument);
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  if (inside && !sigismember(&blocked, SIGUSR1)) __atomic_add_fetch(&open_to_signals, 1, __ATOMIC_RELAXED);
  return result;
}

#define REAL(function)               \
  static __typeof__(&function) real; \
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, #function)

SEEN int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  REAL(pthread_create);
  const int was_inside = inside;
  if (fails(SHIM_pthread_create)) return errno;
  inside = 0;
  struct birth* birth = (struct birth*)malloc(sizeof *birth);
  *birth = (struct birth){body, argument, was_inside};
  const int result = real(thread, attributes, born, birth);
  if (result) free(birth);
  inside = was_inside;
  return result;
}

/* ---- system calls ---- */

#define WRAP(type, function, parameters, arguments, failed)  \
  SEEN type function parameters {                            \
    REAL(function);                                          \
    return fails(SHIM_##function) ? failed : real arguments; \
  }

WRAP(int, accept4, (int fd, struct sockaddr* restrict a, socklen_t* restrict n, int f), (fd, a, n, f), -1)
WRAP(int, access, (const char* p, int m), (p, m), -1)
WRAP(int, bind, (int fd, const struct sockaddr* a, socklen_t n), (fd, a, n), -1)
WRAP(int, chmod, (const char* p, mode_t m), (p, m), -1)
WRAP(int, connect, (int fd, const struct sockaddr* a, socklen_t n), (fd, a, n), -1)
WRAP(void*, dlopen, (const char* p, int f), (p, f), NULL)
WRAP(int, epoll_create1, (int f), (f), -1)
WRAP(int, epoll_ctl, (int e, int o, int fd, struct epoll_event* v), (e, o, fd, v), -1)
WRAP(int, epoll_wait, (int e, struct epoll_event* v, int n, int t), (e, v, n, t), -1)
WRAP(int, eventfd, (unsigned n, int f), (n, f), -1)
WRAP(int, fallocate, (int fd, int m, off_t o, off_t n), (fd, m, o, n), -1)
WRAP(int, fchmod, (int fd, mode_t m), (fd, m), -1)
WRAP(FILE*, fopen, (const char* restrict p, const char* restrict m), (p, m), NULL)
WRAP(int, fstat, (int fd, struct stat* s), (fd, s), -1)
WRAP(int, ftruncate, (int fd, off_t n), (fd, n), -1)
WRAP(ssize_t, getrandom, (void* b, size_t n, unsigned f), (b, n, f), -1)
WRAP(int, getsockopt, (int fd, int l, int o, void* restrict v, socklen_t* restrict n), (fd, l, o, v, n), -1)
WRAP(int, listen, (int fd, int n), (fd, n), -1)
WRAP(int, lstat, (const char* restrict p, struct stat* restrict s), (p, s), -1)
WRAP(int, madvise, (void* a, size_t n, int v), (a, n, v), -1)
WRAP(int, memfd_create, (const char* n, unsigned f), (n, f), -1)
WRAP(int, mkdir, (const char* p, mode_t m), (p, m), -1)
WRAP(int, mkostemp, (char* p, int f), (p, f), -1)
WRAP(void*, mmap, (void* a, size_t n, int p, int f, int fd, off_t o), (a, n, p, f, fd, o), MAP_FAILED)
WRAP(int, msync, (void* a, size_t n, int f), (a, n, f), -1)
WRAP(DIR*, opendir, (const char* p), (p), NULL)
WRAP(int, pipe2, (int fds[2], int f), (fds, f), -1)
WRAP(int, poll, (struct pollfd * p, nfds_t n, int t), (p, n, t), -1)
WRAP(int, posix_fallocate, (int fd, off_t o, off_t n), (fd, o, n), errno)
WRAP(ssize_t, pread, (int fd, void* b, size_t n, off_t o), (fd, b, n, o), -1)
WRAP(ssize_t, process_vm_readv,
     (pid_t p, const struct iovec* l, unsigned long nl, const struct iovec* r, unsigned long nr, unsigned long f),
     (p, l, nl, r, nr, f), -1)
WRAP(ssize_t, pwrite, (int fd, const void* b, size_t n, off_t o), (fd, b, n, o), -1)
WRAP(ssize_t, read, (int fd, void* b, size_t n), (fd, b, n), -1)
WRAP(ssize_t, readlink, (const char* restrict p, char* restrict b, size_t n), (p, b, n), -1)
WRAP(char*, realpath, (const char* restrict p, char* restrict b), (p, b), NULL)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr* m, int f), (fd, m, f), -1)
WRAP(int, rename, (const char* from, const char* to), (from, to), -1)
WRAP(int, sched_getaffinity, (pid_t p, size_t n, cpu_set_t* s), (p, n, s), -1)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr* m, int f), (fd, m, f), -1)
WRAP(int, setsockopt, (int fd, int l, int o, const void* v, socklen_t n), (fd, l, o, v, n), -1)
WRAP(int, socket, (int d, int t, int p), (d, t, p), -1)
WRAP(int, stat, (const char* restrict p, struct stat* restrict s), (p, s), -1)
WRAP(int, unlink, (const char* p), (p), -1)

/* An eventfd or a pipe that is there can be interrupted, and no more. */
SEEN ssize_t write(int fd, const void* buffer, size_t bytes) {
  struct stat about;
  REAL(write);
  const int is_file = fstatat(fd, "", &about, AT_EMPTY_PATH) == 0 && S_ISREG(about.st_mode);
  return (is_file || plan.error == EINTR) && fails(SHIM_write) ? -1 : real(fd, buffer, bytes);
}

SEEN int open(const char* path, int flags, ...) {
  va_list more;
  REAL(open);
  va_start(more, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return fails(SHIM_open) ? -1 : real(path, flags, mode);
}

SEEN int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  REAL(openat);
  va_start(more, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return fails(SHIM_openat) ? -1 : real(folder, path, flags, mode);
}
/* What a fortified openat is without a mode. */
SEEN int __openat_2(int folder, const char* path, int flags);
SEEN int __openat_2(int folder, const char* path, int flags) {
  return openat(folder, path, flags);
}

SEEN int fcntl(int fd, int command, ...) {
  va_list more;
  REAL(fcntl);
  va_start(more, command);
  void* argument = va_arg(more, void*);
  va_end(more);
  return fails(SHIM_fcntl) ? -1 : real(fd, command, argument);
}

SEEN long syscall(long number, ...) {
  va_list more;
  long a[6];
  REAL(syscall);
  va_start(more, number);
  for (int i = 0; i < 6; ++i) a[i] = va_arg(more, long);
  va_end(more);
  const int waits =
      number == SYS_futex && ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT || (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET);
  if (waits && fails(SHIM_futex)) return -1;
  const int registers = number == SYS_membarrier && a[0] == MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;
  if (registers && fails(SHIM_membarrier)) return -1;
  if (number == SYS_pidfd_open && fails(SHIM_pidfd_open)) return -1;
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
