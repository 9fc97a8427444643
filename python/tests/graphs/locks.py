"""Locks that tasks of `bdrun.get` share."""

import errno
import os
import tempfile
import threading
import time

import dask
import dask.array as da

import bdrun
from common import SCRATCH, get, main


def locks():
    from dask.utils import SerializableLock

    lock = SerializableLock("counter")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("0")
        file.flush()
        name = file.name

        def count(block):
            for _ in range(50):
                with lock:
                    number = int(open(name).read())
                    time.sleep(0)
                    open(name, "w").write(str(number + 1))
            return block

        value = da.arange(20, chunks=1)
        get(value.map_blocks(count, dtype=value.dtype, meta=value._meta), "2G")
        assert open(name).read() == "1000", open(name).read()


def locks_in_time():
    """Who waits for a lock for some time only gets it or does not."""
    from dask.utils import SerializableLock

    lock = SerializableLock("in-time")
    path = os.path.join(SCRATCH, f"bdrun-in-time-{os.getpid()}")

    def wait_for(what):
        while not os.path.exists(f"{path}-{what}"):
            time.sleep(0.01)

    def say(what):
        open(f"{path}-{what}", "w").close()

    def hold():
        with lock:
            say("held")
            wait_for("asked")

    def ask():
        wait_for("held")
        begun = time.monotonic()
        first = lock.acquire(timeout=0.2)
        took = time.monotonic() - begun
        say("asked")
        second = lock.acquire(timeout=600)
        lock.release()
        return first, took, second

    try:
        _, (first, took, second) = get([dask.delayed(hold)(), dask.delayed(ask)()], "2G")[0]
        assert not first and took > 0.15 and second, (first, took, second)
    finally:
        os.unlink(f"{path}-held")
        os.unlink(f"{path}-asked")


def locks_of_threads():
    """Threads of one task, computations at the same time and within tasks; and the lock comes back as Dask's own."""
    from dask.utils import SerializableLock

    lock = SerializableLock("threads")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("0")
        file.flush()
        name = file.name

        def count(times):
            for _ in range(times):
                with lock:
                    number = int(open(name).read())
                    time.sleep(0)
                    open(name, "w").write(str(number + 1))

        def threads(inner):
            all_of = [threading.Thread(target=count, args=(20,)) for _ in range(3)]
            for one in all_of:
                one.start()
            if inner:
                bdrun.get({"a": (count, 20)}, "a", memory="2G", num_workers=1)
            for one in all_of:
                one.join()
            with lock:
                assert lock.locked() and not lock.acquire(blocking=False)
            return lock

        found = []
        runs = [threading.Thread(target=lambda inner: found.append(bdrun.get({"a": (threads, inner)}, "a", memory="2G", num_workers=1)), args=(at,)) for at in (0, 1)]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        assert open(name).read() == str(2 * 60 + 20), open(name).read()
        assert len(found) == 2 and all(type(one) is SerializableLock and one.token == "threads" for one in found), found
        with found[0]:
            pass


def locks_at_once():
    """Two first computations at the same time have one file of locks."""
    from bdrun.graph import _locks_file

    create, other = os.memfd_create, []

    def interrupted(*how):
        if not other:
            other.append(None)
            other[0] = _locks_file()
        return create(*how)

    os.memfd_create = interrupted
    before = len(os.listdir("/proc/self/fd"))
    assert _locks_file() == other[0] == _locks_file(), other
    assert len(os.listdir("/proc/self/fd")) == before + 1, "the other one is closed"


def locks_not_dead():
    """What the kernel takes for a deadlock of processes is a lock that is held."""
    import fcntl

    from bdrun import _pool, _values

    _pool.LOCKS = os.memfd_create("bdrun-locks")
    really, asked = _values._Lock._lock, []

    def refuse(lock, how):
        asked.append(how)
        if len(asked) == 1:
            raise OSError(errno.EDEADLK, os.strerror(errno.EDEADLK))
        really(lock, how)

    _values._Lock._lock = refuse
    lock = _values._Lock("dead")
    for how in ({}, {"timeout": 300}):
        asked.clear()
        assert lock.acquire(**how) and asked[1:] == [fcntl.LOCK_EX | fcntl.LOCK_NB], asked
        lock.release()
    asked.clear()
    assert not lock.acquire(blocking=False) and not lock.locked() and len(asked) == 1


if __name__ == "__main__":
    main(globals())
