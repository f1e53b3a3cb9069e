"""Suggestions for refused names: names that other libraries use, and misspellings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from typing import Any, Self

from bochner.errors import BochnerError, InvalidInput, InvalidType

_SAME = "with the same meaning"
_LENGTHSCALE = {
    "lengthscale": f"lengthscale, {_SAME}",
    "kernel": f"kernel=Gaussian(lengthscale=...), {_SAME}",
}
_ALPHA = {"alpha": "alpha, which minimises Σ w (y − f)² + alpha ‖f‖²"}
_CRITERION = {"lengthscale": "lengthscale, 'evidence' or 'loo': how it is chosen"}
_WIDTH = {"n_features": "n_features, the number of features"}

#: Replacements of arguments of other libraries or other classes: by the name of the class that was
#: called, or else by the first of these arguments that the class has.
ARGUMENTS: dict[str, dict[str, str]] = {
    "gamma": {
        **dict.fromkeys(
            ("Laplace", "Exponential"), "lengthscale=1/gamma, as gamma = 1/lengthscale"
        ),
        "ExponentialPower": "power for γ of exp(-r^γ), and lengthscale",
        "Cauchy": "lengthscale=1/sqrt(gamma), as gamma = 1/lengthscale²",
        **dict.fromkeys(("Polynomial", "DotExponential"), f"scale, {_SAME}"),
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
        "smoothness": f"smoothness, {_SAME}",
        "kernel": "kernel=Matern(smoothness=nu, lengthscale=...) for a Matérn kernel",
    },
    "periodicity": {"period": f"period, {_SAME}"},
    "coef0": {"offset": f"offset, {_SAME}", "kernel": "kernel=Polynomial(degree, offset=coef0)"},
    "constant_value": {"value": f"value, {_SAME}"},
    "degree": {"kernel": "kernel=Polynomial(degree=...)"},
    **dict.fromkeys(("lambda_", "lam", "reg_lambda", "ridge", "penalty"), _ALPHA),
    "nugget": {"noise": "noise, the variance of the nugget"},
    "noise_level": {"noise": f"noise, {_SAME}"},
    "outputscale": {"amplitude": f"amplitude, {_SAME}"},
    "sill": {"amplitude": "amplitude, the variance of the process without the nugget"},
    **dict.fromkeys(("n_restarts_optimizer", "optimizer"), _CRITERION),
    **dict.fromkeys(("n_components", "n_rffs"), _WIDTH),
    "n_inducing": {"n_features": "n_features, with method='nystrom'"},
    "decision_function_shape": {"multi_class": "multi_class, 'ovr' or 'ovo'"},
    "seed": {"random_state": f"random_state, {_SAME}"},
}

_FOURIER = "the method Fourier(), as in KernelFeatures(kernel, method=Fourier())"

#: Kernels, methods and estimators of other libraries, with their names in bochner.
FOREIGN: dict[str, str] = {
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

#: Methods and kernels that other libraries name by a string, with the objects to pass here.
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
    "precomputed": "kernels.Custom(function), whose function returns the matrix of two tables",
    # names of methods, which users may pass as a kernel
    **{
        word: f"it as method={word!r}, which makes features of a kernel"
        for word in ("fourier", "orthogonal", "qmc", "structured", "mercer", "hermite", "nystrom")
    },
}


def _similar_name(name: str, choices: Mapping[str, str]) -> str:
    """Return "; did you mean ...?" for the choice of the most similar word, or an empty string."""
    matches = get_close_matches(_normalise(name), choices, n=1, cutoff=0.7)
    return f"; did you mean {choices[matches[0]]!r}?" if matches else ""


def _normalise(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")


def suggestion(name: object, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the nearest known name, or an empty string."""
    if not isinstance(name, str):
        return ""
    choices = {_normalise(k): k for k in names}
    words = {word: choices[key] for word, key in WORDS.items() if key in choices}
    return _similar_name(name, words | choices)


def suggest_object(name: str, names: Iterable[str]) -> str:
    """Return a suggestion for a kernel or method: "; give ..." if bochner has an object for it."""
    word = WORDS.get(_normalise(name), _normalise(name))
    if word in VALUES and word not in names:
        return f"; give {VALUES[word]}."
    value = f" As a value it is {FOREIGN[name]}." if name in FOREIGN else ""
    return suggestion(name, names) + value


def missing_name(
    module: str,
    name: str,
    public: Iterable[str],
    names_by_module: Mapping[str, Iterable[str]] | None = None,
) -> str:
    """Return the error message for a name that a module lacks; ``names_by_module`` may have it."""
    paths = {n: f"{home}.{n}" for home, names in (names_by_module or {}).items() for n in names}
    if path := FOREIGN.get(name) or paths.get(name):
        return f"module {module!r} has no {name!r}: in bochner it is {path}."
    choices = {n.lower(): path for n, path in paths.items()} | {n.lower(): n for n in public}
    return f"module {module!r} has no attribute {name!r}{_similar_name(name, choices)}"


@cache
def _arguments(cls: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names of the arguments of a class; None if it takes any keyword."""
    if cls.__init__ is object.__init__:
        return ()
    parameters = list(signature(cls).parameters.values())
    is_open = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    return None if is_open else tuple(p.name for p in parameters)


@cache
def checks_of(cls: Callable[..., Any]) -> dict[str, Callable[[Any, str, str], Any]]:
    """Return the checks in the annotations of a dataclass's fields, ``Annotated[type, check]``."""
    items = fields(cls) if is_dataclass(cls) else ()
    notes = {f.name: getattr(f.type, "__metadata__", ()) for f in items}
    return {name: checks[0] for name, checks in notes.items() if checks and callable(checks[0])}


class NamedArguments:
    """Base class of dataclasses: fields are checked, and errors suggest names of arguments."""

    def __new__(cls, *_: Any, **arguments: Any) -> Self:
        require_arguments(cls, arguments, InvalidType)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, check in checks_of(kind).items():
            object.__setattr__(self, name, check(getattr(self, name), kind.__name__, name))


def replacement(caller: str, name: str, names: tuple[str, ...]) -> str | None:
    """Return bochner's replacement of another library's argument; None if there is none."""
    matches = get_close_matches(name, (*names, *ARGUMENTS), n=1, cutoff=0.7)
    meanings = ARGUMENTS.get(matches[0], {}) if matches else {}
    return next((meanings[k] for k in (caller, *names) if k in meanings), None)


def require_arguments(
    cls: Any, names: Iterable[str], kind: type[BochnerError] = InvalidInput
) -> None:
    """Raise an error of this kind for names that are not arguments of a class."""
    caller, accepted = cls.__name__, _arguments(cls)
    for name in names:
        if accepted is None or name in accepted:
            continue
        if (argument := replacement(caller, name, accepted)) is not None:
            raise kind(f"{caller} has no argument {name!r}: give {argument}.")
        takes = f"{suggestion(name, accepted) or '.'} It takes: {', '.join(accepted) or 'none'}."
        raise kind(f"{caller} has no argument {name!r}{takes}")
