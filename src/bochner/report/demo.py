"""The demo: kernel ridge regression of the Earth's relief by several methods, on one page."""

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.neighbors import KNeighborsRegressor

import bochner as bo
from bochner._core.checks import integer
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.writers import atomic
from bochner.datasets.loaders import load_earth
from bochner.features.map import Method
from bochner.report.render import imports, number, page, picture, require

Say = Callable[[str], Any]

METHODS: tuple[tuple[str, Method], ...] = (
    ("Fourier, independent", bo.Fourier(bo.IID())),
    ("Fourier, orthogonal", bo.Fourier(bo.Orthogonal())),
    ("Fourier, Sobol points", bo.Fourier(bo.QMC())),
    ("Nyström, pivoted", bo.Nystrom(bo.landmarks.RPCholesky())),
    ("Spherical harmonics", bo.MercerHarmonic()),
    ("auto", bo.Auto()),
)
CURVES = (METHODS[0], METHODS[3], METHODS[4])
#: Cells that each cell is kriged from, and that are averaged by the simplest rival.
NEIGHBOURS, FEW = 24, 4
#: Colours of maps from low to zero and from zero to high. Along each side the lightness that the
#: eye sees (Oklab, Ottosson 2020) changes by equal steps. Sea blue, land green to brown.
RELIEF = (
    ("#0b1b47", "#2b4b6f", "#577d98", "#8aafc1", "#c5e4ed"),
    ("#bed598", "#a8a064", "#8c6f3c", "#6b4221", "#451a0f"),
)
#: Too low violet, too high orange; no error has the colour of the paper.
ERROR = (
    ("#531d8d", "#7757aa", "#a08bc5", "#c9bedf", "#f5f4f8"),
    ("#f8f4f2", "#e1c7b5", "#cb997b", "#b46d45", "#9a3c00"),
)


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One row of a table of methods."""

    name: str  # as it is shown
    code: str  # the Python expression that gives the method
    n_features: int
    rmse: float  # on the held-out cells, metres
    r_squared: float  # on the held-out cells
    seconds: float  # of fit and prediction of the held-out cells, wall clock
    loo: float = float("nan")  # root mean squared leave-one-out error on training cells, metres
    alpha: float = float("nan")  # the penalty chosen
    epsilon: float | None = None  # of the certificate, as what follows; None where there is none
    epsilon_interval: tuple[float, float] | None = None
    frobenius: float | None = None
    certificate: str = ""  # in words
    detail: str = ""  # what the model is made of


@dataclass(frozen=True, eq=False)
class DemoResult:
    """All numbers of the demo."""

    methods: tuple[MethodResult, ...]  # all at the same width
    curves: list[dict[str, Any]]  # of a method: its name, n_features, and rmse at each of these
    # The fit that the maps show: of the least leave-one-out error among those of the curves
    best: MethodResult
    truth: Float[Array, "rows columns"]  # metres, south first, as the prediction
    prediction: Float[Array, "rows columns"]
    held_out: Float[Array, "rows columns"]  # whether no fit has seen the cell
    kernel: str  # of all fits, as code
    alpha: float  # of the certificates in the table
    certificate: str  # of the best fit at this alpha, in words
    n_train: int
    n_test: int
    seed: int
    quick: bool = False
    seconds: float = 0.0  # all of it, wall clock
    path: Path = Path("earth.html")
    # Harmonics of the globe, the nearest cells, and what is learned from the relief around
    near: tuple[MethodResult, ...] = ()


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
    kernel: bo.kernels.Gaussian

    def judged(
        self, name: str, code: str, width: int, predicted: Array, started: float, **more: Any
    ) -> MethodResult:
        """Return the errors of predictions of the held-out cells, and the seconds they took."""
        seconds, truth = time.perf_counter() - started, self.y[self.test].astype(np.float64)
        rmse = float(np.sqrt(np.mean((predicted - truth) ** 2)))
        share = float(1 - rmse**2 / truth.var())
        return MethodResult(name, code, width, rmse, share, seconds, **more)

    def fitted(self, name: str, method: Method, width: int) -> tuple[Any, MethodResult]:
        """Fit a method in float64: float32 does not resolve the best penalty without noise."""
        how: dict[str, Any] = {"precision": "float64", "random_state": self.seed}
        started = time.perf_counter()
        model = bo.KernelRidge(self.kernel, method=method, n_features=width, **how)
        predicted = model.fit(self.X[self.train], self.y[self.train]).predict(self.X[self.test])
        fit = self.judged(name, repr(method), width, predicted, started)
        loo = float(np.sqrt(np.nanmin(model.solution_.path.loo)))
        return model, replace(fit, loo=loo, alpha=model.alpha_)

    def certified(self, model: Any, result: MethodResult, alpha: float) -> MethodResult:
        """Return the result with the certificate of the model's map at this penalty."""
        how: dict[str, Any] = {"alpha": alpha, "n_sample": 1024, "random_state": self.seed}
        certificate = bo.certify(model.map_, self.X[self.train], kernel=self.kernel, **how)
        numbers = {k: getattr(certificate, k) for k in ("epsilon", "epsilon_interval", "frobenius")}
        return replace(result, certificate=str(certificate), **numbers)


