"""Values as bytes: pickled, with large arrays beside the pickle (PEP 574), so that they are used where they lie.

A value is laid out as its pickle, then each buffer at a multiple of 64 bytes. Where each begins is told beside it.
"""

import errno
import io
import os
import pickle
import threading
import time
import weakref

ALIGNED = 64


def _aligned(at):
    return -(-at // ALIGNED) * ALIGNED


class _Lock:
    """What `dask.utils.SerializableLock` is among processes: one of a name at a time, in all threads of all of them."""

    _threads, _guard = {}, threading.Lock()

    def __init__(self, token):
        self.token = token
        with self._guard:
            # The kernel's lock is the process's: threads of it exclude each other before.
            self._thread = self._threads.setdefault(token, threading.Lock())

    def _lock(self, how):
        import fcntl
        import zlib

        from bdrun import _pool

        fcntl.lockf(_pool.LOCKS, how, 1, zlib.crc32(str(self.token).encode()))

    def acquire(self, blocking=True, timeout=-1):
        import fcntl

        until = None if timeout < 0 else time.monotonic() + timeout
        if not self._thread.acquire(blocking, timeout):
            return False
        how = fcntl.LOCK_EX | (0 if blocking and until is None else fcntl.LOCK_NB)
        while True:
            try:
                self._lock(how)
                return True
            except OSError as error:
                # The kernel takes it for a deadlock if threads of two processes wait for locks of each
                # other's, although other threads hold these, which go on.
                is_held = error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
                # It has no locks that wait for some time only.
                if is_held and blocking and (until is None or time.monotonic() < until):
                    how = fcntl.LOCK_EX | fcntl.LOCK_NB
                    time.sleep(0.01)
                    continue
                self._thread.release()
                if is_held:
                    return False
                raise

    def release(self):
        import fcntl

        self._lock(fcntl.LOCK_UN)
        self._thread.release()

    def locked(self):
        return self._thread.locked()

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *_):
        self.release()

    def __reduce__(self):
        return lock, (self.token,)


def lock(token):
    """In a worker one that excludes all of them; elsewhere Dask's own, of the same name."""
    from bdrun import _pool

    if _pool.LOCKS is not None:
        return _Lock(token)
    from dask.utils import SerializableLock

    return SerializableLock(token)


def _mapped(array):
    """A mapped file is mapped again, and so is a part of one in one piece; others, what is changed in memory only, and a
    file that has not its name any more, are arrays."""
    import mmap

    import numpy as np

    whole = array
    while not isinstance(whole, mmap.mmap) and getattr(whole, "base", None) is not None:
        whole = whole.base
    order = "C" if array.flags.c_contiguous else "F" if array.flags.f_contiguous else None
    is_file = isinstance(whole, mmap.mmap) and array.filename is not None and array.mode in ("r", "r+", "w+")
    if not is_file or order is None or array.size == 0 or array.dtype.hasobject:
        return np.asarray(array).__reduce_ex__(5)
    path, begins = os.path.abspath(array.filename), np.frombuffer(whole, "u1").__array_interface__["data"][0]
    file = _file_of(whole, begins, path)
    if file is None:
        return np.asarray(array).__reduce_ex__(5)
    # `offset` is that of the array of which this is a part, and the map begins at a page.
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    at = array.__array_interface__["data"][0] - begins
    mode = "r" if array.mode == "r" else "r+"
    return _map, (path, file, array.dtype, mode, begin + at, array.shape, order)


# Of maps that were sent: which file each is of.
_files = weakref.WeakKeyDictionary()


def _file_of(whole, begins, path):
    """Device and number of the file that is mapped, if it is still the one of that name; else None."""
    import mmap

    import numpy as np

    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            found = (found.st_dev, found.st_ino)
            if whole not in _files:
                # Of some file systems the list of maps has other devices than `stat` has: it is compared with itself.
                with mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ) as now:
                    first = np.frombuffer(now, "u1")
                    is_it = _listed(begins) == _listed(first.__array_interface__["data"][0])
                    del first
                if not is_it:
                    return None
                # As long as it is mapped no other file has its number.
                _files[whole] = found
    except (OSError, ValueError):
        return None
    return found if _files[whole] == found else None


def _listed(address):
    """Device and number of the file that is mapped at an address, as the kernel lists them."""
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            fields = line.split(None, 5)
            begin, end = (int(one, 16) for one in fields[0].split(b"-"))
            if begin <= address < end:
                return fields[3:5]
    raise ValueError(f"nothing is mapped at {address:#x}")


def _map(path, file, dtype, mode, offset, shape, order):
    import numpy as np

    with open(path, "rb" if mode == "r" else "r+b") as opened:
        found = os.fstat(opened.fileno())
        if (found.st_dev, found.st_ino) != file:
            raise OSError(errno.ESTALE, "the file was replaced by another while its contents were needed", path)
        return np.memmap(opened, dtype, mode, offset, shape, order)


_pickler = None


def _make_pickler():
    import copyreg
    from collections import ChainMap

    import cloudpickle
    from dask.utils import SerializableLock

    kinds = {SerializableLock: lambda one: (lock, (one.token,))}
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        kinds[np.memmap] = _mapped

    class Pickler(cloudpickle.Pickler):
        dispatch_table = ChainMap(kinds, getattr(cloudpickle.Pickler, "dispatch_table", copyreg.dispatch_table))

    return Pickler


def dumps(value, buffers=None):
    """Its pickle; arrays are added to `buffers`, if that is a list, as pieces of memory."""
    global _pickler
    if _pickler is None:
        _pickler = _make_pickler()
    file = io.BytesIO()

    def beside(buffer):
        try:
            buffers.append(buffer.raw())
        except BufferError:  # not in one piece
            return True
        return False

    _pickler(file, 5, buffer_callback=None if buffers is None else beside).dump(value)
    return file.getvalue()


class Packed:
    """A value as bytes."""

    def __init__(self, value):
        self.buffers = []
        self.pickle = dumps(value, self.buffers)
        self.pieces = [len(self.pickle)]
        self.size = len(self.pickle)
        for buffer in self.buffers:
            self.size = _aligned(self.size) + buffer.nbytes
            self.pieces.append(buffer.nbytes)

    def write(self, file, at):
        """Writes it to a file, from an offset on."""
        end = 0
        for piece in [self.pickle, *self.buffers]:
            end = _aligned(end)
            piece = memoryview(piece).cast("B")
            done = 0
            while done < len(piece):
                done += os.pwrite(file, piece[done : done + (1 << 30)], at + end + done)
            end += len(piece)

    def joined(self):
        """It in one piece."""
        whole = bytearray(self.size)
        end = 0
        for piece in [self.pickle, *self.buffers]:
            end = _aligned(end)
            whole[end : end + len(piece)] = piece
            end += len(piece)
        return whole


def unpack(memory, pieces):
    """The value that lies in memory, of which its arrays stay part."""
    at, parts = 0, []
    for length in pieces:
        at = _aligned(at)
        parts.append(memory[at : at + length])
        at += length
    return pickle.loads(parts[0], buffers=parts[1:])
