"""An ONNX graph, and arrays that record operations as nodes of the graph.

Kernels and maps are functions of arrays of any library. Called with a :class:`Symbol` instead of
rows, they record their formula as a graph for any number of rows. Code that reads values, such as a
choice between two formulas, has no graph and raises an error. Values are assumed to be finite.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partialmethod, reduce
from importlib import import_module
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from bochner import __version__
from bochner._core.optional import package
from bochner.data.schema import quote
from bochner.errors import InvalidInput

#: Version of ONNX's operators and of the file format, which onnxruntime 1.17 and later read.
OPSET, FORMAT = 18, 8

#: Version and domain of ONNX's operators for learners, which encode text.
LEARNERS, DOMAIN = 3, "ai.onnx.ml"


class NoOperator(NotImplementedError):
    """Raised for formulas without an ONNX node; its text completes "the model needs …"."""


# --- Arrays that record the operations on them ----------------------------------------------------

FLOAT, INTEGER, BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)
TEXT = np.dtype(object)
_STORED = {"f": FLOAT, "i": INTEGER, "u": INTEGER, "U": TEXT}  # types of constants, by kind


class Rows(int):
    """Multiple of the number of rows: symbolic in the graph, and 1 while it is recorded."""

    def __mul__(self, other: int) -> "Rows":
        return Rows(int(self) * int(other))

    __rmul__ = __mul__


#: The symbolic number of rows.
ANY = Rows(1)


def _is_free(shape: Sequence[int]) -> bool:
    return any(isinstance(size, Rows) for size in shape)


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an elementwise result."""
    columns = zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)
    sizes = [Rows(max(c)) if _is_free(c) else next((s for s in c if s != 1), 1) for c in columns]
    return tuple(sizes[::-1])


def _refuse_values(*_: Any, **__: Any) -> Any:
    raise NoOperator("a decision by values of the rows")


def _refuse_numpy(*_: Any, **__: Any) -> Any:
    raise NoOperator("a step that only NumPy computes")


@dataclass(frozen=True, eq=False)
class Symbol(NDArrayOperatorsMixin):
    """Output of a node of a graph, as an array; its operators add nodes to the graph."""

    graph: "Graph"
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype = FLOAT

    device = None

    def __array_namespace__(self, api_version: Any = None) -> "Graph":
        return self.graph

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> "Symbol":
        return self.graph.permute_dims(self, (1, 0))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", inputs)[0]  # for a += b this is a
        if method != "__call__" or options or out is not inputs[0]:
            raise NoOperator(f"numpy.{ufunc.__name__}.{method}")
        return getattr(self.graph, ufunc.__name__)(*inputs)

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise NoOperator(f"numpy.{function.__name__}")

    __bool__ = __float__ = __int__ = __len__ = __iter__ = __setitem__ = _refuse_values
    __array__ = __dlpack__ = __dlpack_device__ = _refuse_numpy

    __hash__ = object.__hash__  # which the == of the mixin removes

    def __getitem__(self, key: Any) -> "Symbol":
        """Return slices, single entries (which lose their axis) and new axes."""
        keys, full = list(key) if isinstance(key, tuple) else [key], slice(None)
        place = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
        count = sum(k is not None and k is not Ellipsis for k in keys)
        keys[place : place + 1] = [full] * (self.ndim - count)
        axes = [*zip((k for k in keys if k is not None), self.shape, strict=True)]
        cuts, sizes = list[tuple[int, ...]](), list[int]()
        for axis, (k, size) in enumerate(axes):
            if k == full:
                sizes.append(size)
                continue
            if not isinstance(k, slice | int | np.integer) or _is_free([size]):
                raise NoOperator("to choose rows or entries by their values")
            places = range(size)[k if isinstance(k, slice) else slice(k % size, k % size + 1)]
            stop = places.stop if places.stop >= 0 else -(2**31)
            cuts.append((axis, places.start, stop, places.step))
            if isinstance(k, slice):
                sizes.append(len(places))
        single = [axis for axis, (k, _) in enumerate(axes) if not isinstance(k, slice)]
        new = [k is None for k in keys if k is None or isinstance(k, slice)]
        new_axes = [axis for axis, is_new in enumerate(new) if is_new]
        for axis in new_axes:
            sizes.insert(axis, 1)
        graph, name = self.graph, self.name
        if cuts:
            parts = zip(*cuts, strict=True)
            starts, *ends = (graph.constant(np.array(part, np.int64)) for part in parts)
            name = graph.node("Slice", name, *ends[:2], starts, ends[2])
        for op, numbers in (("Squeeze", single), ("Unsqueeze", new_axes)):
            if numbers:
                name = graph.node(op, name, graph.constant(np.array(numbers, np.int64)))
        return Symbol(graph, name, tuple(sizes), self.dtype)


