"""Evaluates each line of DIRECTORY/expressions with x[0], x[1], … of DIRECTORY/0.npy and so on.

Prints "ok SCALE", with the largest finite number that any step has (infinite: a step has complex numbers that are
not finite, of which functions are what the C library makes of them, or a product has such factors), and writes DIRECTORY/rLINE.npy; or "error" and
the exception's classes.
"""
import os, sys, warnings
import numpy as np

folder = sys.argv[1]
x = []
while os.path.exists(f"{folder}/{len(x)}.npy"):
    x.append(np.load(f"{folder}/{len(x)}.npy"))
scale = 0.0

def s(value):
    """A step: its result is looked at, and goes on."""
    global scale
    if value.dtype.kind in "fc" and value.size:
        size = np.atleast_1d(np.abs(value))
        finite = np.isfinite(size)
        if value.dtype.kind == "c" and not finite.all():
            scale = float("inf")
        elif finite.any():
            scale = max(scale, float(size[finite].max()))
    return value

def f(value):
    """An operand of a product: BLAS leaves out what is multiplied by zero, whatever it is."""
    global scale
    if value.dtype.kind in "fc" and not np.isfinite(value).all():
        scale = float("inf")
    return value

warnings.simplefilter("ignore")
np.seterr(all="ignore")
for line, text in enumerate(open(f"{folder}/expressions")):
    scale = 0.0
    try:
        value = np.asarray(eval(text))
    except Exception as error:
        print("error", *(kind.__name__ for kind in type(error).__mro__))
        continue
    np.save(f"{folder}/r{line}.npy", np.ascontiguousarray(value).reshape(value.shape))
    print("ok", repr(scale))
