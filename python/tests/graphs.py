"""What `bdrun.get` does with Dask's graphs; `python.rs` runs each function whose name is given."""

import errno
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time

import dask
import dask.array as da
import dask.bag as db
import numpy as np

import bdrun
from bdrun._memory import parse_bytes
from bdrun.graph import Statistics, WorkerDied

SCRATCH = tempfile.gettempdir() if len(sys.argv) < 3 else sys.argv[2]


def get(value, memory, **others):
    statistics = Statistics()
    (result,) = dask.compute(
        value, scheduler=bdrun.get, memory=memory, statistics=statistics, scratch=SCRATCH, num_workers=2, **others
    )
    return result, statistics


def fixed():
    """What Python and its modules take, without results."""
    return get(dask.delayed(0), "4G")[1]["fixed"] + (8 << 20)


def processes():
    """Those that run: number, its parent's, name."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                head, _, rest = file.read().rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if state not in "ZX":
            yield pid, parent, head.partition("(")[2]


def children(of=None):
    """Processes that this one, or another, has."""
    parent = str(of or os.getpid())
    return [pid for pid, above, _ in processes() if above == parent]


def arrays():
    random = np.random.default_rng(1).random
    one, other = da.from_array(random((1500, 1500)), chunks=250), da.from_array(random((1500, 1500)), chunks=300)
    spilled = 0
    for name, value in [
        ("mean", one.mean(axis=0)),
        ("product", one.T.dot(one) - one.mean(axis=0)),
        ("chunks", other.rechunk((1500, 100)).map_blocks(lambda block: np.sort(block, axis=0)).rechunk(250).sum(axis=1)),
        ("overlap", da.overlap.overlap(one, 2, "periodic").map_blocks(np.cumsum, axis=1, dtype="f8").sum()),
        ("departure", (one - one.mean()).std() + other.T[:200, :50]),
        ("strings", da.from_array(np.array(["ab", "c", "def"] * 100)).reshape((30, 10))),
    ]:
        want = value.compute(scheduler="synchronous")
        base = fixed()
        for room in (12 << 20, 64 << 20):
            got, statistics = get(value, base + room)
            if value.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=1e-10, err_msg=name)
            else:
                np.testing.assert_array_equal(got, want, err_msg=name)
            assert got.dtype == want.dtype and (got.ndim == 0 or got.flags.writeable), name
            spilled += statistics["written"]
            assert statistics["too_large"] or statistics["most"] <= room * 1.25, (name, room, statistics)
    assert spilled > 10 << 20, spilled


def collections():
    bag = db.from_sequence(range(1000), npartitions=7)
    words = bag.map(lambda number: f"word{number % 13}")
    result, _ = get(words.frequencies(), "2G")
    assert dict(result) == {f"word{at}": len(range(at, 1000, 13)) for at in range(13)}
    grouped, _ = get(bag.groupby(lambda number: number % 3), "2G")
    assert {key: sum(items) for key, items in grouped} == {at: sum(range(at, 1000, 3)) for at in range(3)}

    @dask.delayed
    def add(*numbers):
        return sum(numbers)

    # Lists, the same key several times, nested computing, a value that is nothing.
    assert get([add(1, 2), add(1, 2), [add(3)], None], "2G")[0] == [3, 3, [3], None]
    assert get(dask.delayed(lambda: da.ones(10, chunks=5).sum().compute())(), "2G")[0] == 10


def graphs():
    big = np.arange(1 << 20)
    dsk = {
        "a": 1,
        "b": "a",  # another name
        "c": (sum, ["a", "b", 3]),
        ("x", 0): (np.add, "big", "c"),
        "big": big,
        "d": (lambda array, number: (array.sum(), number), ("x", 0), "b"),
    }
    found = bdrun.get(dsk, ["c", ["b", ("x", 0)], "d", "c"], memory="2G")
    assert found[0] == found[3] == 5 and found[1][0] == 1
    np.testing.assert_array_equal(found[1][1], big + 5)
    assert found[2] == (big.sum() + 5 * len(big), 1)
    assert bdrun.get(dsk, "a", memory="2G") == 1
    for wrong, error in [({"a": (sum, "b"), "b": (sum, "a")}, "circle"), ({"a": 1}, "'z'")]:
        try:
            bdrun.get(wrong, "z" if "z" in error else "a", memory="2G")
        except (KeyError, ValueError) as failed:
            assert error in str(failed), failed
        else:
            raise AssertionError(error)


def names():
    """Chains are fused whatever keys they have, and none is taken for another."""

    def first(number):
        return number

    def second(number):
        return number * 1000 + 1

    chains = []
    for number in range(200):
        one = number
        for at in range(5):
            name = f"a_rather_long_name_of_a_function_{at}"
            one = dask.delayed(second if at else first)(one, dask_key_name=f"{name}-{number:032x}")
        chains.append(one)
    want = list(dask.compute(*chains, scheduler="synchronous"))
    assert get(chains, "2G")[0] == want
    for dsk, keys in [
        ({"load": (abs, -5), "x": (second, "load"), "load-x": (abs, -100)}, ["x", "load-x"]),
        ({1: (abs, -5), 2: (second, 1), (3, 4): (second, 2), 5: (second, (3, 4))}, [5, 2]),
        ({"a": np.arange(40000), "b": (np.sum, "a"), "c": (second, "b")}, ["c"]),
    ]:
        assert tuple(bdrun.get(dsk, keys, memory="2G")) == tuple(dask.get(dsk, keys)), dsk
    try:
        from dask._task_spec import Task, TaskRef

        bdrun.get({"a": Task("a", abs, TaskRef("b"))}, "a", memory="2G")
        raise AssertionError("there is no b")
    except KeyError as error:
        assert "'b'" in str(error) and "'a'" in str(error), error


def mapped():
    """Files that are mapped are not read into this process."""
    path = os.path.join(SCRATCH, f"bdrun-mapped-{os.getpid()}")
    whole = np.arange(5_000_000.0)
    try:
        np.concatenate([[7.0], whole]).tofile(path)
        array = np.memmap(path, "f8", "r", 8, whole.shape)
        for one in (array, array[1000:4_000_001], array[4000:].reshape(-1, 4)[5:], array[::3]):
            value = da.from_array(one, chunks=500_000).sum()
            assert get(value, "2G")[0] == np.asarray(one).sum(), one.shape
        from bdrun import _values

        assert len(_values.dumps(array)) < 2000 and len(_values.dumps(array[5:])) < 2000
        # As `os.replace` leaves it: the map is of what has no name any more.
        (whole + 1).tofile(f"{path}-new")
        os.replace(f"{path}-new", path)
        for one in (array, array[5:]):
            for value in (da.from_array(one, chunks=500_000).sum(), dask.delayed(np.sum)(one)):
                assert get(value, "2G")[0] == np.asarray(one).sum(), "of another file"
        now = np.memmap(path, "f8", "r", 0, whole.shape)
        assert get((da.from_array(now, chunks=500_000) - da.from_array(array, chunks=500_000)).sum(), "2G")[0] == whole.size
    finally:
        os.unlink(path)
    assert get(dask.delayed(np.sum)(now), "2G")[0] == np.asarray(now).sum()


def replaced():
    """A file that is replaced while its contents are needed is not taken for what was mapped."""
    path = os.path.join(SCRATCH, f"bdrun-replaced-{os.getpid()}")
    try:
        np.zeros(1 << 16).tofile(path)
        array = np.memmap(path, "f8", "r")

        def replace(one):
            np.ones(1 << 16).tofile(f"{path}-new")
            os.replace(f"{path}-new", path)
            return one

        # Its path is sent before it is another's.
        from bdrun import _values

        sent = _values.dumps(array)
        replace(0)
        for what in (lambda: pickle.loads(sent), lambda: get(dask.delayed(lambda data: pickle.loads(data).sum())(sent), "2G")):
            try:
                what()
                raise AssertionError("of another file")
            except OSError as error:
                assert error.errno == errno.ESTALE and error.filename == path, error
    finally:
        os.unlink(path)


def come_back():
    """A child that comes back from its worker's task ends there, as Python ends, and says nothing to whom its worker speaks with."""

    def fork(how, folder):
        child = os.fork()
        if child == 0:
            import atexit

            atexit.register(lambda: open(f"{folder}/{how}", "w").close())
            if how == "raise":
                raise ValueError("of the child")
            if how != "return":
                sys.exit(None if how == "None" else how)
            return 8
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, os.path.exists(f"{folder}/{how}")

    with tempfile.TemporaryDirectory() as folder:
        ways = {"return": 0, "raise": 1, "None": 0, 3: 3, 0: 0, "a reason": 1}
        for how, code in ways.items():
            found = get([dask.delayed(fork)(how, folder), dask.delayed(abs)(-5)], "2G")[0]
            assert found == [(code, True), 5], (how, found)


