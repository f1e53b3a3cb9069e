"""The demo: kernel ridge regression of the Earth's relief, method beside method, on one page."""

import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning

from bochner._core.checks import integer
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.certificates.certificate import Certificate, certify
from bochner.data.files import reason_of
from bochner.data.writers import atomic
from bochner.datasets.loaders import load_earth
from bochner.errors import DataFileError
from bochner.features.auto import Auto
from bochner.features.fourier.fourier import Fourier
from bochner.features.fourier.placements import IID, QMC, Orthogonal
from bochner.features.mercer.harmonic import MercerHarmonic
from bochner.features.method import Method
from bochner.features.nystrom.landmarks import RPCholesky
from bochner.features.nystrom.nystrom import Nystrom
from bochner.kernels.stationary import Gaussian
from bochner.models.ridge.estimators import KernelRidge
from bochner.report.demo_near import MapCells, sharper
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
#: Penalty of the certificates in the table, as a share of the training rows.
ALPHA_SHARE = 1e-4
RIVAL = "scikit-learn RBFSampler"
#: Degree of the harmonics, as a share of the rows of cells: finer ones see every cell left out.
FINEST = 2 / 3


@dataclass(frozen=True, eq=False)
class DemoRows:
    """Rows of the demo, split once by their numbers, and the kernel that all its fits use."""

    X: Float[Array, "n 3"]
    y: Float[Array, " n"]
    places: Float[Array, "n 2"]
    shape: tuple[int, int]
    train: Array
    test: Array
    seed: int
    kernel: Gaussian = field(default_factory=Gaussian)

    @property
    def alpha(self) -> float:
        """Penalty that all maps are certified at, so that their ε can be compared.

        The fits choose far smaller ones, at which nearly every map of this width has ε ≥ 1: the
        relief has no noise, so they ask for all the detail that their features can draw.
        """
        return ALPHA_SHARE * len(self.train)


@dataclass(frozen=True, eq=False)
class DemoFit:
    """A fitted model beside what was measured of it."""

    model: Any
    result: MethodResult


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
    One to two minutes on two idle cores, a few seconds with ``quick``. The page holds all it
    shows: nothing is fetched when it is opened.
    """
    started = time.perf_counter()
    require("The demo's page")
    path, seed = _writable_page(out), integer(seed, "run_demo", "seed")
    say = (lambda _: None) if show is None else getattr(show, "print", show)
    width, widths = (256, (32, 64, 128, 256)) if quick else (1024, (64, 128, 256, 512, 1024, 2048))
    study = _with_kernel(_split(quick, seed), width, say)
    fits = _compare(study, width, say)
    curves, best = _sweep(study, widths, fits, say)
    near = _sharper(study, quick, say)
    result = replace(_result(study, fits, curves, best, quick), near=near)
    result = replace(result, path=path, quick=quick, seconds=time.perf_counter() - started)
    with atomic(path, "w") as file:
        file.write(earth_page(result))
    say(f"Wrote {path}")
    return result


def _writable_page(out: str | PathLike[str]) -> Path:
    """Return the page's path once a file could be made beside it."""
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


def _split(quick: bool, seed: int) -> DemoRows:
    """Return a tenth of the cells as held out; quick keeps every second row and column."""
    earth, step = load_earth(), 2 if quick else 1
    rows = len(np.unique(np.asarray(earth.latitude)))
    cells = np.arange(len(earth.y)).reshape(rows, -1)[::step, ::step]
    order = stream(seed, "demo", "split").permutation(cells.size)
    tenth, kept = cells.size // 10, cells.ravel()
    train, test = np.sort(order[tenth:]), np.sort(order[:tenth])
    degrees = np.stack([np.asarray(earth.latitude), np.asarray(earth.longitude)], axis=1)
    places = degrees[kept].astype(np.float64)
    return DemoRows(earth.X[kept], earth.y[kept], places, cells.shape, train, test, seed)


def _with_kernel(study: DemoRows, width: int, say: Say) -> DemoRows:
    """Choose the lengthscale once, on training rows, for all methods."""
    say(
        f"The Earth's relief: {study.y.size:,} cells, {study.train.size:,} to learn from, "
        f"{study.test.size:,} held out"
    )
    model = KernelRidge(
        "gaussian", method=Fourier(Orthogonal()), n_features=width // 2, random_state=study.seed
    )
    model.fit(study.X[study.train], study.y[study.train])
    # one lengthscale for all directions (a sphere has no axes), to two digits
    lengthscale = np.exp(np.mean(np.log(model.kernel_.get_params()["lengthscale"])))
    kernel = Gaussian(float(f"{lengthscale:.2g}"))
    say(f"Kernel, its lengthscale chosen by leave-one-out error: {kernel!r}")
    return replace(study, kernel=kernel)


# --- one fit -------------------------------------------------------------------------------------


def _fit(study: DemoRows, name: str, method: Method, width: int) -> DemoFit:
    started = time.perf_counter()
    # In float64 at once: without noise the best penalty is so small that float32 products would
    # not resolve it, and the sweep would be done twice.
    model = KernelRidge(
        study.kernel, method=method, n_features=width, precision="float64", random_state=study.seed
    )
    model.fit(study.X[study.train], study.y[study.train])
    predicted = model.predict(study.X[study.test])
    seconds = time.perf_counter() - started
    loo = float(np.sqrt(np.nanmin(model.solution_.path.loo)))
    found = *_errors(study, predicted), seconds, loo, model.alpha_
    return DemoFit(model, MethodResult(name, repr(method), width, *found))


