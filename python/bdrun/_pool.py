"""Processes that run tasks. One, started anew, loads what tasks will need, and then each worker is
forked from it: they share what was loaded.

A message is a pickle behind its length. To the server: make a worker (with it comes its socket). To a worker: a task, and
where its result goes; from it: what came of it, and that it is stored.
"""

import array
import errno
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import threading
import traceback

# A file of which workers lock bytes (`_values._Lock`).
LOCKS = None
# So many descriptors a worker may have, if its hard limit allows them.
MOST_FILES = 1 << 16
# Results of up to so many bytes go with the messages, or fewer where there are many.
SMALL = 16 << 10
# How often it is looked whether a process has ended of which no descriptor tells, in seconds.
LOOK = 0.05


def send(connection, message, worker=None):
    """`worker` as for `receive`: what nobody reads any more is not waited for, but a `BrokenPipeError`."""
    data = pickle.dumps(message, 5)
    parts = (struct.pack("<Q", len(data)), data)
    if worker is None:
        return connection.sendall(b"".join(parts))
    for part in parts:
        left = memoryview(part)
        while left:
            try:
                left = left[connection.send(left, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                if _wait(connection, select.POLLOUT, worker)[1]:
                    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None


def receive(connection, worker=None):
    """The next message, or None at the end. `worker`: who is at the other side (`graph._Worker`), of whose
    socket others may have copies when it has ended."""
    head = _exactly(connection, 8, worker)
    if head is None:
        return None
    data = _exactly(connection, struct.unpack("<Q", head)[0], worker)
    return None if data is None else pickle.loads(data)


def _wait(connection, event, worker):
    """Waits until a socket is ready, or a worker has ended: whether each is so."""
    ready = select.poll()
    ready.register(connection, event)
    if worker.ended is not None:
        ready.register(worker.ended, select.POLLIN)
        found = [file for file, _ in ready.poll()]
        return connection.fileno() in found, worker.ended in found
    is_ready = has_ended = False
    while not is_ready and not has_ended:
        # Before the socket: what was sent before the end is there then.
        has_ended = worker.has_ended(0)
        is_ready = bool(ready.poll(0 if has_ended else LOOK * 1000))
    return is_ready, has_ended


def _exactly(connection, length, worker):
    data = bytearray(length)
    view, at = memoryview(data), 0
    while at < length:
        try:
            count = connection.recv_into(view[at:], 0, 0 if worker is None else socket.MSG_DONTWAIT)
        except BlockingIOError:
            # What was sent before the end is read before.
            if not _wait(connection, select.POLLIN, worker)[0]:
                return None
            continue
        except ConnectionResetError:
            return None
        if count == 0:
            return None
        at += count
    return data


class _Outbox:
    """Messages of a worker, each whole. Another thread that has something to say waits until one is sent.
    A handler of a signal runs amid one of its own thread, and leaves to that what it has to say."""

    def __init__(self, connection):
        self._connection, self._lock = connection, threading.RLock()
        self._waiting, self._is_sending = [], False

    def send(self, message):
        with self._lock:
            self._waiting.append(message)
            # It is this thread if one is sending: it goes on when the handler returns. After the flag is
            # taken back it is looked again: a handler may have come between the last message and that.
            while self._waiting and not self._is_sending:
                self._is_sending = True
                try:
                    while self._waiting:
                        send(self._connection, self._waiting.pop(0))
                finally:
                    self._is_sending = False


def _die_with_parent():
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def serve(control):
    """Forks workers until the other end closes."""
    _die_with_parent()
    # Ctrl-C is the caller's; what tasks start hears it as usual.
    signal.signal(signal.SIGINT, lambda *_: None)
    setup = receive(control)
    if setup is None:
        os._exit(0)
    # No program that a task starts has them.
    for file in (control.fileno(), setup["arena"], setup["scratch"], setup["locks"]):
        os.set_inheritable(file, False)
    for name in setup["modules"]:
        try:
            __import__(name)
        except Exception:  # a task that needs it will say so
            pass
    import gc

    gc.collect()
    gc.freeze()
    # Workers that end are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        fds = array.array("i")
        data, ancillary, _, _ = control.recvmsg(1, socket.CMSG_LEN(fds.itemsize))
        if not data:
            os._exit(0)
        for _, _, content in ancillary:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        os.set_inheritable(fds[0], False)
        connection = socket.socket(fileno=fds[0])
        flush()
        child = os.fork()
        if child == 0:
            control.close()
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _die_with_parent()
                _forget_exits()
                if "numpy.random" in sys.modules:
                    # Else all workers would have the same numbers.
                    sys.modules["numpy"].random.seed()
                Worker(connection, setup).run()
            except BaseException:
                traceback.print_exc()
            finally:
                flush()
                os._exit(1)
        connection.close()
        control.sendall(struct.pack("<i", child))


def _leave(code=0):
    """Ends this worker as Python ends, with what its tasks have asked for (`atexit`) and with what they wrote to files that are open."""
    import atexit
    import gc
    import io

    try:
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    flush()
    # Text goes into buffers, which go into files.
    open_files = [one for one in gc.get_objects() if issubclass(type(one), (io.TextIOBase, io.BufferedIOBase))]
    for kind in (io.TextIOBase, io.BufferedIOBase):
        for one in open_files:
            if isinstance(one, kind):
                try:
                    one.flush()
                except Exception:  # it is closed, or only read
                    pass
    os._exit(code)


def _end_child():
    """A child that a task has forked comes back from the task: it ends as a program in Python does there, and says nothing to
    whom its worker speaks with."""
    error = sys.exc_info()[1]
    code = 0
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            code = error.code & 0xFF
        elif error.code is not None:
            print(error.code, file=sys.stderr)
            code = 1
    elif error is not None:
        traceback.print_exc()
        code = 1
    _leave(code)


def _forget_exits():
    """What is to be done when the process ends that loads modules is not done by workers that it forks."""
    import atexit
    import weakref

    atexit._clear()
    for info in list(weakref.finalize._registry.values()):
        info.atexit = False
    weakref.finalize._registered_with_atexit = False


def flush():
    """What was printed is not lost with the process."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


class _Anonymous:
    """How much memory this process has that is no file's."""

    def __init__(self):
        self._status = open("/proc/self/status", "rb", buffering=0)
        try:
            self._most = open("/proc/self/clear_refs", "wb", buffering=0)
        except OSError:  # some containers: the most there ever was is expected of each task then
            self._most = None

    def begin(self):
        """What there is at most is counted from now on."""
        if self._most is not None:
            self._most.write(b"5")

    def look(self):
        """Bytes: of all at most, of files and shared, of neither."""
        self._status.seek(0)
        found = {}
        for line in self._status.read(8192).split(b"\n"):
            name, _, value = line.partition(b":")
            if name in (b"VmHWM", b"RssFile", b"RssShmem", b"RssAnon"):
                found[name] = int(value.split()[0]) << 10
        return found[b"VmHWM"], found[b"RssFile"] + found[b"RssShmem"], found[b"RssAnon"]


class Worker:
    """Runs tasks."""

    def __init__(self, connection, setup):
        global LOCKS
        import ctypes

        import dask

        from bdrun import _values

        LOCKS = setup["locks"]
        # What is computed within a task is computed here.
        dask.config.set(scheduler="synchronous")
        self._values = _values
        self._connection = connection
        self._small = setup["small"]
        self._arena, self._scratch = setup["arena"], setup["scratch"]
        # Parts of the arena that something still uses, by task; those that a forked child has are used for good.
        self._used, self._forked, self._children = {}, [], False
        # Threads that a task has begun may fork while a message is sent; a handler of a signal amid that.
        self._pid, self._send = os.getpid(), _Outbox(connection).send
        libc = ctypes.CDLL(None)
        try:
            # Large arrays come from the kernel, and go back to it.
            libc.mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD
            libc.mallopt(-1, 1 << 20)  # M_TRIM_THRESHOLD
            self._trim = libc.malloc_trim
        except AttributeError:
            self._trim = lambda _: None
        self._memory = _Anonymous()
        # Until Python 3.13 each input that is mapped takes a descriptor of its own.
        self._mapped = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Programs that close all descriptors there may be take long where these are billions.
        most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
        if not self._mapped and 0 <= soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if setup["config"] is not None:
            dask.config.update(dask.config.config, pickle.loads(setup["config"]))
            dask.config.set(scheduler="synchronous")

    def _forks(self):
        if os.getpid() != self._pid:
            return  # a child's own children: it is known of the child, and the socket is not its own
        self._children = True
        try:
            # Before there is a child: this process may end before the task is done, and the child goes on.
            # Only a handler that came amid a message leaves it for behind that.
            self._send(("forked",))
        except OSError:
            pass  # nobody is there any more, or the task has closed what is not its own

    def run(self):
        self._send(("idle", self._memory.look()[2]))
        os.register_at_fork(before=self._forks)
        while True:
            # Which nobody else holds: it may be large.
            self._task(receive(self._connection))

    def _map(self, where, length):
        """Of the file of results: a task may change what it was given, and nobody else sees it."""
        import mmap

        access = mmap.PROT_READ | mmap.PROT_WRITE
        try:
            return mmap.mmap(self._arena, length, flags=mmap.MAP_PRIVATE, prot=access, offset=where, **self._mapped)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            why = "before Python 3.13 each input of a task takes a descriptor, and `ulimit -Hn` allows"
            raise OSError(error.errno, f"{error.strerror}: {why} {most}") from None

    def _task(self, message):
        if message is None:
            _leave()
        maps = []
        self._memory.begin()
        _, shared, before = self._memory.look()
        values = task = inputs = result = None
        try:
            # What cannot be read here is an error of the task, too.
            task, inputs = pickle.loads(message)
            values = {}
            for name, number, where, pieces in inputs:
                if isinstance(where, int):
                    part = self._map(where, self._length(pieces))
                    maps.append((number, part))
                    values[name] = self._values.unpack(memoryview(part), pieces)
                else:
                    values[name] = self._values.unpack(memoryview(bytearray(where)), pieces)
            try:
                result = task(values)
            finally:
                if os.getpid() != self._pid:
                    _end_child()
            packed = self._values.Packed(result)
        except BaseException as error:
            text = traceback.format_exc()
            flush()
            return self._send(("failed", self._error(error), text))
        finally:
            values = task = inputs = message = result = None
        flush()
        most, files, now = self._memory.look()
        # What it took at most, without what was mapped before, and what it mapped of its inputs.
        took = max(most - before - shared - max(files - shared, 0), now - before, 0)
        if packed.size <= self._small:
            small = bytes(packed.joined())
            self._send(("done", packed.size, took, packed.pieces, small))
            packed = small = None
        else:
            self._send(("done", packed.size, took, packed.pieces, None))
            message = receive(self._connection)
            if message is None:
                _leave()
            place, at = message
            try:
                packed.write(self._arena if place == "memory" else self._scratch, at)
            except OSError as error:
                return self._send(("full", place, error.errno, error.strerror))
            packed = None
        used = self._release(maps)
        if took > 4 << 20:
            self._trim(0)
        self._send(("stored", self._memory.look()[2], used, bool(self._forked)))

    def _error(self, error):
        """As bytes: the error, or how to make it where it cannot be made of its arguments; or nothing."""
        for value in (error, (type(error), error.args, error.__dict__)):
            try:
                data = self._values.dumps(value)
                pickle.loads(data)
                return data
            except Exception:
                continue
        return None

    def _length(self, pieces):
        at = 0
        for length in pieces:
            at = -(-at // self._values.ALIGNED) * self._values.ALIGNED + length
        return max(at, 1)

    def _release(self, maps):
        """Gives inputs back. Those are returned that somebody still uses: a cache, a global variable."""
        if self._children:
            # A child has all that is mapped.
            self._forked += maps + [(number, part) for number, parts in self._used.items() for part in parts]
            self._used.clear()
            maps, self._children = [], False
        for number, part in maps:
            self._used.setdefault(number, []).append(part)
        import gc

        for again in (False, True):
            for number in list(self._used):
                left = []
                for part in self._used[number]:
                    try:
                        part.close()
                    except BufferError:
                        left.append(part)
                if left:
                    self._used[number] = left
                else:
                    del self._used[number]
            if not self._used or again:
                break
            gc.collect()
        return list({*self._used, *(number for number, _ in self._forked)})