def nothing_open():
    """What cannot be begun for want of descriptors leaves none behind."""
    import gc

    def count():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    value = dask.delayed(abs)(-5)
    assert get(value, "2G")[0] == 5
    before = count()
    for name, place in (("memfd_create", os), ("pipe2", os), ("open", os), ("dup", os), ("socketpair", socket), ("send_fds", socket)):
        real, left = getattr(place, name), [0]
        is_refused = True
        while is_refused:
            at, is_refused = left[0], False

            def refuse(*what, at=[at], **named):
                nonlocal is_refused
                if at[0] == 0:
                    is_refused = True
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                at[0] -= 1
                return real(*what, **named)

            setattr(place, name, refuse)
            try:
                assert get(value, "2G")[0] == 5
            except OSError as error:
                assert error.errno == errno.EMFILE, error
            finally:
                setattr(place, name, real)
            assert count() == before, (name, at)
            left[0] += 1
            assert left[0] < 100
        assert name == "dup" or left[0] > 1, name


def dies_when_it_is_measured():
    """A worker that ends just when it is looked how much it takes is one that has ended."""
    from bdrun import graph

    real = graph.proportional
    for at in range(1, 6):
        asked = []

        def measure(pid):
            asked.append(pid)
            # The first is the process that makes workers.
            if pid != asked[0] and sum(one != asked[0] for one in asked) == at:
                os.kill(pid, signal.SIGKILL)
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            return real(pid)

        graph.proportional = measure
        try:
            found = get([dask.delayed(abs)(-number) for number in range(8)], "2G")[0]
        finally:
            graph.proportional = real
        assert found == list(range(8)), at


