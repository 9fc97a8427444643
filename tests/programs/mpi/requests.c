/* More nonblocking collectives are under way than a communicator has places for, waited for in an order that differs
   from rank to rank, while all wait for something else, or for nothing at all. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { MANY = 40 };

static int rank, size;
static int given[MANY], sums[MANY];
static MPI_Request requests[MANY];

static void begin(void) {
    for (int i = 0; i < MANY; i++) {
        given[i] = i * (rank + 1);
        sums[i] = -1;
        MPI_Iallreduce(&given[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
}

static int check(const char *what) {
    int wrong = 0;
    for (int i = 0; i < MANY; i++)
        wrong += sums[i] != i * size * (size + 1) / 2;
    if (wrong)
        fprintf(stderr, "rank %d, %s: %d sums are wrong\n", rank, what, wrong);
    return wrong;
}

static int calls, of_other, of_own;
static MPI_Comm other;

/* What it is told of can be used. */
static void told(MPI_Comm *comm, int *code, ...) {
    int result, class;
    MPI_Error_class(*code, &class);
    MPI_Comm_compare(*comm, other, &result);
    of_other += result == MPI_IDENT;
    MPI_Comm_compare(*comm, MPI_COMM_SELF, &result);
    of_own += result == MPI_IDENT;
    calls++;
}

