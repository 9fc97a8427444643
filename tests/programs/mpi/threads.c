/* One thread of each rank waits, and others do something else. The argument says what:
   later, chain   sends what it waits for after a while; so does one that another wakes
   half           does so in rank 0 only
   general LEVEL  completes the other of two requests that it waits for; LEVEL is what is promised of threads
   pool, joined   wait for one another for ever: nothing ends the wait
   woken          wait for one another, while another rank sends what it waits for
   probes         probe as well, each for messages of its own
   looks          looks for messages that never come
   early          does the same while rank 0 comes to more collectives than there are places for */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define A_WHILE 1300000 /* microseconds: longer than a deadlock takes to be seen, and than a wait is at a time */
#define MESSAGES 3000

static int rank, size, peer;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int ready;
static atomic_int stop;
static pthread_t first;
static MPI_Request general;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void sends(void)
{
    int value = 7;
    MPI_Send(&value, 1, MPI_INT, peer, 0, MPI_COMM_WORLD);
}

static void receives(void)
{
    int value = 0;
    MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("received %d\n", value);
}

static void *sends_later(void *unused)
{
    usleep(A_WHILE);
    double begun = now();
    while (now() - begun < A_WHILE * 1e-6)
        ;
    sends();
    return unused;
}

static void *waits_for_word(void *sends_then)
{
    pthread_mutex_lock(&mutex);
    while (!ready)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    if (sends_then)
        sends();
    return NULL;
}

static void *gives_word_later(void *unused)
{
    usleep(A_WHILE);
    pthread_mutex_lock(&mutex);
    ready = 1;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void *joins_first(void *unused)
{
    pthread_join(first, NULL);
    return unused;
}

static void *only_receives(void *unused)
{
    receives();
    return unused;
}

static void *completes_later(void *unused)
{
    usleep(A_WHILE);
    MPI_Grequest_complete(general);
    return unused;
}

static void *looks(void *unused)
{
    int flag;
    while (!stop)
        MPI_Iprobe(MPI_ANY_SOURCE, 999, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    return unused;
}

static void *answers(void *tag)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Message message;
        int value;
        MPI_Mprobe(0, *(int *)tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        MPI_Send(&value, 1, MPI_INT, 0, *(int *)tag, MPI_COMM_WORLD);
    }
    return NULL;
}

static int query(void *unused, MPI_Status *status)
{
    (void)unused;
    MPI_Status_set_elements(status, MPI_INT, 0);
    MPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int nothing(void *unused)
{
    (void)unused;
    return MPI_SUCCESS;
}

static int nothing_either(void *unused, int complete)
{
    (void)complete;
    return nothing(unused);
}

static void waits_for_general(void)
{
    int value, index = -1;
    pthread_t thread;
    MPI_Request requests[2];
    MPI_Irecv(&value, 1, MPI_INT, peer, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Grequest_start(query, nothing, nothing_either, NULL, &requests[1]);
    general = requests[1];
    pthread_create(&thread, NULL, completes_later, NULL);
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    printf("complete %d\n", index);
    pthread_join(thread, NULL);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
}

static void pings(void)
{
    int tags[2] = {1, 2}, value = 7;
    pthread_t threads[2];
    if (rank == 1) {
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, answers, &tags[i]);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; rank == 0 && i < MESSAGES; i++) {
        for (int tag = 1; tag < 3; tag++)
            MPI_Send(&value, 1, MPI_INT, 1, tag, MPI_COMM_WORLD);
        for (int tag = 1; tag < 3; tag++)
            MPI_Recv(&value, 1, MPI_INT, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    printf("answered\n");
}

/* Who has what all get need not wait for the others, but for a place. */
static void gives_to_all(void)
{
    for (int i = 0, value = 7; i < 20 * MESSAGES; i++)
        MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    printf("complete\n");
}

static void probes(void)
{
    for (int i = 0, value = 7; i < MESSAGES; i++) {
        if (rank == 0)
            MPI_Send(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        MPI_Probe(1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&value, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    }
    printf("answered\n");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int level = argc > 2 ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, provided;
    pthread_t second;
    int helpers = 0;
    MPI_Init_thread(&argc, &argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    peer = (rank + 1) % size;
    if (!strcmp(what, "later")) {
        helpers = !pthread_create(&first, NULL, sends_later, NULL);
        receives();
    } else if (!strcmp(what, "half")) {
        helpers = rank == 0 && !pthread_create(&first, NULL, sends_later, NULL);
        receives();
        if (rank)
            sends();
    } else if (!strcmp(what, "chain")) {
        helpers = !pthread_create(&first, NULL, waits_for_word, &ready);
        pthread_create(&second, NULL, gives_word_later, NULL);
        receives();
        pthread_join(second, NULL);
    } else if (!strcmp(what, "general")) {
        waits_for_general();
    } else if (!strcmp(what, "pool") || (!strcmp(what, "woken") && rank == 0)) {
        helpers = !pthread_create(&first, NULL, waits_for_word, NULL);
        pthread_create(&second, NULL, joins_first, NULL);
        receives();
        gives_word_later(NULL);
        pthread_join(second, NULL);
        helpers = 0;
    } else if (!strcmp(what, "woken")) {
        usleep(2 * A_WHILE);
        sends();
    } else if (!strcmp(what, "joined")) {
        helpers = !pthread_create(&first, NULL, only_receives, NULL);
    } else if (!strcmp(what, "probes")) {
        pings();
    } else {
        helpers = rank == 0 && !pthread_create(&first, NULL, looks, NULL);
        if (!strcmp(what, "early"))
            gives_to_all();
        else
            probes();
    }
    stop = 1;
    if (helpers)
        pthread_join(first, NULL);
    MPI_Finalize();
    return 0;
}
