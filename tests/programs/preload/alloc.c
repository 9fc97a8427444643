// The C functions under libsbmalloc.so: what the standard and glibc promise. Prints "ok".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); _exit(1); } } while (0)

static void *early;
// Before main, and before most other libraries.
__attribute__((constructor)) static void before_main(void) { early = malloc(100000); memset(early, 1, 100000); }

static int aligned(void *p, size_t to) { return p && (uintptr_t)p % to == 0; }

static int is(const unsigned char *p, int byte, size_t n) {
  for (size_t i = 0; i < n; i++) if (p[i] != byte) return 0;
  return 1;
}

static void *churn(void *seed) {
  enum { N = 200 };
  unsigned char *p[N] = {0};
  size_t n[N] = {0};
  uint64_t x = (uintptr_t)seed + 1;
  for (int round = 0; round < 40000; round++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    int i = (x >> 33) % N;
    CHECK(!p[i] || is(p[i], i, n[i] < 64 ? n[i] : 64));
    size_t size = (x >> 40) % ((x >> 20) % 50 == 0 ? 600000 : 2000);
    if (x >> 60 == 0) {
      void *q;
      CHECK(posix_memalign(&q, 64 << ((x >> 10) % 8), size) == 0);
      free(p[i]);
      p[i] = q;
    } else {
      p[i] = realloc(p[i], size + 1);
    }
    n[i] = size;
    memset(p[i], i, size < 64 ? size : 64);
  }
  for (int i = 0; i < N; i++) free(p[i]);
  return NULL;
}

int main(void) {
  CHECK(is(early, 1, 100000));
  free(early);
  // Fresh memory, and the like from freed memory.
  for (int round = 0; round < 3; round++) {
    for (size_t size = 1; size < 3000000; size = size * 3 / 2 + 1) {
      unsigned char *z = calloc(1, size);
      CHECK(aligned(z, size < 16 ? 8 : 16) && is(z, 0, size) && malloc_usable_size(z) >= size);
      memset(z, 0xee, size);
      free(z);
    }
  }
  void *zero = malloc(0), *other = malloc(0);
  CHECK(zero && other && zero != other);
  free(zero), free(other), free(NULL);
  CHECK(malloc_usable_size(NULL) == 0);

  volatile size_t huge = SIZE_MAX / 2;
  errno = 0;
  CHECK(!malloc(huge) && errno == ENOMEM);
  errno = 0;
  CHECK(!calloc(huge, 3) && errno == ENOMEM);
  char *kept = strdup("kept");
  errno = 0;
  CHECK(!realloc(kept, huge) && errno == ENOMEM && !strcmp(kept, "kept"));
  errno = 0;
  CHECK(!reallocarray(kept, huge, 3) && errno == ENOMEM && !strcmp(kept, "kept"));
  kept = reallocarray(kept, 1000, 1000);
  CHECK(kept && !strcmp(kept, "kept"));
  CHECK(realloc(kept, 0) == NULL);

  void *p;
  CHECK(posix_memalign(&p, 3, 8) == EINVAL && posix_memalign(&p, 4, 8) == EINVAL);
  for (size_t to = 8; to <= 8 << 20; to *= 2) {
    CHECK(posix_memalign(&p, to, 1000) == 0 && aligned(p, to));
    memset(p, 1, 1000);
    free(p);
    p = aligned_alloc(to, 3 * to);
    CHECK(aligned(p, to));
    p = realloc(p, 5 * to);
    CHECK(p);
    free(p);
    p = memalign(to, 5);
    CHECK(aligned(p, to));
    free(p);
  }
  CHECK(aligned(p = valloc(10), 4096));
  free(p);
  CHECK(aligned(p = pvalloc(5000), 4096) && malloc_usable_size(p) >= 8192);
  free(p);
  errno = 77;
  p = malloc(50 << 20);
  free(p);
  CHECK(errno == 77);

  // dlsym and dlerror allocate themselves.
  CHECK(dlsym(RTLD_DEFAULT, "no_such_symbol") == NULL && dlerror());
  CHECK(dlsym(RTLD_NEXT, "malloc") != NULL);
  CHECK(!dlopen("/no/such/library.so", RTLD_NOW) && dlerror());

  pthread_t threads[4];
  for (intptr_t t = 0; t < 4; t++) CHECK(!pthread_create(&threads[t], NULL, churn, (void *)t));
  char line[20];
  // Forks meanwhile; the children allocate, start threads and fork themselves.
  for (int round = 0; round < 30; round++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(300);
      char *mine = calloc(1, 1 << 20);
      CHECK(is((void *)mine, 0, 1 << 20));
      free(mine);
      pthread_t thread;
      if (round % 10 == 0) CHECK(!pthread_create(&thread, NULL, churn, &line) && !pthread_join(thread, NULL));
      if (round % 5 == 0) CHECK(system("/bin/echo from a child | grep -q child") == 0);
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  for (int t = 0; t < 4; t++) CHECK(!pthread_join(threads[t], NULL));
  FILE *pipe = popen("echo piped", "r");
  CHECK(pipe && fgets(line, sizeof line, pipe) && !strcmp(line, "piped\n") && pclose(pipe) == 0);
  puts("ok");
}