def _errors(study: DemoRows, predicted: Float[Array, " t"]) -> tuple[float, float]:
    """Return root mean squared error and R² on the held-out cells."""
    truth = study.y[study.test].astype(np.float64)
    mse = float(np.mean((predicted - truth) ** 2))
    return mse**0.5, 1 - mse / float(truth.var())


def _compare(study: DemoRows, width: int, say: Say) -> list[DemoFit]:
    """Fit every method at one width, then certify them all at one alpha."""
    say(f"\nMethods at {width:,} features")
    say(f"  {'':24}{'test RMSE':>11}{'R²':>8}{'seconds':>9}")
    fits = []
    for name, method in METHODS:
        fits.append(_fit(study, name, method, width))
        say(_line(fits[-1].result))
    fits.append(_rival(study, width, fits[0].result.alpha))
    say(_line(fits[-1].result))
    say(f"\nCertificates of all at alpha = {study.alpha:.3g}")
    for i, fit in enumerate(fits[:-1]):
        certificate = _certificate(study, fit, study.alpha)
        say(f"  {fit.result.name:24} ε = {certificate.epsilon:.3g}")
        fits[i] = replace(fit, result=_with_certificate(fit.result, certificate))
    return fits


def _line(result: MethodResult) -> str:
    return f"  {result.name:24}{result.rmse:9.0f} m{result.r_squared:8.3f}{result.seconds:9.1f}"


def _rival(study: DemoRows, width: int, alpha: float) -> DemoFit:
    """Fit scikit-learn's features and ridge, at the alpha bochner chose for such features."""
    from sklearn.kernel_approximation import RBFSampler  # noqa: PLC0415
    from sklearn.linear_model import Ridge  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    sampler = RBFSampler(gamma=0.5, n_components=width, random_state=study.seed)
    model = make_pipeline(sampler, Ridge(alpha=alpha))
    scaled = (study.X / np.asarray(study.kernel.lengthscale)).astype(np.float64)
    started = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=LinAlgWarning):  # alpha is tiny
        model.fit(scaled[study.train], study.y[study.train])
    predicted = model.predict(scaled[study.test])
    seconds = time.perf_counter() - started
    code = "make_pipeline(RBFSampler(), Ridge())"
    errors = _errors(study, predicted)
    return DemoFit(None, MethodResult(RIVAL, code, width, *errors, seconds, float("nan"), alpha))


def _certificate(study: DemoRows, fit: DemoFit, alpha: float) -> Certificate:
    how: dict[str, Any] = {"alpha": alpha, "n_sample": 1024, "random_state": study.seed}
    return certify(fit.model.map_, study.X[study.train], kernel=study.kernel, **how)


def _with_certificate(result: MethodResult, certificate: Certificate) -> MethodResult:
    numbers = {k: getattr(certificate, k) for k in ("epsilon", "epsilon_interval", "frobenius")}
    return replace(result, certificate=str(certificate), **numbers)


# --- error against features ----------------------------------------------------------------------


def _sweep(
    study: DemoRows, widths: tuple[int, ...], fits: list[DemoFit], say: Say
) -> tuple[tuple[Curve, ...], DemoFit]:
    """Fit three methods at every width; return their curves and the fit of least LOO error."""
    known = {(f.result.name, f.result.n_features): f for f in fits}
    curves, best = [], fits[0]
    for name, method in CURVES:
        say(f"\n{name}: test RMSE against features")
        line = []
        for width in widths:
            fit = known.get((name, width)) or _fit(study, name, method, width)
            best = min(best, fit, key=lambda f: f.result.loo)
            line.append(fit.result.rmse)
            say(f"  {width:6,} {'█' * max(1, round(line[-1] / 50)):40} {line[-1]:6.0f} m")
        curves.append(Curve(name, widths, tuple(line)))
    return tuple(curves), best


# --- harmonics and neighbours --------------------------------------------------------------------


def _sharper(study: DemoRows, quick: bool, say: Say) -> tuple[NearResult, ...]:
    """Fit harmonics of the globe, kriging of the nearest cells, and what these leave."""
    degree, width = int(FINEST * study.shape[0]), 256 if quick else 2048
    found_by, rows = "auto" if quick else "evidence", (study.train, study.test)
    cells = MapCells(study.places, study.y, study.shape, *rows, degree, width, found_by, study.seed)
    say("\nSharper: harmonics of the globe, the nearest cells, the relief around")
    found = []
    for row in sharper(cells):
        found.append(row)
        say(f"  {row.name:28}{row.rmse:5.0f} m{row.seconds:9.1f} s   {row.detail}")
    return tuple(found)


def _result(
    study: DemoRows, fits: list[DemoFit], curves: tuple[Curve, ...], best: DemoFit, quick: bool
) -> DemoResult:
    held_out = np.zeros(study.y.size, bool)
    held_out[study.test] = True
    known = (fit.result.certificate for fit in fits if fit.model is best.model)
    # That of all kept rows takes a third of a quick demo.
    alpha = best.result.alpha
    own = _certificate(study, best, alpha) if quick else best.model.certificate_
    return DemoResult(
        methods=tuple(fit.result for fit in fits),
        curves=curves,
        best=_with_certificate(best.result, own),
        truth=study.y.reshape(study.shape).astype(np.float64),
        prediction=best.model.predict(study.X).reshape(study.shape),
        held_out=held_out.reshape(study.shape),
        kernel=repr(study.kernel),
        alpha=study.alpha,
        certificate=next(known, None) or str(_certificate(study, best, study.alpha)),
        n_train=study.train.size,
        n_test=study.test.size,
        seed=study.seed,
    )
