"""Suggestions for refused names: names of other libraries and misspellings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from typing import Any, Self

from bochner.errors import BochnerError, InvalidInput, InvalidType

_GIVEN = "with the same meaning"
_LENGTHSCALE = {
    "lengthscale": f"lengthscale, {_GIVEN}",
    "kernel": f"kernel=Gaussian(lengthscale=...), {_GIVEN}",
}
_ALPHA = {"alpha": "alpha, which minimises Σ w (y − f)² + alpha ‖f‖²"}
_CRITERION = {"lengthscale": "lengthscale, 'evidence' or 'loo': how it is chosen"}
_WIDTH = {"n_features": "n_features, the number of features"}

#: Arguments of other libraries, or of other parts of this one, and what to give here: by the name
#: of the refusing class, or else by the first of these arguments that it has.
ARGUMENTS: dict[str, dict[str, str]] = {
    "gamma": {
        **dict.fromkeys(
            ("Laplace", "Exponential"), "lengthscale=1/gamma, as gamma = 1/lengthscale"
        ),
        "ExponentialPower": "power for γ of exp(-r^γ), and lengthscale",
        "Cauchy": "lengthscale=1/sqrt(gamma), as gamma = 1/lengthscale²",
        **dict.fromkeys(("Polynomial", "DotExponential"), f"scale, {_GIVEN}"),
        **dict.fromkeys(
            ("Matern", "Periodic", "RationalQuadratic", "OnSphere"),
            "lengthscale; gamma = 1/(2 lengthscale²) is that of Gaussian",
        ),
        "lengthscale": "lengthscale=1/sqrt(2 gamma), as gamma = 1/(2 lengthscale²)",
        "kernel": "kernel=Gaussian(lengthscale=1/sqrt(2 gamma)), as gamma = 1/(2 lengthscale²)",
    },
    **dict.fromkeys(("length_scale", "bandwidth", "ls", "sigma"), _LENGTHSCALE),
    "scale": {"lengthscale": _LENGTHSCALE["lengthscale"]},
    "nu": {
        **dict.fromkeys(
            ("Gaussian", "Exponential", "ExponentialPower", "RationalQuadratic"),
            "Matern(smoothness=nu, lengthscale=...) in its place",
        ),
        "smoothness": f"smoothness, {_GIVEN}",
        "kernel": "kernel=Matern(smoothness=nu, lengthscale=...) for a Matérn kernel",
    },
    "periodicity": {"period": f"period, {_GIVEN}"},
    "coef0": {"offset": f"offset, {_GIVEN}", "kernel": "kernel=Polynomial(degree, offset=coef0)"},
    "constant_value": {"value": f"value, {_GIVEN}"},
    "degree": {"kernel": "kernel=Polynomial(degree=...)"},
    **dict.fromkeys(("lambda_", "lam", "reg_lambda", "ridge", "penalty"), _ALPHA),
    "nugget": {"noise": "noise, the variance of the nugget"},
    "noise_level": {"noise": f"noise, {_GIVEN}"},
    "outputscale": {"amplitude": f"amplitude, {_GIVEN}"},
    "sill": {"amplitude": "amplitude, the variance of the process without the nugget"},
    **dict.fromkeys(("n_restarts_optimizer", "optimizer"), _CRITERION),
    **dict.fromkeys(("n_components", "n_rffs"), _WIDTH),
    "n_inducing": {"n_features": "n_features, with method='nystrom'"},
    "decision_function_shape": {"multi_class": "multi_class, 'ovr' or 'ovo'"},
    "seed": {"random_state": f"random_state, {_GIVEN}"},
}

_FOURIER = "the method Fourier(), as in KernelFeatures(kernel, method=Fourier())"

#: Kernels, methods and estimators of other libraries, with their names in bochner.
OTHERS: dict[str, str] = {
    **dict.fromkeys(
        ("RBF", "RBFKernel"), "kernels.Gaussian(lengthscale), gamma = 1/(2 lengthscale²)"
    ),
    **dict.fromkeys(("SquaredExponential", "ExpQuad"), "kernels.Gaussian(lengthscale)"),
    "MaternKernel": "kernels.Matern(smoothness, lengthscale)",
    "Matern12": "kernels.Matern(0.5, lengthscale)",
    "Matern32": "kernels.Matern(1.5, lengthscale)",
    "Matern52": "kernels.Matern(2.5, lengthscale)",
    "WhiteKernel": "the argument noise of GaussianProcessRegressor, alpha of KernelRidge",
    "ConstantKernel": "kernels.Constant(value), or a number times a kernel",
    "ScaleKernel": "a number times a kernel, such as 2.0 * kernels.Gaussian()",
    **dict.fromkeys(("ExpSineSquared", "PeriodicKernel"), "kernels.Periodic(period, lengthscale)"),
    "ArcSine": "kernels.NNGP(depth)",
    "Cosine": "kernels.Normalised(kernels.Linear())",
    "NTK": "kernels.NeuralTangent(depth)",
    **dict.fromkeys(("RandomFourierFeatures", "RandomFourier", "RFF"), _FOURIER),
    "RBFSampler": "KernelFeatures('gaussian', method='iid')",
    "Nystroem": "KernelFeatures(kernel, method=Nystrom('uniform'))",
    "PolynomialCountSketch": "KernelFeatures(kernels.Polynomial(degree), method=TensorSketch())",
    "AdditiveChi2Sampler": "KernelFeatures(kernels.AdditiveChi2())",
    "SkewedChi2Sampler": "KernelFeatures(kernels.SkewedChi2())",
    "SVM": "SVC for classes, SVR for numbers",
    "LinearSVC": "SVC('linear')",
    **dict.fromkeys(("KRR", "KernelRidgeRegression", "KernelRidgeRegressor"), "KernelRidge"),
    "Falkon": "KernelRidge(method='nystrom')",
    "SVMClassifier": "SVC",
    "PCA": "KernelPCA",
    "KMeans": "KernelKMeans for clusters, landmarks.KMeans for landmarks",
    **dict.fromkeys(("GPR", "Kriging", "GP", "GaussianProcess"), "GaussianProcessRegressor"),
    "ExactGP": "GaussianProcessRegressor(method=ExactKernel())",
    "report": "report_model(model, X, y)",
    "GaussianProcessClassifier": "LogisticRegression, or SVC(probability=True)",
}

#: Names of kernels, methods and losses as strings, with their names in bochner.
WORDS: dict[str, str] = {
    **dict.fromkeys(("rbf", "se", "squared_exponential"), "gaussian"),
    "matern": "matern32",
    "laplacian": "laplace",
    **dict.fromkeys(("rff", "random_fourier", "random_fourier_features"), "fourier"),
    **dict.fromkeys(("orf", "orthogonal_random_features"), "orthogonal"),
    "sobol": "qmc",
    "nystroem": "nystrom",
    "rq": "rational_quadratic",
    "mse": "squared",
    "mae": "absolute",
}

#: Methods and kernels that others know by a word, and here are values only.
VALUES: dict[str, str] = {
    "fastfood": "Fourier(Fastfood())",
    "gegenbauer": "Gegenbauer()",
    "maclaurin": "Maclaurin()",
    **dict.fromkeys(("poly_sketch", "polysketch"), "PolySketch()"),
    **dict.fromkeys(("positive", "favor+"), "Positive()"),
    **dict.fromkeys(("tensor_sketch", "tensorsketch"), "TensorSketch()"),
    "kmeans": "Nystrom('kmeans')",
    "rpcholesky": "Nystrom('rpcholesky')",
    **dict.fromkeys(("poly", "polynomial"), "kernels.Polynomial(degree, offset, scale)"),
    "cosine": "kernels.Normalised(Linear())",
    "sigmoid": "kernels.NNGP(depth), for tanh(⟨x, y⟩) is no positive semi-definite kernel",
    "additive_chi2": "kernels.AdditiveChi2()",
    "chi2": "kernels.Normalised(Exp(2 * gamma * AdditiveChi2()))",
    "periodic": "kernels.Periodic(period, lengthscale)",
    "ntk": "kernels.NeuralTangent(depth)",
    "nngp": "kernels.NNGP(depth)",
    "precomputed": "kernels.Custom(function), whose function gives the matrix of two tables",
    # of methods that are given as kernels
    **{
        word: f"it as method={word!r}, which makes features of a kernel"
        for word in ("fourier", "orthogonal", "qmc", "structured", "mercer", "hermite", "nystrom")
    },
}


def _nearest(name: str, choices: Mapping[str, str]) -> str:
    """Return "; did you mean ...?" for the choice whose word is nearest in spelling, or nothing."""
    near = get_close_matches(_plain(name), choices, n=1, cutoff=0.7)
    return f"; did you mean {choices[near[0]]!r}?" if near else ""


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")


def meant(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the nearest known name, or an empty string."""
    if not isinstance(name, str):
        return ""
    choices = {_plain(k): k for k in known}
    words = {word: choices[here] for word, here in WORDS.items() if here in choices}
    return _nearest(name, words | choices)


