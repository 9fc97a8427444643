! What a program in Fortran does with MPI, in as many processes as there are. Each says at its end how much
! was not as it should be, and before that what.
program main
  use functions
  implicit none
  integer :: rank, size, ierror
  logical :: flag

  call MPI_Initialized(flag, ierror)
  call check(.not. flag, 'not initialized')
  call MPI_Init(ierror)
  call check(ierror == MPI_SUCCESS, 'init')
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  call MPI_Initialized(flag, ierror)
  call check(flag .eqv. .true., 'initialized')
  call check(MPI_Wtime() > 0 .and. MPI_Wtick() > 0, 'time')

  call messages
  call requests
  call reductions
  call strings
  call attributes
  call topologies
  call datatypes
  call handlers
  call windows
  call files
  call others

  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  call MPI_Finalize(ierror)
  print '(a,i0,a,i0,a,i0,a)', 'rank ', rank, ' of ', size, ': ', failures, ' wrong'
contains
  subroutine messages
    integer :: next, before, request, number, count, code, i
    ! Statuses at two addresses, of which one is no multiple of eight.
    integer :: words(MPI_STATUS_SIZE + 1), other(MPI_STATUS_SIZE)
    next = mod(rank + 1, size)
    before = mod(rank + size - 1, size)
    do i = 1, 2
      call MPI_Isend([rank, 7, 8], 3, MPI_INTEGER, next, 40 + i, MPI_COMM_WORLD, request, ierror)
      words = -99
      call MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, words(i), ierror)
      call check(words(i + MPI_SOURCE - 1) == before, 'source of a probe')
      call MPI_Get_count(words(i), MPI_INTEGER, count, ierror)
      call check(count == 3, 'count of a probe')
      call take(before, 40 + i)
      call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
      call check(request == MPI_REQUEST_NULL, 'request after wait')
    end do
    call MPI_Sendrecv_replace(rank, 1, MPI_INTEGER, rank, 3, rank, 3, MPI_COMM_WORLD, other, ierror)
    call check(other(MPI_TAG) == 3 .and. other(MPI_SOURCE) == rank, 'status of sendrecv_replace')
    call MPI_Send(rank, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, ierror)
    call check(ierror == MPI_SUCCESS, 'to nobody')
    call MPI_Recv(number, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, other, code)
    call check(other(MPI_SOURCE) == MPI_PROC_NULL, 'from nobody')
  end subroutine

  subroutine take(from, tag)
    integer, intent(in) :: from, tag
    integer :: numbers(3), status(MPI_STATUS_SIZE)
    numbers = 0
    call MPI_Recv(numbers, 3, MPI_INTEGER, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, status, ierror)
    call check(all(numbers == [from, 7, 8]), 'received')
    call check(status(MPI_SOURCE) == from .and. status(MPI_TAG) == tag, 'status of a message')
  end subroutine

  subroutine requests
    integer :: all(3), numbers(3), index, count, indices(3), i, status(MPI_STATUS_SIZE)
    integer :: statuses(MPI_STATUS_SIZE, 3), one
    logical :: flag
    do i = 1, 3
      call MPI_Irecv(numbers(i), 1, MPI_INTEGER, rank, 50 + i, MPI_COMM_WORLD, all(i), ierror)
    end do
    call MPI_Testany(3, all, index, flag, status, ierror)
    call check(.not. flag .and. index == MPI_UNDEFINED, 'testany without any')
    call MPI_Send(62, 1, MPI_INTEGER, rank, 52, MPI_COMM_WORLD, ierror)
    call MPI_Waitany(3, all, index, status, ierror)
    call check(index == 2 .and. numbers(2) == 62 .and. status(MPI_TAG) == 52, 'waitany')
    call check(all(2) == MPI_REQUEST_NULL .and. all(1) /= MPI_REQUEST_NULL, 'requests after waitany')
    call MPI_Send(63, 1, MPI_INTEGER, rank, 53, MPI_COMM_WORLD, ierror)
    flag = .false.
    do while (.not. flag)
      call MPI_Testany(3, all, index, flag, MPI_STATUS_IGNORE, ierror)
    end do
    call check(index == 3 .and. numbers(3) == 63, 'testany')
    call MPI_Send(61, 1, MPI_INTEGER, rank, 51, MPI_COMM_WORLD, ierror)
    indices = -7
    call MPI_Waitsome(3, all, count, indices, statuses, ierror)
    call check(count == 1 .and. indices(1) == 1 .and. indices(2) == -7, 'waitsome')
    call check(statuses(MPI_TAG, 1) == 51, 'status of waitsome')
    call MPI_Testsome(3, all, count, indices, MPI_STATUSES_IGNORE, ierror)
    call check(count == MPI_UNDEFINED, 'testsome of nothing')
    do i = 1, 3
      call MPI_Irecv(numbers(i), 1, MPI_INTEGER, rank, 50 + i, MPI_COMM_WORLD, all(i), ierror)
      call MPI_Send(70 + i, 1, MPI_INTEGER, rank, 50 + i, MPI_COMM_WORLD, ierror)
    end do
    call MPI_Waitall(3, all, statuses, ierror)
    call check(numbers(3) == 73 .and. statuses(MPI_TAG, 3) == 53, 'waitall')
    call MPI_Send_init(numbers, 3, MPI_INTEGER, rank, 9, MPI_COMM_WORLD, all(1), ierror)
    call MPI_Recv_init(indices, 3, MPI_INTEGER, rank, 9, MPI_COMM_WORLD, all(2), ierror)
    call MPI_Startall(2, all, ierror)
    call MPI_Waitall(2, all, MPI_STATUSES_IGNORE, ierror)
    call check(indices(2) == 72 .and. all(1) /= MPI_REQUEST_NULL, 'persistent')
    call MPI_Request_free(all(1), ierror)
    call MPI_Request_free(all(2), ierror)
    call MPI_Irecv(one, 1, MPI_INTEGER, rank, 77, MPI_COMM_WORLD, all(1), ierror)
    call MPI_Cancel(all(1), ierror)
    call MPI_Wait(all(1), status, ierror)
    call MPI_Test_cancelled(status, flag, ierror)
    call check(flag .eqv. .true., 'cancelled')
    call MPI_Grequest_start(queried, freed, cancelled, int(2, MPI_ADDRESS_KIND), all(1), ierror)
    call MPI_Grequest_complete(all(1), ierror)
    call MPI_Wait(all(1), status, ierror)
    call MPI_Get_elements(status, MPI_INTEGER, count, ierror)
    call check(queries == 2 .and. frees == 2 .and. count == 5, 'general request')
    call check(status(MPI_TAG) == 4 .and. status(MPI_SOURCE) == 3, 'status of a general request')
  end subroutine

  subroutine reductions
    integer :: sum, op, pair(2), result(2), i, expected(2), most, pairs, request
    integer, allocatable :: counts(:), places(:), types(:), gives(:), takes(:)
    integer, parameter :: long = selected_real_kind(18)
    real(long) :: extended, all_extended
    complex(long) :: both
    double precision :: many(1000), total(1000)
    logical :: flag, any
    call MPI_Allreduce(rank + 1, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    call check(sum == size * (size + 1) / 2, 'sum')
    call MPI_Type_create_f90_real(18, MPI_UNDEFINED, op, ierror)
    extended = rank + 0.5_long
    call MPI_Allreduce(extended, all_extended, 1, op, MPI_SUM, MPI_COMM_WORLD, ierror)
    call check(all_extended == size * size / 2.0_long, 'sum of 80 bits')
    call MPI_Type_create_f90_complex(18, MPI_UNDEFINED, op, ierror)
    both = cmplx(rank, 1, long)
    call MPI_Allreduce(MPI_IN_PLACE, both, 1, op, MPI_SUM, MPI_COMM_WORLD, ierror)
    call check(both == cmplx(size * (size - 1) / 2, size, long), 'sum of complex numbers of 80 bits')
    many = rank + 0.5d0
    call MPI_Allreduce(many, total, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call MPI_Allreduce(MPI_IN_PLACE, many, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call check(all(many == total) .and. many(1) == size * size / 2d0, 'in place')
    any = rank == size - 1
    call MPI_Allreduce(any, flag, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierror)
    call check(flag .eqv. .true., 'logical or')
    call MPI_Op_create(longest, .true., op, ierror)
    call MPI_Reduce(rank * 3, most, 1, MPI_INTEGER, op, 0, MPI_COMM_WORLD, ierror)
    call check(rank /= 0 .or. most == 3 * (size - 1), 'own operation')
    call MPI_Op_commutative(op, flag, ierror)
    call check(flag .eqv. .true., 'it commutes')
    call MPI_Op_free(op, ierror)
    call MPI_Type_contiguous(2, MPI_INTEGER, pairs, ierror)
    call MPI_Type_commit(pairs, ierror)
    call MPI_Op_create(compose, .false., op, ierror)
    pair = [rank + 2, rank]
    call MPI_Allreduce(pair, result, 1, pairs, op, MPI_COMM_WORLD, ierror)
    expected = [2, 0]
    do i = 1, size - 1
      expected = [expected(1) * (i + 2), expected(2) * (i + 2) + i]
    end do
    call check(all(result == expected), 'operation that does not commute')
    call MPI_Op_free(op, ierror)
    call MPI_Type_free(pairs, ierror)
    call check(pairs == MPI_DATATYPE_NULL, 'freed datatype')

    allocate (counts(size), places(size), types(size), gives(size), takes(size))
    counts = 1
    types = MPI_INTEGER
    do i = 1, size
      places(i) = 4 * (i - 1)
      gives(i) = 100 * rank + i - 1
    end do
    call MPI_Alltoallw(gives, counts, places, types, takes, counts, places, types, MPI_COMM_WORLD, ierror)
    call check(all(takes == [(100 * i + rank, i = 0, size - 1)]), 'alltoallw')
    takes = 0
    call MPI_Ialltoallw(gives, counts, places, types, takes, counts, places, types, MPI_COMM_WORLD, request, &
      ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call check(all(takes == [(100 * i + rank, i = 0, size - 1)]), 'ialltoallw')
    ! Nobody looks at what would be sent.
    takes = gives
    call MPI_Alltoallw(MPI_IN_PLACE, [0], [0], [MPI_DATATYPE_NULL], takes, counts, places, types, MPI_COMM_WORLD, ierror)
    call check(all(takes == [(100 * i + rank, i = 0, size - 1)]), 'alltoallw in place')
    if (rank == 0) gives = [(i * i, i = 1, size)]
    call MPI_Scatter(gives, 1, MPI_INTEGER, most, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
    call check(most == (rank + 1) ** 2, 'scatter')
    takes = -1
    takes(rank + 1) = most
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, takes, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call check(all(takes == [(i * i, i = 1, size)]), 'allgather in place')
  end subroutine

  subroutine strings
    character(len=30) :: name
    character(len=6) :: short
    character(len=MPI_MAX_ERROR_STRING) :: text
    character(len=MPI_MAX_PROCESSOR_NAME) :: host
    integer :: length, info, comm, class, keys
    logical :: flag
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierror)
    call MPI_Comm_set_name(comm, ' a name   ', ierror)
    name = repeat('#', 30)
    call MPI_Comm_get_name(comm, name, length, ierror)
    call check(name == ' a name' .and. length == 7 .and. name(30:) == ' ', 'name')
    call MPI_Comm_get_name(comm, short, length, ierror)
    call check(short == ' a nam', 'short name')
    call MPI_Comm_free(comm, ierror)
    call check(comm == MPI_COMM_NULL, 'freed communicator')
    call MPI_Get_processor_name(host, length, ierror)
    call check(length > 0 .and. len_trim(host) == length, 'processor')
    call MPI_Error_string(MPI_ERR_RANK, text, length, ierror)
    call check(len_trim(text) == length .and. index(text, 'rank') > 0, 'error string')
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, '  key ', ' its value ', ierror)
    call MPI_Info_get_nkeys(info, keys, ierror)
    call MPI_Info_get_nthkey(info, 0, name, ierror)
    call check(keys == 1 .and. name == 'key', 'key of an info')
    call MPI_Info_get_valuelen(info, 'key', length, flag, ierror)
    call check(flag .and. length == 9, 'length in an info')
    length = 42
    call MPI_Info_get_valuelen(info, 'no key', length, flag, ierror)
    call check(.not. flag .and. length == 42, 'no length in an info')
    name = repeat('#', 30)
    call MPI_Info_get(info, 'key  ', 30, name, flag, ierror)
    call check(flag .and. name == 'its value', 'value of an info')
    name = repeat('#', 30)
    call MPI_Info_get(info, 'no key', 30, name, flag, ierror)
    call check(.not. flag .and. name(1:1) == '#', 'no value')
    length = 0
    call MPI_Info_get_string(info, 'key', length, name, flag, ierror)
    call check(flag .and. length == 9 .and. name(1:1) == '#', 'length of a string in an info')
    length = 3
    call MPI_Info_get_string(info, 'key', length, name, flag, ierror)
    call check(flag .and. length == 9 .and. name == 'its', 'part of a string in an info')
    call MPI_Info_free(info, ierror)
    call check(info == MPI_INFO_NULL, 'freed info')
    call MPI_Add_error_class(class, ierror)
    call MPI_Add_error_string(class, 'no beam  ', ierror)
    call MPI_Error_string(class, text, length, ierror)
    call check(text == 'no beam' .and. length == 7, 'own error')
  end subroutine

  subroutine attributes
    integer :: keyval, comm, number
    integer(kind=MPI_ADDRESS_KIND) :: value
    logical :: flag
    call MPI_Comm_create_keyval(copies_attribute, deletes_attribute, keyval, 77_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_set_attr(MPI_COMM_SELF, keyval, -5000000000_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_dup(MPI_COMM_SELF, comm, ierror)
    call MPI_Comm_get_attr(comm, keyval, value, flag, ierror)
    call check(flag .and. value == -4999999999_MPI_ADDRESS_KIND, 'copied attribute')
    call check(copies == 1 .and. seen_state == 77, 'copies')
    call MPI_Comm_delete_attr(MPI_COMM_SELF, keyval, ierror)
    call MPI_Comm_get_attr(MPI_COMM_SELF, keyval, value, flag, ierror)
    call check(deletes == 1 .and. .not. flag, 'deleted attribute')
    call MPI_Comm_free(comm, ierror)
    call check(deletes == 2, 'deleted with its communicator')
    call MPI_Comm_free_keyval(keyval, ierror)
    call check(keyval == MPI_KEYVAL_INVALID, 'freed key')
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_set_attr(MPI_COMM_SELF, keyval, 12_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_dup(MPI_COMM_SELF, comm, ierror)
    call MPI_Comm_get_attr(comm, keyval, value, flag, ierror)
    call check(flag .and. value == 12, 'MPI_COMM_DUP_FN')
    call MPI_Comm_free(comm, ierror)
    call MPI_Comm_delete_attr(MPI_COMM_SELF, keyval, ierror)
    call MPI_Keyval_create(copies_number, MPI_NULL_DELETE_FN, keyval, 3, ierror)
    call MPI_Attr_put(MPI_COMM_SELF, keyval, -14, ierror)
    call MPI_Comm_dup(MPI_COMM_SELF, comm, ierror)
    number = 0
    call MPI_Attr_get(comm, keyval, number, flag, ierror)
    call check(flag .and. number == -42, 'attribute of MPI-1')
    call MPI_Comm_free(comm, ierror)
    call MPI_Attr_delete(MPI_COMM_SELF, keyval, ierror)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierror)
    call check(flag .and. value >= 32767 .and. value <= huge(number), 'MPI_TAG_UB')
    call MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, number, flag, ierror)
    call check(flag .and. number == value, 'MPI_TAG_UB of MPI-1')
    call attributes_of_c
    call MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, keyval, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Type_dup(MPI_INTEGER, comm, ierror)
    call MPI_Type_set_attr(comm, keyval, 9_MPI_ADDRESS_KIND, ierror)
    call MPI_Type_get_attr(comm, keyval, value, flag, ierror)
    call check(flag .and. value == 9, 'attribute of a datatype')
    call MPI_Type_free(comm, ierror)
  end subroutine

  ! In C an attribute is an address: of what is set here, the number's.
  subroutine attributes_of_c
    use, intrinsic :: iso_c_binding
    interface
      ! As wide as a handle of either ABI.
      function f2c(comm) bind(c, name='MPI_Comm_f2c')
        import
        integer(c_int), value :: comm
        integer(c_intptr_t) :: f2c
      end function
      function get_attr(comm, keyval, value, flag) bind(c, name='MPI_Comm_get_attr')
        import
        integer(c_intptr_t), value :: comm
        integer(c_int), value :: keyval
        type(c_ptr) :: value
        integer(c_int) :: flag, get_attr
      end function
      function set_attr(comm, keyval, value) bind(c, name='MPI_Comm_set_attr')
        import
        integer(c_intptr_t), value :: comm
        integer(c_int), value :: keyval
        type(c_ptr), value :: value
        integer(c_int) :: set_attr
      end function
    end interface
    integer :: keyval
    integer(c_int) :: found
    integer(c_intptr_t) :: comm
    integer(kind=MPI_ADDRESS_KIND) :: value
    integer(kind=MPI_ADDRESS_KIND), pointer :: number
    integer, target :: mine
    type(c_ptr) :: at
    logical :: flag
    comm = f2c(MPI_COMM_SELF)
    call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, keyval, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_set_attr(MPI_COMM_SELF, keyval, 4711_MPI_ADDRESS_KIND, ierror)
    ierror = get_attr(comm, keyval, at, found)
    call c_f_pointer(at, number)
    call check(found == 1 .and. number == 4711, 'attribute that is read in C')
    ierror = set_attr(comm, keyval, c_loc(mine))
    call MPI_Comm_get_attr(MPI_COMM_SELF, keyval, value, flag, ierror)
    call check(flag .and. value == loc(mine), 'attribute that is set in C')
    call MPI_Comm_delete_attr(MPI_COMM_SELF, keyval, ierror)
  end subroutine

  subroutine topologies
    integer :: comm, dims(2), found(2), place(2), from, to, graph, row, kind, ins, outs, weights(2), others(2), i
    integer :: sources(2), targets(2), sourceweights(2), targetweights(2)
    logical :: cyclic(2), is_cyclic(2), weighted
    dims = [size, 1]
    cyclic = [.true., .false.]
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, cyclic, .false., comm, ierror)
    is_cyclic = .not. cyclic
    call MPI_Cart_get(comm, 2, found, is_cyclic, place, ierror)
    call check(all(found == dims) .and. all(is_cyclic .eqv. cyclic) .and. place(1) == rank, 'cart_get')
    call MPI_Cart_shift(comm, 0, 1, from, to, ierror)
    call check(from == mod(rank + size - 1, size) .and. to == mod(rank + 1, size), 'cyclic shift')
    call MPI_Cart_shift(comm, 1, 1, from, to, ierror)
    call check(from == MPI_PROC_NULL .and. to == MPI_PROC_NULL, 'shift')
    call MPI_Cart_sub(comm, [.false., .true.], row, ierror)
    call MPI_Comm_size(row, kind, ierror)
    call check(kind == 1, 'cart_sub')
    call MPI_Comm_free(row, ierror)
    call MPI_Topo_test(comm, kind, ierror)
    call check(kind == MPI_CART, 'topo_test')
    call MPI_Comm_free(comm, ierror)
    sources(1) = mod(rank + size - 1, size)
    targets(1) = mod(rank + 1, size)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, sources, MPI_UNWEIGHTED, 1, targets, MPI_UNWEIGHTED, &
      MPI_INFO_NULL, .false., graph, ierror)
    call MPI_Dist_graph_neighbors_count(graph, ins, outs, weighted, ierror)
    call check(ins == 1 .and. outs == 1 .and. .not. weighted, 'unweighted')
    others(1) = -1
    call MPI_Neighbor_alltoallw(rank, [1], [0_MPI_ADDRESS_KIND], [MPI_INTEGER], others, [1], &
      [0_MPI_ADDRESS_KIND], [MPI_INTEGER], graph, ierror)
    call check(others(1) == sources(1), 'neighbor_alltoallw')
    call MPI_Comm_free(graph, ierror)
    weights = [5 + rank, 0]
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, sources, weights, 1, targets, weights, &
      MPI_INFO_NULL, .false., graph, ierror)
    call MPI_Dist_graph_neighbors(graph, 1, ins, sourceweights, 1, outs, targetweights, ierror)
    call check(ins == sources(1) .and. outs == targets(1) .and. sourceweights(1) == 5 + rank, 'weighted')
    call MPI_Comm_free(graph, ierror)
  end subroutine

  subroutine datatypes
    integer(kind=MPI_ADDRESS_KIND), external :: MPI_Aint_add, MPI_Aint_diff
    integer :: datatype, integers(10), handles(4), ints, addresses, types, combiner, position, bytes
    ! Changed behind the compiler's back.
    integer, volatile :: numbers(4)
    double precision, volatile :: real
    integer(kind=MPI_ADDRESS_KIND) :: places(2), places_back(10), low, extent
    character(len=100) :: packed
    integer :: bound
    real = 2.25d0
    numbers = [1, 2, 3, 4]
    call MPI_Get_address(numbers, places(1), ierror)
    call MPI_Get_address(real, places(2), ierror)
    call check(MPI_Aint_diff(MPI_Aint_add(places(1), 8_MPI_ADDRESS_KIND), places(1)) == 8, 'addresses')
    call MPI_Type_create_struct(2, [2, 1], places, [MPI_INTEGER, MPI_DOUBLE_PRECISION], datatype, ierror)
    call MPI_Type_commit(datatype, ierror)
    position = 0
    call MPI_Pack(MPI_BOTTOM, 1, datatype, packed, 100, position, MPI_COMM_WORLD, ierror)
    call check(ierror == MPI_SUCCESS .and. position == 16, 'packed')
    real = 0
    numbers(1:2) = 0
    position = 0
    call MPI_Unpack(packed, 100, position, MPI_BOTTOM, 1, datatype, MPI_COMM_WORLD, ierror)
    call check(real == 2.25d0 .and. all(numbers == [1, 2, 3, 4]), 'unpacked')
    call MPI_Type_get_envelope(datatype, ints, addresses, types, combiner, ierror)
    call check(ints == 3 .and. addresses == 2 .and. types == 2 .and. combiner == MPI_COMBINER_STRUCT, 'envelope')
    handles = -4711
    call MPI_Type_get_contents(datatype, 10, 10, 4, integers, places_back, handles, ierror)
    call check(all(handles == [MPI_INTEGER, MPI_DOUBLE_PRECISION, -4711, -4711]), 'contents')
    call check(places_back(1) == places(1) .and. integers(2) == 2, 'places in contents')
    call MPI_Type_free(datatype, ierror)
    call MPI_Type_create_subarray(2, [4, 6], [2, 3], [1, 2], MPI_ORDER_FORTRAN, MPI_INTEGER, datatype, ierror)
    call MPI_Type_size(datatype, bytes, ierror)
    call MPI_Type_get_extent(datatype, low, extent, ierror)
    call check(bytes == 24 .and. low == 0 .and. extent == 96, 'subarray')
    call MPI_Type_free(datatype, ierror)
    call MPI_Type_hindexed(2, [1, 2], [4, 20], MPI_INTEGER, datatype, ierror)
    call MPI_Type_lb(datatype, bound, ierror)
    call check(bound == 4, 'lower bound')
    call MPI_Type_ub(datatype, bound, ierror)
    call check(bound == 28, 'upper bound')
    call MPI_Type_extent(datatype, bound, ierror)
    call check(bound == 24, 'extent')
    call MPI_Type_free(datatype, ierror)
    call MPI_Type_struct(2, [1, 1], [0, 8], [MPI_INTEGER, MPI_DOUBLE_PRECISION], datatype, ierror)
    call MPI_Type_size(datatype, bytes, ierror)
    call MPI_Type_extent(datatype, bound, ierror)
    call check(bytes == 12 .and. bound == 16, 'struct of MPI-1')
    call MPI_Type_free(datatype, ierror)
  end subroutine

  subroutine handlers
    integer :: comm, handler, class, code, again
    call MPI_Comm_dup(MPI_COMM_SELF, comm, ierror)
    call MPI_Comm_create_errhandler(notes_error, handler, ierror)
    call MPI_Comm_set_errhandler(comm, handler, ierror)
    call MPI_Send(rank, 1, MPI_INTEGER, 17, 0, comm, code)
    call check(errors == 1 .and. last_error == code .and. code /= MPI_SUCCESS, 'handler')
    call MPI_Error_class(code, class, ierror)
    call check(class == MPI_ERR_RANK, 'class of an error')
    call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, ierror)
    call MPI_Send(rank, -1, MPI_INTEGER, 0, 0, comm, code)
    call MPI_Error_class(code, class, ierror)
    call check(errors == 1 .and. class == MPI_ERR_COUNT, 'returned error')
    call MPI_Errhandler_free(handler, ierror)
    call check(handler == MPI_ERRHANDLER_NULL, 'freed handler')
    call MPI_Comm_free(comm, ierror)
    call MPI_File_create_errhandler(notes_error_of_file, handler, ierror)
    call MPI_File_set_errhandler(MPI_FILE_NULL, handler, ierror)
    call MPI_File_call_errhandler(MPI_FILE_NULL, MPI_ERR_ACCESS, ierror)
    call check(file_errors == 1, 'handler of files')
    call MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN, ierror)
    call MPI_Errhandler_create(notes_error, handler, ierror)
    call MPI_Errhandler_set(MPI_COMM_SELF, handler, ierror)
    call MPI_Errhandler_get(MPI_COMM_SELF, again, ierror)
    call MPI_Comm_call_errhandler(MPI_COMM_SELF, MPI_ERR_TAG, ierror)
    call check(errors == 2 .and. last_error == MPI_ERR_TAG .and. again /= MPI_ERRHANDLER_NULL, 'handler of MPI-1')
    call MPI_Errhandler_set(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL, ierror)
  end subroutine

  subroutine windows
    integer :: win, numbers(8), group, target, handler, code
    integer(kind=MPI_ADDRESS_KIND) :: value
    logical :: flag
    numbers = -1
    call MPI_Win_create(numbers, 32_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierror)
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag, ierror)
    call check(flag .and. value == 32, 'size of a window')
    call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, value, flag, ierror)
    call check(flag .and. value == 4, 'unit of a window')
    call MPI_Win_get_attr(win, MPI_WIN_BASE, value, flag, ierror)
    call check(flag .and. value == loc(numbers), 'base of a window')
    call MPI_Win_fence(0, win, ierror)
    target = mod(rank + 1, size)
    call MPI_Put(rank, 1, MPI_INTEGER, target, 3_MPI_ADDRESS_KIND, 1, MPI_INTEGER, win, ierror)
    call MPI_Win_fence(0, win, ierror)
    call check(numbers(4) == mod(rank + size - 1, size), 'put')
    call MPI_Win_get_group(win, group, ierror)
    call MPI_Group_free(group, ierror)
    call check(group == MPI_GROUP_NULL, 'freed group')
    call MPI_Win_create_errhandler(notes_error_of_window, handler, ierror)
    call MPI_Win_set_errhandler(win, handler, ierror)
    call MPI_Win_call_errhandler(win, MPI_ERR_DISP, code)
    call check(window_errors == 1, 'handler of windows')
    call MPI_Win_free(win, ierror)
    call check(win == MPI_WIN_NULL, 'freed window')
  end subroutine

  subroutine files
    integer :: file, number, status(MPI_STATUS_SIZE), count
    integer(kind=MPI_OFFSET_KIND) :: bytes
    character(len=300) :: name
    call get_environment_variable('FORTRAN_FILE', name)
    call MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierror)
    call check(ierror == MPI_SUCCESS, 'open')
    call MPI_File_write_at_all(file, rank * 4_MPI_OFFSET_KIND, rank + 10, 1, MPI_INTEGER, status, ierror)
    call MPI_Get_count(status, MPI_INTEGER, count, ierror)
    call check(count == 1, 'written')
    call MPI_File_sync(file, ierror)
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    call MPI_File_get_size(file, bytes, ierror)
    call check(bytes == 4 * size, 'size of a file')
    call MPI_File_set_view(file, 4_MPI_OFFSET_KIND * (size - 1), MPI_INTEGER, MPI_INTEGER, 'native  ', &
      MPI_INFO_NULL, ierror)
    call MPI_File_read(file, number, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierror)
    call check(number == size + 9, 'read')
    call MPI_File_close(file, ierror)
    call check(file == MPI_FILE_NULL, 'closed file')
    call MPI_Register_datarep('own  ', MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extends, &
      4_MPI_ADDRESS_KIND, ierror)
    call check(ierror == MPI_SUCCESS, 'data representation')
  end subroutine

  subroutine others
    integer :: group, part, comm, ranks(2), number, result, provided, version, subversion, buffer(100), bytes
    call MPI_Comm_group(MPI_COMM_WORLD, group, ierror)
    call MPI_Group_range_incl(group, 1, reshape([size - 1, 0, -1], [3, 1]), part, ierror)
    call MPI_Group_translate_ranks(part, 1, [0], group, ranks, ierror)
    call check(ranks(1) == size - 1, 'ranges')
    call MPI_Comm_create(MPI_COMM_WORLD, part, comm, ierror)
    call MPI_Comm_rank(comm, number, ierror)
    call check(number == size - 1 - rank, 'reversed')
    call MPI_Comm_compare(comm, MPI_COMM_WORLD, result, ierror)
    call check(result == MPI_SIMILAR .or. size == 1, 'similar')
    call MPI_Comm_free(comm, ierror)
    call MPI_Comm_split(MPI_COMM_WORLD, merge(MPI_UNDEFINED, 0, rank > 0), 0, comm, ierror)
    call check((comm == MPI_COMM_NULL) .eqv. (rank > 0), 'split')
    if (rank == 0) call MPI_Comm_free(comm, ierror)
    call MPI_Group_free(part, ierror)
    call MPI_Group_free(group, ierror)
    call MPI_Query_thread(provided, ierror)
    call check(provided >= MPI_THREAD_SINGLE, 'threads')
    call MPI_Get_version(version, subversion, ierror)
    call check(version >= 3, 'version')
    call MPI_Buffer_attach(buffer, 400, ierror)
    call MPI_Bsend(5, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, ierror)
    call MPI_Recv(number, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call MPI_Buffer_detach(buffer, bytes, ierror)
    call check(number == 5 .and. bytes == 400, 'buffered')
    call MPI_Pcontrol(1)
  end subroutine
end program
