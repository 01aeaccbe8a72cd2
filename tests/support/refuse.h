/* support/refuse.h: system calls that fail from here on, as a sandbox refuses them. */
#ifndef GSEL_TESTS_REFUSE_H
#define GSEL_TESTS_REFUSE_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* In this process these calls fail with `number`; 0 ends the list. Whether the machine allows such a filter. */
static inline int refuse(const int* calls, int number) {
  struct sock_filter code[32];
  size_t n = 0;
  code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (; *calls; ++calls) {
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)*calls, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)number);
  }
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {(unsigned short)n, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 0;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* This process may not read the memory of others. */
static inline int refuse_reading_others(void) {
  const int calls[] = {SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace, SYS_kcmp, 0};
  return refuse(calls, EPERM);
}

#endif