/* Failures of requests are told to their communicator, and those of nothing to MPI_COMM_SELF. */
static void fail(void) {
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(told, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Comm_set_errhandler(other, handler);
    int data[2] = {1, 2}, got = 0, flag = 0;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, rank, 0, other, &request);
    MPI_Send(data, 2, MPI_INT, rank, 0, other);
    int code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    printf("test %d %d %d, told %d %d %d\n", code != MPI_SUCCESS, flag, request == MPI_REQUEST_NULL, calls, of_other,
           of_own);
    MPI_Comm none = MPI_COMM_NULL;
    MPI_Comm_size(none, &flag);
    printf("nothing, told %d %d %d\n", calls, of_other, of_own);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static int query(void *state, MPI_Status *status) {
    (void)state;
    return MPI_Status_set_cancelled(status, 0);
}

static int refuse(void *state) {
    (void)state;
    return MPI_ERR_OTHER;
}

static int never(void *state, int complete) {
    (void)state;
    return complete ? MPI_SUCCESS : MPI_ERR_OTHER;
}

/* What has completed and failed is told to the end, also in what was freed meanwhile. */
static int told_of_all(void) {
    int data[2] = {1, 2}, got = 0, flag = 0, wrong = 0, count;
    MPI_Status status = {.MPI_TAG = -7};
    MPI_Request request;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Send(data, 2, MPI_INT, 0, 5, MPI_COMM_SELF);
    wrong += MPI_Recv(&got, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_SELF, &status) == MPI_SUCCESS;
    MPI_Get_count(&status, MPI_INT, &count);
    wrong += status.MPI_TAG != 5 || status.MPI_SOURCE != 0 || count != 1;
    wrong += MPI_Sendrecv(data, 2, MPI_INT, 0, 6, &got, 1, MPI_INT, 0, 6, MPI_COMM_SELF, &status) == MPI_SUCCESS;
    wrong += status.MPI_TAG != 6;

    MPI_Irecv(&got, 1, MPI_INT, 0, 7, MPI_COMM_SELF, &request);
    MPI_Send(data, 2, MPI_INT, 0, 7, MPI_COMM_SELF);
    wrong += MPI_Request_get_status(request, &flag, &status) == MPI_SUCCESS;
    wrong += !flag || status.MPI_TAG != 7;
    wrong += MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS;

    MPI_Grequest_start(query, refuse, never, NULL, &request);
    MPI_Grequest_complete(request);
    wrong += MPI_Request_free(&request) == MPI_SUCCESS;
    wrong += request != MPI_REQUEST_NULL;

    /* Now that of MPI_COMM_SELF would end the program. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm freed;
    MPI_Comm_dup(MPI_COMM_SELF, &freed);
    MPI_Comm_set_errhandler(freed, MPI_ERRORS_RETURN);
    MPI_Irecv(&got, 1, MPI_INT, 0, 8, freed, &request);
    MPI_Send(data, 2, MPI_INT, 0, 8, freed);
    MPI_Comm_free(&freed);
    wrong += MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    return wrong;
}

/* The receiver waits for the sender, which waits for nothing but that its send is cancelled. */
static int cancel(void) {
    int word = 7, flag = 0, wrong = 0;
    if (rank == 0) {
        MPI_Request request;
        MPI_Status status;
        MPI_Issend(&word, 1, MPI_INT, size - 1, 9, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &flag);
        wrong += !flag;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    return wrong + flag;
}

/* More persistent collectives than there may be communicators, each rank in its order; and one rank is ahead. */
static int persist(void) {
    enum { LOTS = 1500, TURNS = 20 };
    static int in[LOTS], out[LOTS];
    static MPI_Request all[LOTS];
    int wrong = 0, one = -1, other = -1;
    for (int i = 0; i < LOTS; i++)
        MPI_Allreduce_init(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &all[i]);
    for (int turn = 1; turn < 4; turn++) {
        for (int i = 0; i < LOTS; i++)
            in[i] = turn * i;
        for (int i = 0; i < LOTS; i++)
            MPI_Start(&all[rank % 2 ? i : LOTS - 1 - i]);
        MPI_Waitall(LOTS, all, MPI_STATUSES_IGNORE);
        for (int i = 0; i < LOTS; i++)
            wrong += out[i] != size * turn * i;
    }
    for (int i = 0; i < LOTS; i++)
        MPI_Request_free(&all[i]);
    MPI_Bcast_init(&one, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &all[0]);
    MPI_Bcast_init(&other, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &all[1]);
    /* The first rank, which need not wait for any, is ahead by up to all turns of the first. */
    for (int which = 0; which < 2; which++)
        for (int turn = 0; turn < TURNS; turn++) {
            if (rank == 0)
                one = other = turn;
            MPI_Start(&all[which]);
            MPI_Wait(&all[which], MPI_STATUS_IGNORE);
            wrong += (which ? other : one) != turn;
        }
    MPI_Request_free(&all[0]);
    MPI_Request_free(&all[1]);
    return wrong;
}

/* Where there is no place for one more communicator all are told the same, and go on. */
static int fill(void) {
    enum { MOST = 2000 };
    static MPI_Comm all[MOST];
    int made = 0, code, class = MPI_SUCCESS, own[4], least[4], length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    while (made < MOST && (code = MPI_Comm_dup(MPI_COMM_WORLD, &all[made])) == MPI_SUCCESS)
        made++;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    own[0] = made, own[1] = -made, own[2] = class, own[3] = -class;
    MPI_Allreduce(own, least, 4, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    int wrong = made == MOST || class != MPI_ERR_OTHER || least[0] != -least[1] || least[2] != -least[3];
    while (made > 0)
        MPI_Comm_free(&all[--made]);
    return wrong;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int wrong = 0;
    if (argc > 1 && !strcmp(argv[1], "more")) {
        wrong = cancel() + persist() + fill() + told_of_all();
        printf("%s", wrong ? "wrong\n" : "");
        MPI_Finalize();
        return wrong != 0;
    }
    if (argc > 1)
        fail();

    /* Some from the last to the first, others from the first to the last. */
    begin();
    for (int i = 0; i < MANY; i++)
        MPI_Wait(&requests[rank % 2 ? i : MANY - 1 - i], MPI_STATUS_IGNORE);
    wrong += check("either order");

    /* Each begins with another one. */
    begin();
    for (int i = 0; i < MANY; i++)
        MPI_Wait(&requests[(i * 7 + rank * 11) % MANY], MPI_STATUS_IGNORE);
    wrong += check("any order");

    /* The last is looked for. */
    begin();
    for (int i = MANY - 1; i >= 0; i--)
        for (int flag = 0; !flag;)
            MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
    wrong += check("tests");

    /* A blocking one, a message round a ring, and one more request before any of them is waited for. */
    begin();
    MPI_Request barrier;
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    MPI_Barrier(MPI_COMM_WORLD);
    int word = rank, got = -1;
    MPI_Sendrecv(&word, 1, MPI_INT, (rank + 1) % size, 1, &got, 1, MPI_INT, (rank + size - 1) % size, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong += got != (rank + size - 1) % size;
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    wrong += check("beside others");

    /* One rank waits for a message that another sends once the last is complete. */
    begin();
    if (rank == 0) {
        MPI_Recv(&got, 1, MPI_INT, size - 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    } else {
        MPI_Wait(&requests[MANY - 1], MPI_STATUS_IGNORE);
        if (rank == size - 1)
            MPI_Send(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
        MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    }
    wrong += check("a message after the last");

    int all;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("wrong %d\n", all);
    MPI_Finalize();
    return 0;
}