def run_demo(
    out: str | PathLike[str] = ".", quick: bool = False, seed: int = 0, show: Say | None = None
) -> DemoResult:
    """Fit the Earth's relief by every method at equal width, and write one HTML page.

    ``out`` is a folder, or the name of an .html file; ``quick`` takes one cell in four and a
    quarter of the features: seconds, not one to two minutes.
    """
    require("The demo's page")
    path, seed = Path(out).expanduser().resolve(), integer(seed, "run_demo", "seed")
    path = path if path.suffix.lower() in (".html", ".htm") else path / "earth.html"
    with suppress(OSError):  # the next line says what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path, "w") as file:  # before anything is computed
        result = _measured(path, quick, seed, show or (lambda _: None))
        file.write(earth_page(result))
    if show is not None:
        show(f"Wrote {path}")
    return result


def _measured(path: Path, quick: bool, seed: int, say: Say) -> DemoResult:
    """Return all numbers; say each as it is found."""
    started = time.perf_counter()
    width, widths = (256, (32, 64, 128, 256)) if quick else (1024, (64, 128, 256, 512, 1024, 2048))
    study = _study(quick, seed, width, say)
    alpha = 1e-4 * study.train.size  # of certificates; at those of fits nearly every ε is above 1
    tell = lambda r: say(
        f"  {r.name:28}{r.rmse:7.0f} m{r.r_squared:8.3f}{r.seconds:8.1f} s   {r.detail}".rstrip()
    )
    say(f"\nMethods at {width:,} features: test RMSE, R², seconds")
    fits: dict[str, tuple[Any, MethodResult]] = {}
    for name, method in METHODS:
        model, found = study.fitted(name, method, width)
        fits[name] = model, study.certified(model, found, alpha)
        tell(fits[name][1])
    methods = [found for _, found in fits.values()]
    methods.append(_rival(study, width, methods[0].alpha))
    tell(methods[-1])
    curves, best = [], fits[METHODS[0][0]]
    for name, method in CURVES:
        say(f"\n{name}: test RMSE against features")
        errors = []
        for D in widths:
            fit = fits[name] if width == D else study.fitted(name, method, D)
            best, error = min(best, fit, key=lambda each: each[1].loo), fit[1].rmse
            errors.append(error)
            say(f"  {D:6,} {'█' * max(1, round(error / 50)):40} {error:6.0f} m")
        curves.append({"name": name, "n_features": widths, "rmse": errors})
    model, chosen = best
    say("\nSharper: harmonics of the globe, the nearest cells, the relief around")
    near, began = [], time.perf_counter()
    for name, code, detail, predicted in _near(study, quick):
        near.append(study.judged(name, code, 0, predicted, began, detail=detail))
        tell(near[-1])
        began = time.perf_counter()
    return DemoResult(
        methods=tuple(methods),
        curves=curves,
        best=study.certified(model, chosen, chosen.alpha),
        truth=study.y.reshape(study.shape).astype(np.float64),
        prediction=model.predict(study.X).reshape(study.shape),
        held_out=np.isin(np.arange(study.y.size), study.test).reshape(study.shape),
        kernel=repr(study.kernel),
        alpha=alpha,
        certificate=study.certified(model, chosen, alpha).certificate,
        n_train=study.train.size,
        n_test=study.test.size,
        seed=seed,
        quick=quick,
        seconds=time.perf_counter() - started,
        path=path,
        near=tuple(near),
    )


