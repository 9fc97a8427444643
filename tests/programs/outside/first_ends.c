// The first thread ends, and another goes on: it fills 80 MiB argv[1] times, and tells what is in them.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned turns;

static void *goes_on(void *none) {
  size_t words = 10 << 20;
  unsigned long *at = malloc(words * sizeof *at);
  for (unsigned turn = 0; turn < turns; turn++) {
    unsigned long sum = 0;
    for (size_t i = 0; i < words; i++) at[i] = (turn + i) * 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < words; i++) sum = sum * 31 + at[i];
    printf("%u %lx\n", turn, sum);
  }
  fflush(stdout);
  return none;
}

int main(int count, char **words) {
  turns = count > 1 ? atoi(words[1]) : 2;
  pthread_t thread;
  if (pthread_create(&thread, 0, goes_on, 0)) return 1;
  pthread_exit(0);
}
