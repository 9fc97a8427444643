/* A program with a struct and a part of an array, through the standard's ABI. It says what it sees. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <mpi.h>

struct particle {
    double mass;
    int kind;
    char name[3];
};

static int calls;

static int copy(MPI_Datatype from, int key, void *extra, void *in, void *out, int *flag)
{
    (void)from, (void)key, (void)extra;
    calls += 1;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Datatype of, int key, void *value, void *extra)
{
    (void)of, (void)key, (void)value, (void)extra;
    calls += 10;
    return MPI_SUCCESS;
}

static void add(void *in, void *inout, int *len, MPI_Datatype *datatype)
{
    int size = 0;
    MPI_Type_size(*datatype, &size);
    for (int i = 0; i < *len; i++)
        ((int *)inout)[i] += ((int *)in)[i] * size;
}

static void add_large(void *in, void *inout, MPI_Count *len, MPI_Datatype *datatype)
{
    (void)datatype;
    for (MPI_Count i = 0; i < *len; i++)
        ((int *)inout)[i] -= ((int *)in)[i];
}

int main(void)
{
    struct particle p[2] = {{1.5, 7, "ab"}, {-2.25, 9, "cd"}}, q[2];
    memset(q, 0, sizeof q);
    MPI_Init(NULL, NULL);
    /* What is attached to no object is told to MPI_COMM_SELF. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int lengths[3] = {1, 1, 3}, size, packed, position = 0;
    MPI_Aint at[3] = {offsetof(struct particle, mass), offsetof(struct particle, kind), offsetof(struct particle, name)};
    MPI_Datatype types[3] = {MPI_DOUBLE, MPI_INT, MPI_CHAR}, raw, one, part, twin;
    MPI_Type_create_struct(3, lengths, at, types, &raw);
    MPI_Type_create_resized(raw, 0, sizeof(struct particle), &one);
    MPI_Type_commit(&one);
    MPI_Type_free(&raw);
    MPI_Aint lower, extent;
    MPI_Type_size(one, &size);
    MPI_Type_get_extent(one, &lower, &extent);
    printf("struct: size %d extent %ld null %d\n", size, (long)extent, raw == MPI_DATATYPE_NULL);
    char buffer[64];
    MPI_Pack_size(2, one, MPI_COMM_SELF, &packed);
    MPI_Pack(p, 2, one, buffer, sizeof buffer, &position, MPI_COMM_SELF);
    printf("packed: %d of %d\n", position, packed);
    position = 0;
    MPI_Unpack(buffer, sizeof buffer, &position, q, 2, one, MPI_COMM_SELF);
    printf("unpacked: %g %d %s %g %d %s\n", q[0].mass, q[0].kind, q[0].name, q[1].mass, q[1].kind, q[1].name);

    int sizes[2] = {4, 5}, parts[2] = {2, 3}, starts[2] = {1, 2}, matrix[20], found[6];
    for (int i = 0; i < 20; i++)
        matrix[i] = i;
    MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &part);
    position = 0;
    printf("not committed: %d\n", MPI_Pack(matrix, 1, part, found, sizeof found, &position, MPI_COMM_SELF) == MPI_ERR_TYPE);
    MPI_Type_commit(&part);
    MPI_Pack(matrix, 1, part, found, sizeof found, &position, MPI_COMM_SELF);
    MPI_Count large;
    MPI_Type_size_c(part, &large);
    MPI_Type_get_extent(part, &lower, &extent);
    printf("subarray: size %ld extent %ld:", (long)large, (long)extent);
    for (int i = 0; i < 6; i++)
        printf(" %d", found[i]);
    int integers, addresses, datatypes, combiner;
    MPI_Type_get_envelope(part, &integers, &addresses, &datatypes, &combiner);
    printf("\nenvelope: %d %d %d %d\n", integers, addresses, datatypes, combiner == MPI_COMBINER_SUBARRAY);

    MPI_Datatype huge, huger;
    MPI_Type_contiguous(1 << 30, MPI_INT, &huge);
    MPI_Type_contiguous_c((MPI_Count)1 << 33, MPI_INT, &huger);
    MPI_Type_size(huge, &size);
    MPI_Type_size_c(huger, &large);
    printf("huge: %d %ld %d\n", size == MPI_UNDEFINED, (long)large,
           MPI_Type_get_envelope(huger, &integers, &addresses, &datatypes, &combiner) == MPI_ERR_TYPE);

    int key, flag;
    void *value;
    MPI_Type_create_keyval(copy, delete, &key, NULL);
    MPI_Type_set_attr(part, key, (void *)41);
    MPI_Type_dup(part, &twin);
    MPI_Type_get_attr(twin, key, &value, &flag);
    MPI_Type_free(&twin);
    printf("attribute: %ld %d calls %d\n", (long)value, flag, calls);

    MPI_Op op, op_large;
    int a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
    MPI_Op_create(add, 1, &op);
    MPI_Op_create_c(add_large, 1, &op_large);
    MPI_Reduce_local(a, b, 3, MPI_INT, op);
    MPI_Reduce_local_c(a, b, 3, MPI_INT, op_large);
    MPI_Reduce_local(a, b, 3, MPI_INT, MPI_MAX);
    printf("reduced: %d %d %d, in place: %d\n", b[0], b[1], b[2],
           MPI_Reduce_local(MPI_IN_PLACE, b, 3, MPI_INT, MPI_SUM) == MPI_ERR_BUFFER);
    MPI_Op_free(&op);
    printf("freed: %d\n", op == MPI_OP_NULL);
    return 0;
}
