"""Random expressions: the same text, computed by NumPy and by `bdrun.array`, in random blocks and budgets.

`ARRAY_CASES=400` is how many, `ARRAY_SEED=1` where they begin. Names of NumPy (`np.sqrt(x)`), operators and methods are mixed.
"""

import os
import random
import tempfile
import warnings

import numpy as np

import bdrun.array as ba

TYPES = ["bool", "int32", "int64", "float32", "float64", "complex128"]
UNARY = ["negative", "absolute", "sign", "square", "sqrt", "exp", "log1p", "sin", "tanh", "arctan", "floor", "rint", "isnan", "isfinite", "logical_not", "invert", "conj", "positive"]  # fmt: skip
BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "mod", "power", "minimum", "maximum", "arctan2", "less", "greater_equal", "equal", "logical_xor", "bitwise_and"]  # fmt: skip
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "<", ">=", "==", "!=", "&", "|", "^"]
SCALARS = ["True", "2", "-3", "0.5", "-1.25", "0", "1", "complex(0.5, -2.0)", "np.float32(1.5)", "np.int64(3)"]
# What is rounded, and what makes something quite different of it.
ROUNDED = ["mean", "var", "std", "sum", "prod", "sqrt", "exp", "log", "sin", "tan", "divide", "/", "power", "**", "@", "dot"]
DECIDED = ["arg", "less", "equal", "<", ">", "==", "!=", "floor", "rint", "//", "%", "mod", "astype", "logical", "any", "all", "sign"]


def pool(rng):
    """Arrays of all types and several shapes that fit each other, or do not."""
    arrays = []
    for dtype in TYPES:
        for shape in [(), (1,), (6,), (4, 6), (4, 1), (3, 4, 6), (0, 6), (5, 4)]:
            value = rng.integers(-4, 5, shape) if dtype != "bool" else rng.integers(0, 2, shape)
            value = value.astype(dtype)
            if dtype in ("float32", "float64"):
                value = (value + rng.random(shape)).astype(dtype)
            if dtype == "complex128":
                value = value + 1j * rng.random(shape)
            arrays.append(np.asarray(value))
    return arrays


def expression(pick, count, depth):
    def below(level):
        return expression(pick, count, level)

    if depth == 0 or pick.random() < 0.15:
        return f"x[{pick.randrange(count)}]"
    of = below(depth - 1)
    axis = pick.choice([-1, 0, 1, 2])
    way = pick.randrange(12)
    if way == 0:
        return f"np.{pick.choice(UNARY)}({of})"
    if way == 1:
        return f"np.{pick.choice(BINARY)}({of}, {pick.choice([below(depth - 1), pick.choice(SCALARS)])})"
    if way == 2:
        other = pick.choice([below(depth - 1), pick.choice(SCALARS)])
        return f"({of} {pick.choice(OPERATORS)} {other})" if pick.random() < 0.6 else f"({other} {pick.choice(OPERATORS)} {of})"
    if way == 3:
        name = pick.choice(["sum", "prod", "min", "max", "any", "all", "mean", "var", "std"])
        options = pick.choice(["", f", axis={axis}", f", axis={axis}, keepdims=True", ", axis=(0, -1)", ", keepdims=True"])
        return f"np.{name}({of}{options})" if pick.random() < 0.5 else f"{of}.{name}({options[2:]})"
    if way == 4:
        return f"{of}.{pick.choice(['argmin', 'argmax', 'cumsum', 'cumprod'])}({pick.choice(['', f'axis={axis}'])})"
    if way == 5:
        part = lambda: pick.choice(["...", ":", "::2", "::-1", "1:", ":-1", "0", "-1", "None", "7", "2:1", "3:0:-2"])  # noqa: E731
        return f"{of}[{', '.join(part() for _ in range(pick.randrange(1, 4)))}]"
    if way == 6:
        return pick.choice([f"{of}.T", f"np.transpose({of})", f"np.swapaxes({of}, 0, {axis})", f"np.moveaxis({of}, {axis}, 0)", f"{of}.transpose(0, 1)"])
    if way == 7:
        shape = pick.choice(["-1", "(6, -1)", "(2, 12)", "(-1, 2)", "(4, 6)", "()"])
        return pick.choice([f"{of}.reshape({shape})", f"np.reshape({of}, {shape})", f"{of}.ravel()", f"np.squeeze({of})", f"np.expand_dims({of}, {axis})"])
    if way == 8:
        return f"np.{pick.choice(['concatenate', 'stack'])}([{of}, {pick.choice([of, below(depth - 1)])}], axis={axis})"
    if way == 9:
        return f"np.where({of}{pick.choice(['', ' > 0'])}, {below(depth - 1)}, {pick.choice([below(depth - 1), '0', '1.5'])})"
    if way == 10:
        return pick.choice([f"({of} @ {below(depth - 1)})", f"np.dot({of}, {of}.T)", f"np.tensordot({of}, {of}, axes={pick.choice(['1', '0', '((0,), (0,))'])})"])
    return f"{of}.astype('{pick.choice(TYPES)}')"


