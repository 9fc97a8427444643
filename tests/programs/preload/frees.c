// A thread that frees what is out, and a handler that comes in the middle of that and writes: a call at which the rank may have to
// leave. Prints "ok". Argument: how many seconds to go on.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); _exit(1); } } while (0)
enum { SIZE = 1 << 20, COUNT = 64 };

static int nowhere;
static volatile long ticks;

static void on_tick(int s) {
  (void)s;
  int before = errno;
  CHECK(write(nowhere, "t", 1) == 1);
  ticks++;
  errno = before;
}

int main(int argc, char **argv) {
  time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
  nowhere = open("/dev/null", O_WRONLY);
  CHECK(nowhere >= 0);
  struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  struct itimerval every = {{0, 100}, {0, 100}};
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  // Little is written, so that freeing takes most of the time.
  for (uint64_t seed = 0; time(NULL) < end || ticks < 10; seed++) {
    uint64_t *kept[COUNT];
    for (int i = 0; i < COUNT; i++) {
      CHECK((kept[i] = malloc(SIZE)));
      for (size_t k = 0; k < SIZE / 8; k += 8192) kept[i][k] = seed + i + k;
    }
    for (int i = 0; i < COUNT; i++) {
      for (size_t k = 0; k < SIZE / 8; k += 8192) CHECK(kept[i][k] == seed + i + k);
      free(kept[i]);
    }
  }
  memset(&every, 0, sizeof every);
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  puts("ok");
}
