"""``python tests/sanitizers/calls.py CALLS``: random calls of every compiled function.

Half of the calls have valid arguments: they must succeed and write only to `out`. The others have
one or two invalid arguments: they succeed or raise an exception. No call may cause a report of a
sanitizer; without sanitizers only crashes are detected.
"""

import sys

import numpy as np

from bochner._core import native

_native = native._compiled

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 130, 257, 513)
PROFILES = [
    *("gaussian", "exponential", "matern32", "matern52"),
    *("rational_quadratic", "laplace", "cauchy"),
]
GUARD = 7.25  # value of memory around `out`
MAX = np.iinfo(np.int32).max


class Draw:
    """Valid random arguments of one dtype, and the arrays that contain the outputs."""

    def __init__(self, rng, dtype):
        self.rng, self.dtype, self.rooms = rng, dtype, []

    def size(self, minimum=0, maximum=513):
        """Return a size; small ones are more probable than large ones."""
        sizes = [s for s in SIZES if minimum <= s <= maximum]
        return int(self.rng.choice(sizes[: len(sizes) // 2 or 1] * 2 + sizes))

    def array(self, *shape):
        A = self.rng.standard_normal(shape).astype(self.dtype)
        if A.size and self.rng.random() < 0.2:
            A.flat[self.rng.integers(A.size)] = self.rng.choice([np.nan, np.inf, -1e38, 1e-42, 0])
        return A

    def integers(self, low, high, *shape):
        return self.rng.integers(low, high, shape, dtype=np.int32)

    def out(self, n, m, dtype=None):
        """Return an array for a result, sometimes a part of a wider array."""
        top, left, right = self.rng.integers(0, 3, 3) * self.rng.integers(0, 2)
        room = np.full((n + 2 * top, left + m + right), GUARD, dtype or self.dtype)
        inner = slice(top, top + n), slice(left, left + m)
        self.rooms.append((room, inner))
        return room[inner]

    def threads(self):
        return int(self.rng.choice([0, 1, 2, 3, 17, 1 << 40]))

    def scale(self):
        return float(self.rng.choice([1.0, 0.3, -2.0, 0.0, np.nan, np.inf, 1e300]))

    def untouched(self):
        """Return whether the memory around all results is unchanged."""
        for room, inner in self.rooms:
            room[inner] = GUARD
        return all((room == GUARD).all() for room, _ in self.rooms)


def waves(draw):
    n, d, m = draw.size(), draw.size(maximum=65), draw.size()
    pairs = draw.rng.random() < 0.5
    T, b = draw.array(d, m), draw.array(0 if pairs else m)
    out = draw.out(n, 2 * m if pairs or not m else m)
    return [draw.array(n, d), T, b, draw.scale(), out, draw.threads()]


def profile(draw):
    return [str(draw.rng.choice(PROFILES)), draw.scale()]


def radial(draw):
    n, d, m = draw.size(), draw.size(maximum=65), draw.size()
    X, Y = draw.array(n, d), draw.array(m, d)
    return [X, Y, *profile(draw), draw.out(n, m), draw.threads()]


def radial_product(draw):
    n, d, t = draw.size(), draw.size(maximum=33), draw.size(maximum=33)
    out = draw.out(t, n, np.float64)
    return [draw.array(n, d), *profile(draw), draw.array(t, n), out, draw.threads()]


def hadamard(draw):
    n, p = draw.size(maximum=65), 2 ** int(draw.rng.integers(0, 13))
    out = draw.out(n, p)
    X = out if out.flags.c_contiguous and draw.rng.random() < 0.2 else draw.array(n, p)
    return [X, out, draw.threads()]


def chains(draw):
    n, p = draw.size(maximum=65), 2 ** int(draw.rng.integers(0, 9))
    d, blocks, steps = draw.size(maximum=p), draw.size(maximum=4), draw.size(minimum=1, maximum=4)
    m, ordered = int(draw.rng.integers(0, p * blocks + 1)), draw.rng.random() < 0.5
    orders = draw.integers(0, p, blocks, p) if ordered else draw.integers(0, 1, 0, 0)
    bias = draw.array(int(draw.rng.choice([0, m])))
    out = draw.out(n, m if len(bias) else 2 * m)
    diagonals = draw.array(blocks, steps + 1, p)
    return [draw.array(n, d), diagonals, orders, bias, m, draw.scale(), out, draw.threads()]


def polynomials(draw):
    n, d, m = draw.size(maximum=130), draw.size(maximum=65), draw.size()
    functions, degree = draw.size(maximum=5), draw.size(maximum=9)
    radial, high, low = draw.array(n, functions, degree + 1), draw.array(degree), draw.array(degree)
    out = draw.out(n, functions * m)
    return [draw.array(n, d), draw.array(d, m), radial, high, low, out, draw.threads()]


def harmonics(draw):
    n, d, blocks = draw.size(), draw.size(maximum=17), draw.size(maximum=17)
    nodes = draw.size(maximum=130 if d else 1)
    parents, inputs = draw.integers(-MAX, MAX, nodes, 2), draw.integers(-MAX, MAX, nodes, 2)
    for node in range(1, nodes):
        parents[node], inputs[node] = draw.rng.integers(0, node, 2), draw.rng.integers(0, 2 * d, 2)
    first = draw.integers(0, nodes + 1, blocks)
    count = (draw.rng.random(blocks) * (nodes + 1 - first)).astype(np.int32)
    factors, radial = draw.array(nodes, 2), draw.array(n, blocks)
    out = draw.out(n, int(count.sum()))
    return [draw.array(n, d), parents, inputs, factors, radial, first, count, out, draw.threads()]


def set_level(draw):
    return [_native.get_level()]


FUNCTIONS = (waves, radial, radial_product, hadamard, chains, polynomials, harmonics)
FUNCTIONS += (set_level,)

# ---- invalid arguments


def read_only(A):
    A = A.copy()
    A.flags.writeable = False
    return A


def between_bytes(A):
    """Return a copy whose memory is not aligned: one byte off."""
    copy = np.frombuffer(bytearray(A.nbytes + 1), A.dtype, offset=1, count=A.size)
    copy = copy.reshape(A.shape)
    copy[...] = A
    return copy


def packed(A):
    """Return a copy with strides that are no multiple of the size of a number."""
    rows = np.zeros(A.shape, [("number", A.dtype), ("byte", "u1")])
    rows["number"] = A
    return rows["number"]


def edges(A, rng):
    """Return random extreme values of the dtype."""
    limits = np.finfo(A.dtype) if A.dtype.kind == "f" else np.iinfo(A.dtype)
    return rng.choice(np.array([limits.min, limits.max, 0, 1], A.dtype), A.shape)


def reshaped(A, rng):
    """Return ones of another shape: one size changed, one axis more, or fewer axes."""
    shape = list(A.shape) or [1]
    at = int(rng.integers(len(shape)))
    shape[at] = max(0, shape[at] + int(rng.choice([-1, 1, 16, -shape[at]])))
    shape = [shape, [*shape, 1], [A.size], []][rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])]
    return np.ones(shape, A.dtype)


def huge(A, rng):
    """Return an array of huge shape that takes no memory."""
    if rng.random() < 0.5:
        return np.broadcast_to(np.ones((), A.dtype), [1 << 18] * A.ndim)
    shape = [0] * A.ndim
    if A.ndim > 1:
        shape[int(rng.integers(A.ndim))] = 1 << 40
    return np.empty(shape, A.dtype)


SPOILERS = (
    lambda A, rng: read_only(A),
    lambda A, rng: between_bytes(A),
    lambda A, rng: packed(A),
    lambda A, rng: A.T,
    lambda A, rng: np.asfortranarray(A),
    lambda A, rng: A[..., ::-1],
    lambda A, rng: A[::-1],
    lambda A, rng: np.repeat(A, 2, axis=-1)[..., ::2],
    lambda A, rng: A[:0],
    lambda A, rng: A[..., :0],
    lambda A, rng: A[:1].repeat(len(A), axis=0),
    lambda A, rng: np.broadcast_to(A[:1], A.shape) if len(A) else A,
    lambda A, rng: A.astype(A.dtype.newbyteorder()),
    lambda A, rng: A.astype(rng.choice(["f2", "f4", "f8", "i4", "i8", "u4", "c8", "O", "?"])),
    lambda A, rng: np.ma.masked_array(A),
    lambda A, rng: A.tolist(),
    lambda A, rng: memoryview(A),
    edges,
    reshaped,
    huge,
)
OTHERS = (None, "", "text", "x" * 100_000, -1, 0, 3, 1 << 31, 1 << 63, 1 << 64, 1e308, np.nan)


def corrupt(value, rng):
    """Return a value, probably invalid, to replace a valid argument."""
    if isinstance(value, np.ndarray) and value.ndim and rng.random() < 0.9:
        with np.errstate(all="ignore"):
            return SPOILERS[rng.integers(len(SPOILERS))](value, rng)
    return OTHERS[rng.integers(len(OTHERS))]


def call(function, rng, dtype, *, right):
    """Call a function once; return whether it raised an exception."""
    draw = Draw(rng, dtype)
    arguments = function(draw)
    for at in () if right else rng.permutation(len(arguments))[: rng.integers(1, 3)]:
        arguments[at] = corrupt(arguments[at], rng)
    if not right and rng.random() < 0.05:
        arguments = arguments[:-1]
    try:
        getattr(_native, function.__name__)(*arguments)
    except (TypeError, ValueError):
        if right:
            raise
        return True
    finally:
        assert draw.untouched(), "memory around out was written"
    return False


def main(calls):
    """Call every function, and print the number of calls and of exceptions."""
    level = _native.get_level()
    for number, function in enumerate(FUNCTIONS):
        n_refused = 0
        for turn in range(2 * calls):
            rng = np.random.default_rng([number, turn])
            n_refused += call(function, rng, [np.float32, np.float64][turn % 2], right=turn % 4 < 2)
            _native.set_level(level)
        sys.stdout.write(f"{function.__name__}: {2 * calls} calls, {n_refused} refused\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
