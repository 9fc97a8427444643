// Loads plug-ins with RTLD_DEEPBIND and gives them blocks and mappings to free, to grow and to empty, and takes theirs.
// Prints what it has counted. Usage: deep_host ROUNDS
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); _exit(1); } } while (0)

int early_ok(void);
const char *who(void) { return "host"; }

struct plugin {
  const char *(*asked)(void);
  int (*own_blocks)(void);
  char *(*keeps)(void);
  void *(*takes)(int, size_t);
  void (*gives_back)(void *);
  void *(*grows)(void *, size_t);
  size_t (*usable)(void *);
  void *(*maps)(size_t);
  int (*unmaps)(void *, size_t);
  void *(*remaps)(void *, size_t, size_t);
  int (*empties)(void *, size_t);
  int (*protects)(void *, size_t, int);
} plugin;

static void *find(void *in, const char *name) {
  void *at = dlsym(in, name);
  if (!at) fprintf(stderr, "%s\n", dlerror()), _exit(1);
  return at;
}

static struct plugin functions(void *in) {
#define IN(name) .name = find(in, #name)
  return (struct plugin){IN(asked), IN(own_blocks), IN(keeps), IN(takes), IN(gives_back), IN(grows), IN(usable),
                         IN(maps), IN(unmaps), IN(remaps), IN(empties), IN(protects)};
}

static int is(const unsigned char *at, int byte, size_t size) {
  for (size_t i = 0; i < size; i++) if (at[i] != byte) return 0;
  return 1;
}

static uint64_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static void blocks(uint64_t *state, uint64_t *sum, unsigned char **at, size_t *size, int slots) {
  int i = next(state) % slots;
  if (at[i] && next(state) % 3 == 0) {
    size_t to = next(state) % 3000 + 1;
    at[i] = next(state) % 2 ? plugin.grows(at[i], to) : realloc(at[i], to);
    size_t kept = to < size[i] ? to : size[i];
    CHECK(at[i] && is(at[i], i + 1, kept) && plugin.usable(at[i]) >= to && malloc_usable_size(at[i]) >= to);
    size[i] = to;
  } else {
    CHECK(!at[i] || is(at[i], i + 1, size[i]));
    if (next(state) % 2) plugin.gives_back(at[i]);
    else free(at[i]);
    size[i] = next(state) % 50 ? next(state) % 2000 + 1 : next(state) % 400000 + 1;
    int how = next(state) % 12;
    at[i] = how < 9 ? plugin.takes(how, size[i]) : how < 11 ? malloc(size[i]) : calloc(1, size[i]);
    CHECK(at[i] && ((how != 1 && how != 11) || is(at[i], 0, size[i])));
  }
  memset(at[i], i + 1, size[i]);
  *sum = *sum * 31 + size[i];
}

static void mapping(uint64_t *state, uint64_t *sum) {
  size_t size = (next(state) % 60 + 16) * 4096, half = size / 2 / 4096 * 4096;
  unsigned char *at = next(state) % 2
                          ? plugin.maps(size)
                          : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED && is(at, 0, size));
  memset(at, 5, size);
  CHECK(plugin.empties(at, half) == 0 && is(at, 0, half) && is(at + half, 5, size - half));
  CHECK(plugin.protects(at, half, PROT_READ) == 0 && mprotect(at, half, PROT_READ | PROT_WRITE) == 0);
  if (next(state) % 2) {
    at = plugin.remaps(at, size, size * 2);
    CHECK(at != MAP_FAILED && is(at, 0, half) && is(at + half, 5, size - half) && is(at + size, 0, size));
    size *= 2;
  }
  CHECK((next(state) % 2 ? plugin.unmaps(at, size) : munmap(at, size)) == 0);
  *sum = *sum * 31 + size;
}

static int rounds;
static void *work(void *thread) {
  enum { SLOTS = 200 };
  unsigned char *at[SLOTS] = {0};
  size_t size[SLOTS] = {0};
  uint64_t state = (uintptr_t)thread, sum = 0;
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < 200; i++) blocks(&state, &sum, at, size, SLOTS);
    mapping(&state, &sum);
    CHECK(plugin.own_blocks());
  }
  for (int i = 0; i < SLOTS; i++) plugin.gives_back(at[i]);
  return (void *)(uintptr_t)(sum & 0xffffff);
}