def leaving():
    """Workers end as Python does: what they wrote is there, and what they asked for is done."""
    path = os.path.join(SCRATCH, f"bdrun-left-{os.getpid()}")

    def write(number):
        import atexit
        import builtins

        if not hasattr(builtins, "left"):
            builtins.left = open(f"{path}-{os.getpid()}", "a")
            atexit.register(lambda: builtins.left.write("end\n"))
        builtins.left.write(f"{number}\n")
        return os.getpid()

    numbers = [dask.delayed(write)(number) for number in range(20)]
    bdrun.graph.LEAVE = 60  # on a busy machine one may not run for long
    workers = set(get(numbers, "2G")[0])
    assert not [worker for worker in workers if os.path.exists(f"/proc/{worker}")], "nobody is there any more"
    lines = []
    for worker in workers:
        with open(f"{path}-{worker}") as file:
            lines += file.read().split()
        os.unlink(f"{path}-{worker}")
    assert sorted(lines) == sorted([str(number) for number in range(20)] + ["end"] * len(workers)), lines


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


def no_descriptors():
    """Where no descriptor tells of the end of workers they are waited for all the same, and missed."""

    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    os.pidfd_open = refuse
    leaving()
    closed()
    with tempfile.TemporaryDirectory() as folder:

        def leave():
            if os.path.exists(f"{folder}/child"):
                return 7
            child = os.fork()
            if child > 0:
                with open(f"{folder}/child", "w") as file:
                    file.write(str(child))
                os._exit(1)
            # As long as it is there it has the worker's socket.
            end = time.monotonic() + 300
            while os.path.exists(folder) and time.monotonic() < end:
                time.sleep(0.01)
            os._exit(0)

        assert get(dask.delayed(leave)(), "2G")[0] == 7
        with open(f"{folder}/child") as file:
            child = file.read()
        assert child in [pid for pid, _, _ in processes()], "the worker's end was heard by its child's"


