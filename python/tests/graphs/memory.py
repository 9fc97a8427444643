"""What `bdrun.get` keeps in memory, what leaves for scratch, and what it says where there is no room."""

import errno
import json
import os
import sys
import threading
import time

import dask
import dask.array as da
import numpy as np

import bdrun
from common import SCRATCH, children, fixed, get, main


def small():
    """Of many small results few bytes stay in this process: the others leave as all else."""
    parts = [dask.delayed(bytes)(15_000) for _ in range(3000)]
    # Each in two sums: whatever comes first, most are there at once.
    groups = [parts[at::30] for at in range(30)] + [parts[at : at + 100] for at in range(0, 3000, 100)]
    value = dask.delayed(lambda *sums: sum(sums))(*[dask.delayed(lambda *some: sum(map(len, some)))(*group) for group in groups])
    with open("/proc/self/statm") as file:
        before = int(file.read().split()[1]) * 4096
    found, statistics = get(value, fixed() + (24 << 20))
    assert found == 90_000_000 and statistics["written"] > 10 << 20, statistics
    with open("/proc/self/statm") as file:
        assert int(file.read().split()[1]) * 4096 - before < 24 << 20


def pages():
    """A result of less than a page, which goes with no message where there are many tasks."""
    from bdrun import _library
    from bdrun._places import Places, Value

    places = Places(SCRATCH)
    value, want = Value([2000], 2000, None), bytes(range(250)) * 8
    places.take_memory(value)
    os.pwrite(places.memory, want, value.memory)
    assert bytes(places.load(value, keep=False)) == want
    _library.punch(places.memory, value.memory, 0)
    places.close()
    dsk = {("a", at): (abs, -at) for at in range(5000)}
    dsk["all"] = (lambda numbers: bytes(2000) if sum(numbers) else b"", list(dsk))
    memory = fixed() + (24 << 20)
    assert memory // (64 * len(dsk)) < 2000, "it would go with a message"
    assert bdrun.get(dsk, "all", memory=memory, num_workers=2, scratch=SCRATCH) == bytes(2000)


def memory_full():
    """Memory without room for a result is not called a full scratch."""
    from bdrun import _library

    write, copy = os.pwrite, _library.copy

    def is_memory(file):
        return os.readlink(f"/proc/self/fd/{file}").startswith("/memfd:")

    def refuse(file, *what):
        if is_memory(file):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, *what)

    def refused():
        os.pwrite = refuse
        return np.ones(1 << 18)

    def refuse_copy(source, source_at, target, *what):
        if is_memory(target):
            raise OSError(number, os.strerror(number))
        copy(source, source_at, target, *what)

    # By a worker, and by this process.
    graphs = {"made": {"made": (refused,)}, "sum": {"big": np.ones(1 << 18), "sum": (np.sum, "big")}}
    for key, dsk in graphs.items():
        os.pwrite = write if key == "made" else refuse
        try:
            bdrun.get(dsk, key, memory="2G", num_workers=2, scratch=SCRATCH)
        except MemoryError as error:
            assert SCRATCH not in str(error) and repr(next(iter(dsk))) in str(error), error
        else:
            raise AssertionError("there is no room")
    os.pwrite = write
    # What cannot be read is what is on scratch.
    one = da.from_array(np.random.default_rng(1).random((2000, 2000)), chunks=250)
    value, base = one.T.dot(one) - one.mean(axis=0), fixed()
    _library.copy = refuse_copy
    for number, kind in [(errno.ENOSPC, MemoryError), (errno.EFBIG, OSError), (errno.EIO, OSError)]:
        try:
            get(value, base + (12 << 20))
        except kind as error:
            assert (SCRATCH in str(error)) == (number == errno.EIO), error
        else:
            raise AssertionError("what was written was to be read")


