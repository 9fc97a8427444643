"""Values as bytes: pickled, with large arrays beside the pickle (PEP 574), so that they are used where they lie.

A value is laid out as its pickle, then each buffer at a multiple of 64 bytes. Where each begins is told beside it.
"""

import io
import os
import pickle

ALIGNED = 64


def _aligned(at):
    return -(-at // ALIGNED) * ALIGNED


class _Lock:
    """What `dask.utils.SerializableLock` is among processes: one of a name at a time, in all of them."""

    def __init__(self, token):
        self.token = token

    def _file(self):
        from bdrun import _pool

        if _pool.LOCKS is None:
            raise RuntimeError("this lock is used outside of a task")
        return _pool.LOCKS

    def acquire(self, *_, **__):
        import fcntl
        import zlib

        fcntl.lockf(self._file(), fcntl.LOCK_EX, 1, zlib.crc32(str(self.token).encode()))
        return True

    def release(self, *_, **__):
        import fcntl
        import zlib

        fcntl.lockf(self._file(), fcntl.LOCK_UN, 1, zlib.crc32(str(self.token).encode()))

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *_):
        self.release()


_pickler = None


def _make_pickler():
    import copyreg
    from collections import ChainMap

    import cloudpickle
    from dask.utils import SerializableLock

    locks = {SerializableLock: lambda lock: (_Lock, (lock.token,))}

    class Pickler(cloudpickle.Pickler):
        dispatch_table = ChainMap(locks, getattr(cloudpickle.Pickler, "dispatch_table", copyreg.dispatch_table))

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
