/* What the programs here use of MPI, by each ABI's values (mpi/table/constants.txt): -DABI_STANDARD, -DABI_MPICH or
   -DABI_OPENMPI. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef intptr_t MPI_Aint;
#if defined ABI_MPICH
typedef int MPI_Comm, MPI_Datatype, MPI_Op, MPI_Info, MPI_Win, MPI_Request;
#define HANDLE(type, standard, mpich, openmpi) ((type)mpich)
#define NUMBER(standard, mpich, openmpi) (mpich)
#elif defined ABI_OPENMPI
typedef struct comm_s *MPI_Comm;
typedef struct type_s *MPI_Datatype;
typedef struct op_s *MPI_Op;
typedef struct info_s *MPI_Info;
typedef struct win_s *MPI_Win;
typedef struct request_s *MPI_Request;
extern char ompi_mpi_comm_world[], ompi_mpi_int[], ompi_mpi_op_sum[], ompi_mpi_info_null[];
#define HANDLE(type, standard, mpich, openmpi) ((type)(void *)openmpi)
#define NUMBER(standard, mpich, openmpi) (openmpi)
#else
typedef struct comm_s *MPI_Comm;
typedef struct type_s *MPI_Datatype;
typedef struct op_s *MPI_Op;
typedef struct info_s *MPI_Info;
typedef struct win_s *MPI_Win;
typedef struct request_s *MPI_Request;
#define HANDLE(type, standard, mpich, openmpi) ((type)standard)
#define NUMBER(standard, mpich, openmpi) (standard)
#endif

#define MPI_COMM_WORLD HANDLE(MPI_Comm, 257, 1140850688, ompi_mpi_comm_world)
#define MPI_INT HANDLE(MPI_Datatype, 521, 1275069445, ompi_mpi_int)
#define MPI_SUM HANDLE(MPI_Op, 33, 1476395011, ompi_mpi_op_sum)
#define MPI_INFO_NULL HANDLE(MPI_Info, 304, 469762048, ompi_mpi_info_null)
#define MPI_ANY_SOURCE NUMBER(-1, -2, -1)
#define MPI_ANY_TAG NUMBER(-2, -1, -1)
#define MPI_LOCK_EXCLUSIVE NUMBER(301, 234, 1)
#define MPI_APPNUM NUMBER(505, 1681915917, 4)
#define MPI_STATUS_IGNORE ((void *)NUMBER(0, 1, 0))

int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm, int);
int MPI_Comm_rank(MPI_Comm, int *);
int MPI_Comm_size(MPI_Comm, int *);
int MPI_Comm_dup(MPI_Comm, MPI_Comm *);
int MPI_Comm_split(MPI_Comm, int, int, MPI_Comm *);
int MPI_Comm_free(MPI_Comm *);
int MPI_Comm_set_name(MPI_Comm, const char *);
int MPI_Comm_get_attr(MPI_Comm, int, void *, int *);
int MPI_Barrier(MPI_Comm);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int MPI_Reduce(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
int MPI_Op_create(void (*)(void *, void *, int *, MPI_Datatype *), int, MPI_Op *);
int MPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Ssend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, void *);
int MPI_Iprobe(int, int, MPI_Comm, int *, void *);
double MPI_Wtime(void);
int MPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Type_contiguous(int, MPI_Datatype, MPI_Datatype *);
int MPI_Win_allocate(MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *);
int MPI_Win_lock(int, int, int, MPI_Win);
int MPI_Win_unlock(int, MPI_Win);
