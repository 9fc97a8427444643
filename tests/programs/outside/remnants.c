/* Rank 1 takes 50 MiB, and 45 that it locks. Rank 0, which takes nothing before, then locks 75 and computes. Together with what of rank 1 cannot be paged
   that is 120 MiB. Each checks what it holds. Files in a directory tell how far they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1 << 20)

static char *held[128];
static int n;

static void take(int mib, int locks) {
  for (int i = 0; i < mib; i++, n++) {
    held[n] = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (held[n] == MAP_FAILED || (locks && mlock(held[n], MIB))) exit(3);
    memset(held[n], n + 1, MIB);
    usleep(2000);
  }
}

static void tell(const char *what) {
  if (close(open(what, O_CREAT | O_WRONLY, 0600))) exit(5);
}

static void await(const char *what) {
  while (access(what, F_OK)) usleep(10000);
}

int main(int count, char **words) {
  if (count < 3 || chdir(words[2])) return 2;
  if (atoi(words[1]) == 0) {
    await("locked");
    take(75, 1);
    for (clock_t begin = clock(); clock() - begin < CLOCKS_PER_SEC * 3 / 2;) {
    }
    tell("computed");
  } else {
    take(50, 0);
    take(45, 1);
    tell("locked");
    await("computed");
  }
  for (int i = 0; i < n; i++)
    for (int k = 0; k < MIB; k++)
      if (held[i][k] != (char)(i + 1)) return 4;
  printf("right %s\n", words[1]);
}
