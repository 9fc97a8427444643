/* Times of MPI's calls, as the OSU benchmarks take them: latency, bandwidth, barrier, allreduce, alltoall.
 * usage: osu latency|bandwidth|barrier|allreduce|alltoall BYTES ITERATIONS
 * Rank 0 prints one number: microseconds per operation (one way for latency), or MB/s.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64 };

static double latency(char *buffer, int bytes, int iterations, int rank) {
    double begin = 0;
    for (int i = -iterations / 10; i < iterations; i++) {
        if (i == 0)
            begin = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - begin) * 1e6 / (2.0 * iterations);
}

static double bandwidth(char *buffer, int bytes, int iterations, int rank) {
    MPI_Request requests[WINDOW];
    double begin = 0;
    for (int i = -iterations / 10; i < iterations; i++) {
        if (i == 0)
            begin = MPI_Wtime();
        if (rank == 0) {
            for (int k = 0; k < WINDOW; k++)
                MPI_Isend(buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[k]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(NULL, 0, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            for (int k = 0; k < WINDOW; k++)
                MPI_Irecv(buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests[k]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            MPI_Send(NULL, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
        }
    }
    return (double)bytes * WINDOW * iterations / (MPI_Wtime() - begin) / 1e6;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) {
        fprintf(stderr, "usage: osu latency|bandwidth|barrier|allreduce|alltoall BYTES ITERATIONS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rank, size, bytes = atoi(argv[2]), iterations = atoi(argv[3]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t room = (size_t)bytes * size + 8;
    char *send = malloc(room), *receive = malloc(room);
    memset(send, 1, room);
    memset(receive, 0, room);
    MPI_Barrier(MPI_COMM_WORLD);
    double result;
    if (!strcmp(argv[1], "latency")) {
        result = latency(send, bytes, iterations, rank);
    } else if (!strcmp(argv[1], "bandwidth")) {
        result = bandwidth(send, bytes, iterations, rank);
    } else {
        double begin = 0;
        for (int i = -iterations / 10; i < iterations; i++) {
            if (i == 0)
                begin = MPI_Wtime();
            if (!strcmp(argv[1], "barrier"))
                MPI_Barrier(MPI_COMM_WORLD);
            else if (!strcmp(argv[1], "allreduce"))
                MPI_Allreduce(send, receive, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            else
                MPI_Alltoall(send, bytes, MPI_CHAR, receive, bytes, MPI_CHAR, MPI_COMM_WORLD);
        }
        double mine = (MPI_Wtime() - begin) * 1e6 / iterations, sum;
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        result = sum / size;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.3f\n", result);
    free(send);
    free(receive);
    MPI_Finalize();
    return 0;
}