def memory_of_scratch():
    from bdrun._memory import is_memory
    from bdrun import array
    from bdrun._places import scratch_folder

    assert is_memory("/dev/shm") and not is_memory("/var/tmp")
    os.environ["TMPDIR"] = "/dev/shm"
    assert scratch_folder() == "/var/tmp"
    asked = []

    class Library:
        def __init__(self, real):
            self._real = real

        def __getattr__(self, name):
            return getattr(self._real, name)

        def bdrun_compute(self, computation, how, *others):
            asked.append(json.loads(how)["scratch"])
            return self._real.bdrun_compute(computation, how, *others)

    real = array.library()
    array.library = lambda: Library(real)
    assert array.asarray(np.ones(4)).sum().compute() == 4 and asked == ["/var/tmp"], asked


def full():
    """Scratch without room: `python.rs` gives a small one."""
    one = da.from_array(np.random.default_rng(1).random((2000, 2000)), chunks=250)
    base = fixed()
    try:
        get(one.T.dot(one) - one.mean(axis=0), base + (12 << 20))
    except OSError as error:
        assert error.errno == 28 and SCRATCH in str(error), error
    else:
        raise AssertionError("4 MiB of scratch are enough")
    assert not children(), children()


def unshare(_):
    """Writes what is there to each page that this process has of its own or shares; says how many bytes these are."""
    import ctypes

    found, nothing = 0, bytes(4096)
    with open("/proc/self/maps") as file:
        maps = [line.split() for line in file]
    for addresses, rights, _, _, inode, *name in maps:
        if rights == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, end = (int(address, 16) for address in addresses.split("-"))
            for page in range(start, end, 4096):
                if ctypes.string_at(page, 4096) != nothing:
                    byte = ctypes.c_ubyte.from_address(page)
                    byte.value = byte.value
                    found += 4096
    return found


def unshared():
    """What workers do not share any more is taken off the budget."""
    before = get(dask.delayed(0), "4G")[1]["fixed"]
    tasks = [dask.delayed(unshare)(number) for number in range(8)]
    found, statistics = get(dask.delayed(list)(tasks), "4G")
    assert min(found) > 8 << 20, found
    # One of them at least: of what three had a third of each has its own now.
    assert statistics["fixed"] > before + 0.7 * min(found), (before, statistics["fixed"], found)


def no_threads():
    """Where the system has no thread left what moves is moved all the same."""
    one = da.from_array(np.random.default_rng(1).random((2000, 2000)), chunks=250)
    value = one.T.dot(one) - one.mean(axis=0)
    want = value.compute(scheduler="synchronous")
    start, started = threading.Thread.start, []

    def refuse(thread):
        # As Python says it; the second time of a pool that has one thread.
        if len(started) >= most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    threading.Thread.start = refuse
    for most in (0, 1):
        started.clear()
        got, statistics = get(value, fixed() + (12 << 20))
        np.testing.assert_allclose(got, want)
        assert statistics["written"] > 0 and len(started) == most, (statistics, started)


def budget():
    """Without a number it is what is available: in a cgroup what that has; to a rank of bdrun its part."""
    from bdrun._memory import available_memory

    alone = available_memory()
    assert 64 << 20 < alone < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), alone
    os.environ.update(BDRUN_BUDGET_BYTES="1000", BDRUN_SIZE="4")
    assert available_memory() == 250
    del os.environ["BDRUN_BUDGET_BYTES"]
    if len(sys.argv) > 2:  # in a cgroup of so many bytes
        limit = int(sys.argv[2])
        assert limit // 4 < alone < limit, (alone, limit)


def extents():
    """Room on scratch is found without a look at each gap that is too short, and is nobody else's."""
    import random

    from bdrun._places import _Extents

    chosen = random.Random(1)
    for _ in range(50):
        room, there = _Extents(), []
        for _ in range(500):
            if chosen.random() < 0.55 or not there:
                length = chosen.randrange(20)
                at = room.take(length)
                assert all(at + length <= other or other + size <= at or not length or not size for other, size in there)
                there.append((at, length))
            else:
                room.give(*there.pop(chosen.randrange(len(there))))
    room, begun = _Extents(), time.thread_time()
    short = [room.take(1) for _ in range(60_000)]
    for at in short[::2]:
        room.give(at, 1)
    for _ in range(30_000):
        room.take(2)
    assert time.thread_time() - begun < 10, time.thread_time() - begun


if __name__ == "__main__":
    main(globals())
