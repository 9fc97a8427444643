// A thread that blocks all signals waits for them (argv[2] "waits"), or for something else ("blocks"), while another
// looks at 32 MiB argv[1] times. Prints which signals came, and what waits with a time did.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int ends[2], strange, early, timed;

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec + at.tv_nsec * 1e-9;
}

static void *waits(void *none) {
  sigset_t all;
  sigfillset(&all);
  for (int kind = 0;; kind = (kind + 1) % 3) {
    int signal = 0;
    if (kind == 0) {
      struct timespec time = {0, 50000000};
      double begin = now();
      signal = sigtimedwait(&all, 0, &time);
      timed++;
      if (signal < 0) {
        if (errno != EAGAIN || now() - begin < 0.05) early++;
        continue;
      }
    } else if (kind == 1) {
      signal = sigwaitinfo(&all, 0);
    } else if (sigwait(&all, &signal)) {
      signal = -1;
    }
    if (signal == SIGUSR1) continue;
    if (signal == SIGUSR2) return 0;
    strange++;
  }
}

static void *blocks(void *none) {
  char byte;
  read(ends[0], &byte, 1);
  return 0;
}

int main(int count, char **words) {
  if (count < 3 || pipe(ends)) return 2;
  int rounds = atoi(words[1]), waiting = !strcmp(words[2], "waits"), bad = 0;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, 0);
  pthread_t thread;
  if (pthread_create(&thread, 0, waiting ? waits : blocks, 0)) return 2;
  size_t size = 32 << 20;
  char *at = malloc(size);
  memset(at, 7, size);
  // The other thread alone has them blocked.
  sigemptyset(&all);
  pthread_sigmask(SIG_SETMASK, &all, 0);
  signal(SIGUSR1, SIG_IGN);
  for (int round = 0; round < rounds; round++) {
    nanosleep(&(struct timespec){0, 10000000}, 0);
    for (size_t i = 0; i < size; i += 512) bad += at[i] != 7;
    if (waiting && round % 8 == 0) pthread_kill(thread, SIGUSR1);
  }
  if (waiting) pthread_kill(thread, SIGUSR2);
  else write(ends[1], "", 1);
  pthread_join(thread, 0);
  printf("bad %d, strange %d, early %d, %s\n", bad, strange, early, timed > 0 ? "timed" : "none timed");
  return 0;
}
