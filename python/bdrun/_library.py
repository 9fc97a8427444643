"""The library of Rust: python/src has the other side of each function."""

import ctypes
import os

_HERE = os.path.dirname(os.path.abspath(__file__))
# BDRUN_PYTHON_LIBRARY: for tests, of a build that is not installed.
_PATH = os.environ.get("BDRUN_PYTHON_LIBRARY") or os.path.join(_HERE, "lib", "libbdrun_python.so")

_library = None


def library():
    """The library, loaded once."""
    global _library
    if _library is None:
        try:
            loaded = ctypes.CDLL(_PATH)
        except OSError as error:
            raise ImportError(f"bdrun's library cannot be loaded: {error}") from None
        u8, u32, u64, i32, pointer = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p
        several = ctypes.POINTER
        for name, result, arguments in [
            ("bdrun_error", ctypes.c_char_p, []),
            ("bdrun_processors", u32, []),
            ("bdrun_graph_new", pointer, [u32, several(u32), several(u32), several(u32), several(u8), u64, u32]),
            ("bdrun_graph_free", None, [pointer]),
            ("bdrun_graph_handle", i32, [pointer, u32, u32, u64, u64]),
            ("bdrun_graph_effects", i32, [pointer, several(u32), several(u32), u32]),
            ("bdrun_graph_trace", None, [pointer]),
            ("bdrun_graph_draw", i32, [pointer, ctypes.c_char_p, ctypes.c_char_p]),
            ("bdrun_graph_counts", None, [pointer, several(u64)]),
            ("bdrun_array_make", i32, [ctypes.c_char_p, several(pointer), u32, several(pointer)]),
            ("bdrun_array_copy", pointer, [ctypes.c_char_p, pointer, ctypes.c_size_t]),
            ("bdrun_array_free", None, [pointer]),
            ("bdrun_array_describe", ctypes.c_char_p, [pointer]),
            ("bdrun_block_elements", pointer, [pointer]),
            ("bdrun_block_free", None, [pointer]),
            ("bdrun_compute_new", pointer, []),
            ("bdrun_compute_free", None, [pointer]),
            ("bdrun_compute_cancel", None, [pointer]),
            ("bdrun_compute_part", ctypes.c_double, [pointer]),
            ("bdrun_compute", i32, [pointer, ctypes.c_char_p, several(pointer), u32, several(pointer), several(u64)]),
            ("bdrun_copy", i32, [i32, u64, i32, u64, u64]),
            ("bdrun_punch", i32, [i32, u64, u64]),
        ]:
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        _library = loaded
    return _library


def processors():
    """How many threads can run at a time: as this process may use processors, or as the quota of its cgroup has."""
    return library().bdrun_processors()


def failed():
    """The error of the last call that failed."""
    return RuntimeError(library().bdrun_error().decode(errors="replace"))


def copy(source, source_at, target, target_at, length):
    """Copies bytes between files, by their descriptors."""
    error = library().bdrun_copy(source, source_at, target, target_at, length)
    if error:
        raise OSError(-error, os.strerror(-error))


def punch(file, at, length):
    """Gives room of a file back."""
    error = library().bdrun_punch(file, at, length)
    if error:
        raise OSError(-error, os.strerror(-error))


class Execution:
    """What is to be done next of a graph: `bdrun_graph::online`."""

    RUN, RUN_TOO_LARGE, STORE_MEMORY, STORE_SCRATCH, WRITE, READ, FORGET_MEMORY, FORGET_SCRATCH = range(8)
    DONE, STORED, WRITTEN, WAS_READ, DIED, TOOK, BUDGET = range(7)
    _ROOM = 256

    def __init__(self, needs, groups, kept, budget, workers):
        """`needs`: of each task the numbers of those it needs; `kept`: of each task whether its result is."""
        count = len(needs)
        starts = (ctypes.c_uint32 * (count + 1))()
        total = 0
        for at, row in enumerate(needs):
            total += len(row)
            starts[at + 1] = total
        flat = (ctypes.c_uint32 * total)(*(number for row in needs for number in row))
        self._handle = library().bdrun_graph_new(
            count, starts, flat, (ctypes.c_uint32 * count)(*groups), (ctypes.c_uint8 * count)(*kept), budget, workers
        )
        if not self._handle:
            raise failed()
        self._whats, self._tasks = (ctypes.c_uint32 * self._ROOM)(), (ctypes.c_uint32 * self._ROOM)()

    def close(self):
        if self._handle:
            library().bdrun_graph_free(self._handle)
            self._handle = None

    def handle(self, what, task=0, bytes=0, took=0):
        if library().bdrun_graph_handle(self._handle, what, task, bytes, took) < 0:
            raise failed()

    def effects(self):
        """Pairs of what is to be done, and of which task; each is told once."""
        while True:
            count = library().bdrun_graph_effects(self._handle, self._whats, self._tasks, self._ROOM)
            if count < 0:
                raise failed()
            if count == 0:
                return
            yield from zip(self._whats[:count], self._tasks[:count])

    def trace(self):
        """Notes what happens, to be drawn."""
        library().bdrun_graph_trace(self._handle)

    def draw(self, names, path):
        """Writes a page with the graph, and what was in memory when."""
        text = "\n".join(name.replace("\n", " ") for name in names)
        if library().bdrun_graph_draw(self._handle, text.encode(errors="replace"), os.fsencode(path)) < 0:
            raise failed()

    def counts(self):
        counts = (ctypes.c_uint64 * 8)()
        library().bdrun_graph_counts(self._handle, counts)
        names = ["done", "written", "read", "most", "used", "too_large", "orders", "is_done"]
        return dict(zip(names, counts))
