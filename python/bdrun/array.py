"""Arrays that do not fit in memory: NumPy's expressions, computed block by block within a budget.

    import numpy as np, bdrun.array as ba
    a, b = ba.from_hdf5("ab.h5", "A"), ba.from_hdf5("ab.h5", "B")
    c = a.T @ b - b.mean(axis=0)
    c.to_hdf5("c.h5", "C", memory="100M", resume=True)
    np.sqrt(abs(c)).max().compute(memory="100M")

Nothing is computed until it is asked for. Functions are NumPy's (`np.sqrt(x)`, `np.where(...)`), shapes, types and errors too, as
far as they are here: README.md beside this package says what is not.
"""

import collections
import ctypes
import json
import operator
import os
import sys
import threading
import weakref

import numpy as np

from bdrun._library import library, processors

__all__ = ["Array", "asarray", "from_npy", "from_raw", "from_hdf5", "from_zarr", "full", "zeros", "ones", "compute", "Statistics"]

_UNARY = {
    "negative", "absolute", "sign", "square", "sqrt", "exp", "expm1", "log", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
    "tanh", "arctan", "floor", "ceil", "trunc", "rint", "isnan", "isfinite", "isinf", "logical_not", "invert", "conjugate",
}  # fmt: skip
_BINARY = {
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "minimum", "maximum", "arctan2", "less", "less_equal",
    "greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
}  # fmt: skip
# Axes are shorter.
MOST = 1 << 62
_COMPARISONS = {"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}
_FUNCTIONS = {}
# Where NumPy has it: before 1.25 there is no `np.exceptions`.
_AxisError = getattr(np, "exceptions", np).AxisError


class Statistics(dict):
    """What a computation did: bytes of blocks at most, written to scratch, read from there, read again; tasks."""


def _raised():
    kind, _, text = library().bdrun_error().decode(errors="replace").partition(":")
    kinds = {
        "AxisError": _AxisError, "ValueError": ValueError, "TypeError": TypeError, "IndexError": IndexError,
        "OverflowError": OverflowError, "NotImplementedError": NotImplementedError, "MemoryError": MemoryError, "OSError": OSError,
        "LinAlgError": np.linalg.LinAlgError,
    }  # fmt: skip
    if kind in kinds:
        return kinds[kind](text)
    kind, _, number = kind.partition(" ")
    if number.isdigit():
        return OSError(int(number), text)  # which is a class of its own for many numbers
    return RuntimeError(text if kind == "RuntimeError" else f"{kind}:{text}")


def _origin():
    """File and line that called this package."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__") or "").split(".")[0] in ("bdrun", "numpy"):
        frame = frame.f_back
    if frame is None:
        return "Python"
    # To be read: the file's name may be bytes that are no text.
    name = frame.f_code.co_filename.encode(errors="replace").decode()
    return f"{name}:{frame.f_lineno}"


def _path(path):
    """A path for JSON: names are bytes, of each of which there is a letter."""
    return os.fsencode(path).decode("latin-1")


def _json(what):
    """What is no text (half of a pair of surrogates) is a ValueError here, not in the library."""
    return json.dumps(what, ensure_ascii=False).encode()


def _make(op, arrays=(), **what):
    """Expressions of others, as `python/src/arrays/make.rs` names them."""
    handles = (ctypes.c_void_p * max(len(arrays), 1))(*(array._handle for array in arrays))
    made = (ctypes.c_void_p * 3)()
    text = _json({"op": op, "origin": _origin(), **what})
    count = library().bdrun_array_make(text, handles, len(arrays), made)
    if count < 0:
        raise _raised()
    return [Array(handle) for handle in made[:count]]


def _scalar(value):
    """A number as JSON; None if it is none."""
    if isinstance(value, (bool, np.bool_)):
        return {"bool": bool(value)}
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.generic):
        return {"int": value}
    if isinstance(value, float) and not isinstance(value, np.generic):
        return {"float": repr(value)}
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return {"complex": [repr(value.real), repr(value.imag)]}
    return None


def _operands(values, compares=False):
    """Arrays, and a list that has null for each of them and numbers as they are."""
    arrays, listed = [], []
    kinds = {np.asarray(value).dtype.kind if not isinstance(value, Array) else value.dtype.kind for value in values if _scalar(value) is None}
    for value in values:
        scalar = None if isinstance(value, Array) else _scalar(value)
        if scalar is not None and "int" in scalar and not -(1 << 63) <= value < 1 << 63:
            # Beside a fraction it is one. Compared with integers it is beyond all of them; else it does not fit.
            if kinds & {"f", "c"}:
                scalar = {"float": repr(float(value))}
            elif compares:
                scalar = {"float": "inf" if value > 0 else "-inf"}
        if scalar is None:
            # A number with a type keeps it, as in NumPy.
            arrays.append(asarray(value))
        listed.append(scalar)
    return arrays, listed


def _number(value, kind=OverflowError):
    """An integer: neither a fraction nor one that nothing here is as large as."""
    number = operator.index(value)
    if abs(number) > MOST:
        raise kind(f"{number} is too large")
    return number


def _numbers(values, kind=OverflowError):
    return [_number(value, kind) for value in (values if isinstance(values, (tuple, list)) else (values,))]


def _axes(axis, kind=OverflowError):
    return None if axis is None else _numbers(axis, kind)


def _dtype(dtype):
    """A type's name: of this machine's order of bytes."""
    dtype = np.dtype(dtype)
    if not dtype.isnative:
        raise TypeError(f"there are no arrays of {dtype.str}; cast first")
    return dtype.name


def _lengths(shape):
    return _numbers(shape, ValueError)


def _text(value, what):
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, and not {value!r}")
    return value


def _block(block):
    """Bytes of blocks, as `memory` is given."""
    if block is None:
        return None
    from bdrun._memory import parse_bytes

    return parse_bytes(block, "block")


def _one(axis):
    """One axis, which is not a truth value or a fraction."""
    if axis is None or isinstance(axis, (tuple, list)):
        raise NotImplementedError(f"axis={axis}: one axis")
    return _number(axis)


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that is not computed yet."""

    __slots__ = ("_handle", "_described", "__weakref__")

    def __init__(self, handle):
        self._handle, self._described = handle, None
        # Not at the end of the program: something may still use it then.
        weakref.finalize(self, library().bdrun_array_free, handle).atexit = False

    def __copy__(self):
        return self

    def __deepcopy__(self, _):
        return self

    def __reduce_ex__(self, _):
        raise TypeError("a bdrun.array.Array cannot be sent to another process: compute it, or open its file there")

    def _describe(self):
        if self._described is None:
            self._described = json.loads(library().bdrun_array_describe(self._handle))
        return self._described

    @property
    def shape(self):
        return tuple(self._describe()["shape"])

    @property
    def dtype(self):
        return np.dtype(self._describe()["dtype"])

    @property
    def chunks(self):
        """Lengths of its blocks along each axis."""
        return tuple(tuple(lengths) for lengths in self._describe()["chunks"])

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return int(np.prod(self.shape, dtype=object))

    @property
    def nbytes(self):
        return self.size * self.dtype.itemsize

    def __repr__(self):
        return f"bdrun.array.Array(shape={self.shape}, dtype={self.dtype}, chunks={self.chunks})"

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        return (self[at] for at in range(len(self)))

    def __bool__(self):
        return bool(self.compute())

    def __int__(self):
        return int(self.compute())

    def __float__(self):
        return float(self.compute())

    def __complex__(self):
        return complex(self.compute())

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("an array that is not computed yet has no memory to be shared")
        result = np.asarray(self.compute())
        return result if dtype is None else result.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **others):
        # Others have made functions of the same names.
        is_numpys = getattr(np, ufunc.__name__, None) is ufunc
        name = ufunc.__name__ if is_numpys else None
        name = {"true_divide": "divide", "abs": "absolute", "mod": "remainder", "conj": "conjugate"}.get(name, name)
        if method == "__call__" and out is None and not {key for key, value in others.items() if value is not None}:
            if name in _UNARY:
                return _make(name, [asarray(inputs[0])])[0]
            if name in _BINARY:
                arrays, operands = _operands(inputs, compares=name in _COMPARISONS)
                return _make(name, arrays, operands=operands)[0]
            if name == "matmul":
                return matmul(*inputs)
            if name == "positive":
                if asarray(inputs[0]).dtype == bool:
                    raise TypeError("positive is not defined for bool")
                return asarray(inputs[0])
            if name in ("bitwise_not", "bitwise_invert"):
                return _make("invert", [asarray(inputs[0])])[0]
        given = sorted(key for key, value in {"out": out, **others}.items() if value is not None)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        name = f"numpy.{name}" if is_numpys else f"a function {name} that is not NumPy's"
        raise NotImplementedError(f"{name} of a bdrun.array.Array" + (f" with {', '.join(given)}" if given else ""))

    def __array_function__(self, function, types, args, kwargs):
        ours = _FUNCTIONS.get(function.__name__)
        if ours is None or function.__module__ not in ("numpy", "numpy.linalg"):
            raise NotImplementedError(f"{function.__module__}.{function.__name__} of a bdrun.array.Array; np.asarray computes it")
        try:
            return ours(*args, **kwargs)
        except TypeError as error:
            if "unexpected keyword" in str(error) or "positional argument" in str(error):
                raise NotImplementedError(f"{function.__module__}.{function.__name__} of a bdrun.array.Array: {error}") from None
            raise

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key,)
        listed = []
        for one in key:
            if one is None:
                listed.append(None)
            elif one is Ellipsis:
                listed.append("...")
            elif isinstance(one, slice):
                # No axis is longer than the bounds that are left.
                parts = (None if part is None else operator.index(part) for part in (one.start, one.stop, one.step))
                start, stop, step = (None if part is None else max(-MOST, min(part, MOST)) for part in parts)
                listed.append([start, stop, 1 if step is None else step])
            elif isinstance(one, (bool, np.bool_, list, np.ndarray, Array)):
                raise NotImplementedError("arrays of truth values or indices as an index; slices, numbers, None and ... are there")
            else:
                try:
                    at = operator.index(one)
                except TypeError:
                    raise IndexError("only integers, slices, ellipsis and None are indices") from None
                if abs(at) > MOST:
                    raise IndexError(f"index {at} is out of bounds")
                listed.append(at)
        return _make("index", [self], index=listed)[0]

    def astype(self, dtype):
        return _make("astype", [self], dtype=_dtype(dtype))[0]

    @property
    def T(self):
        return transpose(self)

    @property
    def real(self):
        return _make("real", [self])[0]

    @property
    def imag(self):
        return _make("imag", [self])[0]

    def conj(self):
        return _make("conjugate", [self])[0]

    conjugate = conj

    def transpose(self, *axes):
        axes = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes or None
        return transpose(self, axes)

    def reshape(self, *shape):
        return reshape(self, shape[0] if len(shape) == 1 else shape)

    def ravel(self):
        return reshape(self, -1)

    flatten = ravel

    def squeeze(self, axis=None):
        return squeeze(self, axis)

    def swapaxes(self, axis1, axis2):
        return swapaxes(self, axis1, axis2)

    def dot(self, other):
        return dot(self, other)

    def rechunk(self, chunks):
        """In other blocks: of one size along each axis (a number, or one for each; 0: the whole axis), or of lengths."""
        if not isinstance(chunks, (tuple, list)):
            chunks = (chunks,) * self.ndim
        if any(isinstance(one, (tuple, list)) for one in chunks):
            if len(chunks) != self.ndim:
                raise ValueError(f"chunks along {len(chunks)} axes, of an array of {self.ndim}")
            lengths = [_lengths(one) if isinstance(one, (tuple, list)) else _regular(one, length) for one, length in zip(chunks, self.shape)]
            return _make("rechunk", [self], chunks=lengths)[0]
        return _make("rechunk_regular", [self], chunk=_lengths(chunks))[0]

    def compute(self, memory=None, threads=None, scratch=None, statistics=None):
        """Its elements, as an array (a scalar, if it has no axis) of NumPy."""
        return compute(self, memory=memory, threads=threads, scratch=scratch, statistics=statistics)[0]

    def to_npy(self, path, memory=None, threads=None, scratch=None, resume=False, statistics=None):
        """Into a file of NumPy: beside it, and put in its place when all is written. `resume`: can be gone on with."""
        to = {"npy": _path(path), "resume": bool(resume)}
        _compute([self], [to], memory, threads, scratch, statistics)

    def to_raw(self, path, memory=None, threads=None, scratch=None, resume=False, statistics=None):
        """Into a file of elements alone, in C's order and little-endian, likewise."""
        to = {"raw": _path(path), "resume": bool(resume)}
        _compute([self], [to], memory, threads, scratch, statistics)

    def to_hdf5(self, path, dataset, chunks=None, memory=None, threads=None, scratch=None, resume=False, statistics=None):
        """Into a dataset of a new file of HDF5, likewise. `chunks`: how it is cut there; as its blocks, if that is not said.
        A file is not replaced if there is more than this dataset in it (attributes of the file, too), or may be: one that somebody
        writes to, or that cannot be opened."""
        chunk = None if chunks is None else _lengths(chunks)
        to = {"hdf5": _path(path), "dataset": _text(dataset, "dataset"), "chunk": chunk, "resume": bool(resume)}
        _compute([self], [to], memory, threads, scratch, statistics)

    def to_zarr(
        self, path, chunks=None, compression=None, memory=None, threads=None, scratch=None, resume=False, statistics=None
    ):
        """Into an array of Zarr (version 3), likewise. `compression`: None, "gzip" ("gzip:9" of a level) or "zstd";
        then blocks are of whole chunks."""
        chunk = None if chunks is None else _lengths(chunks)
        to = {"zarr": _path(path), "chunk": chunk, "compression": compression, "resume": bool(resume)}
        _compute([self], [to], memory, threads, scratch, statistics)