def _study(quick: bool, seed: int, width: int, say: Say) -> Study:
    """Return the cells, a tenth held out, and the kernel; quick has every second row and column."""
    earth, step = load_earth(), 2 if quick else 1
    rows = len(np.unique(np.asarray(earth.latitude)))
    cells = np.arange(len(earth.y)).reshape(rows, -1)[::step, ::step]
    order = stream(seed, "demo", "split").permutation(cells.size)
    tenth, kept = cells.size // 10, cells.ravel()
    train, test = np.sort(order[tenth:]), np.sort(order[:tenth])
    degrees = np.stack([np.asarray(earth.latitude), np.asarray(earth.longitude)], axis=1)
    X, y, places = earth.X[kept], earth.y[kept], degrees[kept].astype(np.float64)
    counts = f"{y.size:,} cells, {train.size:,} to learn from, {test.size:,} held out"
    say(f"The Earth's relief: {counts}")
    how: dict[str, Any] = {"method": bo.Fourier(bo.Orthogonal()), "random_state": seed}
    model = bo.KernelRidge("gaussian", n_features=width // 2, **how).fit(X[train], y[train])
    # One lengthscale for all directions (a sphere has no axes), to two digits.
    lengthscale = np.exp(np.mean(np.log(model.kernel_.get_params()["lengthscale"])))
    kernel = bo.kernels.Gaussian(float(f"{lengthscale:.2g}"))
    say(f"Kernel, its lengthscale chosen by leave-one-out error: {kernel!r}")
    return Study(X, y, places, cells.shape, train, test, seed, kernel)


def _rival(study: Study, width: int, alpha: float) -> MethodResult:
    """Fit scikit-learn's features and ridge, at the alpha bochner chose for such features."""
    from sklearn.kernel_approximation import RBFSampler  # noqa: PLC0415
    from sklearn.linear_model import Ridge  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    sampler = RBFSampler(gamma=0.5, n_components=width, random_state=study.seed)
    model, code = make_pipeline(sampler, Ridge(alpha=alpha)), "make_pipeline(RBFSampler(), Ridge())"
    scaled = (study.X / np.asarray(study.kernel.lengthscale)).astype(np.float64)
    started = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=LinAlgWarning):  # alpha is tiny
        predicted = model.fit(scaled[study.train], study.y[study.train]).predict(scaled[study.test])
    name = "scikit-learn RBFSampler"
    return study.judged(name, code, width, predicted, started, alpha=alpha)


# --- Harmonics of the globe, the nearest cells, and the relief around each cell -------------------
#
# Relief is rougher than features and harmonics, and has no noise: cells are kriged from the nearest
# cells. The error of kriging is learned from the relief around each cell, because coasts, trenches
# and ridges have structure beyond the covariance of two cells.


