/* Rank 0 is in the critical section and waits for a message of one that waits to go in. */
#include <bdrun.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        bdrun_enter_critical();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Recv(&rank, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        bdrun_enter_critical();
        MPI_Send(&rank, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
