// Has what is named like a GPU mapped, its descriptor closed, and looks at 32 MiB argv[1] times.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **words) {
  long rounds = count > 1 ? atol(words[1]) : 1, bad = 0;
  char name[64];
  snprintf(name, sizeof name, "/dev/nvidia-of-a-test-%d", getpid());
  int device = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (device < 0) return 2;
  unlink(name);
  if (ftruncate(device, 4096)) return 2;
  void *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
  if (mapped == MAP_FAILED) return 2;
  close(device);
  size_t size = 32 << 20;
  char *at = malloc(size);
  memset(at, 7, size);
  for (long round = 0; round < rounds; round++) {
    nanosleep(&(struct timespec){0, 10000000}, 0);
    for (size_t i = 0; i < size; i += 512) bad += at[i] != 7;
  }
  printf("bad %ld\n", bad);
  return 0;
}
