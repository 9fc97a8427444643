// Private mappings of /dev/zero, used in all the ways in which anonymous memory can be, and filled argv[1] times: what
// is in them is told.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
static volatile int over;
static unsigned long rounds;

static void check(int ok, const char *what) {
  if (!ok) perror(what), exit(1);
}
static unsigned char *zeros(int device, size_t len, int advice) {
  unsigned char *at = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, device, 0);
  check(at != MAP_FAILED, "mmap");
  check(!madvise(at, len, advice), "madvise");
  return at;
}
static void fill(unsigned char *at, size_t len, unsigned seed) {
  // Every eighth page stays what it was.
  for (size_t i = 0; i < len / PAGE; i++)
    if (i % 8) memcpy(at + i * PAGE + i % 4000, &(unsigned){seed + (unsigned)i * 2654435761u}, 4);
}
static unsigned long sum(const unsigned char *at, size_t len) {
  unsigned long h = 1469598103934665603u;
  for (size_t i = 0; i < len; i += 4) h = (h ^ *(const unsigned *)(at + i)) * 1099511628211u;
  return h;
}
// Counts up in some pages all the time; no count is lost.
static void *counts(void *from) {
  unsigned long *at = from;
  while (!over) {
    for (int i = 0; i < 64; i++) at[i * PAGE / 8]++;
    rounds++;
  }
  return 0;
}

int main(int count, char **words) {
  size_t mib = 1 << 20, len = 40 * mib;
  int device = open("/dev/zero", O_RDONLY);
  unsigned char *a = zeros(device, len, MADV_DONTDUMP), *b = zeros(device, len, MADV_NOHUGEPAGE);
  unsigned char *counted = zeros(device, 64 * PAGE, MADV_RANDOM);
  pthread_t thread;
  check(!pthread_create(&thread, 0, counts, counted), "thread");
  unsigned turns = count > 1 ? atoi(words[1]) : 2;
  for (unsigned turn = 0; turn < turns; turn++) {
    fill(a, len, turn);
    fill(b, len, ~turn);
    printf("%u %lx %lx\n", turn, sum(a, len), sum(b, len));
  }
  // What is given up is zeros, on both sides of a border of what is mapped anew at a time.
  check(!madvise(a + 3 * mib, 6 * mib + PAGE, MADV_DONTNEED), "give up");
  check(!mprotect(b + mib, mib, PROT_READ), "mprotect");
  printf("given up %lx %lx\n", sum(a, len), sum(b, len));
  check(!mprotect(b + mib, mib, PROT_READ | PROT_WRITE), "mprotect");
  // One mapping yet, which can be moved and grow.
  unsigned char *moved = mremap(a, len, len + 16 * mib, MREMAP_MAYMOVE);
  check(moved != MAP_FAILED, "mremap");
  memset(moved + len + 5, 7, 9 * mib);
  printf("moved %lx\n", sum(moved, len + 16 * mib));
  // Another mapping that is met only now, and a child that has all of them.
  unsigned char *late = zeros(device, 16 * mib, MADV_SEQUENTIAL);
  fill(late, 16 * mib, 9);
  fflush(stdout);
  int child = fork(), status;
  if (!child) {
    fill(b, 8 * mib, 77);
    printf("child %lx %lx %lx\n", sum(moved, len), sum(b, len), sum(late, 16 * mib));
    fflush(stdout);
    _exit(0);
  }
  fill(late, 8 * mib, 5);
  check(waitpid(child, &status, 0) == child && !status, "child");
  printf("parent %lx %lx %lx\n", sum(moved, len + 16 * mib), sum(b, len), sum(late, 16 * mib));
  over = 1;
  pthread_join(thread, 0);
  unsigned long lost = 0;
  for (int i = 0; i < 64; i++) lost += rounds - *(unsigned long *)(counted + i * PAGE);
  printf("lost %lu\n", lost);
  return 0;
}
