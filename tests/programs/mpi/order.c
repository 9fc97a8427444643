/* Messages of all lengths between all ranks, received in other orders than they come: of each sender and tag the first
   that was sent is the first. Then all send something large before any of them receives. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 40, MOST = 30000, LARGE = 1 << 20, RANKS = 8 };

static int rank, size;
/* By peer and tag. */
static int sent[RANKS][2], expected[RANKS][2], got[RANKS][2];
static unsigned chance = 12345;

static unsigned draw(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u, *seed >> 8; }

static int length(int from, int tag, int number) {
    static const int most[] = {1, 3, 12, 60, 1200, MOST};
    unsigned seed = (unsigned)from * 7919 + (unsigned)tag * 104729 + (unsigned)number * 31337;
    int kind = (int)(draw(&seed) % 6);
    return 1 + (int)(draw(&seed) % (unsigned)most[kind]);
}

static void fill(int *data, int from, int tag, int number, int count) {
    for (int i = 0; i < count; i++)
        data[i] = number + i * 7 + from * 1000003 + tag;
}

static void check(const int *data, int from, int tag, int number, int count) {
    for (int i = 0; i < count; i++)
        if (data[i] != number + i * 7 + from * 1000003 + tag) {
            fprintf(stderr, "rank %d: message %d of rank %d, tag %d is not what was sent\n", rank, number, from, tag);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
}

static int burst(int from, int to, int round) {
    unsigned seed = (unsigned)(from * 64 + to * 8 + round * 4099);
    return (int)(draw(&seed) % (round % 8 == 0 ? 400 : 20));
}

static void send_round(int round) {
    for (int to = 0; to < size; to++) {
        int count = to == rank ? 0 : burst(rank, to, round);
        for (int k = 0; k < count; k++) {
            int tag = (k + round) % 2, number = sent[to][tag]++, len = length(rank, tag, number);
            int *data = malloc(sizeof(int) * (size_t)len);
            fill(data, rank, tag, number, len);
            if (k % 3 == 0) {
                MPI_Request request;
                MPI_Isend(data, len, MPI_INT, to, tag, MPI_COMM_WORLD, &request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            } else {
                MPI_Send(data, len, MPI_INT, to, tag, MPI_COMM_WORLD);
            }
            free(data);
        }
        int theirs = to == rank ? 0 : burst(to, rank, round);
        for (int k = 0; k < theirs; k++)
            expected[to][(k + round) % 2]++;
    }
}

static int missing(void) {
    int all = 0;
    for (int from = 0; from < size; from++)
        for (int tag = 0; tag < 2; tag++)
            all += expected[from][tag] - got[from][tag];
    return all;
}

static void receive_round(void) {
    static int data[MOST + 1];
    while (missing() > 0) {
        int from = (int)(draw(&chance) % (unsigned)size), tag = (int)(draw(&chance) % 2);
        MPI_Status status;
        MPI_Request request;
        switch (draw(&chance) % 4) {
        case 0:
            MPI_Recv(data, MOST + 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            break;
        case 1:
            if (expected[from][tag] <= got[from][tag])
                continue;
            MPI_Irecv(data, MOST + 1, MPI_INT, from, tag, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, &status);
            break;
        default:
            if (expected[from][tag] <= got[from][tag])
                continue;
            MPI_Recv(data, MOST + 1, MPI_INT, from, tag, MPI_COMM_WORLD, &status);
        }
        int count, number = got[status.MPI_SOURCE][status.MPI_TAG]++;
        MPI_Get_count(&status, MPI_INT, &count);
        if (count != length(status.MPI_SOURCE, status.MPI_TAG, number)) {
            fprintf(stderr, "rank %d: message %d of rank %d, tag %d has %d numbers\n", rank, number, status.MPI_SOURCE,
                    status.MPI_TAG, count);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        check(data, status.MPI_SOURCE, status.MPI_TAG, number, count);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    chance += (unsigned)rank;
    for (int round = 0; round < ROUNDS; round++) {
        send_round(round);
        receive_round();
    }
    /* Who is behind receives any tag. */
    MPI_Barrier(MPI_COMM_WORLD);
    int *out = malloc(sizeof(int) * LARGE), *in = malloc(sizeof(int) * LARGE);
    for (int round = 0; round < 12; round++) {
        fill(out, rank, 5, round, LARGE);
        MPI_Send(out, LARGE, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD);
        int from = (rank + size - 1) % size;
        MPI_Recv(in, LARGE, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(in, from, 5, round, LARGE);
    }
    free(out);
    free(in);
    MPI_Finalize();
    printf("rank %d: in order\n", rank);
    return 0;
}
