"""An ONNX graph while it is written: nodes, and constants that are kept once."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from bochner import __version__
from bochner.errors import MissingDependency

#: The version of ONNX's operators that graphs are written in, and of the file format that goes
#: with it: read by onnxruntime from 1.14 on.
OPSET, FORMAT = 18, 8


class Unwritable(Exception):
    """What ONNX has no node for; its text completes ``the graph would need …``."""


def onnx() -> ModuleType:
    """Return the package onnx, or say how to install it."""
    try:
        import onnx as found  # noqa: PLC0415  optional
        import onnx.numpy_helper  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependency(
            "to_onnx needs the package onnx; it is not installed. Install it: "
            'pip install "bochner[onnx]"'
        ) from error
    return found


class Graph:
    """Nodes in the order in which they are computed, and the constants that they read."""

    def __init__(self) -> None:
        self._onnx = onnx()
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], Any] = {}

    def node(self, op: str, *inputs: str, also: int = 0, **attributes: Any) -> str:
        """Add a node and return the name of what it gives, the first if it gives more."""
        name = f"{op.lower()}_{len(self._nodes)}"
        given = [name, *(f"{name}_{i}" for i in range(1, 1 + also))]
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), given, **attributes))
        return name

    def named(self, name: str, source: str) -> None:
        """Give a value the name of an output."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [source], [name]))

    def constant(self, values: Any) -> str:
        """Return the name of a constant; equal ones are one."""
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
        self,
        name: str,
        text: str,
        inputs: Mapping[str, tuple[np.dtype, Sequence[Any]]],
        outputs: Mapping[str, tuple[np.dtype, Sequence[Any]]],
    ) -> Any:
        """Return the checked model of this graph; ``"rows"`` in a shape is any number."""
        helper = self._onnx.helper
        nodes = self._needed(set(outputs))
        read = {name for node in nodes for name in node.input}
        constants = [c for c in self._constants.values() if c.name in read]
        sides = [
            [helper.make_tensor_value_info(n, self.element(t), shape) for n, (t, shape) in side]
            for side in (inputs.items(), outputs.items())
        ]
        graph = helper.make_graph(nodes, name, *sides, constants, text)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=FORMAT,
            producer_name="bochner",
            producer_version=__version__,
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _needed(self, wanted: set[str]) -> list[Any]:
        """Return the nodes that these values are computed from."""
        kept = []
        for node in reversed(self._nodes):
            if wanted & {*node.output}:
                kept.append(node)
                wanted = wanted | {*node.input}
        return kept[::-1]
