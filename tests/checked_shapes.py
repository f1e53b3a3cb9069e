"""Check array shapes of signatures at every call, by jaxtyping's import hook and beartype.

Only annotations of arrays are checked; mypy checks other types. Tests run with these checks if the
environment variable ``BOCHNER_CHECK_SHAPES`` is set. As a program, the module calls public
functions on small data and prints JSON: the number of checked signatures, and the calls whose
arrays had other shapes than the signature states.
"""

import json
import os
import sys
import types
import typing
import warnings

import beartype
from jaxtyping import AbstractArray, TypeCheckError, install_import_hook

checked = set()


def check(function):
    """Return the function with its arrays checked by beartype; called by jaxtyping's hook."""
    hints = function.__annotations__
    function.__annotations__ = {name: h for name, h in hints.items() if is_array(h)}
    if function.__annotations__:
        checked.add((function.__module__, function.__qualname__))
    result = beartype.beartype(function)
    result.__annotations__ = function.__annotations__ = hints
    return result


def is_array(hint):
    """Return whether an annotation is an array with a shape, or a union that contains one."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(is_array, typing.get_args(hint)))
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def install():
    """Check shapes in all modules of the package that are imported from now on."""
    os.environ["BOCHNER_CHECK_SHAPES"] = "1"
    install_import_hook("bochner", "checked_shapes.check")


def calls():
    """Yield the name and the function of each public call."""
    import forging  # noqa: PLC0415
    import gallery  # noqa: PLC0415
    import maps  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    import bochner as bo  # noqa: PLC0415
    from bochner._core import blas  # noqa: PLC0415

    X, y = forging.X, forging.Y
    kernels = {repr(k): k for k, _ in (*gallery.BASES, *gallery.MERCER, *gallery.SKETCHED)}
    for name, kernel in kernels.items():
        yield name, lambda kernel=kernel: (kernel(X), kernel(X, X[:5]), kernel.diag(X))
    yield "maps", lambda: [forging.use(maps.new_map(case)) for case in maps.CASES]
    yield "learners", lambda: [forging.use(model) for model in forging.fitted()]
    for method in ("exact", "auto"):
        yield method, lambda m=method: forging.use(bo.KernelRidge(method=m).fit(X, y))
    targets = np.column_stack([y, -y])
    yield "certificate", lambda: bo.KernelRidge(n_features=8).fit(X, targets).certificate_
    yield "planted", lambda: blas.product(np.ones((3, 4)), np.ones((5, 2)))


def main():
    warnings.simplefilter("ignore")
    install()
    wrong = {}
    for name, call in calls():
        try:
            call()
        except TypeCheckError as error:
            wrong[name] = str(error)[:600]
    sys.stdout.write(json.dumps({"checked": len(checked), "wrong": wrong}))


if __name__ == "__main__":
    sys.modules["checked_shapes"] = sys.modules["__main__"]
    main()
