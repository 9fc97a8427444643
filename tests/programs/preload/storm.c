// Threads that begin and end all the time, each of which allocates, while another asks for 80 MiB, and looks at them
// argv[1] times.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int end;

static void *briefly(void *none) { return malloc(100); }

static void *storm(void *none) {
  while (!end) {
    pthread_t thread;
    void *block;
    if (pthread_create(&thread, 0, briefly, 0)) continue;
    pthread_join(thread, &block);
    free(block);
    usleep(100);
  }
  return 0;
}

int main(int count, char **words) {
  int turns = count > 1 ? atoi(words[1]) : 1;
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    if (pthread_create(&threads[i], 0, storm, 0)) return 2;
  size_t size = 10 << 20;
  uint64_t *at = malloc(size * sizeof *at);
  for (int turn = 0; turn < turns; turn++) {
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i++) at[i] = (turn + i) * 0x9e3779b97f4a7c15u;
    usleep(2000);
    for (size_t i = 0; i < size; i++) sum = sum * 31 + at[i];
    printf("%d %lx\n", turn, (unsigned long)sum);
  }
  end = 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
  return 0;
}
