// A library that is preloaded behind ours and asks for the next definitions behind itself.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

int reads_behind;
ssize_t read(int fd, void *to, size_t size) {
  reads_behind++;
  return ((ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read"))(fd, to, size);
}
void *malloc(size_t size) { return ((void *(*)(size_t))dlsym(RTLD_NEXT, "malloc"))(size); }
void free(void *at) { ((void (*)(void *))dlsym(RTLD_NEXT, "free"))(at); }
void *realloc(void *at, size_t size) {
  return ((void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc"))(at, size);
}
int munmap(void *at, size_t size) { return ((int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap"))(at, size); }
