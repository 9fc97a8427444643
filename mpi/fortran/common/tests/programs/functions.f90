! Functions of a program that MPI calls, and what they have seen.
module functions
  implicit none
  include 'mpif.h'
  integer :: failures = 0, copies = 0, deletes = 0, errors = 0, last_error = 0
  integer :: queries = 0, frees = 0, file_errors = 0, window_errors = 0
  integer(kind=MPI_ADDRESS_KIND) :: seen_state = 0
contains
  subroutine check(is_so, what)
    logical, intent(in) :: is_so
    character(len=*), intent(in) :: what
    if (.not. is_so) then
      failures = failures + 1
      print '(a,a)', 'wrong: ', what
    end if
  end subroutine

  ! Combines in order: of two pairs of numbers, (a, b) and (c, d), (a * c, b * c + d).
  subroutine compose(from, to, length, datatype)
    integer :: length, datatype, from(2, length), to(2, length), i
    do i = 1, length
      to(2, i) = from(2, i) * to(1, i) + to(2, i)
      to(1, i) = from(1, i) * to(1, i)
    end do
  end subroutine

  subroutine longest(from, to, length, datatype)
    integer :: length, datatype, from(length), to(length)
    call check(datatype == MPI_INTEGER, 'datatype of an operation')
    to = max(from, to)
  end subroutine

  subroutine copies_attribute(comm, keyval, state, value, copied, flag, ierror)
    integer :: comm, keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: state, value, copied
    logical :: flag
    copies = copies + 1
    seen_state = state
    copied = value + 1
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine deletes_attribute(comm, keyval, value, state, ierror)
    integer :: comm, keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: state, value
    deletes = deletes + 1
    ierror = MPI_SUCCESS
  end subroutine

  subroutine copies_number(comm, keyval, state, value, copied, flag, ierror)
    integer :: comm, keyval, state, value, copied, ierror
    logical :: flag
    copied = value * state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine notes_error(comm, code)
    integer :: comm, code, size, ierror
    errors = errors + 1
    last_error = code
    call MPI_Comm_size(comm, size, ierror)
    call check(ierror == MPI_SUCCESS .and. size > 0, 'communicator of a handler')
  end subroutine

  subroutine notes_error_of_file(file, code)
    integer :: file, code
    file_errors = file_errors + 1
    call check(file == MPI_FILE_NULL, 'file of a handler')
  end subroutine

  subroutine notes_error_of_window(win, code)
    integer :: win, code, group, ierror
    window_errors = window_errors + 1
    call MPI_Win_get_group(win, group, ierror)
    call check(ierror == MPI_SUCCESS .and. group /= MPI_GROUP_NULL, 'window of a handler')
    call MPI_Group_free(group, ierror)
  end subroutine

  subroutine extends(datatype, extent, state, ierror)
    integer :: datatype, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extent, state
    extent = state
    ierror = MPI_SUCCESS
  end subroutine

  subroutine queried(state, status, ierror)
    integer :: status(MPI_STATUS_SIZE), ierror
    integer(kind=MPI_ADDRESS_KIND) :: state
    queries = queries + int(state)
    call MPI_Status_set_elements(status, MPI_INTEGER, 5, ierror)
    call MPI_Status_set_cancelled(status, .false., ierror)
    status(MPI_SOURCE) = 3
    status(MPI_TAG) = 4
    ierror = MPI_SUCCESS
  end subroutine

  subroutine freed(state, ierror)
    integer :: ierror
    integer(kind=MPI_ADDRESS_KIND) :: state
    frees = frees + int(state)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancelled(state, is_complete, ierror)
    integer :: ierror
    integer(kind=MPI_ADDRESS_KIND) :: state
    logical :: is_complete
    ierror = MPI_SUCCESS
  end subroutine
end module