def meant_value(name: str, known: Iterable[str]) -> str:
    """Return the same of a kernel or method, or "; give ..." where it is a value here."""
    word = WORDS.get(_plain(name), _plain(name))
    if word in VALUES and word not in known:
        return f"; give {VALUES[word]}."
    return meant(name, known) + (f" As a value it is {OTHERS[name]}." if name in OTHERS else "")


def missing(
    module: str,
    name: str,
    known: Iterable[str],
    elsewhere: Mapping[str, Iterable[str]] | None = None,
) -> str:
    """Return the sentence for a name that a module does not have, but one ``elsewhere`` may."""
    there = {n: f"{home}.{n}" for home, names in (elsewhere or {}).items() for n in names}
    if here := OTHERS.get(name) or there.get(name):
        return f"module {module!r} has no {name!r}: here it is {here}."
    choices = {n.lower(): where for n, where in there.items()} | {n.lower(): n for n in known}
    return f"module {module!r} has no attribute {name!r}{_nearest(name, choices)}"


@cache
def _arguments(cls: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the arguments that a class takes by name; None where it takes any."""
    if cls.__init__ is object.__init__:
        return ()
    named = list(signature(cls).parameters.values())
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in named)
    return None if takes_any else tuple(p.name for p in named)


@cache
def checks_of(cls: Callable[..., Any]) -> dict[str, Callable[[Any, str, str], Any]]:
    """Return the checks in the annotations of a dataclass's fields, ``Annotated[type, check]``."""
    named = fields(cls) if is_dataclass(cls) else ()
    notes = {f.name: getattr(f.type, "__metadata__", ()) for f in named}
    return {name: checks[0] for name, checks in notes.items() if checks and callable(checks[0])}


class NamedArguments:
    """A class whose error for an unknown argument names the right one."""

    def __new__(cls, *_: Any, **given: Any) -> Self:
        require_arguments(cls, given, InvalidType)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, check in checks_of(kind).items():
            object.__setattr__(self, name, check(getattr(self, name), kind.__name__, name))


def instead(who: str, name: str, known: tuple[str, ...]) -> str | None:
    """Return the argument that replaces another library's; None if there is none."""
    near = get_close_matches(name, (*known, *ARGUMENTS), n=1, cutoff=0.7)
    meanings = ARGUMENTS.get(near[0], {}) if near else {}
    return next((meanings[k] for k in (who, *known) if k in meanings), None)


def require_arguments(
    cls: Any, given: Iterable[str], kind: type[BochnerError] = InvalidInput
) -> None:
    """Refuse names that are not arguments of a class."""
    who, known = cls.__name__, _arguments(cls)
    for name in given:
        if known is None or name in known:
            continue
        if (here := instead(who, name, known)) is not None:
            raise kind(f"{who} has no argument {name!r}: give {here}.")
        takes = f"{meant(name, known) or '.'} It takes: {', '.join(known) or 'none'}."
        raise kind(f"{who} has no argument {name!r}{takes}")