def _regular(chunk, length):
    (chunk,) = _lengths(chunk)
    chunk = chunk or max(length, 1)
    return [min(chunk, length - at) for at in range(0, length, chunk)] or [0]


def asarray(value):
    """An array of what NumPy makes an array of; its elements are copied, and not counted in the budget."""
    if isinstance(value, Array):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise NotImplementedError("masked arrays")
    value = np.asarray(value)
    value = value.astype(value.dtype.newbyteorder("="), copy=False)
    elements = np.ascontiguousarray(value).reshape(value.shape)
    what = _json({"dtype": value.dtype.name, "shape": value.shape, "origin": _origin()})
    handle = library().bdrun_array_copy(what, elements.ctypes.data, elements.nbytes)
    if not handle:
        raise _raised()
    return Array(handle)


def from_npy(path, block=None):
    """The array in a file of NumPy, in blocks of at most so many bytes (8 MiB; a number, or text as "4M")."""
    return _make("npy", path=_path(path), block=_block(block))[0]


def from_raw(path, shape, dtype, offset=0, block=None):
    """Elements in a file, in C's order and little-endian, from an offset on."""
    if _number(offset) < 0:
        raise ValueError(f"offset={offset}: it is from the beginning of the file")
    what = {"path": _path(path), "shape": _lengths(shape), "dtype": _dtype(dtype), "offset": _number(offset)}
    return _make("raw", **what, block=_block(block))[0]


