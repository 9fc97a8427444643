/* Windows of MPI's and of the program's memory, and files with a pointer that all share, wherever the ranks are.
   usage: apart FILE TIMES */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONG = 40000 };

static int rank, size, times;

static void check(int well, const char *what) {
    if (!well) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

/* Each puts to the next one between fences, a short piece and a long one, and looks behind them. */
static void fences(MPI_Win win, const int *own) {
    int *data = malloc(sizeof(int) * LONG);
    MPI_Win_fence(0, win);
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < LONG; i++)
            data[i] = turn * 1000 + rank + i;
        MPI_Put(data, turn % 2 ? 3 : LONG, MPI_INT, (rank + 1) % size, 4, turn % 2 ? 3 : LONG, MPI_INT, win);
        MPI_Win_fence(0, win);
        int from = (rank + size - 1) % size, count = turn % 2 ? 3 : LONG;
        for (int i = 0; i < count; i++)
            check(own[4 + i] == turn * 1000 + from + i, "what was put is not there");
        MPI_Win_fence(0, win);
    }
    free(data);
}

/* A number that one at a time reads and writes, and one that all add to. */
static void locks(MPI_Win win) {
    const int one = 1;
    for (int turn = 0; turn < times; turn++) {
        int target = turn % size, was;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
        MPI_Get(&was, 1, MPI_INT, target, 0, 1, MPI_INT, win);
        MPI_Win_flush(target, win);
        was++;
        MPI_Put(&was, 1, MPI_INT, target, 0, 1, MPI_INT, win);
        MPI_Win_unlock(target, win);
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
        MPI_Accumulate(&one, 1, MPI_INT, target, 1, 1, MPI_INT, MPI_SUM, win);
        MPI_Win_unlock(target, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int sums[2] = {0, 0}, all[2];
    MPI_Win_lock_all(0, win);
    int found[2];
    MPI_Get(found, 2, MPI_INT, rank, 0, 2, MPI_INT, win);
    MPI_Win_flush_all(win);
    MPI_Win_unlock_all(win);
    sums[0] = found[0], sums[1] = found[1];
    MPI_Allreduce(sums, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(all[0] == times * size && all[1] == times * size, "a lock or a sum was lost");
}

/* Who posts sees behind a barrier that the other has completed. */
static void started(MPI_Win win) {
    MPI_Group all, one, rest;
    int zero = 0, flag;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &zero, &one);
    MPI_Group_excl(all, 1, &zero, &rest);
    for (int turn = 0; turn < times; turn++) {
        if (rank == 0) {
            MPI_Win_start(rest, 0, win);
            MPI_Barrier(MPI_COMM_WORLD);
            for (int to = 1; to < size; to++)
                MPI_Put(&turn, 1, MPI_INT, to, 2, 1, MPI_INT, win);
            MPI_Win_complete(win);
            MPI_Barrier(MPI_COMM_WORLD);
        } else {
            MPI_Win_post(one, 0, win);
            MPI_Win_test(win, &flag);
            check(!flag, "nobody has completed yet");
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_test(win, &flag);
            check(flag, "it has completed before the barrier");
        }
    }
    MPI_Group_free(&all), MPI_Group_free(&one), MPI_Group_free(&rest);
}

static void use(MPI_Win win, const int *own) {
    fences(win, own);
    locks(win);
    started(win);
    MPI_Win_free(&win);
}

static void files(const char *path) {
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    for (int turn = 0; turn < times; turn++) {
        int number = rank * times + turn;
        MPI_File_write_shared(file, &number, 1, MPI_INT, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Offset place, end;
    MPI_File_get_position_shared(file, &place);
    MPI_File_get_size(file, &end);
    check(place == times * size && end == place * (MPI_Offset)sizeof(int), "the pointer is elsewhere");
    char *seen = calloc((size_t)place, 1);
    int *all = malloc((size_t)end);
    MPI_File_read_at(file, 0, all, (int)place, MPI_INT, MPI_STATUS_IGNORE);
    for (MPI_Offset i = 0; i < place; i++)
        check(all[i] >= 0 && all[i] < place && !seen[all[i]]++, "two have written to one place");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek_shared(file, 1, MPI_SEEK_SET);
    int number = -rank;
    MPI_File_write_ordered(file, &number, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    MPI_File_read_at_all(file, 1, all, size, MPI_INT, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++)
        check(all[i] == -i, "ranks have not written in order");
    MPI_File_close(&file);
    free(seen), free(all);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    times = atoi(argv[2]);
    MPI_Win win;
    MPI_Aint bytes = sizeof(int) * (LONG + 8);
    int *own;
    MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &own, &win);
    use(win, own);
    int *mine = calloc(1, (size_t)bytes);
    MPI_Win_create(mine, bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    use(win, mine);
    free(mine);
    files(argv[1]);
    if (rank == 0)
        puts("as on one node");
    MPI_Finalize();
    return 0;
}