def evaluate(text, x):
    try:
        return eval(text, {"np": np, "x": x, "complex": complex}), None
    except Exception as error:
        return None, error


def near(ours, theirs, scale, single):
    if theirs.dtype.kind not in "fc":
        return np.array_equal(ours, theirs)
    with np.errstate(all="ignore"):
        finite = np.isfinite(theirs)
        if theirs.dtype.kind == "c" and not finite.all():
            return True  # parts of what is not finite are what the C library makes of them
        close = np.abs(ours - theirs) <= (1e-4 if single else 1e-9) * np.maximum(np.abs(theirs), scale)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        return bool(np.all(close | same | ~finite & ~np.isfinite(ours)))


def main():
    cases, seed = int(os.environ.get("ARRAY_CASES", "400")), int(os.environ.get("ARRAY_SEED", "1"))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    arrays = pool(np.random.default_rng(seed))
    scratch = tempfile.gettempdir()
    values = errors = unsupported = rough = 0
    wrong = []
    for case in range(cases):
        pick = random.Random(seed * 1_000_003 + case)
        text = expression(pick, len(arrays), pick.randrange(1, 5))
        theirs, failed = evaluate(text, arrays)
        blocks = [ba.asarray(one).rechunk([pick.randrange(0, 4) for _ in one.shape]) for one in arrays]
        ours, error = evaluate(text, blocks)
        if error is None:
            try:
                (ours,) = ba.compute(ours, threads=pick.randrange(1, 3), scratch=scratch)
            except Exception as late:
                ours, error = None, late
        if isinstance(error, NotImplementedError):
            unsupported += 1
        elif failed is not None or error is not None:
            is_same = failed is not None and error is not None and isinstance(error, tuple(kind for kind in type(failed).__mro__ if kind is not object and kind not in (Exception, BaseException)))
            # Powers that cannot be are found when they are computed, and not if nothing is asked for that they are part of.
            is_lazy = isinstance(failed, ValueError) and "power" in str(failed)
            # A number of NumPy has no @, an array without axes has one that fails.
            is_number = "operand type(s) for @" in str(failed) and "matmul: shapes () and ()" in str(error)
            errors += 1
            if not (is_same or is_lazy or is_number):
                wrong.append(f"case {case}: {text}\n    {type(error).__name__} ({error}) instead of {type(failed).__name__} ({failed})")
        else:
            theirs = np.asarray(theirs)
            ours = np.asarray(ours)
            # Steps in between may be as large as this, and what is rounded there is rounded.
            with np.errstate(all="ignore"):
                size = np.abs(theirs[np.isfinite(theirs)]) if theirs.dtype.kind in "fc" else np.zeros(0)
            scale = max(float(size.max()) if size.size else 0.0, 1.0)
            if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
                wrong.append(f"case {case}: {text}\n    {ours.dtype} {ours.shape} instead of {theirs.dtype} {theirs.shape}")
            elif near(ours, theirs, scale, "float32" in text or any(f"x[{at}]" in text for at in range(24, 32))):
                values += 1
            elif any(name in text for name in ROUNDED) and any(name in text for name in DECIDED):
                rough += 1  # rounding decided
            else:
                wrong.append(f"case {case}: {text}\n    {ours} instead of {theirs}")
    print(f"{cases} expressions: {values} results, {errors} errors of the same kind, {unsupported} not supported")
    assert not wrong, f"{len(wrong)} are wrong:\n" + "\n".join(wrong[:20])
    assert values > cases / 3 and errors > 0 and unsupported < cases / 5 and rough <= cases / 100, rough


if __name__ == "__main__":
    main()
    print("right")
