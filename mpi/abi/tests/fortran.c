/* Handles and statuses as Fortran has them: beyond the standard's ABI. It says what it sees. */
#include <stdio.h>

#include <mpi.h>

int main(void)
{
    MPI_Init(NULL, NULL);
    MPI_Fint double_number = MPI_Type_c2f(MPI_DOUBLE);
    printf("handles %d", MPI_Type_f2c(double_number) == MPI_DOUBLE && double_number == MPI_Type_toint(MPI_DOUBLE) &&
                             MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_SELF)) == MPI_COMM_SELF &&
                             PMPI_File_f2c(PMPI_File_c2f(MPI_FILE_NULL)) == MPI_FILE_NULL);
    MPI_Datatype made;
    MPI_Type_contiguous(3, MPI_INT, &made);
    printf(" made %d", MPI_Type_f2c(MPI_Type_c2f(made)) == made);
    MPI_Type_free(&made);

    MPI_Status status = {.MPI_SOURCE = 7, .MPI_TAG = 8}, back;
    MPI_Status_set_elements(&status, MPI_INT, 3);
    MPI_Fint numbers[MPI_F_STATUS_SIZE];
    int count, failed = MPI_Status_c2f(&status, numbers) || MPI_Status_f2c(numbers, &back);
    MPI_Get_count(&back, MPI_INT, &count);
    printf(" statuses %d %d %d %d", !failed, numbers[MPI_F_SOURCE], back.MPI_TAG, count);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    printf(" null %d\n", MPI_Status_c2f(MPI_STATUS_IGNORE, numbers) == MPI_ERR_ARG);
    MPI_Finalize();
    return 0;
}
