/* Compiled against Open MPI's mpi.h, and run with our library. `constants.h` is written by the test: X(kind, name,
   number in Fortran) for each predefined handle. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int failures;
#define CHECK(what) \
    if (!(what)) printf("line %d: %s\n", __LINE__, #what), failures++

/* The linker, or the dynamic one, knows where they are. */
static MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_DATATYPE_NULL};

static void handles(void) {
    int checked = 0;
#define X(kind, name, number)                       \
    CHECK(MPI_##kind##_f2c(number) == name);        \
    CHECK(PMPI_##kind##_c2f(name) == number);       \
    checked++;
#include "constants.h"
    CHECK(MPI_Type_c2f(types[0]) == MPI_Type_c2f(MPI_INT));
    CHECK(MPI_Type_f2c(MPI_Type_c2f(types[1])) == MPI_DOUBLE);
    CHECK(MPI_Comm_f2c(-1) == MPI_COMM_NULL);
    printf("handles %s\n", checked > 80 ? "many" : "few");
}

static void infos(void) {
    MPI_Info info = MPI_INFO_NULL, copy;
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int flag = 0, n = 0;
    CHECK(MPI_Info_create(&info) == MPI_SUCCESS && info != MPI_INFO_NULL);
    CHECK(MPI_Info_f2c(MPI_Info_c2f(info)) == info);
    CHECK(MPI_Info_set(info, "file", "there") == MPI_SUCCESS);
    CHECK(PMPI_Info_dup(info, &copy) == MPI_SUCCESS && copy != info);
    CHECK(MPI_Info_get(copy, "file", MPI_MAX_INFO_VAL, value, &flag) == MPI_SUCCESS);
    CHECK(MPI_Info_get_nkeys(copy, &n) == MPI_SUCCESS);
    printf("info %s %d %d\n", value, flag, n);
    CHECK(MPI_Info_free(&info) == MPI_SUCCESS && info == MPI_INFO_NULL);
    /* Of this ABI: 36 bytes with the end. */
    CHECK(MPI_MAX_INFO_KEY == 36);
    CHECK(MPI_Info_set(copy, "this-key-has-thirty-five-characters", "") == MPI_SUCCESS);
    CHECK(MPI_Info_set(copy, "this-key-has-thirty-six-characters..", "") == MPI_ERR_INFO_KEY);
    CHECK(MPI_Info_free(&copy) == MPI_SUCCESS && copy == MPI_INFO_NULL);
    CHECK(MPI_Info_get_nkeys(MPI_INFO_NULL, &n) == MPI_ERR_INFO);
    CHECK(MPI_Info_get_nkeys((MPI_Info)MPI_COMM_WORLD, &n) == MPI_ERR_INFO);
    CHECK(MPI_Info_get_nkeys(NULL, &n) == MPI_ERR_INFO);
    CHECK(MPI_Info_set(copy, "a", "b") == MPI_ERR_INFO);
}

static void groups(void) {
    MPI_Group group = MPI_GROUP_NULL;
    int size = 7, result = 7, ranks[2] = {MPI_PROC_NULL, MPI_PROC_NULL}, to[2] = {7, 7};
    CHECK(MPI_Group_union(MPI_GROUP_EMPTY, MPI_GROUP_EMPTY, &group) == MPI_SUCCESS);
    CHECK(group == MPI_GROUP_EMPTY);
    CHECK(MPI_Group_size(group, &size) == MPI_SUCCESS);
    CHECK(MPI_Group_compare(group, MPI_GROUP_EMPTY, &result) == MPI_SUCCESS && result == MPI_IDENT);
    CHECK(MPI_Group_translate_ranks(group, 2, ranks, group, to) == MPI_SUCCESS);
    CHECK(to[0] == MPI_PROC_NULL && to[1] == MPI_PROC_NULL);
    CHECK(MPI_Group_incl(group, 1, (int[]){0}, &group) == MPI_ERR_RANK);
    CHECK(MPI_Group_free(&group) == MPI_SUCCESS && group == MPI_GROUP_NULL);
    CHECK(MPI_Group_size(MPI_GROUP_NULL, &result) == MPI_ERR_GROUP);
    printf("group %d\n", size);
}

static void errors(void) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0, class = 7, added = 0, code = 0;
    CHECK(MPI_Error_string(MPI_ERR_PENDING, text, &length) == MPI_SUCCESS);
    CHECK((int)strlen(text) == length);
    printf("error %s\n", text);
    CHECK(MPI_Error_class(MPI_ERR_PENDING, &class) == MPI_SUCCESS && class == MPI_ERR_PENDING);
    CHECK(MPI_Error_class(MPI_ERR_RMA_SHARED, &class) == MPI_SUCCESS && class == MPI_ERR_RMA_SHARED);
    CHECK(MPI_Add_error_class(&added) == MPI_SUCCESS && added > MPI_ERR_LASTCODE);
    CHECK(MPI_Add_error_code(added, &code) == MPI_SUCCESS && code > added);
    CHECK(MPI_Add_error_string(code, "no beam") == MPI_SUCCESS);
    CHECK(MPI_Error_class(code, &class) == MPI_SUCCESS && class == added);
    CHECK(MPI_Error_string(code, text, &length) == MPI_SUCCESS);
    CHECK(MPI_Error_class(MPI_ERR_LASTCODE, &class) == MPI_ERR_ARG);
    printf("added %s\n", text);
}

int main(void) {
    int version = 0, subversion = 0, flag = 7;
    void *copied = NULL;
    MPI_Fint fortran[6] = {0};
    MPI_Status status = {.MPI_SOURCE = 3, .MPI_TAG = 4, .MPI_ERROR = 5}, back;
    CHECK(MPI_Init(NULL, NULL) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN) == MPI_SUCCESS);
    CHECK(MPI_Get_version(&version, &subversion) == MPI_SUCCESS);
    printf("version %d.%d\n", version, subversion);
    handles();
    infos();
    groups();
    errors();
    CHECK(MPI_COMM_DUP_FN(MPI_COMM_WORLD, 0, NULL, &version, &copied, &flag) == MPI_SUCCESS);
    CHECK(flag == 1 && copied == &version);
    CHECK(MPI_Status_c2f(&status, fortran) == MPI_SUCCESS && fortran[0] == 3 && fortran[2] == 5);
    CHECK(MPI_Status_f2c(fortran, &back) == MPI_SUCCESS && memcmp(&back, &status, sizeof back) == 0);
    CHECK(MPI_Status_f2c(MPI_F_STATUS_IGNORE, &back) != MPI_SUCCESS);
    printf("failures %d\n", failures);
    return 0;
}
