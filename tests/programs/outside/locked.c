/* Locks one page, as users of libgcrypt do, says and records that it begins, and holds memory for a while. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
  size_t n = (size_t)atol(words[1]) << 20;
  char page[4096];
  if (count < 5 || mlock(page, sizeof page)) return 3;
  printf("begin %s\n", words[2]);
  fflush(stdout);
  FILE *file = fopen(words[3], "a");
  fprintf(file, "record %s\n", words[2]);
  fclose(file);
  char *p = malloc(n);
  for (size_t i = 0; i < n; i += 4096) {
    p[i] = (char)(i >> 12);
    if (!(i % (1 << 20))) usleep(2000);
  }
  long sum = 0;
  for (int k = 0; k < atoi(words[4]); k++) {
    for (size_t i = 0; i < n; i += 4096) sum += p[i];
    usleep(300000);
  }
  printf("end %s %ld\n", words[2], sum);
}
