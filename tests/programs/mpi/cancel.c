/* Rank 0 takes back what it has sent rank 1, which ends MPI at once (an example of the standard) and then, if a file is
   named, waits until rank 0 has made it. */
#include <mpi.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, value = 7, is_cancelled = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Issend(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &is_cancelled);
        printf("cancelled %d\n", is_cancelled);
        if (argc > 1)
            close(open(argv[1], O_CREAT | O_WRONLY, 0600));
    }
    MPI_Finalize();
    while (rank == 1 && argc > 1 && access(argv[1], F_OK))
        usleep(1000);
    return 0;
}
