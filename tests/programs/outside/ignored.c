// More memory than it may have, and a thread that waits while signals come that are ignored: none breaks off its calls.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <unistd.h>
#include "traced.h"

enum { WAITS = 4, SIGNALS = 100 };
static int pair[2], epoll, semaphores, broken[WAITS];
static pthread_t threads[WAITS];
static const char *names[WAITS] = {"epoll_wait", "epoll_wait with a timeout", "recv with a timeout", "semop"};

static long once(int i) {
  struct epoll_event e;
  struct sembuf op = {0, -1, 0};
  char c;
  switch (i) {
    case 0: return epoll_wait(epoll, &e, 1, -1);
    case 1: return epoll_wait(epoll, &e, 1, 100000000);
    case 2: return recv(pair[0], &c, 1, MSG_PEEK);
    default: return semop(semaphores, &op, 1);
  }
}
static void *waits(void *at) {
  int i = (int)(long)at;
  while (once(i) < 0)
    if (errno == EINTR) broken[i]++; else exit(2);
  return NULL;
}

int main(int count, char **words) {
  struct timeval long_time = {100000, 0};
  struct epoll_event in = {EPOLLIN, {0}};
  size_t size = 100 << 20;
  unsigned char *memory = malloc(size);
  epoll = epoll_create1(0);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || (semaphores = semget(IPC_PRIVATE, 1, 0600)) < 0) return 1;
  if (setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof long_time)) return 1;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &in)) return 1;
  signal(SIGUSR1, SIG_IGN);
  for (long i = 0; i < WAITS; i++) pthread_create(&threads[i], NULL, waits, (void *)i);
  // Without bdrun nobody ever traces it.
  do
    for (size_t at = 0; at < size; at += 4096) memory[at]++;
  while (count > 1 && !traced());
  for (int n = 0; n < SIGNALS; n++) {
    for (int i = 0; i < WAITS; i++) pthread_kill(threads[i], n % 2 ? SIGCHLD : SIGUSR1);
    usleep(2000);
    memory[n * 4096]++;
  }
  struct sembuf post = {0, 1, 0};
  if (write(pair[1], "", 1) != 1 || semop(semaphores, &post, 1)) return 1;
  for (int i = 0; i < WAITS; i++) pthread_join(threads[i], NULL);
  semctl(semaphores, 0, IPC_RMID);
  for (int i = 0; i < WAITS; i++) printf("%s: broken off %d\n", names[i], broken[i]);
  return 0;
}
