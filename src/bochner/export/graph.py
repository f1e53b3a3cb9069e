"""An ONNX graph while it is written: nodes, and constants that are kept once."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from bochner import __version__
from bochner._core.optional import needed
from bochner.data.schema import listed
from bochner.errors import InvalidInput

#: The version of ONNX's operators that graphs are written in, and of the file format that goes
#: with it: read by onnxruntime from 1.17 on.
OPSET, FORMAT = 18, 8

#: Version and domain of ONNX operators for learners, needed for text.
LEARNERS, DOMAIN = 3, "ai.onnx.ml"

#: Texts, as the type of an input.
TEXT = np.dtype(object)


class Unwritable(Exception):
    """Raised for formulas without an ONNX node; its text completes ``the graph would need …``."""


class Graph:
    """Nodes in the order in which they are computed, and the constants that they read."""

    def __init__(self) -> None:
        needed("onnx.numpy_helper", "to_onnx", "'bochner[onnx]'")
        self._onnx: Any = import_module("onnx")
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], Any] = {}
        self._inputs: dict[str, Any] = {}
        self.turned: dict[str, str] = {}  # transposes of matrices, and these

    @property
    def first(self) -> str:
        """The name of the first input, which has as many rows as every other."""
        return next(iter(self._inputs))

    def input(self, name: str, dtype: np.dtype, columns: int, text: str) -> str:
        """Add an input of ``columns`` columns and any number of rows; return its name."""
        self._inputs[name] = self._onnx.helper.make_tensor_value_info(
            name, self.element(dtype), ["rows", columns], text
        )
        return name

    def node(self, op: str, *inputs: str, also: int = 0, **attributes: Any) -> str:
        """Add a node and return the name of what it gives, the first if it gives more."""
        name = f"{op.lower()}_{len(self._nodes)}"
        given = [name, *(f"{name}_{i}" for i in range(1, 1 + also))]
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), given, **attributes))
        if op == "Transpose" and attributes["perm"] == [1, 0]:
            self.turned[name] = inputs[0]
        return name

    def named(self, name: str, source: str) -> None:
        """Give a value the name of an output."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [source], [name]))

    def constant(self, values: Any) -> str:
        """Return the name of a constant; equal constants share one name."""
        A = np.array(values, order="C")
        key = (A.dtype.str, A.shape, A.tobytes() if A.dtype.kind != "O" else tuple(A.tolist()))
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self._onnx.numpy_helper.from_array(A, name)
        return self._constants[key].name

    def element(self, dtype: np.dtype) -> int:
        """Return ONNX's number for a type of NumPy."""
        return self._onnx.helper.np_dtype_to_tensor_dtype(dtype)

    def model(
        self, name: str, text: str, outputs: Mapping[str, tuple[np.dtype, Sequence[Any]]]
    ) -> Any:
        """Return the checked model of this graph; ``"rows"`` in a shape is any number."""
        helper = self._onnx.helper
        nodes: list[Any] = []  # those that the outputs are computed from
        wanted = set(outputs)
        for node in reversed(self._nodes):
            if wanted & {*node.output}:
                nodes.insert(0, node)
                wanted |= {*node.input}
        read = {name for node in nodes for name in node.input}
        constants = [c for c in self._constants.values() if c.name in read]
        computed = {*outputs, *(n for node in nodes for n in node.output)}
        taken = {*self._inputs} & {*computed, *(c.name for c in self._constants.values())}
        if taken:
            raise InvalidInput(
                "to_onnx: columns must have other names than what the graph gives and computes; "
                f"got {listed(sorted(taken))}. Rename the column before the fit."
            )
        versions = {"": OPSET, DOMAIN: LEARNERS}
        used = sorted({"", *(node.domain for node in nodes)})
        given = [
            helper.make_tensor_value_info(n, self.element(t), shape)
            for n, (t, shape) in outputs.items()
        ]
        graph = helper.make_graph(nodes, name, [*self._inputs.values()], given, constants, text)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(one, versions[one]) for one in used],
            ir_version=FORMAT,
            producer_name="bochner",
            producer_version=__version__,
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model