def _near(study: Study, quick: bool) -> Iterator[tuple[str, str, str, Float[Array, " t"]]]:
    """Fit each model; yield name, code, detail and predictions of held-out cells."""
    train, test, seed = study.train, study.test, study.seed
    truth, places = study.y.astype(np.float64), study.places
    globe, alpha = bo.kernels.OnSphere("matern32", 3.0), 0.1  # three cells, and little noise
    nearest = KNeighborsRegressor(FEW).fit(globe.inputs(places[train]), truth[train])
    mean = nearest.predict(globe.inputs(places[test]))
    yield "Mean of the nearest cells", f"KNeighborsRegressor({FEW})", f"{FEW} cells", mean

    # Finer harmonics than two for three rows of cells see every cell that is left out.
    harmonics = bo.SphericalHarmonics(int(2 / 3 * study.shape[0]))
    model = bo.KernelRidge(globe, method=harmonics, alpha=alpha, random_state=seed)
    model.fit(places[train], truth[train])
    code = f"KernelRidge({globe!r}, method={harmonics}, alpha={alpha})"
    count = f"{model.map_.n_features:,} harmonics"
    yield "Spherical harmonics", code, count, model.predict(places[test])

    # Kriging starts from a lengthscale of three cells; quick keeps it.
    start = bo.kernels.OnSphere("matern32", 3 * 180 / study.shape[0])
    method = bo.NearestNeighbours(NEIGHBOURS)
    how: dict[str, Any] = {"method": method, "lengthscale": "auto" if quick else "evidence"}
    process = bo.GaussianProcessRegressor(start, **how, random_state=seed)
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
    ridge = bo.KernelRidge("matern32", method="nystrom", n_features=width, random_state=seed)
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

    Heights of the cells around, less that predicted for it, over their size; its logarithm; the
    predicted height. Rows beyond a pole continue on its other side.
    """
    rows, columns = shape
    i, j = np.divmod(np.arange(len(known)), columns)
    step = np.maximum(1, np.round(1 / np.cos(np.deg2rad(places[:, 0])))).astype(int)
    grid, reach = known.reshape(rows, columns), range(-3, 4)  # three cells on a side
    other = np.roll(grid, columns // 2, axis=1)
    wide = np.concatenate([other[2::-1], grid, other[:-4:-1]])
    near = [(a, b) for a in reach for b in reach if a or b]
    parts = [wide[i + a + 3, (j + b * step) % columns] - predicted for a, b in near]
    around = np.stack(parts, axis=1)
    size = np.sqrt(np.mean(around**2, axis=1)) + 20.0  # metres, also where the relief is flat
    log = np.log(size)
    more = np.stack([log - log.mean(), predicted / 2000.0], axis=1)  # heights in units of 2 km
    return np.hstack([around / size[:, None], more]), size


# --- The page ------------------------------------------------------------------------------------


def earth_page(result: DemoResult) -> str:
    """Return the page as text."""
    r, ends = result, sorted(result.curves, key=lambda curve: curve["rmse"][-1])
    alphas = [row.alpha for row in r.methods if row.epsilon is not None]
    used = imports(f"KernelRidge({r.kernel}, {r.best.code})")
    words = load_earth().description.split("\n\n")
    rows, columns = r.truth.shape
    latitudes = -90 + (np.arange(rows) + 0.5) * 180 / rows
    error, area = r.prediction - r.truth, np.cos(np.deg2rad(latitudes))[:, None]
    errors = np.where(r.held_out, np.abs(error), np.nan)
    row, column = divmod(int(np.nanargmax(errors)), columns)
    rmse = lambda w: np.sqrt(np.nansum(w * errors**2) / (w * r.held_out).sum())
    latitude, longitude = latitudes[row], -180 + (column + 0.5) * 360 / columns
    north, east = "N" if latitude > 0 else "S", "E" if longitude > 0 else "W"
    text = page(
        "demo.html.j2",
        r=r,
        maps={
            "truth": _map("Relief as measured, m", r.truth, RELIEF, (-7500, 6000)),
            "prediction": _map("Relief as predicted, m", r.prediction, RELIEF, (-7500, 6000)),
            "error": _map("Prediction less truth, m", error, ERROR, (-1500, 1500)),
        },
        curves=picture(
            "Test error against the number of features", lambda ax: _draw_curves(ax, r.curves)
        ),
        where={
            "median": np.nanmedian(errors),
            "inside": np.mean(errors[r.held_out] < 250),
            "sea": rmse(r.truth < 0),
            "land": rmse(r.truth >= 0),
            "area": rmse(area),
            "place": f"{abs(latitude):.1f}° {north}, {abs(longitude):.1f}° {east}",
            "predicted": f"{r.prediction[row, column]:,.0f} m".replace("-", "−"),
            "true": f"{r.truth[row, column]:,.0f} m".replace("-", "−"),
            "deviation": r.truth[r.held_out].std(),
        },
        alphas=f"{number(min(alphas), 1)} to {number(max(alphas), 1)}",
        ends=ends,
        imports=sorted([*used, "from bochner.datasets import load_earth"]),
        source=" ".join(" ".join(p.split()) for p in words if p.startswith(("Source", "Licence"))),
    )
    return re.sub(r"(?<=\d) (?=m\b|%)", "\u00a0", text)  # no line breaks before a unit


# --- Pictures ------------------------------------------------------------------------------------


def colours(sides: tuple[tuple[str, ...], tuple[str, ...]]) -> Any:
    """Return the matplotlib colour map with these colours below and above its middle."""
    from matplotlib.colors import LinearSegmentedColormap

    places = [*np.linspace(0, 0.5, len(sides[0])), *np.linspace(0.5, 1, len(sides[1]))]
    stops = list(zip(places, [*sides[0], *sides[1]], strict=True))
    return LinearSegmentedColormap.from_list("map", stops, N=256)


def _map(title: str, values: Array, sides: Any, ends: tuple[int, int]) -> Any:
    """Return a map with its degrees and its colours."""
    from matplotlib.colors import TwoSlopeNorm

    def draw(ax: Any) -> None:
        image = ax.imshow(
            values,
            cmap=colours(sides),
            norm=TwoSlopeNorm(0, *ends),
            extent=(-180, 180, -90, 90),
            origin="lower",
            interpolation="none",
        )
        east, north = range(-120, 121, 60), range(-60, 61, 30)
        ax.set_xticks(east, [f"{abs(d)}°{'WE'[d > 0] if d else ''}" for d in east])
        ax.set_yticks(north, [f"{abs(d)}°{'SN'[d > 0] if d else ''}" for d in north])
        ax.set_axisbelow(False)
        ax.grid(True, axis="both", color="gray", alpha=0.4, linewidth=0.5)
        ax.tick_params(length=0)
        bar = ax.figure.colorbar(
            image, orientation="horizontal", aspect=40, pad=0.03, extend="both"
        )
        bar.set_label(title)
        bar.ax.set_xscale("linear")

    return picture(title, draw, (4.8, 3.0))


def _draw_curves(ax: Any, curves: list[dict[str, Any]]) -> None:
    """Draw errors against the number of features."""
    from matplotlib.ticker import MaxNLocator

    for curve, mark in zip(curves, "os^", strict=False):
        how = {"markersize": 5, "label": curve["name"]}
        ax.plot(curve["n_features"], curve["rmse"], f"{mark}-", **how)
    widths = curves[0]["n_features"]
    ax.set(xscale="log", yscale="log", xlabel="features D", ylabel="test RMSE, m")
    ax.set_xticks(widths, [f"{D:,}" for D in widths])
    ax.minorticks_off()
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.legend()
