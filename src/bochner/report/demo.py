"""The demo: kernel ridge regression of the Earth's relief by several methods, on one page."""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning
from scipy.spatial import cKDTree

from bochner import (
    IID,
    QMC,
    Auto,
    Fourier,
    GaussianProcessRegressor,
    KernelRidge,
    MercerHarmonic,
    NearestNeighbours,
    Nystrom,
    Orthogonal,
    SphericalHarmonics,
    certify,
)
from bochner._core.checks import integer
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.files import reason_of
from bochner.data.writers import atomic
from bochner.datasets.loaders import load_earth
from bochner.errors import DataFileError
from bochner.features.method import Method
from bochner.kernels import Gaussian, OnSphere
from bochner.landmarks import RPCholesky
from bochner.report.demo_page import Curve, DemoResult, MethodResult, NearResult, earth_page
from bochner.report.render import require

Say = Callable[[str], Any]

METHODS: tuple[tuple[str, Method], ...] = (
    ("Fourier, independent", Fourier(IID())),
    ("Fourier, orthogonal", Fourier(Orthogonal())),
    ("Fourier, Sobol points", Fourier(QMC())),
    ("Nyström, pivoted", Nystrom(RPCholesky())),
    ("Spherical harmonics", MercerHarmonic()),
    ("auto", Auto()),
)
CURVES = (METHODS[0], METHODS[3], METHODS[4])
#: Penalty of the certificates in the table, as a share of the training rows. The fits choose far
#: smaller ones, at which nearly every map of this width has ε ≥ 1: the relief has no noise.
ALPHA_SHARE = 1e-4
#: Kernel and penalty of the harmonics: three cells, and little noise.
GLOBE, ALPHA = OnSphere("matern32", 3.0), 0.1
#: Degree of the harmonics, as a share of the rows of cells: finer ones see every cell left out.
FINEST = 2 / 3
#: Cells that each cell is kriged from, and that are averaged by the simplest rival.
NEIGHBOURS, FEW = 24, 4
#: Cells on either side whose relief is looked at.
AROUND = 3
#: Least size of the relief around a cell, and the unit of heights, in metres.
FLAT, HEIGHT = 20.0, 2000.0


@dataclass(frozen=True, eq=False)
class Study:
    """Cells of the demo, split once by their numbers, and the kernel of all fits."""

    X: Float[Array, "n 3"]
    y: Float[Array, " n"]
    places: Float[Array, "n 2"]  # Latitude and longitude in degrees, south first
    shape: tuple[int, int]
    train: Array
    test: Array
    seed: int
    kernel: Gaussian = field(default_factory=Gaussian)

    @property
    def alpha(self) -> float:
        """Penalty that all maps are certified at, so that their ε can be compared."""
        return ALPHA_SHARE * len(self.train)

    def rmse(self, predicted: Float[Array, " t"]) -> float:
        """Return the root mean squared error on the held-out cells."""
        return float(np.sqrt(np.mean((predicted - self.y[self.test]) ** 2)))

    def certified(self, model: Any, result: MethodResult, alpha: float) -> MethodResult:
        """Return the result with the certificate of the model's map at this penalty."""
        how: dict[str, Any] = {"alpha": alpha, "n_sample": 1024, "random_state": self.seed}
        return _with(result, certify(model.map_, self.X[self.train], kernel=self.kernel, **how))


Fit = tuple[Any, MethodResult]


