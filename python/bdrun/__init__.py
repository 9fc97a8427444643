"""bdrun, installed by pip: programs and libraries lie in this package, and what is here starts them.

Nothing of Python is left once bdrun runs: signals and exit codes are its own. For programs of Python there is `get`, a scheduler
for Dask's graphs (`bdrun.graph`).
"""

import os
import signal
import sys

__all__ = ["path", "main", "get", "dask_get"]


def __getattr__(name):
    # Loaded when it is used: programs begin sooner without it.
    if name in ("get", "dask_get"):
        from bdrun.graph import get

        return get
    if name in ("graph", "array"):
        import importlib

        return importlib.import_module(f"bdrun.{name}")
    raise AttributeError(f"module 'bdrun' has no attribute {name!r}")


def path(name="bdrun"):
    """Where a program of the package is: bdrun, bdcc, bdcxx, obikmer-merge or phases."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)


def _become(name):
    # Python ignores these, and who is started by it would do so, too.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(path(name), [path(name), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot be started: {error}")


def main():
    """Becomes bdrun."""
    _become("bdrun")


def bdcc():
    """Becomes the compiler of C."""
    _become("bdcc")


def bdcxx():
    """Becomes the compiler of C++."""
    _become("bdcxx")
