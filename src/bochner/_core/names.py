"""Words of other libraries and slips of spelling: what a refused name is called here."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, Self, cast

from bochner.errors import InvalidInput, InvalidType

#: Arguments of other libraries, or of other parts of this one, and what to give here: the first
#: of these that the refusing class has.
ARGUMENTS: dict[str, dict[str, str]] = {
    "gamma": {
        "lengthscale": "lengthscale=1/sqrt(2 gamma), as gamma = 1/(2 lengthscale²)",
        "kernel": "kernel=Gaussian(lengthscale=1/sqrt(2 gamma)), as gamma = 1/(2 lengthscale²)",
    },
    "length_scale": {
        "lengthscale": "lengthscale, with the same meaning",
        "kernel": "kernel=Gaussian(lengthscale=...), with the same meaning",
    },
    "bandwidth": {
        "lengthscale": "lengthscale, with the same meaning",
        "kernel": "kernel=Gaussian(lengthscale=...), with the same meaning",
    },
    "sigma": {
        "lengthscale": "lengthscale, with the same meaning",
        "kernel": "kernel=Gaussian(lengthscale=sigma), with the same meaning",
    },
    "nu": {
        "smoothness": "smoothness, with the same meaning",
        "kernel": "kernel=Matern(smoothness=nu, lengthscale=...) for a Matérn kernel",
    },
    "periodicity": {"period": "period, with the same meaning"},
    "coef0": {
        "offset": "offset, with the same meaning",
        "kernel": "kernel=Polynomial(degree, offset=coef0)",
    },
    "constant_value": {"value": "value, with the same meaning"},
    "degree": {"kernel": "kernel=Polynomial(degree=...)"},
    "lambda_": {"alpha": "alpha, which minimises Σ w (y − f)² + alpha ‖f‖²"},
    "lam": {"alpha": "alpha, which minimises Σ w (y − f)² + alpha ‖f‖²"},
    "penalty": {"alpha": "alpha, which minimises Σ w (y − f)² + alpha ‖f‖²"},
    "nugget": {"noise": "noise, the variance of the nugget"},
    "sill": {"amplitude": "amplitude, the variance of the process without the nugget"},
    "n_restarts_optimizer": {"lengthscale": "lengthscale, 'evidence' or 'loo': how it is chosen"},
    "optimizer": {"lengthscale": "lengthscale, 'evidence' or 'loo': how it is chosen"},
    "n_components": {"n_features": "n_features, the number of features"},
    "n_rffs": {"n_features": "n_features, the number of features"},
    "n_inducing": {"n_features": "n_features, with method='nystrom'"},
    "decision_function_shape": {"multi_class": "multi_class, 'ovr' or 'ovo'"},
    "seed": {"random_state": "random_state, with the same meaning"},
}

#: The same where a class has a meaning of its own, by the class.
OWN_ARGUMENTS: dict[tuple[str, str], str] = {
    ("Laplace", "gamma"): "lengthscale=1/gamma, as gamma = 1/lengthscale",
    ("Exponential", "gamma"): "lengthscale=1/gamma, as gamma = 1/lengthscale",
    ("ExponentialPower", "gamma"): "power for γ of exp(-r^γ), and lengthscale",
    ("Cauchy", "gamma"): "lengthscale=1/sqrt(gamma), as gamma = 1/lengthscale²",
    ("Polynomial", "gamma"): "scale, with the same meaning",
    ("DotExponential", "gamma"): "scale, with the same meaning",
    **{
        (kernel, "gamma"): "lengthscale; gamma = 1/(2 lengthscale²) is that of Gaussian"
        for kernel in ("Matern", "Periodic", "RationalQuadratic", "OnSphere")
    },
    **{
        (kernel, "nu"): "Matern(smoothness=nu, lengthscale=...) in its place"
        for kernel in ("Gaussian", "Exponential", "ExponentialPower", "RationalQuadratic")
    },
}

#: Kernels, methods and estimators of other libraries, and what they are called here.
OTHERS: dict[str, str] = {
    "RBF": "kernels.Gaussian(lengthscale), gamma = 1/(2 lengthscale²)",
    "RBFKernel": "kernels.Gaussian(lengthscale), gamma = 1/(2 lengthscale²)",
    "SquaredExponential": "kernels.Gaussian(lengthscale)",
    "ExpQuad": "kernels.Gaussian(lengthscale)",
    "MaternKernel": "kernels.Matern(smoothness, lengthscale)",
    "Matern12": "kernels.Matern(0.5, lengthscale)",
    "Matern32": "kernels.Matern(1.5, lengthscale)",
    "Matern52": "kernels.Matern(2.5, lengthscale)",
    "WhiteKernel": "the argument noise of GaussianProcessRegressor, alpha of KernelRidge",
    "ConstantKernel": "kernels.Constant(value), or a number times a kernel",
    "ScaleKernel": "a number times a kernel, such as 2.0 * kernels.Gaussian()",
    "ExpSineSquared": "kernels.Periodic(period, lengthscale)",
    "PeriodicKernel": "kernels.Periodic(period, lengthscale)",
    "ArcSine": "kernels.NNGP(depth)",
    "RandomFourierFeatures": "the method Fourier(), as in KernelFeatures(kernel, method=Fourier())",
    "RandomFourier": "the method Fourier(), as in KernelFeatures(kernel, method=Fourier())",
    "RFF": "the method Fourier(), as in KernelFeatures(kernel, method=Fourier())",
    "RBFSampler": "KernelFeatures('gaussian', method='iid')",
    "Nystroem": "KernelFeatures(kernel, method=Nystrom('uniform'))",
    "PolynomialCountSketch": "KernelFeatures(kernels.Polynomial(degree), method=TensorSketch())",
    "AdditiveChi2Sampler": "KernelFeatures(kernels.AdditiveChi2())",
    "SkewedChi2Sampler": "KernelFeatures(kernels.SkewedChi2())",
    "SVM": "SVC for classes, SVR for numbers",
    "LinearSVC": "SVC('linear')",
    "KRR": "KernelRidge",
    "GP": "GaussianProcessRegressor",
    "GaussianProcess": "GaussianProcessRegressor",
    "ExactGP": "GaussianProcessRegressor(method=ExactKernel())",
    "GaussianProcessClassifier": "LogisticRegression, or SVC(probability=True)",
}

#: Names of kernels and methods as strings, and the names they stand for here.
WORDS: dict[str, str] = {
    "rbf": "gaussian",
    "squared_exponential": "gaussian",
    "matern": "matern32",
    "laplacian": "laplace",
    "rff": "fourier",
    "random_fourier": "fourier",
    "nystroem": "nystrom",
    "rq": "rational_quadratic",
}

#: Kernels that other libraries know by a word, and here are values only.
VALUES: dict[str, str] = {
    "poly": "Polynomial(degree, offset, scale)",
    "polynomial": "Polynomial(degree, offset, scale)",
    "cosine": "Normalised(Linear())",
    "sigmoid": "NNGP(depth), for tanh(⟨x, y⟩) is no positive semi-definite kernel",
    "additive_chi2": "AdditiveChi2()",
    "chi2": "Normalised(Exp(2 * gamma * AdditiveChi2()))",
    "periodic": "Periodic(period, lengthscale)",
    "precomputed": "Custom(function), whose function gives the matrix of two tables of rows",
}


def meant(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" for the known name nearest in spelling, or nothing."""
    choices = {k.lower(): k for k in known}
    word = WORDS.get(name.lower(), name.lower())
    near = get_close_matches(word, choices, n=1, cutoff=0.7)
    return f"; did you mean {choices[near[0]]!r}?" if near else ""


