// More memory than it may have; once it is traced, calls that a pager would make for it are its end. It goes through all of it then.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "traced.h"

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#define ENDS(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

int main(int count, char **words) {
  size_t size = 100 << 20;
  unsigned *memory = malloc(size);
  unsigned rounds = 0, wrong = 0;
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ENDS(SYS_madvise), ENDS(SYS_process_madvise), ENDS(SYS_mremap), ENDS(SYS_getppid),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  // Without bdrun nobody ever traces it.
  do {
    rounds++;
    for (size_t at = 0; at < size / 4; at += 1024) memory[at] = rounds + at;
  } while (count > 1 && !traced());
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
  for (unsigned turn = 0; turn < 30; turn++) {
    for (size_t at = 0; at < size / 4; at += 1024) wrong += memory[at] != rounds + turn + at, memory[at]++;
    usleep(10000);
  }
  printf("wrong %u\n", wrong);
  return 0;
}