def run_demo(
    out: str | PathLike[str] = ".",
    quick: bool = False,
    seed: int = 0,
    show: Say | Any | None = None,
) -> DemoResult:
    """Fit the Earth's relief by every method at equal width, and write one HTML page.

    Latitude and longitude become points of the sphere; a tenth of the 64,800 cells, chosen at
    random, is held out; all methods share one Gaussian kernel, whose lengthscale was chosen by
    leave-one-out error, and choose their own penalty the same way.

    Parameters
    ----------
    out : path, default "."
        Folder for ``earth.html`` (made if missing), or the name of an .html file.
    quick : bool, default False
        One cell in four and a quarter of the features.
    seed : int, default 0
        Of the split, the features and the samples.
    show : callable, or object with a method ``print``, optional
        Is given one line of text at a time; a rich console will do. None: silence.

    Returns
    -------
    DemoResult
        The numbers on the page, and its path.

    Raises
    ------
    DataFileError
        The folder cannot be made or written; found out before anything is computed.
    InvalidInput, InvalidType
        The seed is not an integer, zero or above.

    Notes
    -----
    One to two minutes on two idle cores, a few seconds with ``quick``. The page is
    self-contained: it fetches nothing when opened.
    """
    started = time.perf_counter()
    require("The demo's page")
    path, seed = _writable_page(out), integer(seed, "run_demo", "seed")
    say = (lambda _: None) if show is None else getattr(show, "print", show)
    width, widths = (256, (32, 64, 128, 256)) if quick else (1024, (64, 128, 256, 512, 1024, 2048))
    study = _with_kernel(_split(quick, seed), width, say)
    fits = _compare(study, width, say)
    curves, (best, found) = _sweep(study, widths, fits, say)
    near = _sharper(study, quick, say)
    # The certificate of all kept rows takes a third of a quick demo.
    full = study.certified(best, found, found.alpha) if quick else _with(found, best.certificate_)
    known = [fit[1].certificate for fit in fits if fit[0] is best]
    held_out = np.zeros(study.y.size, bool)
    held_out[study.test] = True
    result = DemoResult(
        methods=tuple(fit[1] for fit in fits),
        curves=curves,
        best=full,
        truth=study.y.reshape(study.shape).astype(np.float64),
        prediction=best.predict(study.X).reshape(study.shape),
        held_out=held_out.reshape(study.shape),
        kernel=repr(study.kernel),
        alpha=study.alpha,
        certificate=(*known, "")[0] or study.certified(best, found, study.alpha).certificate,
        n_train=study.train.size,
        n_test=study.test.size,
        seed=seed,
        quick=quick,
        seconds=time.perf_counter() - started,
        path=path,
        near=near,
    )
    with atomic(path, "w") as file:
        file.write(earth_page(result))
    say(f"Wrote {path}")
    return result


def _writable_page(out: str | PathLike[str]) -> Path:
    """Return the page's path after checking that its folder is writable."""
    path = Path(out).expanduser()
    path = path if path.suffix.lower() in (".html", ".htm") else path / "earth.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DataFileError(
            f"demo: the page needs a folder that can be written; '{path.parent}' cannot: "
            f"{reason_of(error)}. Name another folder."
        ) from error
    return path.resolve()


def _split(quick: bool, seed: int) -> Study:
    """Return the cells, a tenth of them held out; quick keeps every second row and column."""
    earth, step = load_earth(), 2 if quick else 1
    rows = len(np.unique(np.asarray(earth.latitude)))
    cells = np.arange(len(earth.y)).reshape(rows, -1)[::step, ::step]
    order = stream(seed, "demo", "split").permutation(cells.size)
    tenth, kept = cells.size // 10, cells.ravel()
    train, test = np.sort(order[tenth:]), np.sort(order[:tenth])
    degrees = np.stack([np.asarray(earth.latitude), np.asarray(earth.longitude)], axis=1)
    places = degrees[kept].astype(np.float64)
    return Study(earth.X[kept], earth.y[kept], places, cells.shape, train, test, seed)


def _with_kernel(study: Study, width: int, say: Say) -> Study:
    """Choose the lengthscale once, on training rows, for all methods."""
    say(
        f"The Earth's relief: {study.y.size:,} cells, {study.train.size:,} to learn from, "
        f"{study.test.size:,} held out"
    )
    model = KernelRidge(
        "gaussian", method=Fourier(Orthogonal()), n_features=width // 2, random_state=study.seed
    )
    model.fit(study.X[study.train], study.y[study.train])
    # One lengthscale for all directions (a sphere has no axes), to two digits.
    lengthscale = np.exp(np.mean(np.log(model.kernel_.get_params()["lengthscale"])))
    kernel = Gaussian(float(f"{lengthscale:.2g}"))
    say(f"Kernel, its lengthscale chosen by leave-one-out error: {kernel!r}")
    return replace(study, kernel=kernel)


# --- Methods at one width, and their errors against the width ------------------------------------


def _fit(study: Study, name: str, method: Method, width: int) -> Fit:
    # In float64 at once: without noise the best penalty is so small that float32 products would
    # not resolve it, and the sweep would be done twice.
    model = KernelRidge(
        study.kernel, method=method, n_features=width, precision="float64", random_state=study.seed
    )
    found = _measured(study, name, repr(method), width, model, study.X)
    loo = float(np.sqrt(np.nanmin(model.solution_.path.loo)))
    return model, replace(found, loo=loo, alpha=model.alpha_)


