// Asynchronous reads of its own into memory of the heap, with allocations while they are under way. What comes is checked. Prints "ok".
// Arguments: seconds to go on; "uring" for an io_uring that is only there. With neither support in the kernel: exit code 77.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); _exit(1); } } while (0)
enum { PIECE = 128 << 10, PIECES = 64, DEPTH = 16 };

static uint64_t word(size_t at) { return at * 0x9e3779b97f4a7c15u; }

static void churn(double seconds) {
  static char *kept[64];
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (unsigned i = 0;; i++) {
    free(kept[i % 64]);
    CHECK(kept[i % 64] = malloc(4096));
    kept[i % 64][0] = 1;
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9 > seconds) return;
  }
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 1;
  char parameters[120] = {0};
  int uring = argc > 2 && !strcmp(argv[2], "uring");
  // Before there is much to evict: what was evicted earlier is told by its size.
  if (uring && syscall(SYS_io_uring_setup, 8, parameters) < 0) return 77;
  char *held = malloc(16 << 20);
  for (size_t at = 0; at < 16 << 20; at += 64) held[at] = at >> 6;
  if (uring) {
    churn(seconds);
    puts("ok");
    return 0;
  }
  char name[] = "/var/tmp/bdrun-aio-XXXXXX";
  int fd = mkostemp(name, O_DIRECT);
  CHECK(fd >= 0 && unlink(name) == 0);
  uint64_t *whole = aligned_alloc(4096, (size_t)PIECE * PIECES);
  for (size_t i = 0; i < (size_t)PIECE * PIECES / 8; i++) whole[i] = word(i);
  CHECK(write(fd, whole, (size_t)PIECE * PIECES) == (ssize_t)PIECE * PIECES && fsync(fd) == 0);
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, DEPTH, &context)) return 77;
  uint64_t *to[DEPTH];
  for (int i = 0; i < DEPTH; i++) CHECK(to[i] = aligned_alloc(4096, PIECE));
  unsigned drawn = 1;
  for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
    struct iocb block[DEPTH], *list[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
      drawn = drawn * 1664525 + 1013904223;
      memset(&block[i], 0, sizeof block[i]);
      block[i] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd, .aio_buf = (uintptr_t)to[i],
                               .aio_nbytes = PIECE, .aio_offset = (int64_t)(drawn >> 8) % PIECES * PIECE};
      list[i] = &block[i];
    }
    for (int done = 0; done < DEPTH;) {
      long n = syscall(SYS_io_submit, context, DEPTH - done, list + done);
      CHECK(n > 0);
      done += n;
    }
    churn(0.02);
    struct io_event events[DEPTH];
    for (int done = 0; done < DEPTH;) {
      long n = syscall(SYS_io_getevents, context, 1, DEPTH, events, NULL);
      CHECK(n > 0 || errno == EINTR);
      if (n > 0) done += n;
    }
    for (int i = 0; i < DEPTH; i++)
      for (size_t j = 0; j < PIECE / 8; j++) CHECK(to[i][j] == word(block[i].aio_offset / 8 + j));
  }
  CHECK(syscall(SYS_io_destroy, context) == 0);
  // From here on it may leave.
  churn(seconds);
  for (size_t at = 0; at < 16 << 20; at += 64) CHECK(held[at] == (char)(at >> 6));
  puts("ok");
}
