"""A scheduler for Dask: its graphs, in processes, within a budget of memory.

    import bdrun
    x.sum().compute(scheduler=bdrun.get, memory="400M")

Results that do not fit are written to scratch and read again, those first that are needed furthest away, in an order that keeps
little alive. How large results are, and what tasks take, is learned from the first of each kind. README.md beside this package
says what is counted.
"""

import contextlib
import errno
import os
import pickle
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

from bdrun import _pool, _values
from bdrun._library import Execution, processors
from bdrun._memory import available_memory, parse_bytes, private, proportional
from bdrun._places import Places, Value
from bdrun._tasks import Tasks

__all__ = ["get", "Statistics"]

# Workers have so many seconds to end.
LEAVE = 2
# How often it is looked how much tasks take, in seconds.
LOOK = 0.05
# So many tasks a picture has at most: `graph::draw::MOST`.
MOST_DRAWN = 20_000
# Beside the budget: pages of files, and what was not measured.
SPARE = 8 << 20
# What writing to a file says that has no room.
NO_ROOM = (errno.ENOSPC, errno.ENOMEM, errno.EFBIG)


NO_SERVER = "the process that makes workers has ended; what it wrote is on standard error"


class WorkerDied(RuntimeError):
    """A worker ended while it ran a task, twice."""


class Statistics(dict):
    """What a run did: tasks, bytes written and read, bytes taken at most, and what was fixed."""


def get(dsk, keys, *, memory=None, num_workers=None, scratch=None, callbacks=None, statistics=None, draw=None, **_):
    """Computes keys of a graph of Dask within a budget; to be given as `scheduler` to `dask.compute`.

    memory: bytes, or text as `400M`; of this process, workers, results and what tasks take together. Without it 80 % of what
    is available. num_workers: processes (the processors). scratch: a directory on a disk (the first of
    BDRUN_SCRATCH, TMPDIR if that is not memory, or /var/tmp).
    statistics: a `Statistics` to be filled. draw: a file for a page with the graph, and what was in memory when.

    Raises what a task raises, with its key and traceback as a note; `WorkerDied` if a worker ends twice at one task; `OSError`
    if scratch is full; `MemoryError` if the budget is less than what Python and its modules take, or the
    system has no memory left for a result.
    """
    run = _Run(dsk, keys, memory, num_workers, scratch, callbacks, statistics, draw)
    return run.result()


