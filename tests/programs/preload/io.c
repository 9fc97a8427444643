// System calls of several threads into and out of memory that is moved all the time: files, pipes, sockets; and a
// handler that interrupts everything. Prints "ok". Argument: how many seconds to go on.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); _exit(1); } } while (0)
enum { SIZE = 1 << 20 };

static volatile int stop;
// Counted by whichever thread the signal comes to, two at once perhaps.
static long ticks;
static int ticking[2];

static void on_tick(int s) {
  (void)s;
  int before = errno;
  __atomic_add_fetch(&ticks, 1, __ATOMIC_SEQ_CST);
  if (write(ticking[1], "t", 1) < 0) __atomic_sub_fetch(&ticks, 1, __ATOMIC_SEQ_CST);
  errno = before;
}

static void fill(uint64_t *at, uint64_t seed) { for (size_t i = 0; i < SIZE / 8; i++) at[i] = seed * 0x9e3779b97f4a7c15u + i; }
static int holds(const uint64_t *at, uint64_t seed) {
  for (size_t i = 0; i < SIZE / 8; i++) if (at[i] != seed * 0x9e3779b97f4a7c15u + i) return 0;
  return 1;
}

static void all(ssize_t (*call)(int, void *, size_t), int fd, void *at, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t r = call(fd, (char *)at + done, n - done);
    if (r < 0 && errno == EINTR) continue;
    CHECK(r > 0);
    done += r;
  }
}
static ssize_t do_write(int fd, void *at, size_t n) { return write(fd, at, n); }
static ssize_t do_read(int fd, void *at, size_t n) { return read(fd, at, n); }
static ssize_t do_recv(int fd, void *at, size_t n) { return recv(fd, at, n, 0); }
static ssize_t do_send(int fd, void *at, size_t n) { return send(fd, at, n, 0); }

static void *files(void *arg) {
  char name[] = "/var/tmp/bdrun-io-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  uint64_t *out = malloc(SIZE), *in = malloc(SIZE);
  for (uint64_t seed = (uintptr_t)arg; !stop; seed += 7) {
    fill(out, seed);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    all(do_write, fd, out, SIZE);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    all(do_read, fd, in, SIZE);
    CHECK(holds(in, seed) && holds(out, seed));
  }
  return NULL;
}

static int ends[2];
static void *sender(void *arg) {
  uint64_t *out = malloc(SIZE);
  for (uint64_t seed = 1; ; seed++) {
    int last = stop;
    fill(out, last ? 0 : seed);
    all(do_send, ends[0], out, SIZE);
    CHECK(holds(out, last ? 0 : seed));
    if (last) return arg;
  }
}
static void *receiver(void *arg) {
  uint64_t *in = malloc(SIZE);
  for (uint64_t seed = 1; ; seed++) {
    all(do_recv, ends[1], in, SIZE);
    if (holds(in, 0)) return arg;
    CHECK(holds(in, seed));
  }
}

int main(int argc, char **argv) {
  time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && pipe2(ticking, O_NONBLOCK) == 0);
  struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  struct itimerval every = {{0, 2000}, {0, 2000}};
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  pthread_t t[4];
  CHECK(!pthread_create(&t[0], NULL, files, (void *)1) && !pthread_create(&t[1], NULL, files, (void *)2));
  CHECK(!pthread_create(&t[2], NULL, receiver, NULL) && !pthread_create(&t[3], NULL, sender, NULL));
  long counted = 0, least = argc > 1 && !atoi(argv[1]) ? 0 : 10;
  uint64_t *kept[8] = {0};
  for (uint64_t seed = 0; time(NULL) < end || counted < least; seed++) {
    int i = seed % 8;
    CHECK(!kept[i] || holds(kept[i], seed - 8));
    free(kept[i]);
    kept[i] = malloc(SIZE);
    fill(kept[i], seed);
    char tick;
    while (read(ticking[0], &tick, 1) == 1) counted += tick == 't';
  }
  stop = 1;
  for (int i = 0; i < 4; i++) CHECK(!pthread_join(t[i], NULL));
  memset(&every, 0, sizeof every);
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  char tick;
  while (read(ticking[0], &tick, 1) == 1) counted += tick == 't';
  long told = __atomic_load_n(&ticks, __ATOMIC_SEQ_CST);
  if (counted != told) fprintf(stderr, "%ld ticks came, of %ld\n", counted, told);
  CHECK(counted == told && counted >= least);
  puts("ok");
}
