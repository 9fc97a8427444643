/* Holds more and more memory with a pattern, checks it, and becomes the same again with what words are left, in the way the next one
   names: `exec [MIB WAY]... MIB`. Ways: leader (execve), thread (by a thread that is not the first), child (a child of fork does, and the
   parent waits), spawn (the same by posix_spawn, which is vfork). What the last one held at most is printed, by the kernel's count.
   `exec MIB watched` serves faults of a little of its memory by itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char **next;

static void become(void) {
  execve(next[0], next, environ);
  perror("execve");
  _exit(3);
}

static void *as_thread(void *unused) {
  (void)unused;
  become();
  return NULL;
}

static int waited(pid_t child) {
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) return 4;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}

static long kib_of(const char *what) {
  char line[256];
  long kib = -1;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, what, strlen(what))) sscanf(line + strlen(what), ": %ld", &kib);
  if (file) fclose(file);
  return kib;
}

/* Until parts of so many KiB have left, or this file is there; two minutes at most. */
static void until_paged(long kib, const char *file) {
  struct timespec look = {0, 10000000};
  for (int i = 0; i < 12000 && kib_of("RssAnon") >= kib && access(file, F_OK); i++) nanosleep(&look, NULL);
}

/* Whether a few pages that are there are watched from now on. */
static int watch(void) {
  struct uffdio_api api = {.api = UFFD_API};
  size_t bytes = 16 * 4096;
  char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  long fd = syscall(SYS_userfaultfd, O_CLOEXEC);
  if (memory == MAP_FAILED || fd < 0 || ioctl((int)fd, UFFDIO_API, &api)) return 0;
  memset(memory, 1, bytes);
  struct uffdio_register range = {{(unsigned long)memory, bytes}, UFFDIO_REGISTER_MODE_MISSING, 0};
  return !ioctl((int)fd, UFFDIO_REGISTER, &range);
}

int main(int count, char **words) {
  if (count < 2) return 2;
  if (count == 3 && !strcmp(words[2], "watched") && !watch()) return 6;
  size_t bytes = (size_t)atol(words[1]) << 20;
  char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  struct timespec pause = {0, 5000000};
  for (size_t at = 0; at < bytes; at += 4096) {
    *(uint64_t *)(memory + at) = at * 0x9e3779b97f4a7c15u + (uint64_t)count;
    /* No faster than a loaded machine can follow; and how late the last program is seen is the machine's matter. */
    if (!(at % (1 << 20))) nanosleep(&pause, NULL);
    if (count == 2 && at == 60 << 20) until_paged(60 << 10, "");
  }
  for (size_t at = 0; at < bytes; at += 16 * 4096)
    if (*(uint64_t *)(memory + at) != at * 0x9e3779b97f4a7c15u + (uint64_t)count) {
      printf("wrong at %zu\n", at);
      return 1;
    }
  /* What cannot be paged is said once somebody has looked. */
  if (count == 3) until_paged(60 << 10, getenv("SAID"));
  if (count < 4) {
    printf("held at most %ld KiB\n", kib_of("VmHWM"));
    return 0;
  }
  const char *way = words[2];
  next = words + 2;
  next[0] = words[0];
  if (!strcmp(way, "leader")) become();
  if (!strcmp(way, "thread")) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, as_thread, NULL)) return 3;
    for (;;) pause.tv_sec = 1, nanosleep(&pause, NULL);
  }
  if (!strcmp(way, "child")) {
    pid_t child = fork();
    if (!child) become();
    return waited(child);
  }
  if (!strcmp(way, "spawn")) {
    pid_t child = -1;
    if (posix_spawn(&child, next[0], NULL, NULL, next, environ)) return 3;
    return waited(child);
  }
  return 2;
}
