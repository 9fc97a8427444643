"""Processes in which `bdrun.get` runs tasks: how they begin, fail, are missed and end."""

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import dask
import dask.array as da
import numpy as np

import bdrun
from bdrun._memory import parse_bytes
from bdrun.graph import WorkerDied
from common import SCRATCH, children, get, main, processes


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

    bdrun.graph.LEAVE = 60  # on a busy machine who is killed may not end for long
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


def workers():
    """What workers have of their own, and what they leave."""
    # Random numbers: not the same in all of them.
    @dask.delayed
    def number(_, folder):
        try:
            # It runs alone: from it is learned what such tasks take.
            open(f"{folder}/first", "x").close()
        except FileExistsError:
            open(f"{folder}/{os.getpid()}", "w").close()
            # However late the second worker begins, the other leaves tasks to it.
            while len(os.listdir(folder)) < 3 and time.monotonic() < end:
                time.sleep(0.01)
        return os.getpid(), np.random.randint(1 << 30)

    end = time.monotonic() + 300
    with tempfile.TemporaryDirectory() as folder:
        found, _ = get([number(at, folder) for at in range(12)], "2G")
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

    # One that dies is missed, although a program that it started goes on. So many seconds no other test sleeps.
    program = ["sleep", str(10_000_000 + os.getpid())]

    def die(_):
        subprocess.Popen(program)
        os._exit(1)

    def words(pid):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                return file.read().split("\0")[:-1]
        except OSError:
            return []

    begun = time.monotonic()
    try:
        get(dask.delayed(die)(1), "2G")
    except WorkerDied:
        assert time.monotonic() - begun < 300
    else:
        raise AssertionError("it died")
    left = [pid for pid, _, name in processes() if name == "sleep" and words(pid) == program]
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


if __name__ == "__main__":
    main(globals())
