// mmap and its relatives in a rank that is moved all the time: what the kernel promises. Prints "ok".
// With an argument: how many seconds to go on.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); _exit(1); } } while (0)
#define PAGE 4096ul
#define K64 (64ul << 10)
enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static void *map(size_t len) {
  void *p = mmap(NULL, len, RW, ANON, -1, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

static int is(const unsigned char *p, int byte, size_t n) {
  for (size_t i = 0; i < n; i += 61) if (p[i] != byte) return 0;
  return n == 0 || p[n - 1] == byte;
}

// A while in which the rank is moved, if it is to be.
static void pause_here(void) {
  for (int i = 0; i < 20; i++) {
    free(malloc(100));
    struct timespec t = {0, 300000};
    nanosleep(&t, NULL);
  }
}

static sigjmp_buf back;
static void on_fault(int s) { (void)s; siglongjmp(back, 1); }
static int faults(volatile unsigned char *p, int write) {
  if (sigsetjmp(back, 1)) return 1;
  if (write) *p = 1; else (void)*p;
  return 0;
}

int main(int argc, char **argv) {
  signal(SIGSEGV, on_fault);
  time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 0);
  int file = open("/proc/self/exe", O_RDONLY);
  CHECK(file >= 0);
  do {
    // Five odd lengths in a row begin at multiples of 64 KiB only where they are served.
    unsigned char *odd[5];
    int served = 1;
    for (int i = 0; i < 5; i++) odd[i] = map(17 * PAGE), served &= (uintptr_t)odd[i] % K64 == 0;
    CHECK(served == (getenv("BDRUN_PROCESS") != NULL));
    for (int i = 0; i < 5; i++) CHECK(munmap(odd[i], 17 * PAGE) == 0);
    CHECK(munmap(map(PAGE), PAGE) == 0);

    unsigned char *p = map(3 << 20), *end_of_p = p + (3 << 20);
    CHECK(is(p, 0, 3 << 20));
    memset(p, 1, 3 << 20);
    pause_here();
    // Unmapped in the middle and at both ends.
    CHECK(munmap(p + (1 << 20) + PAGE, K64) == 0);
    CHECK(munmap(p, 3 * PAGE) == 0 && munmap(end_of_p - PAGE, PAGE) == 0);
    pause_here();
    CHECK(is(p + 3 * PAGE, 1, (1 << 20) - 2 * PAGE) && is(p + (1 << 20) + PAGE + K64, 1, (2 << 20) - 2 * PAGE - K64));

    // Given back: zeros, and no old bytes later.
    unsigned char *q = p + (2 << 20);
    CHECK(madvise(q + PAGE, 5 * K64, MADV_DONTNEED) == 0);
    CHECK(is(q + PAGE, 0, 5 * K64) && q[0] == 1 && q[PAGE + 5 * K64] == 1);
    pause_here();
    CHECK(is(q + PAGE, 0, 5 * K64) && q[0] == 1 && q[PAGE + 5 * K64] == 1);
    for (int advice = MADV_NORMAL; advice <= MADV_WILLNEED; advice++) CHECK(madvise(q, K64, advice) == 0);
    CHECK(madvise(q, K64, MADV_HUGEPAGE) == 0 && madvise(q, K64, MADV_FREE) == 0);
    CHECK(madvise(q + 1, K64, MADV_DONTNEED) == -1 && errno == EINVAL);

    // Guard pages and sealed data.
    CHECK(mprotect(q, PAGE, PROT_NONE) == 0 && mprotect(q + PAGE, PAGE, PROT_READ) == 0);
    CHECK(faults(q, 0) && faults(q + PAGE, 1) && !faults(q + PAGE, 0) && !faults(q + 2 * PAGE, 1));
    pause_here();
    CHECK(faults(q, 0) && faults(q + PAGE, 1) && !faults(q + PAGE, 0) && !faults(q + 2 * PAGE, 1));
    CHECK(mprotect(q, 2 * PAGE, RW) == 0 && q[0] == 1);

    // Code made at run time.
#ifdef __x86_64__
    unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    memcpy(q, code, sizeof code);
    CHECK(mprotect(q, PAGE, PROT_READ | PROT_EXEC) == 0);
    pause_here();
    CHECK(((int (*)(void))q)() == 42 && mprotect(q, PAGE, RW) == 0);
#endif

    // Put over it: emptied and reserved, opened again, a file.
    CHECK(mmap(q, 2 * K64, PROT_NONE, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == q && faults(q, 0));
    pause_here();
    CHECK(faults(q + K64, 0) && mmap(q, 2 * K64, RW, ANON | MAP_FIXED, -1, 0) == q && is(q, 0, 2 * K64));
    CHECK(mmap(q, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == q && !memcmp(q, "\177ELF", 4) && faults(q, 1));
    CHECK(!served || mmap(q, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED);
    CHECK(mprotect(q, PAGE, RW) == 0);

    // Moved and resized.
    unsigned char *r = map(5 * K64);
    memset(r, 9, 5 * K64);
    pause_here();
    CHECK(mremap(r, 5 * K64, 2 * K64, 0) == r && is(r, 9, 2 * K64));
    r = mremap(r, 2 * K64, 40 * K64, MREMAP_MAYMOVE);
    CHECK(r != MAP_FAILED && is(r, 9, 2 * K64) && is(r + 2 * K64, 0, 38 * K64));
    r[40 * K64 - 1] = 5;
    void *place = mmap(NULL, 41 * K64, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(place != MAP_FAILED);
    r = mremap(r, 40 * K64, 41 * K64, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    CHECK(r == place && is(r, 9, 2 * K64) && r[40 * K64 - 1] == 5 && r[41 * K64 - 1] == 0);
    CHECK(munmap(r, 41 * K64) == 0);

    // What is not served is what it was: a shared page is seen by a child, a private one is not.
    unsigned char *shared = mmap(NULL, K64, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *mine = map(K64);
    CHECK(shared != MAP_FAILED);
    mine[0] = 3;
    pid_t child = fork();
    if (child == 0) {
      CHECK(mine[0] == 3 && munmap(mine + PAGE, PAGE) == 0);
      shared[0] = 1, mine[0] = 4;
      unsigned char *own = map(3 << 20);
      memset(own, 1, 3 << 20);
      _exit(munmap(own, 3 << 20));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && shared[0] == 1 && mine[0] == 3);
    CHECK(munmap(shared, K64) == 0 && munmap(mine, K64) == 0 && munmap(p, 3 << 20) == 0);

    // From the heap, too.
    CHECK(posix_memalign((void **)&q, PAGE, 10 * K64) == 0);
    memset(q, 8, 10 * K64);
    pause_here();
    CHECK(madvise(q + K64, 3 * K64 + PAGE, MADV_DONTNEED) == 0 && is(q + K64, 0, 3 * K64 + PAGE));
    pause_here();
    CHECK(is(q, 8, K64) && is(q + K64, 0, 3 * K64 + PAGE) && is(q + 4 * K64 + PAGE, 8, 6 * K64 - PAGE));
    free(q);
    CHECK(!served || (mlockall(MCL_FUTURE) == -1 && errno == ENOMEM));
  } while (time(NULL) < end);
  puts("ok");
}