def forked():
    """A child sees what its task was given, although the worker has ended in that task."""
    with tempfile.TemporaryDirectory() as folder:

        def leave(block):
            if os.path.exists(f"{folder}/tried"):
                return 1
            open(f"{folder}/tried", "w").close()
            if os.fork() > 0:
                os._exit(1)
            try:
                end = time.monotonic() + 300
                while not os.path.exists(f"{folder}/released") and time.monotonic() < end:
                    time.sleep(0.01)
                with open(f"{folder}/child", "w") as file:
                    file.write(str(block.sum()))
                os.rename(f"{folder}/child", f"{folder}/said")
            finally:
                os._exit(0)

        def release(one, _):
            open(f"{folder}/released", "w").close()
            return one

        # Two use it, so that it is a result of its own; when both are done it is given back.
        block = dask.delayed(np.ones)(1 << 18)
        value = dask.delayed(release)(dask.delayed(leave)(block), dask.delayed(np.sum)(block))
        assert get(value, "2G")[0] == 1
        end = time.monotonic() + 300
        while not os.path.exists(f"{folder}/said"):
            assert time.monotonic() < end
            time.sleep(0.01)
        with open(f"{folder}/said") as file:
            assert float(file.read()) == 1 << 18


def amid():
    """A handler of a signal forks while its worker sends a message: that is whole, and "forked" behind it."""
    from bdrun import _pool

    class Socket:
        """Where a signal comes when half of a message is sent."""

        def __init__(self):
            self.sent, self.signal = bytearray(), lambda: None

        def sendall(self, data):
            half = len(data) // 2
            self.sent += data[:half]
            self.signal()
            self.sent += data[half:]

        def recv_into(self, view, *_):
            count = min(len(view), len(self.sent))
            view[:count] = self.sent[:count]
            del self.sent[:count]
            return count

    def forks():
        socket.signal = lambda: None
        worker._forks()

    socket, worker = Socket(), _pool.Worker.__new__(_pool.Worker)
    worker._pid, worker._children, worker._send = os.getpid(), False, _pool._Outbox(socket).send
    for _ in range(2):
        socket.signal = forks
        worker._send(("done", bytes(1000)))
        worker._send(("stored",))
        heard = [_pool.receive(socket) for _ in range(4)]
        assert heard == [("done", bytes(1000)), ("forked",), ("stored",), None], heard
    assert worker._children


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


def closed():
    """A worker whose task closes descriptors that are not its own is ended before the task runs again."""
    path = os.path.join(SCRATCH, f"bdrun-closed-{os.getpid()}")

    def close():
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(str(os.getpid()))
            os.closerange(3, 200)
            time.sleep(600)
        with open(path) as file:
            return os.path.exists(f"/proc/{file.read()}")

    try:
        assert get(dask.delayed(close)(), "2G")[0] is False
    finally:
        os.unlink(path)


class Odd(Exception):
    """One that cannot be pickled."""

    def __init__(self, one, two):
        super().__init__(one)
        self.what = lambda: two


def failures():
    def fail(block):
        if block[0] == 50:
            raise ValueError("fifty")
        return block

    def odd(_):
        raise Odd(1, 2)

    value = da.arange(100, chunks=10)
    try:
        get(value.map_blocks(fail, dtype=value.dtype).sum(), "2G")
    except ValueError as error:
        text = "".join(getattr(error, "__notes__", []))
        assert str(error) == "fifty" and (sys.version_info < (3, 11) or "fail" in text and "task (" in text), text
    else:
        raise AssertionError("it did not fail")
    try:
        get(value.map_blocks(odd, dtype=value.dtype, meta=value._meta), "2G")
    except Exception as error:
        assert "Odd" in repr(error) or "Odd" in str(error), repr(error)
    else:
        raise AssertionError("it did not fail")
    try:
        get(value, "1M")
    except MemoryError as error:
        assert "1 MiB" in str(error) and "2 workers" in str(error), error
    else:
        raise AssertionError("one MiB is enough for Python")
    for wrong in ("much", "-1", 0, "3X"):
        try:
            parse_bytes(wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)
    assert [parse_bytes(text) for text in ("1K", "1.5M", "2GiB", "3 MB", 7)] == [1 << 10, 3 << 19, 2 << 30, 3 << 20, 7]
    assert not children(), children()


