/* Two threads of each rank begin a session at the same time, before MPI is initialised. What fails then is returned, as
   the call is told. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static pthread_barrier_t barrier;

static void *begin(void *session)
{
    pthread_barrier_wait(&barrier);
    return (void *)(intptr_t)MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session);
}

int main(int argc, char **argv)
{
    MPI_Session sessions[2];
    MPI_Group world, others;
    MPI_Comm comm = MPI_COMM_NULL;
    pthread_t thread;
    void *other;
    int rank, size, class;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, begin, &sessions[1]);
    int own = (int)(intptr_t)begin(&sessions[0]);
    pthread_join(thread, &other);
    printf("begun %d %d\n", own, (int)(intptr_t)other);
    MPI_Group_from_session_pset(sessions[0], "mpi://WORLD", &world);
    MPI_Group_rank(world, &rank);
    MPI_Group_excl(world, 1, &rank, &others);
    int code = MPI_Comm_create_from_group(others, "others", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    MPI_Error_class(code, &class);
    printf("refused %d\n", class == MPI_ERR_GROUP && comm == MPI_COMM_NULL);
    MPI_Group_free(&others);
    MPI_Group_free(&world);
    MPI_Session_finalize(&sessions[0]);
    MPI_Session_finalize(&sessions[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("of %d\n", size);
    MPI_Finalize();
    return 0;
}
