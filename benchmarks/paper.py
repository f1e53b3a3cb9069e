"""Experiments of *Random Gegenbauer Features for Scalable Kernel Methods*, repeated."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import bochner as bo
from benchmarks.bench import Options, Row, bench, clock, collect
from benchmarks.data import Array, Split, stored
from bochner.data.blocks import Blocks
from bochner.datasets import load_earth, on_sphere
from bochner.features import Auto, Method
from bochner.kernels import Gaussian, Kernel, NeuralTangent
from bochner.kernels.series import alpha, angles, gegenbauers, orthonormals
from bochner.kernels.zonal import Angle
from bochner.selection.choices import FeatureSpec
from bochner.selection.choose import choose

#: Methods of Han et al. (2022), section 6.2, in the order of their tables.
PUBLISHED: dict[str, Method | str] = {
    "Nystrom": bo.Nystrom("ridge-leverage"),
    "Fourier": bo.Fourier(bo.IID()),
    "FastFood": bo.Fourier(bo.Fastfood()),
    "Maclaurin": bo.Maclaurin(degrees="geometric"),
    "PolySketch": bo.PolySketch(),
    "Gegenbauer": bo.Gegenbauer("monomial"),
}

#: Mean squared errors of their table 2 and objectives of their table 3, in the order of PUBLISHED.
PUBLISHED_ERRORS = {
    "Elevation": (1.14, 1.30, 1.35, 1.90, 1.56, 1.15),
    "CO2": (0.533, 0.548, 0.551, 0.593, 0.590, 0.532),
    "Climate": (3.14, 3.15, 3.16, 3.18, 3.15, 3.13),
    "Protein": (18.9, 19.8, 19.8, 25.9, 26.9, 21.0),
}
PUBLISHED_OBJECTIVES = {
    "Abalone": (0.38, 0.38, 0.43, 0.43, 0.35, 0.35),
    "Pendigits": (0.42, 0.43, 0.46, 0.46, 0.45, 0.40),
    "Mushroom": (0.71, 0.72, 0.74, 0.72, 0.67, 0.71),
    "Magic": (0.64, 0.66, 0.67, 0.73, 0.66, 0.59),
    "Statlog": (0.23, 0.24, 0.24, 0.23, 0.21, 0.21),
    "Connect-4": (0.61, 0.81, 0.83, 0.90, 0.82, 0.78),
}


@bench()
def paper(options: Options) -> Iterator[Row]:
    """Repeat figure 1, table 2 (ridge regression) and table 3 (k-means) of Han et al.

    ``--cases "table 2, CO2*"`` runs a part, ``--rows 20000`` takes a random sample of rows.
    """
    yield from figure_1(options)
    yield from collect(REGRESSION, lambda name: _table2(name, options))
    yield from collect(CLUSTERING, lambda name: _table3(name, options))


def regression(name: str, options: Options) -> tuple[Array, Array]:
    """Return the rows of a data set of table 2, in the units of the paper where they are known."""
    if name == "Elevation":
        earth = load_earth()
        return earth.X.astype(np.float64), earth.y.astype(np.float64) / 1000.0  # kilometres
    arrays = stored(REGRESSION[name], options.data)
    X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)
    if name == "Protein":
        return (X - X.mean(axis=0)) / X.std(axis=0), y
    latitude, longitude, time = X.T
    time = (2 * time - time.min() - time.max()) / (time.max() - time.min())  # from -1 to 1
    X = np.column_stack([on_sphere(latitude, longitude), time])
    return X, np.log10(y) if name == "CO2" else y  # CO2: over nine decades


#: Files of table 2; the elevation is in the package.
REGRESSION = {"Elevation": "", "CO2": "co2_cdiac", "Climate": "climate_ncep", "Protein": "protein"}

#: Files of table 3, keys of the labels, and whether the paper has only the training part.
CLUSTERING: dict[str, tuple[str, str, bool]] = {
    "Abalone": ("abalone_jmlr", "y", False),
    "Pendigits": ("pendigits", "y", True),
    "Mushroom": ("mushroom", "y", False),
    "Magic": ("magic", "y", False),
    "Statlog": ("shuttle", "y", True),
    "Connect-4": ("connect4", "y2", False),
}

#: Largest degree, as in the paper.
DEGREE = 15


def _tangent(depth: int, theta: Array) -> Array:
    """Return the neural tangent kernel of real or complex angles."""
    if np.isrealobj(theta):
        return NeuralTangent(depth).profile(Angle.of(theta))
    sigma = tangent = np.cos(theta)
    for _ in range(depth):
        angle = np.arccos(sigma)
        sigma = (np.sqrt(1 - sigma**2) + sigma * (np.pi - angle)) / np.pi
        tangent = tangent * (1 - angle / np.pi) + sigma
    return tangent


#: Kernels on the unit sphere, as functions of the angle.
ANGULAR: dict[str, Callable[[Array], Array]] = {
    "Gaussian": lambda theta: np.exp(2 * (np.cos(theta) - 1)),
    "NTK, 1 hidden layer": partial(_tangent, 1),
    "NTK, 2 hidden layers": partial(_tangent, 2),
}


def taylor(function: Callable[[Array], Array], t: Array, degree: int) -> Array:
    """Return the partial sums of the Taylor series in t = cos θ at 0, by Cauchy's formula."""
    points, radius = 256, 0.8
    values = function(np.arccos(radius * np.exp(2j * np.pi * np.arange(points) / points)))
    a = (np.fft.fft(values) / points).real[: degree + 1] / radius ** np.arange(degree + 1)
    return np.cumsum([a_n * t**n for n, a_n in enumerate(a)], axis=0)