def deaths():
    with tempfile.TemporaryDirectory() as folder:

        def die(block, times):
            if block[0] == 30:
                count = len(os.listdir(folder))
                if count < times:
                    open(f"{folder}/{count}", "x").close()
                    os.kill(os.getpid(), signal.SIGKILL)
            return block + 1

        value = da.arange(100, chunks=10)
        result, _ = get(value.map_blocks(die, times=1, dtype=value.dtype), "2G")
        np.testing.assert_array_equal(result, np.arange(100) + 1)
        try:
            get(value.map_blocks(die, times=9, dtype=value.dtype), "2G")
        except WorkerDied as error:
            assert "twice" in str(error), error
        else:
            raise AssertionError("it died, and that was not said")
    assert not children(), children()


def caches():
    """A worker that remembers what it was given: that does not change, although it was released long ago."""

    def remember(block):
        import builtins

        seen = builtins.__dict__.setdefault("_seen", [])
        for array, total in seen:
            assert array.sum() == total, "what was remembered has changed"
        seen.append((block, block.sum()))
        block[0, 0] = -1e9  # nobody else sees this
        seen[-1] = (block, block.sum())
        return np.array([[len(seen)]])

    one = da.from_array(np.random.default_rng(2).random((1200, 1200)), chunks=300)
    base = fixed()
    total = (one + 1).map_blocks(remember, dtype="i8", chunks=(1, 1)).sum() + (one + 1).sum().astype("i8") * 0
    got, _ = get(total, base + (24 << 20))
    assert got >= 16, got
    np.testing.assert_array_equal(get((one + 1).sum(axis=0), base + (24 << 20))[0], (one + 1).sum(axis=0).compute())


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
        second = lock.acquire(timeout=60)
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
    import threading

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


def workers():
    """What workers have of their own, and what they leave."""
    import threading

    # Random numbers: not the same in all of them.
    @dask.delayed
    def number(_):
        time.sleep(0.05)
        return os.getpid(), np.random.randint(1 << 30)

    found, _ = get([number(at) for at in range(12)], "2G")
    assert len({pid for pid, _ in found}) > 1 and len({value for _, value in found}) == 12, found

    # A child that a task leaves sees what it was given, whatever comes later.
    with tempfile.TemporaryDirectory() as folder:

        def leave(block):
            if os.fork() == 0:
                time.sleep(0.5)
                with open(f"{folder}/child", "w") as file:
                    file.write(str(block.sum()))
                os.rename(f"{folder}/child", f"{folder}/said")
                os._exit(0)
            return block.sum()

        one = da.ones(1 << 18, chunks=1 << 18) + da.arange(1 << 18, chunks=1 << 18)
        total, _ = get(dask.delayed(leave)(one.persist(scheduler="synchronous") + 1), "2G")
        end = time.monotonic() + 300
        while not os.path.exists(f"{folder}/said"):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert float(open(f"{folder}/said").read()) == total

    # One that dies is missed, although a program that it started goes on.
    def die(_):
        subprocess.Popen(["sleep", "6007"])
        os._exit(1)

    def sleeping():
        return {pid for pid, _, name in processes() if name == "sleep"}

    before = sleeping()
    begun = time.monotonic()
    try:
        get(dask.delayed(die)(1), "2G")
    except WorkerDied:
        assert time.monotonic() - begun < 300
    else:
        raise AssertionError("it died")
    # Ours, which nobody else tells apart.
    left = [pid for pid in sleeping() - before if "6007" in open(f"/proc/{pid}/cmdline").read()]
    assert left
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)

    # Small results do not pile up, nor do descriptors and threads.
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * 4096

    dsk = {("a", at): (bytes, 15_000) for at in range(3000)} | {("b", at): (len, ("a", at)) for at in range(3000)}
    dsk["all"] = (sum, [("b", at) for at in range(3000)])
    before = resident()
    assert bdrun.get(dsk, "all", memory="2G", num_workers=2) == 45_000_000
    assert resident() - before < 30 << 20, (resident() - before) >> 20
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for scratch in (SCRATCH, "/nowhere/at/all"):
        try:
            bdrun.get({"a": (abs, -1)}, "a", memory="2G", scratch=scratch)
        except OSError as error:
            assert "/nowhere" in str(error)
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


