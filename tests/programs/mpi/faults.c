/* What goes right, and what can go wrong: the first argument says which. */
#include "mpi.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size, n;

static int is(const char *given, const char *word) { return strcmp(given, word) == 0; }

static void crash(void) { raise(SIGSEGV); }

static void crashing(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)in, (void)inout, (void)count, (void)type;
    crash();
}

/* Sums ranks, and says which of the programs of the line this is. */
static void meet(void) {
    int *number = NULL, flag = 0, sum = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d, program %d, sum %d\n", rank, size, flag ? *number : -1, sum);
}

static void stuck(const char *how) {
    if (is(how, "receive")) {
        if (rank == 2) MPI_Barrier(MPI_COMM_WORLD);
        MPI_Recv(&n, 1, MPI_INT, 2, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (is(how, "any")) {
        MPI_Recv(&n, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (is(how, "ring")) {
        MPI_Recv(&n, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (is(how, "named")) {
        MPI_Comm pair;
        MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &pair);
        MPI_Comm_set_name(pair, rank < 2 ? "lower pair" : "upper pair");
        MPI_Ssend(&n, 1, MPI_INT, rank % 2 ? 0 : 1, 9, pair);
    }
}

static void fail(const char *how, int code) {
    if (is(how, "abort")) {
        if (rank == 1) MPI_Abort(MPI_COMM_WORLD, code);
    } else if (is(how, "error")) {
        if (rank == 1) MPI_Send(&n, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    } else if (is(how, "leave")) {
        if (rank == 1) exit(0);
    } else if (is(how, "leave-all")) {
        exit(0);
    } else if (is(how, "crash")) {
        MPI_Op op;
        MPI_Op_create(crashing, 1, &op);
        /* Whoever is the root calls it, whenever the others come. */
        MPI_Reduce(&rank, &n, 1, MPI_INT, rank == 1 ? op : MPI_SUM, 1, MPI_COMM_WORLD);
    } else if (is(how, "locked")) {
        MPI_Win win;
        void *base;
        MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
        if (rank == 1) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
            MPI_Send(&n, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
            usleep(50000);
            crash();
        }
        if (rank == 0) {
            MPI_Recv(&n, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        }
    } else if (is(how, "outside")) {
        /* Not in MPI, although it was before. */
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) crash();
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Left behind by rank 1, but for the message, which is for it. */
static void leave_behind(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, "forgotten");
    if (rank == 0) {
        MPI_Comm_free(&comm);
        MPI_Send(&n, 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
    } else {
        MPI_Request request;
        MPI_Datatype type;
        MPI_Type_contiguous(2, MPI_INT, &type);
        MPI_Irecv(&n, 1, MPI_INT, 0, 6, comm, &request);
    }
}

/* Looks again and again for a message that nobody sends, until a file is there. */
static void poll(const char *go) {
    int found = 0;
    printf("ready\n");
    fflush(stdout);
    while (!found && access(go, F_OK))
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    printf("found %d\n", found);
}

/* Works for a microsecond between its looks; the next one begins when that is done. */
static void work(void) {
    int found = 0, looks = 100000;
    if (rank > 0) MPI_Recv(&looks, 1, MPI_INT, rank - 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < looks; i++) {
        for (double end = MPI_Wtime() + 1e-6; MPI_Wtime() < end;) {
        }
        MPI_Iprobe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    }
    if (rank + 1 < size) MPI_Send(&looks, 1, MPI_INT, rank + 1, 3, MPI_COMM_WORLD);
    printf("rank %d has worked\n", rank);
}

/* Receives a message, if there is one. */
static int take(int tag) {
    int there, got;
    MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (there) MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return there;
}

/* Works on MIB of its own, looks for messages after each piece of work, and sends one after every 64th: as assemblers
   fill the hash table that their ranks share. */
static void insert(long mib) {
    unsigned long words = mib << 17, at = 12345 + rank;
    unsigned long *table = malloc(words * sizeof *table);
    int over = 0, received = 0;
    memset(table, 1, words * sizeof *table);
    for (int piece = 0; piece < 20000 || over < size - 1; piece++) {
        for (int i = 0; piece < 20000 && i < 2000; i++) {
            at = at * 6364136223846793005u + 1442695040888963407u;
            table[(at >> 20) % words] += at;
        }
        for (int other = 0; other < size && piece % 64 == 0 && piece < 20000; other++)
            if (other != rank) MPI_Send(&piece, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
        for (int other = 0; other < size && piece == 19999; other++)
            if (other != rank) MPI_Send(&n, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
        over += take(2);
        while (take(1)) received++;
    }
    printf("rank %d received %d\n", rank, received);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *how = argc > 2 ? argv[2] : "";
    if (argc < 2 || is(argv[1], "meet")) meet();
    else if (is(argv[1], "stuck")) stuck(how);
    else if (is(argv[1], "poll")) poll(how);
    else if (is(argv[1], "work")) work();
    else if (is(argv[1], "insert")) insert(atol(how));
    else if (is(argv[1], "leaks")) leave_behind();
    else fail(how, argc > 3 ? atoi(argv[3]) : 7);
    MPI_Finalize();
    return 0;
}
