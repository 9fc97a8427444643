/* Two ranks begin more collectives than have places at a time, and then send each other messages: whoever receives one
   completes what it can. */
#include <mpi.h>
#include <stdio.h>

#define COLLECTIVES 60

int main(int argc, char **argv)
{
    MPI_Request requests[COLLECTIVES];
    int rank, message = 0, flag;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < COLLECTIVES; i++)
        MPI_Ibarrier(MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < 20000; i++) {
        if (rank == 0)
            MPI_Send(&message, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(&message, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(&message, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    MPI_Testall(COLLECTIVES, requests, &flag, MPI_STATUSES_IGNORE);
    printf("complete %d\n", flag);
    MPI_Waitall(COLLECTIVES, requests, MPI_STATUSES_IGNORE);
    MPI_Finalize();
    return 0;
}