def _measured(
    study: Study, name: str, code: str, width: int, model: Any, X: Float[Array, "n 3"]
) -> MethodResult:
    """Fit the model, and return its errors on the held-out cells and its seconds."""
    started = time.perf_counter()
    model.fit(X[study.train], study.y[study.train])
    predicted = model.predict(X[study.test])
    seconds = time.perf_counter() - started
    rmse, variance = study.rmse(predicted), float(study.y[study.test].astype(np.float64).var())
    nan = float("nan")
    return MethodResult(name, code, width, rmse, 1 - rmse**2 / variance, seconds, nan, nan)


def _compare(study: Study, width: int, say: Say) -> list[Fit]:
    """Fit every method at one width, then certify them all at one alpha."""
    say(f"\nMethods at {width:,} features")
    say(f"  {'':24}{'test RMSE':>11}{'R²':>8}{'seconds':>9}")
    fits: list[Fit] = []
    for name, method in METHODS:
        fits.append(_fit(study, name, method, width))
        say(_line(fits[-1][1]))
    rival = _rival(study, width, fits[0][1].alpha)
    say(_line(rival))
    say(f"\nCertificates of all at alpha = {study.alpha:.3g}")
    for i, (model, result) in enumerate(fits):
        fits[i] = model, study.certified(model, result, study.alpha)
        say(f"  {result.name:24} ε = {fits[i][1].epsilon:.3g}")
    return [*fits, (None, rival)]


def _line(result: MethodResult) -> str:
    return f"  {result.name:24}{result.rmse:9.0f} m{result.r_squared:8.3f}{result.seconds:9.1f}"


def _rival(study: Study, width: int, alpha: float) -> MethodResult:
    """Fit scikit-learn's features and ridge, at the alpha bochner chose for such features."""
    from sklearn.kernel_approximation import RBFSampler  # noqa: PLC0415
    from sklearn.linear_model import Ridge  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    sampler = RBFSampler(gamma=0.5, n_components=width, random_state=study.seed)
    model, code = make_pipeline(sampler, Ridge(alpha=alpha)), "make_pipeline(RBFSampler(), Ridge())"
    scaled = (study.X / np.asarray(study.kernel.lengthscale)).astype(np.float64)
    with warnings.catch_warnings(action="ignore", category=LinAlgWarning):  # alpha is tiny
        found = _measured(study, "scikit-learn RBFSampler", code, width, model, scaled)
    return replace(found, alpha=alpha)


def _with(result: MethodResult, certificate: Any) -> MethodResult:
    numbers = {k: getattr(certificate, k) for k in ("epsilon", "epsilon_interval", "frobenius")}
    return replace(result, certificate=str(certificate), **numbers)


def _sweep(
    study: Study, widths: tuple[int, ...], fits: list[Fit], say: Say
) -> tuple[tuple[Curve, ...], Fit]:
    """Fit three methods at every width; return their curves and the fit of least LOO error."""
    known = {(result.name, result.n_features): (model, result) for model, result in fits}
    curves, best = [], fits[0]
    for name, method in CURVES:
        say(f"\n{name}: test RMSE against features")
        line = []
        for width in widths:
            fit = known.get((name, width)) or _fit(study, name, method, width)
            best = min(best, fit, key=lambda f: f[1].loo)
            line.append(fit[1].rmse)
            say(f"  {width:6,} {'█' * max(1, round(line[-1] / 50)):40} {line[-1]:6.0f} m")
        curves.append(Curve(name, widths, tuple(line)))
    return tuple(curves), best


# --- Harmonics of the globe, the nearest cells, and the relief around each cell -------------------
#
# 2,048 features draw what is smooth. Ten thousand harmonics, which are never made, draw more in
# less time. Relief is rougher than both, and its cells have no noise: they are kriged from the
# nearest cells. The error of kriging is learned from the relief around each cell, because coasts,
# trenches and ridges have structure beyond the covariance of two cells.


