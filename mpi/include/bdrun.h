/* bdrun.h: what bdrun has beyond MPI, of libmpi_abi.so.1 (bdcc). From BDMPI: docs/from-bdmpi.md.
   Functions that return an int give MPI_SUCCESS or an error, of which the error handler is told first. */
#ifndef BDRUN_H
#define BDRUN_H

#include <stddef.h>

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where ranks are. A node is a machine with its own bdrun. Local: of the ranks of a communicator that are on the
   caller's node, in their order there. */
int bdrun_local_rank(MPI_Comm comm, int *rank);
int bdrun_local_size(MPI_Comm comm, int *size);
/* The rank in comm of the one whose local rank is 0. */
int bdrun_local_root(MPI_Comm comm, int *rank);
/* The number of the caller's node among those that comm is on, and how many these are. */
int bdrun_node_rank(MPI_Comm comm, int *rank);
int bdrun_node_count(MPI_Comm comm, int *count);

/* Collective: communicators of the ranks on the caller's node; of all, in which nodes take turns (the first rank
   of each, the second of each, ...). They are freed as others are. */
int bdrun_comm_node(MPI_Comm comm, MPI_Comm *newcomm);
int bdrun_comm_cyclic(MPI_Comm comm, MPI_Comm *newcomm);

/* The critical section of a node: one rank of the node is in it at a time, or as many as BDRUN_CRITICAL in the
   environment says, in the order in which they came. To wait for it is a scheduling point, as a receive is. A
   rank is in it once, whichever of its threads went in, and has left it when it has called MPI_Finalize. */
int bdrun_enter_critical(void);
int bdrun_exit_critical(void);

/* Memory that lies on storage: it is asked for before it is taken, and moved out of RAM and in again, whole, in
   large transfers, while the rank waits in a call. Without bdrun, or with --preload never, it is plain memory. */
void *bdrun_malloc(size_t size);
void *bdrun_calloc(size_t count, size_t size);
void *bdrun_realloc(void *at, size_t size);
void bdrun_free(void *at);
/* The content of these bytes is not needed any more: they are zeros, and nothing of them is written to scratch
   or read again. */
int bdrun_discard(void *at, size_t size);
/* They will be used next; they will not be for a while. Their content stays. Hints: the pager learns by itself. */
int bdrun_will_need(const void *at, size_t size);
int bdrun_dont_need(const void *at, size_t size);

#ifdef __cplusplus
}
#endif

#endif