def meant_kernel(name: str, known: Iterable[str]) -> str:
    """Return the same of a kernel, or "; give ..." where it is a value here."""
    value = VALUES.get(name.lower())
    return meant(name, known) if value is None else f"; give kernels.{value}."


def missing(
    module: str,
    name: str,
    known: Iterable[str],
    elsewhere: Mapping[str, Iterable[str]] | None = None,
) -> str:
    """Return the sentence for a name that a module does not have, but one ``elsewhere`` may."""
    for home, names in (elsewhere or {}).items():
        if name in names:
            return f"module {module!r} has no {name!r}: here it is {home}.{name}."
    if name in OTHERS:
        return f"module {module!r} has no {name!r}: here it is {OTHERS[name]}."
    return f"module {module!r} has no attribute {name!r}{meant(name, known)}"


def handed_out(
    package: str, name: str, homes: Mapping[str, str], listed: Iterable[str] = ()
) -> Any:
    """Return what a package hands out from one of its modules, which is loaded now.

    ``homes`` has the names of each module in one text; ``listed`` are those that are there.
    """
    for module, names in homes.items():
        if name in names.split():
            return getattr(import_module(f"{package}.{module}"), name)
    known = [*listed, *" ".join(homes.values()).split()]
    raise AttributeError(missing(package, name, known))


@cache
def _arguments(cls: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the arguments that a class takes by name; None where it takes any."""
    named = list(signature(cls).parameters.values())
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in named)
    return None if takes_any else tuple(p.name for p in named)


class NamedArguments:
    """A class that refuses an argument it does not have with the one that was meant."""

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Refuse unknown names before ``__init__`` sees them."""
        own = cls.__init__ is not object.__init__
        known = _arguments(cast("Callable[..., Any]", cls)) if own else ()
        for name in given:
            if known is not None and name not in known:
                raise InvalidType(_unknown(cls.__name__, name, known))
        return object.__new__(cls)


def instead(who: str, name: str, known: tuple[str, ...]) -> str | None:
    """Return what to give in the place of another library's argument; None if it has none."""
    near = get_close_matches(name, (*known, *ARGUMENTS), n=1, cutoff=0.7)
    meanings = ARGUMENTS.get(near[0], {}) if near else {}
    here = next((meanings[k] for k in known if k in meanings), None)
    return OWN_ARGUMENTS.get((who, near[0]), here) if near else here


def _unknown(who: str, name: str, known: tuple[str, ...]) -> str:
    here = instead(who, name, known)
    if here is not None:
        return f"{who} has no argument {name!r}: give {here}."
    takes = ", ".join(known) or "none"
    return f"{who} has no argument {name!r}{meant(name, known) or '.'} It takes: {takes}."


def require_arguments(cls: Callable[..., Any], given: Iterable[str]) -> None:
    """Refuse names that are no arguments of a class, those of its parameters that are set later."""
    known = _arguments(cls)
    for name in given:
        if known is not None and name not in known:
            raise InvalidInput(_unknown(cls.__name__, name, known))
