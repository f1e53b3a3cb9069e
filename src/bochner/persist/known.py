"""The classes that model files hold: frozen dataclasses, enumerations and estimators of bochner.

A class is named by its module and its own name, as in ``models.ridge.fit:RidgeFit``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from inspect import isabstract
from pkgutil import walk_packages
from types import MappingProxyType
from typing import Any

import bochner
from bochner.kernels.kernel import Kernel
from bochner.models._base import KernelEstimator

#: Modules whose classes are stored, with all modules inside these packages.
_MODULES = re.compile(
    r"(certificates|data\.(columns|encoders|sample|schema)|features|kernels|landmarks|models|selection"
    r"|solvers|sums)(\.[a-z0-9_]+)*"
)

#: Names in older files of classes that were moved or renamed, and their names now.
_WAVES = "features.fourier.fourier:FourierMap"
RENAMED: dict[str, str] = {
    "features.fourier.fourier:FourierPhaseMap": _WAVES,
    "features.fourier.leverage:LeverageFourier": "features.fourier.fourier:LeverageFourier",
    "features.fourier.leverage:LeverageFourierMap": _WAVES,
    "features.fourier.maps:FourierMap": _WAVES,
    "features.mercer.products:SineMap": "features.mercer.products:EigenfunctionMap",
    "features.mercer.radial:MonomialFunctions": "features.mercer.radial:IndexedFunctions",
    "features.mercer.radial:UserFunctions": "features.mercer.radial:IndexedFunctions",
    "features.sketch.tensorsketch:TensorSketch": "features.sketch.polysketch:TensorSketch",
    "models.gaussian_process.posterior:LeftOut": "models.gaussian_process.features:LeftOut",
    "models.gaussian_process.posterior:Posterior": "models.gaussian_process.features:Posterior",
    "models.gaussian_process.posterior:Predictive": "models.gaussian_process.features:Predictive",
}


#: Kernel classes from outside of bochner that are loaded, by name.
_OWN: ContextVar[Mapping[str, type]] = ContextVar("own kernels", default=MappingProxyType({}))


@contextmanager
def own_kernels(classes: Iterable[type]) -> Iterator[None]:
    """Let files hold these kernel classes from outside of bochner."""
    token = _OWN.set({f"{cls.__module__}:{cls.__qualname__}": cls for cls in classes})
    try:
        yield
    finally:
        _OWN.reset(token)


def is_estimator(cls: type) -> bool:
    """Return whether the class is an estimator, stored as parameters and fitted state."""
    return cls.__name__ in bochner.__all__ and issubclass(cls, KernelEstimator)


def name_of(cls: type) -> str | None:
    """Return the name of a class in files; None if files do not hold it."""
    package, _, module = cls.__module__.partition(".")
    frozen = is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    stored = (frozen or issubclass(cls, Enum) or is_estimator(cls)) and not isabstract(cls)
    if package != "bochner" and stored and issubclass(cls, Kernel):
        return f"{cls.__module__}:{cls.__qualname__}"
    known = package == "bochner" and _MODULES.fullmatch(module) and stored
    return f"{module}:{cls.__qualname__}" if known else None


def class_of(name: str) -> Any:
    """Return the class of this name; refuse a name that :func:`name_of` does not give."""
    if name in _OWN.get():
        return _OWN.get()[name]
    module, _, class_name = RENAMED.get(name, name).partition(":")
    if not _MODULES.fullmatch(module):
        raise TypeError(
            f"{name} is no class of model files; a kernel of your own is loaded by kernels=(...,)"
        )
    cls = getattr(import_module(f"bochner.{module}"), class_name)
    if not isinstance(cls, type) or name_of(cls) != f"{module}:{class_name}":
        raise TypeError(f"{name} is no class of model files")
    return cls


def stored_classes() -> Iterator[type]:
    """Give every class that files may hold, module by module."""
    for module in walk_packages(bochner.__path__, "bochner."):
        if _MODULES.fullmatch(module.name.removeprefix("bochner.")):
            for cls in vars(import_module(module.name)).values():
                if isinstance(cls, type) and cls.__module__ == module.name and name_of(cls):
                    yield cls