class Colour(__import__("enum").Enum):
    """A key of a class of the program itself."""

    RED = 1


class Two(Exception):
    def __init__(self, one, two):
        super().__init__(one)
        self.two = two


SHADOWED = """
import sys; sys.path[0:0] = [{here!r}]
import bdrun
def said(x):
    print("from a task")
    return x
print(bdrun.get({{"a": (said, 7)}}, "a", memory="2G"))
"""


def surroundings():
    """Keys of the program's own classes, errors that cannot be made of their arguments, files that are named as Python's."""
    found = bdrun.get({(Colour.RED, 0): (abs, -1), "b": (abs, (Colour.RED, 0))}, ["b", (Colour.RED, 0)], memory="2G")
    assert tuple(found) == (1, 1), found

    def fail(_):
        raise Two(1, "two")

    try:
        bdrun.get({"a": (fail, 1)}, "a", memory="2G")
    except Two as error:
        assert error.args == (1,) and error.two == "two"
    else:
        raise AssertionError("it did not fail")
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("struct", "array", "socket"):
            with open(f"{folder}/{name}.py", "w") as file:
                file.write("raise SystemExit('this is not Python\'s')")
        script = os.path.join(tempfile.mkdtemp(), "script.py")
        with open(script, "w") as file:
            file.write(SHADOWED.format(here=here))
        ran = subprocess.run([sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True)
        os.remove(script)
        os.rmdir(os.path.dirname(script))
    assert sorted(ran.stdout.split("\n")) == ["", "7", "from a task"], (ran.stdout, ran.stderr)
    for wrong in ({"num_workers": 0}, {"memory": "inf"}, {"memory": 1e30}):
        try:
            bdrun.get({"a": (abs, -1)}, "a", **{"memory": "2G", **wrong})
        except ValueError as error:
            assert next(iter(wrong)) in str(error), error
        else:
            raise AssertionError(wrong)


def progress():
    from dask.callbacks import Callback

    seen = []
    with Callback(
        start=lambda dsk: seen.append("start"),
        pretask=lambda key, dsk, state: seen.append(("before", key)),
        posttask=lambda key, value, dsk, state, worker: seen.append(("after", key, len(state["finished"]))),
        finish=lambda dsk, state, failed: seen.append(("finish", failed)),
    ):
        get(da.arange(100, chunks=10).sum(), "2G")
    assert seen[0] == "start" and seen[-1] == ("finish", False)
    before = [item[1] for item in seen[1:-1] if item[0] == "before"]
    after = [item for item in seen[1:-1] if item[0] == "after"]
    assert len(before) == len(after) >= 10 and set(before) == {item[1] for item in after}
    assert [item[2] for item in after] == list(range(1, len(after) + 1))


def profiled():
    from dask.diagnostics import Profiler

    value = da.ones((100, 100), chunks=50).cumsum(axis=0).sum()
    with Profiler() as profile:
        assert get(value, "2G")[0] == 100 * 5050
    assert len(profile.results) > 3, profile.results
    try:
        from dask.cache import Cache

        cache = Cache(1e6)
    except ImportError:  # which needs cachey
        return
    try:
        with cache:
            get(value, "2G")
        raise AssertionError("it would remember that all results are None")
    except NotImplementedError as error:
        assert "dask.cache" in str(error), error


def drawn():
    """A page of a run: each task begins and ends, what is released was there."""
    import re
    import warnings

    one = da.from_array(np.random.default_rng(1).random((900, 900)), chunks=150)
    value = one.T.dot(one) - one.mean(axis=0)
    base = fixed()
    with tempfile.TemporaryDirectory() as folder:
        get(value, base + (8 << 20), draw=f"{folder}/run.html")
        page = open(f"{folder}/run.html").read()
        try:
            get(value, "2G", draw=f"{folder}/none/run.html")
        except OSError as error:
            assert "none/run.html" in str(error)
        else:
            raise AssertionError("there is no such folder")
        try:
            keys = [f"k{at}" for at in range(20_001)]
            bdrun.get(dict.fromkeys(keys, (abs, -1)) | {"all": (sum, keys)}, "all", memory="2G", draw=f"{folder}/run.html")
        except ValueError as error:
            assert "20001" in str(error) or "20002" in str(error), error
        else:
            raise AssertionError("more than can be drawn")

        def remove(number):
            os.unlink(f"{folder}/gone/run.html")
            os.rmdir(f"{folder}/gone")
            return number

        # Results are not lost with it.
        os.mkdir(f"{folder}/gone")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert get(dask.delayed(remove)(7), "2G", draw=f"{folder}/gone/run.html")[0] == 7
        assert any("gone/run.html" in str(one.message) for one in said), said
    events = [tuple(map(int, event)) for event in re.findall(r"\[(\d+),(\d),(\d+),(\d+)\],", page)]
    tasks = page.count("<circle")
    begun = [task for _, kind, task, _ in events if kind == 0]
    assert sorted(begun) == list(range(tasks)) and tasks > 100, (len(begun), tasks)
    assert sorted(task for _, kind, task, _ in events if kind == 1) == sorted(begun)
    assert any(kind == 3 for _, kind, _, _ in events) and "array-" in page
    times = [time for time, *_ in events]
    assert times == sorted(times)


SLEEPS = """
import signal, sys, time, dask, bdrun
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored by what a shell has put into the background
bdrun.get({"a": (lambda: (print("on", flush=True), time.sleep(1000)),)}, "a", memory="2G")
"""


def interrupted():
    """Ctrl-C and kill -9 leave no process."""
    for number, code in (signal.SIGINT, (1, -2)), (signal.SIGKILL, (-9,)):
        started = subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert started.stdout.readline() == "on\n", started.stderr.read()
        group = children(started.pid)
        below = [pid for one in group for pid in children(one)]
        assert group and below, (group, below)
        os.kill(started.pid, number)
        assert started.wait(300) in code, started.returncode
        if number == signal.SIGINT:
            assert "KeyboardInterrupt" in started.stderr.read()
        end = time.monotonic() + 300
        while any(os.path.exists(f"/proc/{pid}") for pid in group + below):
            assert time.monotonic() < end, "processes are left"
            time.sleep(0.01)


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
    import threading

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


def inputs():
    """A task with more inputs than descriptors."""
    import resource

    def joined(blocks):
        return sum(block[0] for block in blocks)

    def blocks(count):
        return dask.delayed(joined)([dask.delayed(np.full)(4096, number) for number in range(count)])

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    assert get(blocks(400), "4G")[0] == 400 * 399 // 2, "a soft limit is raised"
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    if sys.version_info >= (3, 13):
        assert get(blocks(400), "4G")[0] == 400 * 399 // 2
        return
    try:
        get(blocks(400), "4G")
        raise AssertionError("there are 200 descriptors")
    except OSError as error:
        assert "ulimit -Hn" in str(error) and "200" in str(error), error
        notes = getattr(error, "__notes__", ["joined"])  # from Python 3.11 on
        assert any("joined" in note for note in notes), notes


def values():
    """Values as bytes and back."""
    from bdrun._values import Packed, unpack

    for value in [
        None,
        [1, "two"],
        np.arange(0),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.arange(24).reshape(2, 3, 4)[:, ::2],
        {"a": np.ones((100, 100)), "b": [np.zeros(5, "c16"), b"x" * 1000]},
        np.array([{"an": "object"}, None], dtype=object),
        np.rec.array([(1, 2.5)], dtype=[("x", "i4"), ("y", "f8")]),
    ]:
        packed = Packed(value)
        with tempfile.TemporaryFile() as file:
            packed.write(file.fileno(), 0)
            file.seek(0)
            # What ends with nothing is not filled up to where that begins.
            assert file.read().ljust(packed.size, b"\0") == bytes(packed.joined())
        back = unpack(memoryview(packed.joined()), packed.pieces)
        assert pickle.dumps(back) == pickle.dumps(pickle.loads(pickle.dumps(value)))


def extents():
    """Room on scratch is found without a look at each gap that is too short, and is nobody else's."""
    import random
    import time

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
    globals()[sys.argv[1]]()
    print("right")