class _Worker:
    """A process that runs tasks."""

    __slots__ = ("connection", "pid", "ended", "began", "task", "before", "base", "forked", "share", "done")

    def __init__(self, connection, pid):
        self.connection, self.pid = connection, pid
        try:
            # Of its socket a child that a task has started may have a copy.
            self.ended = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self.ended = None  # then it is looked, now and then
        self.began = None  # seen at the first look
        # `forked`: a child of it may still use what was mapped.
        self.task, self.before, self.base, self.forked = None, 0, 0, False
        self.share, self.done = 0, 0

    def has_ended(self, seconds):
        """Waits so long for its end."""
        if self.ended is None:
            until = time.monotonic() + seconds
            while self._is_there():
                if time.monotonic() >= until:
                    return False
                time.sleep(0.01)
            return True
        ready = select.poll()
        ready.register(self.ended, select.POLLIN)
        return bool(ready.poll(seconds * 1000))

    def _is_there(self):
        """Whether it has not ended, where no descriptor tells."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return False
        except OSError:
            return True  # this process has no descriptor left, which says nothing of the other
        # By when it began it is told from another that has its number by now.
        self.began = self.began or fields[19]
        return fields[0] != b"Z" and fields[19] == self.began

    def kill(self):
        try:
            if self.ended is None:
                if self._is_there():
                    os.kill(self.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self.ended, signal.SIGKILL)
        except ProcessLookupError:
            pass


class _Run:
    """One call of `get`."""

    def __init__(self, dsk, keys, memory, num_workers, scratch, callbacks, statistics, draw):
        from dask.core import flatten

        self._asked = keys
        self._dsk = dsk
        flat = list(flatten(keys)) if isinstance(keys, list) else [keys]
        self._tasks = Tasks(dsk, set(flat))
        self._kept = {self._tasks.find(key) for key in flat}
        self._memory = available_memory() if memory is None else parse_bytes(memory)
        # What goes with messages stays in this process, and is not counted: all of it takes little.
        self._small = min(_pool.SMALL, self._memory // (64 * max(len(self._tasks.keys), 1)))
        if num_workers is not None and num_workers < 1:
            raise ValueError(f"num_workers={num_workers}")
        self._count = num_workers or _config("num_workers") or processors()
        self._scratch_folder = scratch
        self._callbacks, self._draw = callbacks, draw
        self._statistics = Statistics() if statistics is None else statistics
        self._values = {}
        self._users = {}  # workers that use a part of the arena after their task, by task
        self._late = {}  # parts of the arena that are given back when nobody uses them any more
        self._died = {}
        self._moved = []
        self._state = {"ready": set(), "waiting": set(), "running": set(), "finished": set(), "released": set()}

    def result(self):
        from dask.callbacks import local_callbacks, unpack_callbacks
        from dask.local import nested_get

        with local_callbacks(self._callbacks) as callbacks:
            start, start_state, self._pretask, self._posttask, finish = unpack_callbacks(callbacks)
            if any(type(getattr(call, "__self__", None)).__module__ == "dask.cache" for call in self._posttask):
                raise NotImplementedError("dask.cache: results stay where workers are, and callbacks are given no values")
            # Keys are those of tasks as they run: chains have the key of their last one.
            tasks = self._tasks
            self._dsk = dict(zip(tasks.keys, tasks.nodes))
            for call in start:
                call(self._dsk)
            self._state["waiting"] = set(tasks.keys)
            needs = self._state["dependencies"] = {}
            users = self._state["dependents"] = {key: set() for key in tasks.keys}
            if start or start_state or self._pretask or self._posttask:
                for key, inputs in zip(tasks.keys, tasks.inputs):
                    needs[key] = {tasks.keys[number] for number in inputs}
                    for name in needs[key]:
                        users[name].add(key)
            for call in start_state:
                call(self._dsk, self._state)
            failed = True
            try:
                values = self._run()
                failed = False
            finally:
                for call in finish:
                    call(self._dsk, self._state, failed)
        keys = self._asked
        found = {}

        def collect(key):
            for one in key if isinstance(key, list) else [key]:
                if isinstance(one, list):
                    collect(one)
                else:
                    found[one] = values[self._tasks.find(one)]

        collect(keys)
        return nested_get(keys, found)

    def _run(self):
        self._workers, self._packed = [], {}
        # Nothing is left, however it ends: the last that was pushed is done first, and each whatever the others do.
        with contextlib.ExitStack() as self._at_end:
            self._start()
            return self._loop()

    def _start(self):
        end = self._at_end.callback
        self._places = Places(self._scratch_folder)
        end(self._places.close)
        self._locks = _locks_file()
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for file in (self._wake, self._woken):
            end(os.close, file)
        self._selector = selectors.DefaultSelector()
        end(self._selector.close)
        self._io = ThreadPoolExecutor(2, thread_name_prefix="bdrun-scratch")
        end(self._io.shutdown, cancel_futures=True)
        ours, theirs = socket.socketpair()
        end(ours.close)
        fds = [theirs.fileno(), self._places.memory, self._places.scratch, self._locks]
        environment = dict(os.environ)
        # Each worker is one thread; a user's own choice stays.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
            environment.setdefault(name, "1")
        # Keys are hashed equally in all of them.
        environment.setdefault("PYTHONHASHSEED", "6640")
        path = [entry for entry in sys.path if isinstance(entry, str)]
        # Its path is this one's from the beginning: what lies in the current directory is not taken for Python's own.
        begin = f"import sys; sys.path[:] = {path!r}; import socket; from bdrun import _pool; _pool.serve(socket.socket(fileno={theirs.fileno()}))"
        with theirs:
            self._server = subprocess.Popen([sys.executable, "-c", begin], pass_fds=fds, env=environment, stdin=subprocess.DEVNULL)
        end(self._server.wait)
        end(self._server.kill)
        end(self._close_ends)
        end(self._end_workers)
        self._control = ours
        # What is large and loaded here tasks will need: loaded once, before workers are forked.
        modules = ["cloudpickle", "dask", "bdrun._values"]
        modules += [name for name in ("numpy", "pandas", "scipy", "dask.array", "dask.dataframe", "xarray", "pyarrow") if name in sys.modules]
        setup = {
            "modules": modules,
            "arena": self._places.memory,
            "scratch": self._places.scratch,
            "locks": self._locks,
            "config": _config_of_tasks(),
            "small": self._small,
        }
        try:
            _pool.send(ours, setup)
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerDied(NO_SERVER) from None
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        for _ in range(self._count):
            self._add_worker()
        for worker in list(self._workers):
            message = self._receive(worker)
            if message is None:
                raise WorkerDied("a worker ended before its first task; what it wrote is on standard error")
            worker.base = worker.before = message[1]
        self._shared = proportional(self._server.pid)
        for worker in self._workers:
            self._look_at_new(worker)
        self._own = private(os.getpid())
        self._others = 0
        budget = self._budget()
        if budget <= 0:
            raise MemoryError(
                f"a budget of {_mib(self._memory)}, and Python with its modules takes "
                f"{_mib(self._fixed + self._own + SPARE)} in this process and {self._count} workers"
            )
        self._told = budget
        tasks = self._tasks
        kept = [number in self._kept for number in range(len(tasks.keys))]
        self._execution = Execution(tasks.inputs, tasks.groups, kept, budget, self._count)
        end(self._execution.close)
        if self._draw is not None:
            if len(tasks.keys) > MOST_DRAWN:
                raise ValueError(f"draw: {len(tasks.keys)} tasks cannot be told apart in a picture, which has {MOST_DRAWN} at most")
            open(self._draw, "w").close()  # that it can be written is seen to before
            self._execution.trace()

    @property
    def _fixed(self):
        """What Python and its modules take, in workers and in the process that they were forked from."""
        return self._shared + sum(worker.share for worker in self._workers)

    def _look_at_new(self, worker):
        """What it takes before its first task."""
        try:
            worker.share = proportional(worker.pid)
        except (OSError, ValueError, KeyError):
            pass  # it has just died, which is heard

    def _look_at_share(self, worker):
        """What a worker has written to (a count of references is enough) it does not share any more. It is looked at after its
        first task, its second, fourth, and so on: what has grown is counted by itself."""
        worker.done += 1
        if worker.done & (worker.done - 1) == 0:
            try:
                share = proportional(worker.pid) - (worker.before - worker.base)
                self._shared = max(self._shared, proportional(self._server.pid))
            except (OSError, ValueError, KeyError):
                return  # it has just died, which is heard
            worker.share = max(worker.share, share)

    def _budget(self):
        """What is left for results and tasks."""
        grown = sum(worker.before - worker.base for worker in self._workers)
        return self._memory - self._fixed - self._own - grown - self._others - SPARE

    def _add_worker(self):
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"w"], [theirs.fileno()])
                answer = self._control.recv(4)
            except (BrokenPipeError, ConnectionResetError):
                answer = b""
        if len(answer) < 4:
            ours.close()
            raise WorkerDied(NO_SERVER)
        worker = _Worker(ours, struct.unpack("<i", answer)[0])
        self._workers.append(worker)
        self._selector.register(ours, selectors.EVENT_READ, worker)
        if worker.ended is not None:
            self._selector.register(worker.ended, selectors.EVENT_READ, worker)
        return worker

    def _receive(self, worker):
        return _pool.receive(worker.connection, worker)

    def _loop(self):
        execution, looked = self._execution, time.monotonic()
        self._do()
        while not execution.counts()["is_done"]:
            for key, _ in self._selector.select(LOOK):
                if key.data is None:
                    self._hear_io()
                elif key.data in self._workers:
                    self._hear(key.data)
                # Before the next: it may be that the worker has died that is to store a result.
                self._do()
            if time.monotonic() - looked >= LOOK:
                self._look()
                # A child of its task may have its socket, so that this does not tell either.
                for worker in [one for one in self._workers if one.ended is None and one.has_ended(0)]:
                    self._hear(worker)
                    self._do()
                looked = time.monotonic()
            self._do()
        self._statistics.update(execution.counts(), fixed=self._fixed + self._own, memory=self._memory)
        self._statistics.pop("is_done")
        results = {number: self._load(number) for number in self._kept}
        if self._draw is not None:
            try:
                execution.draw([str(key) for key in self._tasks.keys], self._draw)
            except (OSError, RuntimeError) as error:  # the latter of the library
                warnings.warn(f"draw: {error}", stacklevel=2)  # which is no reason to lose the results
        return results

    def _do(self):
        """Does what is to be done, until nothing is."""
        execution = self._execution
        again = True
        while again:
            again = False
            for what, task in execution.effects():
                again = True
                if what in (Execution.RUN, Execution.RUN_TOO_LARGE):
                    self._start_task(task)
                elif what in (Execution.STORE_MEMORY, Execution.STORE_SCRATCH):
                    self._store(task, what == Execution.STORE_MEMORY)
                elif what == Execution.WRITE:
                    self._move(task, Execution.WRITTEN)
                elif what == Execution.READ:
                    self._move(task, Execution.WAS_READ)
                elif what == Execution.FORGET_MEMORY:
                    self._forget(task)
                elif what == Execution.FORGET_SCRATCH:
                    self._places.give_scratch(self._values[task])

    def _start_task(self, task):
        tasks = self._tasks
        if tasks.data[task]:
            return self._take_data(task)
        worker = next(worker for worker in self._workers if worker.task is None)
        inputs = []
        for name, number in zip(tasks.names[task], tasks.inputs[task]):
            value = self._values[number]
            inputs.append((name, number, value.memory if value.small is None else value.small, value.pieces))
        key = tasks.keys[task]
        try:
            packed = _values.dumps((tasks.nodes[task], inputs))
        except Exception as error:
            raise _noted(error, f"task {key!r} cannot be sent to another process")
        self._state["waiting"].discard(key)
        self._state["running"].add(key)
        for call in self._pretask:
            call(key, self._dsk, self._state)
        worker.task = task
        try:
            _pool.send(worker.connection, packed, worker)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is heard that it has ended

    def _take_data(self, task):
        """What the graph holds itself is put where results are by this process."""
        key = self._tasks.keys[task]
        for call in self._pretask:
            call(key, self._dsk, self._state)
        try:
            packed = _values.Packed(self._tasks.nodes[task].value)
        except Exception as error:
            raise _noted(error, f"{key!r} cannot be sent to another process")
        small = bytes(packed.joined()) if packed.size <= self._small else None
        self._values[task] = Value(packed.pieces, packed.size, small)
        if small is None:
            self._packed[task] = packed
        bytes_ = 0 if small is not None else self._values[task].room()
        self._execution.handle(Execution.DONE, task, bytes_, packed.size)
        if small is not None:
            self._stored(task)

    def _stored(self, task):
        key = self._tasks.keys[task]
        self._state["waiting"].discard(key)
        self._state["running"].discard(key)
        self._state["finished"].add(key)
        for call in self._posttask:
            call(key, None, self._dsk, self._state, os.getpid())
        self._execution.handle(Execution.STORED, task)

    def _hear(self, worker):
        message = self._receive(worker)
        if message is None:
            return self._lost(worker)
        what, *rest = message
        task = worker.task
        if what == "done":
            size, took, pieces, small = rest
            self._values[task] = Value(pieces, size, small)
            self._execution.handle(Execution.DONE, task, 0 if small is not None else self._values[task].room(), took)
        elif what == "forked":
            # The child may use what is mapped for good, also if the worker ends within the task.
            worker.forked = True
            for number in [] if task is None else self._tasks.inputs[task]:
                self._users.setdefault(number, set()).add(worker.pid)
        elif what == "stored":
            worker.before, used, forked = rest
            worker.forked = worker.forked or forked
            worker.task = None
            self._look_at_share(worker)
            for number in [number for number, users in self._users.items() if worker.pid in users and number not in used]:
                self._users[number].discard(worker.pid)
                if not self._users[number]:
                    del self._users[number]
                    self._punch(self._late.pop(number, []))
            for number in used:
                self._users.setdefault(number, set()).add(worker.pid)
            self._stored(task)
        elif what == "full":
            place, number, text = rest
            raise self._not_written(number, text, task, place == "memory")
        else:
            error, text = rest
            try:
                error = pickle.loads(error) if error else None
                if isinstance(error, tuple):
                    kind, arguments, attributes = error
                    error = kind.__new__(kind, *arguments)
                    error.args = arguments
                    error.__dict__.update(attributes)
            except Exception:
                error = None
            if not isinstance(error, BaseException):
                error = RuntimeError(text.splitlines()[-1])
            raise _noted(error, f"task {self._tasks.keys[task]!r} failed in a worker:\n{text}")

    def _not_written(self, number, text, task, in_memory):
        """The error of a result that could not be written, or read: of scratch the directory is named."""
        text = f"{text}: the result of {self._tasks.keys[task]!r}"
        if not in_memory:
            return OSError(number, f"{text}, on scratch", self._places.folder)
        text += ", in memory"
        return MemoryError(text) if number in (errno.ENOSPC, errno.ENOMEM) else OSError(number, text)

    def _lost(self, worker):
        """A worker has ended: another takes its place, and the task runs again, alone."""
        # It may only have closed what it did not open.
        worker.kill()
        worker.has_ended(LEAVE)
        self._selector.unregister(worker.connection)
        worker.connection.close()
        if worker.ended is not None:
            self._selector.unregister(worker.ended)
            os.close(worker.ended)
        self._workers.remove(worker)
        task = worker.task
        if not worker.forked:
            for users in self._users.values():
                users.discard(worker.pid)
        for number in [number for number, users in self._users.items() if not users]:
            del self._users[number]
            self._punch(self._late.pop(number, []))
        if task is not None:
            self._died[task] = self._died.get(task, 0) + 1
            if self._died[task] == 2:
                raise WorkerDied(
                    f"the worker that ran task {self._tasks.keys[task]!r} ended, twice, the second time with the memory for itself "
                    "(killed for want of memory, or a crash of its code)"
                )
        new = self._add_worker()
        message = self._receive(new)
        if message is None:
            raise WorkerDied("a worker ended before its first task; what it wrote is on standard error")
        new.base = new.before = message[1]
        self._look_at_new(new)
        if task is not None:
            # Of its result nothing is kept.
            value = self._values.pop(task, None)
            if value is not None and value.memory is not None:
                self._places.give_memory(value.memory, value.room())
            if value is not None:
                self._places.give_scratch(value)
            self._execution.handle(Execution.DIED, task)

    def _store(self, task, in_memory):
        value = self._values[task]
        if value.small is not None:
            return
        if in_memory:
            self._places.take_memory(value)
            file, at = self._places.memory, value.memory
        else:
            self._places.take_scratch(value)
            file, at = self._places.scratch, value.scratch
        if task in self._packed:
            try:
                self._packed.pop(task).write(file, at)
            except OSError as error:
                raise self._not_written(error.errno, error.strerror, task, in_memory) from None
            return self._stored(task)
        worker = next(worker for worker in self._workers if worker.task == task)
        try:
            _pool.send(worker.connection, ("memory" if in_memory else "scratch", at), worker)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _move(self, task, event):
        """Between memory and scratch, on another thread."""
        value = self._values[task]
        if value.small is not None:
            if event == Execution.WRITTEN:
                value.scratch = None
            self._moved.append((event, task, None))
            os.write(self._woken, b"x")
            return
        copy = self._places.written(value) if event == Execution.WRITTEN else self._places.read(value)

        once = threading.Lock()

        def move():
            if not once.acquire(blocking=False):
                return
            try:
                copy()
                error = None
            except OSError as failed:
                error = failed
            self._moved.append((event, task, error))
            os.write(self._woken, b"x")

        try:
            self._io.submit(move)
        except RuntimeError:
            # The system has no thread left: on this one, if none that there is has begun it.
            move()

    def _hear_io(self):
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        while self._moved:
            event, task, error = self._moved.pop(0)
            if error is not None:
                # What is read from scratch is written to memory, and reading fails for other reasons.
                in_memory = event == Execution.WAS_READ and error.errno in NO_ROOM
                raise self._not_written(error.errno, error.strerror, task, in_memory)
            self._execution.handle(event, task)

    def _forget(self, task):
        value = self._values[task]
        if value.memory is None:
            if value.small is not None and task not in self._kept:
                del self._values[task]  # for good: it is never written
            return
        place = (value.memory, value.room())
        value.memory = None
        if self._users.get(task):
            # A worker still uses it, in a cache perhaps: it is given back when it does not.
            self._late.setdefault(task, []).append(place)
            self._others += place[1]
        else:
            self._places.give_memory(*place)

    def _punch(self, places):
        for at, length in places:
            self._places.give_memory(at, length)
            self._others -= length

    def _look(self):
        """What tasks take while they run, and what has grown."""
        for worker in self._workers:
            if worker.task is not None:
                try:
                    took = private(worker.pid) - worker.before
                except (OSError, ValueError):
                    continue
                if took > 0:
                    self._execution.handle(Execution.TOOK, worker.task, 0, took)
        self._own = max(self._own, private(os.getpid()))
        budget = max(self._budget(), 1)
        if abs(budget - self._told) > self._memory // 64:
            self._told = budget
            self._execution.handle(Execution.BUDGET, 0, budget)

    def _load(self, task):
        """A result, in memory of this process."""
        value = self._values[task]
        if value.small is not None:
            return _values.unpack(memoryview(bytearray(value.small)), value.pieces)
        memory = self._places.load(value, keep=bool(self._users.get(task)))
        if memory is None:
            raise OSError(f"the result of task {self._tasks.keys[task]!r} is not there: a defect of bdrun")
        self._forget(task)
        return _values.unpack(memory, value.pieces)

    def _end_workers(self):
        """Those that do nothing end as Python does, if that does not take long; of the others nothing is wanted any more."""
        until = time.monotonic() + LEAVE
        for worker in self._workers:
            worker.connection.close()
            if worker.task is not None:
                worker.kill()
        for worker in self._workers:
            if not worker.has_ended(max(until - time.monotonic(), 0)):
                worker.kill()
                worker.has_ended(LEAVE)

    def _close_ends(self):
        for worker in self._workers:
            if worker.ended is not None:
                os.close(worker.ended)


def _config_of_tasks():
    """Dask's configuration, but for what says how to compute; None if it cannot be sent to other processes."""
    import dask

    try:
        return _values.dumps({key: value for key, value in dask.config.config.items() if key not in ("scheduler", "pool")})
    except Exception:
        return None


def _config(name):
    import dask

    return dask.config.get(name, None)


_locks = {}


def _locks_file():
    """A file of which workers lock bytes: one for all computations of a process, and of what its tasks compute."""
    if _pool.LOCKS is not None:
        return _pool.LOCKS
    if "file" not in _locks:
        made = os.memfd_create("bdrun-locks", os.MFD_CLOEXEC)
        # Of two threads' first computations one comes first; the other takes that one's.
        if _locks.setdefault("file", made) != made:
            os.close(made)
    return _locks["file"]


def _mib(count):
    return f"{count / (1 << 20):.0f} MiB"


def _noted(error, note):
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # before Python 3.11
        error.__cause__ = RuntimeError(note)
    return error
