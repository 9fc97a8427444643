/* memory MIB: memory on storage through a few phases, and what is said of it; then errors. Each rank says how many
   things were wrong. */
#include <bdrun.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, wrong = 0, outside;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t words = (size_t)atol(argv[1]) << 17, zeros = words / 8;
    uint64_t *a = bdrun_malloc(words * 4), *z = bdrun_calloc(zeros, 8);
    a = bdrun_realloc(a, words * 8);
    if (!a || !z)
        return 1;
    for (size_t i = 0; i < words; i++)
        a[i] = i * 2654435761u + rank;
    for (size_t i = 0; i < zeros; i++) {
        wrong += z[i] != 0;
        z[i] = 7;
    }
    for (int phase = 0; phase < 4; phase++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (phase == 1)
            wrong += bdrun_will_need(a, words * 8) || bdrun_dont_need(z, zeros * 8);
        if (phase == 2)
            wrong += bdrun_discard(z, zeros * 8) != MPI_SUCCESS;
        for (size_t i = 0; i < words; i++)
            wrong += a[i]++ != i * 2654435761u + rank + phase;
        for (size_t i = 0; i < zeros; i++)
            wrong += z[i] != (phase < 2 ? 7 : 0);
    }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    wrong += bdrun_discard(&outside, sizeof outside) != MPI_ERR_ARG;
    wrong += bdrun_discard(NULL, 0) != MPI_SUCCESS;
    wrong += bdrun_local_rank(MPI_COMM_NULL, &outside) != MPI_ERR_COMM;
    wrong += bdrun_local_size(MPI_COMM_SELF, NULL) != MPI_ERR_ARG;
    wrong += bdrun_exit_critical() != MPI_ERR_OTHER;
    wrong += bdrun_enter_critical() != MPI_SUCCESS || bdrun_enter_critical() != MPI_ERR_OTHER;
    wrong += bdrun_exit_critical() != MPI_SUCCESS;
    wrong += bdrun_malloc((size_t)-1) != NULL || bdrun_calloc((size_t)-1, 2) != NULL;
    bdrun_free(a);
    bdrun_free(z);
    bdrun_free(NULL);
    printf("wrong %d\n", wrong);
    MPI_Finalize();
    return 0;
}