def figure_1(options: Options) -> Iterator[Row]:
    """Yield max |κ(t) − κ_q(t)| / max |κ| for Taylor, Chebyshev and Gegenbauer series κ_q."""
    theta = np.linspace(0.0, np.pi, options.pick(20_001, 501))
    for name, function in ANGULAR.items():
        if not options.selects(case := f"figure 1, {name}"):
            continue
        exact, t = function(theta).real, np.cos(theta)
        series = {"Taylor": taylor(function, t, DEGREE)}
        for d in (2, 4, 8, 32):
            nodes, w = angles(d, DEGREE)
            means = np.array([*orthonormals(DEGREE, d, np.cos(nodes))]) @ (w * function(nodes).real)
            c = [alpha(l, d) ** 0.5 * float(mean) for l, mean in enumerate(means)]
            terms = [c_l * P for c_l, P in zip(c, gegenbauers(DEGREE, d, t), strict=True)]
            series["Chebyshev" if d == 2 else f"Gegenbauer d={d}"] = np.cumsum(terms, axis=0)
        for learner, sums in series.items():
            errors = np.abs(sums - exact).max(axis=1) / np.abs(exact).max()
            # The second digit of an error below 1e-9 depends on the machine
            digits = [float(f"{e:.{1 if e < 1e-9 else 6}g}") for e in errors]
            yield {"case": case, "who": learner} | {f"q={q}": e for q, e in enumerate(digits)}


#: Penalties, relative to the largest eigenvalue of the Gram matrix of half of the rows.
PENALTIES = 10.0 ** np.arange(-13, 0.1, 0.25)