def from_hdf5(path, dataset, block=None):
    """A dataset of a file of HDF5, in blocks of whole chunks."""
    return _make("hdf5", path=_path(path), dataset=_text(dataset, "dataset"), block=_block(block))[0]


def from_zarr(path, block=None):
    """An array of Zarr (version 3), in blocks of whole chunks."""
    return _make("zarr", path=_path(path), block=_block(block))[0]


def full(shape, value, dtype=None):
    """The same number everywhere."""
    # NumPy says what does not fit.
    value = np.full((), value, dtype)
    return _make("full", shape=_lengths(shape), value=_scalar(value.item()), dtype=_dtype(value.dtype))[0]


def zeros(shape, dtype="float64"):
    return full(shape, 0, "float64" if dtype is None else dtype)


def ones(shape, dtype="float64"):
    return full(shape, 1, "float64" if dtype is None else dtype)


def compute(*arrays, memory=None, threads=None, scratch=None, statistics=None):
    """Their elements, computed together, as arrays of NumPy (scalars, if they have no axis)."""
    arrays = [asarray(array) for array in arrays]
    blocks = _compute(arrays, [None] * len(arrays), memory, threads, scratch, statistics)
    results = []
    for array, block in zip(arrays, blocks):
        if array.size == 0:
            library().bdrun_block_free(block)
            results.append(np.empty(array.shape, array.dtype))
            continue
        memory_of = (ctypes.c_char * array.nbytes).from_address(library().bdrun_block_elements(block))
        # Its memory is there as long as the array is.
        weakref.finalize(memory_of, library().bdrun_block_free, block).atexit = False
        result = np.frombuffer(memory_of, array.dtype).reshape(array.shape)
        results.append(result if array.ndim else result[()])
    return results