def _elementwise(op: str, dtype: np.dtype | None = None, **attributes: Any) -> Callable[..., Any]:
    """Return the elementwise function of one or two arrays for an operator of ONNX."""

    def function(self: "Graph", *arrays: Any) -> Symbol:
        inputs = self._common_type(*arrays)
        shape = _broadcast(*(a.shape for a in inputs))
        return self._op(op, inputs, shape, dtype or inputs[0].dtype, **attributes)

    return function


def _reduction(op: str) -> Callable[..., Any]:
    def function(
        self: "Graph",
        a: Symbol,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        dtype: Any = None,  # noqa: ARG001  always float64
    ) -> Symbol:
        numbers = range(a.ndim) if axis is None else np.atleast_1d(axis).tolist()
        axes = sorted(i % a.ndim for i in numbers)
        if _is_free([a.shape[i] for i in axes]):
            raise NoOperator("one number computed from all rows")
        full = [1 if i in axes else s for i, s in enumerate(a.shape)]
        shape = full if keepdims else [s for i, s in enumerate(a.shape) if i not in axes]
        axes_ = self.asarray(np.array(axes, np.int64))
        return self._op(op, [a, axes_], tuple(shape), a.dtype, keepdims=int(keepdims))

    return function


class Graph:
    """Nodes in the order in which they are computed, and the constants that they read.

    It has the functions of the array API standard. Functions that onnxruntime lacks in float64
    (cosine, arctangent, log(1 + x)) are combined from others.
    """

    __name__ = "bochner.export.arrays"  # identifies the array library
    float64, float32 = FLOAT, FLOAT  # all numbers between inputs and outputs are float64
    int64, bool, nan = INTEGER, BOOL, math.nan

    def __init__(self) -> None:
        package("onnx.numpy_helper", "to_onnx", "'bochner[onnx]'")
        self._onnx: Any = import_module("onnx")
        self.element: Any = self._onnx.helper.np_dtype_to_tensor_dtype  # ONNX's number of a dtype
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], Any] = {}
        self._inputs: dict[str, Any] = {}
        self.transposes: dict[str, str] = {}  # names of transposes, and of their matrices

    def input(self, name: str, dtype: np.dtype, columns: int, text: str) -> "Symbol":
        """Add and return an input of ``columns`` columns and any number of rows."""
        self._inputs[name] = self._onnx.helper.make_tensor_value_info(
            name, self.element(dtype), ["rows", columns], text
        )
        return Symbol(self, name, (ANY, columns), dtype)

    def node(self, op: str, *inputs: str, n_more: int = 0, **attributes: Any) -> str:
        """Add a node with 1 + ``n_more`` outputs, and return the name of the first."""
        name = f"{op.lower()}_{len(self._nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, 1 + n_more))]
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), names, **attributes))
        if op == "Transpose" and attributes["perm"] == [1, 0]:
            self.transposes[name] = inputs[0]
        return name

    def constant(self, values: Any) -> str:
        """Return the name of a constant; equal constants share one name."""
        A = np.array(values, order="C")
        key = (A.dtype.str, A.shape, A.tobytes() if A.dtype.kind != "O" else tuple(A.tolist()))
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self._onnx.numpy_helper.from_array(A, name)
        return self._constants[key].name

    def model(self, name: str, outputs: Mapping[str, "Symbol"]) -> Any:
        """Return the model with these outputs, checked by onnx; each has one row per input row."""
        helper = self._onnx.helper
        nodes = [helper.make_node("Identity", [value.name], [n]) for n, value in outputs.items()]
        needs = {value.name for value in outputs.values()}
        for node in reversed(self._nodes):  # only nodes that outputs depend on
            if needs & {*node.output}:
                nodes.insert(0, node)
                needs |= {*node.input}
        inputs = {name for node in nodes for name in node.input}
        constants = [c for c in self._constants.values() if c.name in inputs]
        results = {name for node in nodes for name in node.output}
        conflicts = {*self._inputs} & {*results, *(c.name for c in self._constants.values())}
        if conflicts:
            raise InvalidInput(
                "to_onnx: columns must not have names of outputs, nodes or constants of the graph; "
                f"got {quote(sorted(conflicts))}. Rename the column before the fit."
            )
        versions = {"": OPSET, DOMAIN: LEARNERS}
        domains = sorted({"", *(node.domain for node in nodes)})
        infos = [
            helper.make_tensor_value_info(
                n, self.element(value.dtype), ["rows", *map(int, value.shape[1:])]
            )
            for n, value in outputs.items()
        ]
        text = f"{name} of bochner. Computed in float64; operators of version {OPSET}."
        graph = helper.make_graph(nodes, name, [*self._inputs.values()], infos, constants, text)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(domain, versions[domain]) for domain in domains],
            ir_version=FORMAT,
            producer_name="bochner",
            producer_version=__version__,
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NoOperator(f"the function {name}, which it has no node for")

    # operations of the array API standard whose output shape depends on values are missing
    __array_namespace_info__ = lambda self: self
    capabilities = lambda _: {"boolean indexing": False, "data-dependent shapes": False}

    # --- making arrays ---------------------------------------------------------------------------

    def asarray(self, values: Any, dtype: Any = None, device: Any = None) -> Symbol:
        """Return values as a constant of the graph; symbolic arrays are unchanged."""
        if isinstance(values, Symbol):
            return values
        A = np.asarray(values, dtype)
        A = A.astype(_STORED.get(A.dtype.kind, A.dtype))
        return Symbol(self, self.constant(A), A.shape, A.dtype)

    def full(self, shape: Any, value: Any, dtype: Any = None, device: Any = None) -> Symbol:
        """Return an array filled with one number; the number of rows is symbolic."""
        shape = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        if not _is_free(shape):
            return self.asarray(np.full(shape, float(value)))
        return self.expand(self.asarray(float(value)), shape)

    def expand(self, a: Symbol, shape: tuple[int, ...]) -> Symbol:
        """Return ``a`` broadcast to a shape that contains the symbolic number of rows."""
        if max((s for s in shape if isinstance(s, Rows)), default=ANY) > ANY:
            raise NoOperator("broadcasting to several copies of the rows")
        first = next(iter(self._inputs))
        rows = self.node("Shape", first, start=0, end=1)  # all inputs have as many rows
        sizes = [rows if _is_free([s]) else self.constant([s]) for s in shape]
        target = self.node("Concat", *sizes, axis=0)
        return Symbol(self, self.node("Expand", a.name, target), shape, a.dtype)

    zeros, ones = partialmethod(full, value=0.0), partialmethod(full, value=1.0)
    full_like = lambda self, a, value: self.full(a.shape, value)
    zeros_like = lambda self, a: self.full(a.shape, 0.0)
    ones_like = lambda self, a: self.full(a.shape, 1.0)

    def astype(self, a: Symbol, dtype: Any, copy: Any = False) -> Symbol:
        """Return ``a`` converted to ``dtype``."""
        dtype = np.dtype(dtype)
        if a.dtype == dtype:
            return a
        return self._op("Cast", [a], a.shape, dtype, to=self.element(dtype))

    def isdtype(self, dtype: Any, kind: Any) -> Any:
        """Whether a type is of a kind of the array API standard."""
        kinds = kind if isinstance(kind, tuple) else (kind,)
        return {"f": "real floating", "i": "integral", "b": "bool"}[dtype.kind] in kinds

    # --- elementwise -----------------------------------------------------------------------------

    # absolute, power and bitwise_or are NumPy's names of operators
    exp, sqrt, absolute, sin, log = map(_elementwise, ("Exp", "Sqrt", "Abs", "Sin", "Log"))
    negative, sign, round, floor = map(_elementwise, ("Neg", "Sign", "Round", "Floor"))
    add, subtract, multiply, divide = map(_elementwise, ("Add", "Sub", "Mul", "Div"))
    maximum, minimum, power = map(_elementwise, ("Max", "Min", "Pow"))
    less, greater, equal = (_elementwise(op, BOOL) for op in ("Less", "Greater", "Equal"))
    isnan = _elementwise("IsNaN", BOOL)
    less_equal, greater_equal = (_elementwise(f"{op}OrEqual", BOOL) for op in ("Less", "Greater"))
    bitwise_or, bitwise_and = map(_elementwise, ("Or", "And"))
    remainder = _elementwise("Mod", fmod=1)  # exact, of a ≥ 0 and b > 0
    abs, pow = absolute, power

    square = lambda self, a: self.multiply(a, a)
    cos = lambda self, a: self.sin(self.add(a, math.pi / 2))
    asin = lambda self, a: self.atan2(a, self.sqrt(1.0 - a * a))
    isfinite = lambda *_: True  # rows are assumed finite

    def log1p(self, a: Symbol) -> Symbol:
        """Return log(1 + a) by Kahan's formula, which corrects the rounding of 1 + a."""
        total = a + 1.0
        error = total - 1.0
        is_zero = error == 0.0
        return self.where(is_zero, a, self.log(total) * a / self.where(is_zero, 1.0, error))

    def atan2(self, y: Symbol, x: Symbol) -> Symbol:
        """Return the angle of (x, y), x ≥ 0, by a float32 arctangent and a float64 Newton step."""
        rough = self.astype(y / x, np.float32)
        a = self.astype(self._op("Atan", [rough], rough.shape, rough.dtype), FLOAT)
        sin, cos = self.sin(a), self.cos(a)
        return a + (y * cos - x * sin) / (x * cos + y * sin)

    def clip(self, a: Symbol, min: Any = None, max: Any = None) -> Symbol:
        a = a if min is None else self.maximum(a, min)
        return a if max is None else self.minimum(a, max)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        if not isinstance(condition, Symbol):  # a condition on finite numbers
            return a if condition else b
        parts = [condition, *self._common_type(a, b)]
        return self._op("Where", parts, _broadcast(*(x.shape for x in parts)), parts[1].dtype)

    all = any = lambda _, test: _refuse_values() if isinstance(test, Symbol) else test

    # --- products and sums -----------------------------------------------------------------------

    def matmul(self, a: Any, b: Any) -> Symbol:
        a, b = self._common_type(a, b)
        flags = [int(matrix.name in self.transposes) for matrix in (a, b)]
        if any(flags) and a.ndim == b.ndim == 2:  # onnxruntime to 1.22 fails otherwise
            names = [self.transposes.get(matrix.name, matrix.name) for matrix in (a, b)]
            name = self.node("Gemm", *names, transA=flags[0], transB=flags[1])
        else:
            name = self.node("MatMul", a.name, b.name)
        if b.ndim == 1:
            return Symbol(self, name, a.shape[:-1], a.dtype)
        stack = _broadcast(a.shape[:-2], b.shape[:-2])
        return Symbol(self, name, (*stack, a.shape[-2], b.shape[-1]), a.dtype)

    sum, max, min = map(_reduction, ("ReduceSum", "ReduceMax", "ReduceMin"))

    def prod(self, a: Symbol, axis: int) -> Symbol:
        axis %= a.ndim
        parts = ((*[slice(None)] * axis, i) for i in range(a.shape[axis]))
        return reduce(self.multiply, (a[part] for part in parts))

    # if values of a row are equal, the index of the first
    argmax = lambda self, a, axis: self._op("ArgMax", [a], (ANY,), INTEGER, axis=axis, keepdims=0)
    argmin = lambda self, a, axis: self._op("ArgMin", [a], (ANY,), INTEGER, axis=axis, keepdims=0)

    def sort(self, a: Symbol, axis: int = -1) -> Symbol:
        """Return ``a`` (n, m) with each row in ascending order."""
        count = self.asarray(np.array([a.shape[1]], np.int64))
        return self._op("TopK", [a, count], a.shape, a.dtype, n_more=1, axis=1, largest=0)

    # --- shapes ----------------------------------------------------------------------------------

    def permute_dims(self, a: Symbol, axes: Sequence[int]) -> Symbol:
        shape = tuple(a.shape[i] for i in axes)
        return self._op("Transpose", [a], shape, a.dtype, perm=list(axes))

    def reshape(self, a: Symbol, shape: Sequence[int]) -> Symbol:
        """Return the same numbers in another shape; the number of rows stays symbolic."""
        shape = tuple(shape) if _is_free(a.shape) else tuple(int(s) for s in shape)
        if _is_free(a.shape) and not _is_free(shape):
            shape = tuple(ANY if s == -1 else s for s in shape)
        sizes = self.asarray(np.array([-1 if _is_free([s]) else s for s in shape], np.int64))
        return self._op("Reshape", [a, sizes], shape, a.dtype)

    def concat(self, arrays: Sequence[Any], axis: int = 0) -> Symbol:
        """Return arrays joined along ``axis``; those without a row axis are repeated per row."""
        parts = [self.asarray(a) for a in arrays]
        axis %= parts[0].ndim
        sizes = [part.shape[axis] for part in parts]
        shape = _broadcast(*((*p.shape[:axis], 1, *p.shape[axis + 1 :]) for p in parts))
        resize = lambda size: (*shape[:axis], size, *shape[axis + 1 :])
        if _is_free(sizes):
            raise NoOperator("concatenation by rows")
        if _is_free(shape):
            pairs = zip(parts, sizes, strict=True)
            parts = [p if _is_free(p.shape) else self.expand(p, resize(size)) for p, size in pairs]
        return self._op("Concat", parts, resize(sum(sizes)), parts[0].dtype, axis=axis)

    def stack(self, arrays: Sequence[Symbol], axis: int = 0) -> Symbol:
        axis %= arrays[0].ndim + 1
        return self.concat([a[(*[slice(None)] * axis, None)] for a in arrays], axis)

    def searchsorted(self, a: Any, values: Any) -> Symbol:
        """Return how many of the numbers of ``a`` are below each value."""
        is_below = self.asarray(a) < self.asarray(values)[..., None]
        return self.sum(self.astype(is_below, INTEGER), axis=-1)

    def take(self, a: Any, places: Any, axis: int = 0) -> Symbol:
        a, places = self.asarray(a), self.asarray(places)
        if _is_free([a.shape[axis]]):
            raise NoOperator("to choose rows by their number")
        shape = (*a.shape[:axis], *places.shape, *a.shape[axis + 1 :])
        return self._op("Gather", [a, places], shape, a.dtype, axis=axis)

    def _op(
        self, op: str, inputs: Sequence[Symbol], shape: Any, dtype: np.dtype, **attributes: Any
    ) -> Symbol:
        name = self.node(op, *(a.name for a in inputs), **attributes)
        return Symbol(self, name, shape, dtype)

    def _common_type(self, *values: Any) -> list[Symbol]:
        """Return the values as arrays of one type."""
        arrays = list(map(self.asarray, values))
        is_common = len({a.dtype for a in arrays}) == 1
        return arrays if is_common else [self.astype(a, FLOAT) for a in arrays]
