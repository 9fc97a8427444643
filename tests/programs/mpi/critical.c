/* critical TIMES MICROSECONDS: each rank is in the critical section so often, so long. Rank 0 says the most that
   were in at once, and whether each rank sits where it should. */
#include <bdrun.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size, unit, right, all, seat[5];
    atomic_int *counts; /* in now; most at once */
    MPI_Aint bytes;
    MPI_Win window;
    MPI_Comm node, cyclic;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win_allocate_shared(rank ? 0 : 2 * sizeof *counts, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &counts, &window);
    MPI_Win_shared_query(window, 0, &bytes, &unit, &counts);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < atoi(argv[1]); i++) {
        bdrun_enter_critical();
        int now = atomic_fetch_add(&counts[0], 1) + 1, most = atomic_load(&counts[1]);
        while (now > most && !atomic_compare_exchange_weak(&counts[1], &most, now))
            ;
        usleep(atoi(argv[2]));
        atomic_fetch_sub(&counts[0], 1);
        bdrun_exit_critical();
    }
    bdrun_local_rank(MPI_COMM_WORLD, &seat[0]);
    bdrun_local_size(MPI_COMM_WORLD, &seat[1]);
    bdrun_local_root(MPI_COMM_WORLD, &seat[2]);
    bdrun_node_rank(MPI_COMM_WORLD, &seat[3]);
    bdrun_node_count(MPI_COMM_WORLD, &seat[4]);
    right = seat[0] == rank && seat[1] == size && seat[2] == 0 && seat[3] == 0 && seat[4] == 1;
    bdrun_comm_node(MPI_COMM_WORLD, &node);
    bdrun_comm_cyclic(MPI_COMM_WORLD, &cyclic);
    MPI_Comm_rank(node, &seat[0]);
    MPI_Comm_rank(cyclic, &seat[1]);
    right = right && seat[0] == rank && seat[1] == rank;
    MPI_Comm_free(&node);
    MPI_Comm_free(&cyclic);
    MPI_Reduce(&right, &all, 1, MPI_INT, MPI_LAND, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("most %d seats %d\n", atomic_load(&counts[1]), all);
    MPI_Win_free(&window);
    /* Who ends in it has left it: the last one waits for all others. */
    bdrun_enter_critical();
    MPI_Finalize();
    return 0;
}