def _compute(arrays, to, memory, threads, scratch, statistics):
    from bdrun._memory import available_memory, parse_bytes
    from bdrun._places import scratch_folder

    memory = available_memory() if memory is None else parse_bytes(memory)
    scratch = scratch or scratch_folder()
    threads = 0 if threads is None else _number(threads)
    if threads < 0:
        raise ValueError(f"threads={threads}")
    # Not said: as many as there are processors, or as there is memory for. What is no text and no number is said before anything
    # is begun.
    how = _json({"memory": memory, "threads": threads or processors(), "fewer": not threads, "scratch": _path(scratch), "to": to})
    handles = (ctypes.c_void_p * max(len(arrays), 1))(*(array._handle for array in arrays))
    blocks, did = (ctypes.c_void_p * max(len(arrays), 1))(), (ctypes.c_uint64 * 5)()
    computation = library().bdrun_compute_new()
    failed, done, lock, state = [], threading.Event(), threading.Lock(), {"begun": False, "given up": False}

    def work():
        with lock:
            if state["given up"]:
                return
            state["begun"] = True
        try:
            if library().bdrun_compute(computation, how, handles, len(arrays), blocks, did) < 0:
                failed.append(_raised())  # which is this thread's
        except BaseException as error:
            failed.append(error)  # it would be taken for done
        finally:
            done.set()

    # On another thread, so that Ctrl-C is heard.
    worker = threading.Thread(target=work, name="bdrun-array")
    try:
        try:
            worker.start()
        except RuntimeError:
            # The system has no thread left: on this one, which hears Ctrl-C when it is done.
            work()
        while not done.wait(0.1):
            pass
        if failed:
            raise failed[0]
    except BaseException:
        library().bdrun_compute_cancel(computation)
        # Ctrl-C may come before the thread has begun: then it does not begin any more.
        with lock:
            state["given up"] = not state["begun"]
        if not state["given up"]:
            done.wait()
        for block in blocks:
            if block:
                library().bdrun_block_free(block)
        raise
    finally:
        if done.is_set() or state["given up"]:
            library().bdrun_compute_free(computation)
    if statistics is not None:
        statistics.update(zip(("most", "written", "read", "again", "tasks"), did))
    return blocks[: len(arrays)]


