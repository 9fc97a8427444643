"""Where results are: in a file in memory, which workers map, or in a file on scratch."""

import bisect
import os
import tempfile

from bdrun import _library
from bdrun._memory import is_memory

PAGE = os.sysconf("SC_PAGE_SIZE")


class Value:
    """Where a result is."""

    __slots__ = ("pieces", "size", "small", "memory", "scratch")

    def __init__(self, pieces, size, small):
        self.pieces, self.size, self.small = pieces, size, small
        self.memory = self.scratch = None

    def room(self):
        return -(-self.size // PAGE) * PAGE


class _Extents:
    """Which parts of a file are used."""

    def __init__(self):
        # Gaps by where they begin; the same in the order of their lengths, for there may be very many that are too short.
        self.gaps, self.lengths, self.end, self.most = {}, [], 0, 64

    def take(self, length):
        if not length:
            return 0
        found = bisect.bisect_left(self.lengths, (length, 0))
        if found == len(self.lengths):
            self.end += length
            return self.end - length
        gap, at = self.lengths.pop(found)
        del self.gaps[at]
        if gap > length:
            self._add(at + length, gap - length)
        return at

    def _add(self, at, length):
        self.gaps[at] = length
        bisect.insort(self.lengths, (length, at))

    def give(self, at, length):
        if not length:
            return
        self._add(at, length)
        if len(self.gaps) > self.most:  # joined now and then: when there are twice as many as the last time
            joined, last = {}, None
            for at, length in sorted(self.gaps.items()):
                if last is not None and last + joined[last] == at:
                    joined[last] += length
                else:
                    joined[at], last = length, at
            if last is not None and last + joined[last] == self.end:
                self.end = last
                del joined[last]
            self.gaps, self.most = joined, max(64, 2 * len(joined))
            self.lengths = sorted((length, at) for at, length in joined.items())


class Places:
    """The files, and what is where in them."""

    def __init__(self, folder):
        self.folder = folder or scratch_folder()
        self.memory = os.memfd_create("bdrun-results", os.MFD_CLOEXEC)
        try:
            self.scratch, self._direct = _scratch_file(self.folder)
        except OSError:
            os.close(self.memory)
            raise
        self._end, self._extents, self._size = 0, _Extents(), 0

    def take_memory(self, value):
        # Never where something was: the file has as many addresses as there are.
        value.memory = self._end
        self._end += value.room()
        os.ftruncate(self.memory, self._end)

    def take_scratch(self, value):
        value.scratch = self._extents.take(value.room())
        # Whole pages are read, also of what ends within one.
        if value.scratch + value.room() > self._size:
            self._size = value.scratch + value.room()
            os.ftruncate(self.scratch, self._size)

    def give_scratch(self, value):
        if value.scratch is not None:
            self._extents.give(value.scratch, value.room())
            value.scratch = None

    def give_memory(self, at, length):
        _library.punch(self.memory, at, length)

    def written(self, value):
        """Takes room on scratch; returns what copies the result there, past the kernel's cache."""
        self.take_scratch(value)
        places = (self.memory, value.memory, self._direct, value.scratch, value.room())
        return lambda: _library.copy(*places)

    def read(self, value):
        """Takes room in memory; returns what copies the result there."""
        self.take_memory(value)
        places = (self._direct, value.scratch, self.memory, value.memory, value.room())
        return lambda: _library.copy(*places)

    def load(self, value, keep):
        """A result, in memory of this process; its room in the file in memory is given back meanwhile, unless it is kept. None
        if it is not there."""
        file, at = (self.memory, value.memory) if value.memory is not None else (self.scratch, value.scratch)
        loaded = memoryview(bytearray(value.size))
        done = 0
        while done < value.size:
            count = os.preadv(file, [loaded[done : done + (64 << 20)]], at + done)
            if count == 0:
                return None
            whole = (done + count) // PAGE * PAGE
            # The last page is given back with the rest of it: of less than a page that is all.
            if value.memory is not None and not keep and whole > 0:
                self.give_memory(at, whole)
            done += count
        return loaded

    def close(self):
        for file in {self.memory, self.scratch, self._direct}:
            os.close(file)


def scratch_folder():
    """Where scratch is if it is not said: not in memory, if there is a choice."""
    named = os.environ.get("BDRUN_SCRATCH", "").split(":")[0]
    if named:
        return named
    folders = [os.environ.get("TMPDIR") or "/var/tmp", "/var/tmp"]
    folders = [folder for folder in folders if os.path.isdir(folder)] or [tempfile.gettempdir()]
    return next((folder for folder in folders if not is_memory(folder)), folders[0])


def _scratch_file(folder):
    """A file without a name, twice: as it is, and past the kernel's cache where that is possible."""
    try:
        file = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError:
        file, path = tempfile.mkstemp(prefix=".bdrun-graph-", dir=folder)
        os.unlink(path)
    try:
        try:
            return file, os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        except OSError:
            return file, os.dup(file)
    except OSError:
        os.close(file)
        raise