def _methods(width: int) -> dict[str, dict[str, Method | str]]:
    """Return the methods of each protocol, by name.

    "published": lengthscale 1, at which the errors on the elevation are the published ones.
    "tuned": each method has the lengthscale of its least two-fold error. "bochner" and "local": the
    same for maps of bochner, and local kernels of D/2 rows with D/2 landmarks. "default": defaults.
    """
    optimal = PUBLISHED | {"Gegenbauer, optimal": bo.Gegenbauer()}
    local = bo.LocalKernel(leaf_rows=width // 2, landmarks=width // 2)
    return {
        "published": optimal,
        "tuned": optimal,
        "bochner": {"auto": "auto", "Nystrom('kmeans')": bo.Nystrom("kmeans")},
        "local": {"LocalKernel": local},
        "default": {"KernelRidge()": ""},
    }


def _table2(name: str, options: Options) -> Iterator[Row]:
    """Yield squared errors on a tenth of the rows; each seed has its own split and draws."""
    width = options.pick(1024, 64)
    selected = lambda protocol: options.selects(f"table 2, {name}, {protocol}")
    protocols = {p: methods for p, methods in _methods(width).items() if selected(p)}
    if not protocols:
        return
    splits, (X, y) = [], regression(name, options)
    for seed in options.seeds(3):
        order = np.random.default_rng(seed).permutation(len(y))[: options.pick(options.rows, 250)]
        test, train = np.split(order, [len(order) // 10])
        splits.append(Split(X[train], y[train], X[test], y[test]))
    _warm_up(Gaussian(1.0), X)
    for protocol, methods in protocols.items():
        for learner, method in methods.items():
            scale = 1.0
            if protocol not in {"published", "default"}:
                limit = options.pick(8000, 100)
                scale = lengthscale(method, width, splits[0].X[:limit], splits[0].y[:limit])
            for seed, data in enumerate(splits):
                predicted, times = clock(lambda: _predicted(method, scale, width, data, seed))  # noqa: B023
                row = {"case": f"table 2, {name}, {protocol}", "who": learner, "seed": seed}
                row |= {"MSE": data.error(predicted) ** 2, "core seconds": times["core seconds"]}
                row |= {"rows": len(data.y), "tested": len(data.y_test), "columns": X.shape[1]}
                yield row | ({} if protocol == "learner" else {"lengthscale": scale})


def _warm_up(kernel: Kernel, X: Array) -> None:
    """Use every method once on few rows, so that no seconds include imports."""
    for method in (*PUBLISHED.values(), *BOCHNER.values()):
        bo.draw(kernel, method, n_features=32, X=X[:200], random_state=0)(X[:200])


def _predicted(method: Method | str, scale: float, width: int, data: Split, seed: int) -> Array:
    if method and not isinstance(method, bo.LocalKernel):
        phi = draw(method, scale, width, data.X, data.y, seed)
        return fit_and_predict(phi, data.X, data.y, data.X_test)
    options: dict[str, Any] = {"method": method, "n_features": width} if method else {}
    kernel = Gaussian(scale) if method else "auto"
    model = bo.KernelRidge(kernel, random_state=seed, **options)
    return model.fit(data.X, data.y).predict(data.X_test)


def draw(
    method: Method | str, scale: float, width: int, X: Array, y: Array, seed: int
) -> bo.FeatureMap:
    """Return a map; "auto" chooses it by the targets of sampled rows, as a learner does."""
    if method == "auto":
        spec = FeatureSpec.of("table 2", Gaussian(scale), Auto(), width, seed)
        return choose(spec, Blocks.from_arrays(X, y))[0].map
    return bo.draw(Gaussian(scale), method, n_features=width, X=X, random_state=seed)


def two_fold(method: Method | str, scale: float, width: int, X: Array, y: Array) -> float:
    """Return the mean squared error of each half of the rows, predicted from the other half."""
    if not isinstance(method, bo.LocalKernel):
        return two_fold_error(draw(method, scale, width, X, y, 0)(X), y)[0]
    (X1, X2), (y1, y2) = (np.split(a, [len(y) // 2]) for a in (X, y))
    halves = Split(X1, y1, X2, y2), Split(X2, y2, X1, y1)
    errors = [_predicted(method, scale, width, half, 0) - half.y_test for half in halves]
    return float(np.mean(np.concatenate(errors) ** 2))


def lengthscale(method: Method | str, width: int, X: Array, y: Array) -> float:
    """Return the lengthscale of least two-fold error: a descent from 1 by powers of 2, then √2.

    Errors of one draw are noisy, so two steps are tried on either side, not one.
    """
    errors, power = dict[float, float](), 0.0

    def error(p: float) -> float:
        if p not in errors:
            errors[p] = two_fold(method, 2.0**p, width, X, y)
        return errors[p]

    for step in (1.0, 0.5):
        while True:
            steps = (0.0, -step, step, -2 * step, 2 * step)
            best = min((power + s for s in steps if -6.0 <= power + s <= 3.0), key=error)
            if best == power:
                break
            power = best
    return float(2.0**power)


def fit_and_predict(phi: bo.FeatureMap, X: Array, y: Array, X_test: Array) -> Array:
    """Return predictions of ridge regression with the penalty of least two-fold error."""
    Z = phi(X)
    _, alpha = two_fold_error(Z, y)
    beta, intercept = _path(Z, y, np.array([alpha]))
    return phi(X_test) @ beta[:, 0] + intercept[0]


def two_fold_error(Z: Array, y: Array) -> tuple[float, float]:
    """Return the least mean squared error, each half predicted from the other, and its penalty."""
    first, second = np.split(np.arange(len(y)), [len(y) // 2])
    spread = Z[first] - Z[first].mean(axis=0)
    alphas = PENALTIES * max(float(np.linalg.norm(spread.T @ spread, 2)), 1e-200)
    squares = np.zeros(len(alphas))
    for fit, test in ((first, second), (second, first)):
        beta, intercept = _path(Z[fit], y[fit], alphas)
        squares += ((Z[test] @ beta + intercept - y[test, None]) ** 2).sum(axis=0)
    best = int(np.argmin(squares))
    return float(squares[best]) / len(y), float(alphas[best])


def _path(Z: Array, y: Array, alphas: Array) -> tuple[Array, Array]:
    """Return coefficients and intercepts for each penalty."""
    mean, middle = Z.mean(axis=0), float(y.mean())
    values, vectors = np.linalg.eigh((Z - mean).T @ (Z - mean))
    projected = vectors.T @ ((Z - mean).T @ (y - middle))
    beta = vectors @ (projected[:, None] / (np.maximum(values, 0)[:, None] + alphas))
    return beta, middle - mean @ beta


BOCHNER: dict[str, Method | str] = {
    "bochner: auto": "auto",
    "bochner: MercerHarmonic": bo.MercerHarmonic(),
    "bochner: HermiteMercer": bo.HermiteMercer(),
}


def _table3(name: str, options: Options) -> Iterator[Row]:
    """Yield objectives of k-means on features: mean squared distances to the centre of the cluster.

    "in features", as published, is smaller for maps that shorten vectors; "exact" is that of the
    same clusters by the kernel exp(-|x - y|²).
    """
    selected = lambda D: options.selects(f"table 3, {name}, D={D}")
    widths = [*filter(selected, options.pick((1024, 512), (64,)))]
    if not widths:
        return
    file, labels, training_only = CLUSTERING[name]
    a, kernel = stored(file, options.data), Gaussian(0.5**0.5)
    part = a["split"] == 0 if training_only else slice(None)
    X, y = a["X"][part].astype(np.float64), a[labels][part]
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    order = np.random.default_rng(0).permutation(len(X))[: options.pick(options.rows, 300)]
    X, k = X[np.sort(order)], len(np.unique(y))
    single, seeds = X.astype(np.float32), options.seeds(3)
    _warm_up(kernel, X)
    for width in widths:

        def cluster(method: Method | str, seed: int) -> Any:
            Z = bo.draw(kernel, method, n_features=width, X=single, random_state=seed)(single)  # noqa: B023
            return KMeans(k, n_init=options.pick(10, 2), random_state=seed).fit(Z)

        rows, clusterings = [], []
        for seed in seeds:
            for learner, method in (PUBLISHED | BOCHNER).items():
                fit, times = clock(lambda: cluster(method, seed))  # noqa: B023
                clusterings.append(fit.labels_)
                row: Row = {"case": f"table 3, {name}, D={width}", "who": learner, "seed": seed}
                row |= {"in features": float(fit.inertia_) / len(X), "rows": len(X)}
                row |= {"columns": X.shape[1], "clusters": k, "seconds": times["seconds"]}
                rows.append(row)
        exact = exact_objectives(kernel, X, clusterings, 5000)
        yield from (row | {"exact": float(e)} for row, e in zip(rows, exact, strict=True))


def exact_objectives(kernel: Kernel, X: Array, labels: list[Array], limit: int) -> Array:
    """Return mean k(x, x) − 2 k(x, C) + k(C, C) for each clustering, C the cluster of x.

    k(x, C) and k(C, C) are means over all rows of the cluster; the mean over x is of at most
    ``limit`` rows, the same for every clustering. It equals the mean of k(x, x) − k(x, C).
    """
    sample = np.random.default_rng(0).permutation(len(X))[:limit]
    members = [(first[:, None] == np.unique(first)).astype(np.float64) for first in labels]
    shares = np.hstack([member / member.sum(axis=0) for member in members])
    chosen = np.hstack(members)[sample]
    ends = np.cumsum([member.shape[1] for member in members])[:-1]
    total = np.zeros(len(labels))
    for start in range(0, len(sample), 250):
        sums = (kernel(X[sample[start : start + 250]], X) @ shares) * chosen[start : start + 250]
        total += [part.sum() for part in np.split(sums, ends, axis=1)]
    return float(np.mean(kernel.diag(X[sample]))) - total / len(sample)