def _sharper(study: Study, quick: bool, say: Say) -> tuple[NearResult, ...]:
    say("\nSharper: harmonics of the globe, the nearest cells, the relief around")
    found, started = [], time.perf_counter()
    for name, code, detail, predicted in _near(study, quick):
        now = time.perf_counter()
        row = NearResult(name, code, detail, study.rmse(predicted), now - started)
        found.append(row)
        say(f"  {row.name:28}{row.rmse:5.0f} m{row.seconds:9.1f} s   {row.detail}")
        started = time.perf_counter()
    return tuple(found)


def _near(study: Study, quick: bool) -> Iterator[tuple[str, str, str, Float[Array, " t"]]]:
    """Fit each model; yield name, code, detail and predictions of held-out cells."""
    train, test, seed = study.train, study.test, study.seed
    truth, places = study.y.astype(np.float64), study.places
    tree = cKDTree(GLOBE.inputs(places[train]))
    mean = truth[train][tree.query(GLOBE.inputs(places[test]), FEW)[1]].mean(axis=1)
    yield "Mean of the nearest cells", f"KNeighborsRegressor({FEW})", f"{FEW} cells", mean

    harmonics = SphericalHarmonics(int(FINEST * study.shape[0]))
    model = KernelRidge(GLOBE, method=harmonics, alpha=ALPHA, random_state=seed)
    model.fit(places[train], truth[train])
    code = f"KernelRidge({GLOBE!r}, method={harmonics}, alpha={ALPHA})"
    count = f"{model.map_.n_features:,} harmonics"
    yield "Spherical harmonics", code, count, model.predict(places[test])

    # Kriging starts from a lengthscale of three cells; quick keeps it.
    start, method = OnSphere("matern32", 3 * 180 / study.shape[0]), NearestNeighbours(NEIGHBOURS)
    how: dict[str, Any] = {"method": method, "lengthscale": "auto" if quick else "evidence"}
    process = GaussianProcessRegressor(start, **how, random_state=seed)
    process.fit(places[train], truth[train])
    kriged = process.predict(places[test])
    words = f"{method=!s}, lengthscale={how['lengthscale']!r}"
    code = f"GaussianProcessRegressor({start!r}, {words})"
    yield "Local kriging", code, f"{NEIGHBOURS} cells", kriged

    errors = process.fit_.law.left_out(np.arange(len(train)))[0][:, 0]
    known, predicted = truth.copy(), np.empty(len(truth))
    predicted[train], predicted[test] = truth[train] - errors, kriged
    known[test] = kriged
    X, size = relief_around(places, study.shape, known, predicted)
    width = 256 if quick else 2048
    ridge = KernelRidge("matern32", method="nystrom", n_features=width, random_state=seed)
    ridge.fit(X[train], errors / size[train], sample_weight=size[train] ** 2)
    more = ridge.predict(X[test]) * size[test]
    code = f"KernelRidge('matern32', method='nystrom', n_features={width})"
    detail = f"{width:,} features of {X.shape[1]} columns"
    yield "and the relief around it", code, detail, kriged + more


def relief_around(
    places: Float[Array, "n 2"],
    shape: tuple[int, int],
    known: Float[Array, " n"],
    predicted: Float[Array, " n"],
) -> tuple[Float[Array, "n p"], Float[Array, " n"]]:
    """Return the columns that describe the relief around each cell, and its size in metres.

    Columns: heights of the cells around, less that predicted for it, in units of their size; the
    logarithm of the size; the predicted height. Along a parallel steps are as long as along a
    meridian, and rows beyond a pole continue on its other side.
    """
    rows, columns = shape
    i, j = np.divmod(np.arange(len(known)), columns)
    step = np.maximum(1, np.round(1 / np.cos(np.deg2rad(places[:, 0])))).astype(int)
    reach, grid, parts = range(-AROUND, AROUND + 1), known.reshape(rows, columns), []
    for a, b in ((a, b) for a in reach for b in reach if a or b):
        row, turned = i + a, j + b * step
        beyond = (row < 0) | (row >= rows)
        row = np.where(row < 0, -1 - row, np.where(row >= rows, 2 * rows - 1 - row, row))
        turned = (turned + beyond * (columns // 2)) % columns
        parts.append(grid[row, turned] - predicted)
    around = np.stack(parts, axis=1)
    size = np.sqrt(np.mean(around**2, axis=1)) + FLAT
    log = np.log(size)
    more = np.stack([log - log.mean(), predicted / HEIGHT], axis=1)
    return np.hstack([around / size[:, None], more]), size
