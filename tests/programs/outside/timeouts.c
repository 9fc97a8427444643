// Waits with a timeout in the calls for which the kernel does not keep its end: each three times for 400 ms, by its own thread.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS 400
static int epoll, pair[2], semaphores;
static const struct timespec spec = {0, MS * 1000000L};

static long by_epoll(void) { struct epoll_event e; return epoll_wait(epoll, &e, 1, MS); }
static long by_poll(void) { struct pollfd p = {pair[0], POLLIN, 0}; return poll(&p, 1, MS); }
static long by_ppoll(void) { struct pollfd p = {pair[0], POLLIN, 0}; return ppoll(&p, 1, &spec, NULL); }
static long by_select(void) {
  struct timeval t = {0, MS * 1000L};
  fd_set set;
  FD_ZERO(&set);
  FD_SET(pair[0], &set);
  return select(pair[0] + 1, &set, NULL, NULL, &t);
}
static long by_socket(void) { char c; return recv(pair[0], &c, 1, 0) == -1 && errno == EAGAIN ? 0 : -1; }
static long by_semaphore(void) {
  struct sembuf op = {0, -1, 0};
  return semtimedop(semaphores, &op, 1, &spec) == -1 && errno == EAGAIN ? 0 : -1;
}
static long by_signal(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  return sigtimedwait(&set, NULL, &spec) == -1 && errno == EAGAIN ? 0 : -1;
}
static long by_sleep(void) { return nanosleep(&spec, NULL); }

static struct { const char *name; long (*call)(void); int right; } all[] = {
  {"epoll_wait", by_epoll, 0}, {"poll", by_poll, 0}, {"ppoll", by_ppoll, 0}, {"select", by_select, 0},
  {"recv", by_socket, 0}, {"semtimedop", by_semaphore, 0}, {"sigtimedwait", by_signal, 0}, {"nanosleep", by_sleep, 0},
};
enum { COUNT = sizeof all / sizeof *all };

static void *run(void *at) {
  int i = (int)(long)at;
  for (int turn = 0; turn < 3; turn++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    long result = all[i].call();
    clock_gettime(CLOCK_MONOTONIC, &b);
    double took = (b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6;
    fprintf(stderr, "%s: %ld after %.1f ms\n", all[i].name, result, took);
    // The kernel itself rounds what it leaves of a timeval down.
    all[i].right += result == 0 && took > MS - 1;
  }
  return NULL;
}

int main(void) {
  pthread_t threads[COUNT];
  struct timeval t = {0, MS * 1000L};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  epoll = epoll_create1(0);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t)) return 1;
  if ((semaphores = semget(IPC_PRIVATE, 1, 0600)) < 0) return 1;
  for (long i = 0; i < COUNT; i++) pthread_create(&threads[i], NULL, run, (void *)i);
  for (int i = 0; i < COUNT; i++) pthread_join(threads[i], NULL);
  semctl(semaphores, 0, IPC_RMID);
  for (int i = 0; i < COUNT; i++) printf("%s %d\n", all[i].name, all[i].right);
  return 0;
}