def _function(function):
    _FUNCTIONS[function.__name__.rstrip("_")] = function
    return function


def _reduction(name):
    def reduce(a, axis=None, *, keepdims=False, **others):
        what = {}
        if name in ("var", "std") and "ddof" in others:
            ddof = others.pop("ddof")
            if ddof != int(ddof) or not 0 <= ddof <= MOST:
                raise NotImplementedError(f"ddof={ddof}")
            what["ddof"] = int(ddof)
        if any(value is not None and value is not np._NoValue for value in others.values()):
            raise NotImplementedError(f"numpy.{name} of a bdrun.array.Array with {others}")
        axes = _axes(axis) if name not in ("argmin", "argmax") or axis is None else [_one(axis)]
        return _make(name, [asarray(a)], axes=axes, keep=bool(keepdims) and keepdims is not np._NoValue, **what)[0]

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"numpy.{name}"
    _function(reduce)
    setattr(Array, name, reduce)
    return reduce


for _name in ("sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax"):
    _reduction(_name)
_FUNCTIONS["amin"], _FUNCTIONS["amax"] = _FUNCTIONS["min"], _FUNCTIONS["max"]


def _scan(name):
    def scan(a, axis=None):
        a = asarray(a)
        return _make(name, [reshape(a, -1) if axis is None else a], axis=0 if axis is None else _one(axis))[0]

    scan.__name__ = scan.__qualname__ = name
    scan.__doc__ = f"numpy.{name}"
    _function(scan)
    setattr(Array, name, scan)


_scan("cumsum")
_scan("cumprod")


@_function
def transpose(a, axes=None):
    return _make("transpose", [asarray(a)], axes=_axes(axes, ValueError))[0]


@_function
def swapaxes(a, axis1, axis2):
    return _make("swapaxes", [asarray(a)], axis=_one(axis1), other=_one(axis2))[0]