// Whoever looks a function up finds the same.
static void same_functions(void) {
  static const char *const names[] = {
      "malloc", "calloc", "free", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc",
      "pvalloc", "malloc_usable_size", "__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free",
      "__libc_memalign", "mmap", "mmap64", "munmap", "mremap", "madvise", "mprotect", "mlockall"};
  void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  CHECK(libc);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *one = dlsym(RTLD_DEFAULT, names[i]), *other = dlsym(libc, names[i]);
    if (one != other) fprintf(stderr, "%s: %p, by the C library %p\n", names[i], one, other), _exit(1);
  }
  void (*its_free)(void *) = find(libc, "free");
  its_free(strdup("as ctypes does"));
  // A name that only old programs have, and some that only new ones have.
  its_free = (void (*)(void *))dlvsym(libc, "cfree", "GLIBC_2.2.5");
  if (its_free) its_free(strdup("as before glibc 2.26"));
  void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
  void (*both)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
  if (sized) sized(malloc(10), 10);
  if (both) both(aligned_alloc(64, 640), 64, 640);
  dlerror();
}

int main(int argc, char **argv) {
  CHECK(argc == 2 && dlerror() == NULL && early_ok());
  rounds = atoi(argv[1]);
  // By our own RUNPATH, with what it needs beside it.
  void *first = dlopen("first.so", RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND);
  if (!first) fprintf(stderr, "%s\n", dlerror()), _exit(1);
  CHECK(dlerror() == NULL);
  plugin = functions(first);
  printf("asked: %s\n", plugin.asked());
  char *kept = plugin.keeps();
  CHECK(kept && is((void *)kept, 'k', 1000));
  free(kept);
  same_functions();

  errno = 0;
  CHECK(!dlopen("missing.so", RTLD_NOW | RTLD_DEEPBIND) && strstr(dlerror(), "missing.so") && !dlerror());
  CHECK(!dlsym(first, "no_such_function") && strstr(dlerror(), "no_such_function") && !dlerror());
  CHECK(dlmopen(LM_ID_BASE, "first.so", RTLD_NOW | RTLD_DEEPBIND) == first && dlclose(first) == 0);

  // A glibc of its own, which keeps to itself.
  void *apart = dlmopen(LM_ID_NEWLM, "first.so", RTLD_NOW | RTLD_DEEPBIND);
  if (!apart) fprintf(stderr, "%s\n", dlerror()), _exit(1);
  struct plugin its = functions(apart);
  CHECK(its.own_blocks() && its.takes != plugin.takes);
  its.gives_back(its.grows(its.takes(0, 100), 100000));
  CHECK(dlclose(apart) == 0);

  void *cxx = dlopen("cxx.so", RTLD_NOW | RTLD_DEEPBIND);
  if (cxx) {
    char *(*makes)(size_t) = find(cxx, "makes");
    void (*drops)(char *) = find(cxx, "drops");
    CHECK(((int (*)(int))find(cxx, "counts"))(5000) == 97 && ((int (*)(void))find(cxx, "refused"))());
    for (size_t size = 1; size < 3000000; size *= 3) {
      free(makes(size));
      drops(malloc(size));
      drops(makes(size));
    }
  }

  char line[10];
  int fd = open("/dev/zero", O_RDONLY);
  CHECK(read(fd, line, sizeof line) == sizeof line);
  int *behind = dlsym(RTLD_DEFAULT, "reads_behind");
  CHECK(!behind || *behind > 0);

  pthread_t threads[3];
  for (intptr_t t = 0; t < 3; t++) CHECK(!pthread_create(&threads[t], NULL, work, (void *)(t + 1)));
  for (int t = 0; t < 3; t++) {
    void *sum;
    CHECK(!pthread_join(threads[t], &sum));
    printf("sum: %ju\n", (uintmax_t)(uintptr_t)sum);
  }
  pid_t child = fork();
  if (child == 0) {
    rounds = 3;
    work((void *)9);
    void *again = dlopen("first.so", RTLD_NOW | RTLD_DEEPBIND);
    _exit(again != first || !plugin.own_blocks());
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  puts("ok");
}
