// A plug-in that is loaded with RTLD_DEEPBIND: what it calls is looked up in its own libraries first, the C library
// among them, and only then in what is preloaded.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// The program has one too. A plug-in loaded so gets its own.
const char *who(void) { return "plug-in"; }
const char *asked(void) { return who(); }

char *part_copy(const char *text);
void part_free(void *at);

// What C libraries do all the time: the block comes from inside glibc, and is freed here.
int own_blocks(void) {
  char *copy = strdup("some text"), *printed = NULL, *here = getcwd(NULL, 0), *root = realpath("/", NULL);
  int ok = copy && here && root && asprintf(&printed, "%s %d", copy, 7) == 11 && !strcmp(root, "/");
  char *line = NULL, *streamed = NULL;
  size_t size = 0, length = 0;
  FILE *from = fmemopen("first\nsecond\n", 13, "r"), *to = open_memstream(&streamed, &length);
  ok = ok && from && to && getline(&line, &size, from) == 6 && fprintf(to, "%s%s", line, printed) == 17;
  fclose(from), fclose(to);
  ok = ok && length == 17 && !strcmp(streamed, "first\nsome text 7");
  copy = realloc(copy, 5000);
  ok = ok && !strcmp(copy, "some text") && malloc_usable_size(copy) >= 5000;
  free(copy), free(printed), free(here), free(root), free(line), free(streamed);
  copy = part_copy("part");
  ok = ok && !strcmp(copy, "part");
  free(copy);
  part_free(strdup("other"));
  return ok;
}

static int built;
static char *kept;
__attribute__((constructor)) static void before_anything(void) {
  kept = malloc(1000);
  memset(kept, 'k', 1000);
  built = own_blocks();
}
char *keeps(void) { return built ? kept : NULL; }

void *takes(int how, size_t size) {
  void *at = NULL;
  switch (how) {
  case 0: return malloc(size);
  case 1: return calloc(size, 1);
  case 2: return realloc(NULL, size);
  case 3: return reallocarray(NULL, size, 1);
  case 4: return posix_memalign(&at, 128, size) ? NULL : at;
  case 5: return aligned_alloc(64, (size + 63) / 64 * 64);
  case 6: return memalign(256, size);
  case 7: return valloc(size);
  default: return pvalloc(size);
  }
}
void gives_back(void *at) { free(at); }
void *grows(void *at, size_t size) { return realloc(at, size); }
size_t usable(void *at) { return malloc_usable_size(at); }

void *maps(size_t size) {
  return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
int unmaps(void *at, size_t size) { return munmap(at, size); }
void *remaps(void *at, size_t size, size_t to) { return mremap(at, size, to, MREMAP_MAYMOVE); }
int empties(void *at, size_t size) { return madvise(at, size, MADV_DONTNEED); }
int protects(void *at, size_t size, int rights) { return mprotect(at, size, rights); }