@_function
def moveaxis(a, source, destination):
    return _make("moveaxis", [asarray(a)], axis=_one(source), other=_one(destination))[0]


@_function
def expand_dims(a, axis):
    a = asarray(a)
    if not isinstance(axis, (tuple, list)):
        return _make("expand_dims", [a], axis=_one(axis))[0]
    dimensions = a.ndim + len(axis)
    for at in axis:
        if not -dimensions <= _one(at) < dimensions:
            raise _AxisError(at, dimensions)
    places = sorted(_one(at) % dimensions for at in axis)
    if len(set(places)) < len(places):
        raise ValueError("repeated axis")
    for at in places:
        a = _make("expand_dims", [a], axis=at)[0]
    return a


@_function
def squeeze(a, axis=None):
    return _make("squeeze", [asarray(a)], axes=_axes(axis))[0]


@_function
def reshape(a, shape):
    # NumPy's, of None: as it is.
    return asarray(a) if shape is None else _make("reshape", [asarray(a)], shape=_lengths(shape))[0]


@_function
def ravel(a):
    return reshape(a, -1)


@_function
def concatenate(arrays, axis=0):
    arrays = [asarray(array) for array in arrays]
    if axis is None:
        arrays, axis = [reshape(array, -1) for array in arrays], 0
    return _make("concatenate", arrays, axis=_one(axis))[0]


@_function
def stack(arrays, axis=0):
    return _make("stack", [asarray(array) for array in arrays], axis=_one(axis))[0]


@_function
def where(condition, x, y):
    arrays, operands = _operands([x, y])
    return _make("where", [asarray(condition), *arrays], operands=operands)[0]


@_function
def dot(a, b):
    return _make("dot", [asarray(a), asarray(b)])[0]


def matmul(a, b):
    """numpy.matmul"""
    return _make("matmul", [asarray(a), asarray(b)])[0]


@_function
def tensordot(a, b, axes=2):
    a, b = asarray(a), asarray(b)
    if isinstance(axes, (tuple, list)):
        own, others = (_axes(one) for one in axes)
    else:
        own, others = list(range(-axes, 0)), list(range(axes))
    return _make("tensordot", [a, b], axes=own, others=others)[0]


SVDResult = collections.namedtuple("SVDResult", "U S Vh")


@_function
def svd(a, full_matrices=True):
    """The thin one, which has to be asked for: U, singular values, Vᵀ."""
    if full_matrices:
        raise NotImplementedError("only the thin singular value decomposition: full_matrices=False")
    a = asarray(a)
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    return SVDResult(*_make("svd", [a]))


@_function
def histogram(a, bins=10, range=None):
    if not isinstance(bins, (int, np.integer)):
        raise NotImplementedError("bins of different widths")
    a = asarray(a)
    if range is not None and a.dtype == "f4":
        # NumPy's own numbers have a type, which counts; Python's have not.
        types = {bound.dtype for bound in range if isinstance(bound, np.generic)}
        if types and np.result_type("f4", *types) != "f4":
            a = a.astype("f8")
        elif types:
            raise NotImplementedError("a range of float32: give float()s of it")
    between = None if range is None else [repr(float(bound)) for bound in range]
    counts, bounds = _make("histogram", [a], bins=[_number(bins, ValueError)], range=between)
    return counts, bounds


@_function
def quantile(a, q):
    """Of all elements, approximately: an element of that rank within half a per cent, and nothing between two elements. Infinities
    are elements; where one is no number, nothing is."""
    a, wanted = asarray(a), np.asanyarray(q)
    if a.size == 0:
        raise IndexError("quantiles of no elements")
    # Of the type that NumPy has by interpolation, which counts numbers of Python for nothing; of whole numbers there is none.
    dtype = a.dtype
    if wanted.dtype.kind not in "iub":
        if dtype == bool:
            raise TypeError("quantiles are not defined for bool")
        dtype = np.result_type(dtype, q if type(q) is float else wanted.dtype)
    result = _make("quantiles", [a], q=[repr(float(one)) for one in wanted.ravel()])[0]
    return reshape(result, wanted.shape).astype(dtype)


@_function
def round_(a, decimals=0):
    if decimals:
        raise NotImplementedError("numpy.round to decimals")
    return asarray(a) if asarray(a).dtype.kind in "iu" else np.rint(a)
