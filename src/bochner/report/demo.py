"""The demo: kernel ridge regression of the Earth's relief by several methods, on one page."""

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline

import bochner as bo
from bochner._core.checks import integer
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.data.writers import open_atomic
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
#: Cells that each cell is kriged from; cells that the simplest comparison averages.
NEIGHBOURS, NEAREST = 24, 4
#: Colours of maps, from the lowest to zero and from zero to the highest, with equal steps of
#: perceived lightness (Oklab, Ottosson 2020). Sea: blue; land: green to brown.
RELIEF = (
    *("#0b1b47", "#2b4b6f", "#577d98", "#8aafc1", "#c5e4ed"),
    *("#bed598", "#a8a064", "#8c6f3c", "#6b4221", "#451a0f"),
)
#: Colours of errors: too low is violet, too high is orange, zero has the colour of the page.
ERROR = (
    *("#531d8d", "#7757aa", "#a08bc5", "#c9bedf", "#f5f4f8"),
    *("#f8f4f2", "#e1c7b5", "#cb997b", "#b46d45", "#9a3c00"),
)

#: Numbers of a fit, or of the demo, by name.
Numbers = dict[str, Any]
#: Facts that some fits lack: leave-one-out error, penalty, certificate, and a detail of the model.
UNKNOWN: Numbers = dict.fromkeys(("loo", "alpha", "epsilon", "epsilon_interval", "frobenius"))
UNKNOWN |= {"certificate": "", "detail": ""}


def run_demo(
    out: str | PathLike[str] = ".", quick: bool = False, seed: int = 0, show: Say | None = None
) -> Numbers:
    """Fit the Earth's relief by every method at equal width, and write one HTML page.

    ``out`` is a folder, or the name of an .html file; ``quick`` uses one cell in four and a quarter
    of the features: it takes seconds, not one to two minutes. Return all numbers by name.
    """
    require("The demo's page")
    path, seed = Path(out).expanduser().resolve(), integer(seed, "run_demo", "seed")
    path = path if path.suffix.lower() in (".html", ".htm") else path / "earth.html"
    with suppress(OSError):  # the next line raises the error
        path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(path, "w") as file:  # before anything is computed
        result = _numbers(quick, seed, show or (lambda _: None)) | {"page": str(path)}
        file.write(earth_page(result))
    if show is not None:
        show(f"Wrote {path}")
    return result


def _numbers(quick: bool, seed: int, say: Say) -> Numbers:  # noqa: PLR0915  one script
    """Return all numbers of the page; print each when it is computed."""
    start, earth, step = time.perf_counter(), load_earth(), 2 if quick else 1
    width, widths = (256, (32, 64, 128, 256)) if quick else (1024, (64, 128, 256, 512, 1024, 2048))
    places = np.stack([np.asarray(earth.latitude), np.asarray(earth.longitude)], axis=1)
    cells = np.arange(len(places)).reshape(len(np.unique(places[:, 0])), -1)[::step, ::step]
    order = stream(seed, "demo", "split").permutation(cells.size)
    tenth, cells_ = cells.size // 10, cells.ravel()
    train, test = np.sort(order[tenth:]), np.sort(order[:tenth])
    X, y, places = earth.X[cells_], earth.y[cells_], places[cells_].astype(np.float64)
    truth = y.astype(np.float64)
    counts = f"{y.size:,} cells, {train.size:,} to learn from, {test.size:,} held out"
    say(f"The Earth's relief: {counts}")
    base: dict[str, Any] = {"method": bo.Fourier(bo.Orthogonal()), "random_state": seed}
    model: Any = bo.KernelRidge("gaussian", n_features=width // 2, **base).fit(X[train], y[train])
    # One lengthscale for all directions (a sphere has no axes), to two digits.
    lengthscale = np.exp(np.mean(np.log(model.kernel_.get_params()["lengthscale"])))
    kernel = bo.kernels.Gaussian(float(f"{lengthscale:.2g}"))
    say(f"Kernel, its lengthscale chosen by leave-one-out error: {kernel!r}")

    def errors_of(name: str, code: str, D: int, f: Array, clock: float, **facts: Any) -> Numbers:
        """Return the errors of predictions f of the held-out cells, in metres, and the seconds."""
        seconds, y = time.perf_counter() - clock, truth[test]
        errors = {"rmse": root_mean_squared_error(y, f), "r_squared": r2_score(y, f)}
        labels = {"name": name, "code": code, "n_features": D, "seconds": seconds}
        return UNKNOWN | labels | errors | facts

    def fit_of(name: str, method: Method, D: int) -> tuple[Any, Numbers]:
        """Fit a method, in float64: without noise the best penalty is too small for float32."""
        settings: dict[str, Any] = {"precision": "float64", "random_state": seed}
        clock = time.perf_counter()
        model = bo.KernelRidge(kernel, method=method, n_features=D, **settings)
        predicted = model.fit(X[train], y[train]).predict(X[test])
        fit = errors_of(name, repr(method), D, predicted, clock, alpha=model.alpha_)
        return model, fit | {"loo": float(np.sqrt(np.nanmin(model.solution_.path.loo)))}

    def certify_fit(model: Any, fit: Numbers, alpha: float) -> Numbers:
        """Return the fit with the certificate of its map at this penalty."""
        settings: dict[str, Any] = {"alpha": alpha, "n_sample": 1024, "random_state": seed}
        certificate = bo.certify(model.map_, X[train], kernel=kernel, **settings)
        numbers = {k: getattr(certificate, k) for k in ("epsilon", "epsilon_interval", "frobenius")}
        detail = f"ε {number(certificate.epsilon, 3)}"
        return fit | {"certificate": str(certificate), "detail": detail, **numbers}

    tell = lambda r: say(
        f"  {r['name']:28}{r['rmse']:7.0f} m{r['r_squared']:8.3f}{r['seconds']:8.1f} s   "
        f"{r['detail']}".rstrip()
    )
    alpha = 1e-4 * train.size  # of certificates; at the penalties of fits nearly every ε is above 1
    words = f"test RMSE, R², seconds, distance ε from the exact kernel at alpha = {alpha:.3g}"
    say(f"\nMethods at {width:,} features: {words}")
    fits: dict[str, tuple[Any, Numbers]] = {}
    for name, method in METHODS:
        model, fit = fit_of(name, method, width)
        fits[name] = model, certify_fit(model, fit, alpha)
        tell(fits[name][1])
    methods = [fit for _, fit in fits.values()]
    # scikit-learn's features and ridge, at the penalty that bochner chose for independent features
    penalty, inputs = methods[0]["alpha"], X.astype(np.float64) / kernel.lengthscale
    sampler = RBFSampler(gamma=0.5, n_components=width, random_state=seed)
    pipeline, clock = make_pipeline(sampler, Ridge(alpha=penalty)), time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=LinAlgWarning):  # alpha is tiny
        predicted = pipeline.fit(inputs[train], y[train]).predict(inputs[test])
    name, code = "scikit-learn RBFSampler", "make_pipeline(RBFSampler(), Ridge())"
    methods.append(errors_of(name, code, width, predicted, clock, alpha=penalty))
    tell(methods[-1])
    curves, best = [], fits[METHODS[0][0]]
    for name, method in CURVES:
        say(f"\n{name}: test RMSE against features")
        curve: Numbers = {"name": name, "n_features": widths, "rmse": []}
        for D in widths:
            pair = fits[name] if width == D else fit_of(name, method, D)
            best, error = min(best, pair, key=lambda fit: fit[1]["loo"]), pair[1]["rmse"]
            curve["rmse"].append(error)
            say(f"  {D:6,} {'█' * max(1, round(error / 50)):40} {error:6.0f} m")
        curves.append(curve)
    say("\nMore accurate: harmonics of the globe, the nearest cells, the relief around")
    local, clock = [], time.perf_counter()
    predictions = _nearest(truth, places, cells.shape, train, test, quick, seed)
    for name, model, detail, predicted in predictions:
        code = " ".join(repr(model).split())
        local.append(errors_of(name, code, 0, predicted, clock, detail=detail))
        tell(local[-1])
        clock = time.perf_counter()
    model, fit = best
    return {
        "kernel": repr(kernel),
        "alpha": alpha,  # of the certificates in the table
        "certificate_words": certify_fit(model, fit, alpha)["certificate"],
        "methods": methods,  # all at the same width
        # the fit in the maps: that with the least leave-one-out error of all fits in the curves
        "best": certify_fit(model, fit, fit["alpha"]),
        "curves": curves,
        # harmonics of the globe, the nearest cells, and corrections learned from the relief around
        "near": local,
        "train_rows": train.size,
        "test_rows": test.size,
        "seed": seed,
        "quick": quick,
        "maps": {
            "truth": truth.reshape(cells.shape),  # metres, south first, as the prediction
            "prediction": model.predict(X).reshape(cells.shape),
            "held_out": np.isin(np.arange(y.size), test).reshape(cells.shape),
        },
        "seconds": time.perf_counter() - start,
    }


# --- Harmonics of the globe, the nearest cells, and the relief around each cell -------------------
#
# The relief is rougher than features and harmonics, and has no noise: each cell is kriged from the
# nearest cells. A second model learns the errors of kriging from the surrounding relief: coasts,
# trenches and ridges have structure beyond the covariance of two cells.


def _nearest(
    truth: Float[Array, " n"],
    places: Float[Array, "n 2"],  # latitude and longitude in degrees, south first
    shape: tuple[int, int],
    train: Array,
    test: Array,
    quick: bool,
    seed: int,
) -> Iterator[tuple[str, Any, str, Float[Array, " t"]]]:
    """Fit each model; yield its name, the model, its size and predictions of test cells."""
    globe, alpha = bo.kernels.OnSphere("matern32", 3.0), 0.1  # lengthscale: three cells
    nearest = KNeighborsRegressor(NEAREST).fit(globe.inputs(places[train]), truth[train])
    mean = nearest.predict(globe.inputs(places[test]))
    yield "Mean of the nearest cells", nearest, f"{NEAREST} cells", mean

    # Harmonics of higher degree would vary within the gaps of the held-out cells.
    harmonics = bo.SphericalHarmonics(int(2 / 3 * shape[0]))
    model = bo.KernelRidge(globe, method=harmonics, alpha=alpha, random_state=seed)
    model.fit(places[train], truth[train])
    count = f"{model.map_.n_features:,} harmonics"
    yield "Spherical harmonics", model, count, model.predict(places[test])

    # Kriging starts from a lengthscale of three cells; with ``quick`` it is not tuned.
    start = bo.kernels.OnSphere("matern32", 3 * 180 / shape[0])
    method = bo.NearestNeighbours(NEIGHBOURS)
    settings: dict[str, Any] = {"method": method, "lengthscale": "auto" if quick else "evidence"}
    process = bo.GaussianProcessRegressor(start, **settings, random_state=seed)
    process.fit(places[train], truth[train])
    kriging = process.predict(places[test])
    yield "Local kriging", process, f"{NEIGHBOURS} cells", kriging

    errors = process.fit_.law.left_out(np.arange(len(train)))[0][:, 0]
    values, predicted = truth.copy(), np.empty(len(truth))
    predicted[train], predicted[test] = truth[train] - errors, kriging
    values[test] = kriging
    X, size = relief_around(places, shape, values, predicted)
    width = 256 if quick else 2048
    ridge = bo.KernelRidge("matern32", method="nystrom", n_features=width, random_state=seed)
    ridge.fit(X[train], errors / size[train], sample_weight=size[train] ** 2)
    correction = ridge.predict(X[test]) * size[test]
    detail = f"{width:,} features of {X.shape[1]} columns"
    yield "and the relief around it", ridge, detail, kriging + correction


def relief_around(
    places: Float[Array, "n 2"],
    shape: tuple[int, int],
    values: Float[Array, " n"],
    predicted: Float[Array, " n"],
) -> tuple[Float[Array, "n p"], Float[Array, " n"]]:
    """Return the columns that describe the relief around each cell, and its size in metres.

    Columns: surrounding heights minus the predicted height, divided by their size; log of the size;
    the predicted height. Rows beyond a pole continue on its other side.
    """
    rows, columns = shape
    i, j = np.divmod(np.arange(len(values)), columns)
    step = np.maximum(1, np.round(1 / np.cos(np.deg2rad(places[:, 0])))).astype(int)
    grid, reach = values.reshape(rows, columns), range(-3, 4)  # three cells on a side
    opposite = np.roll(grid, columns // 2, axis=1)
    wide = np.concatenate([opposite[2::-1], grid, opposite[:-4:-1]])
    offsets = [(a, b) for a in reach for b in reach if a or b]
    parts = [wide[i + a + 3, (j + b * step) % columns] - predicted for a, b in offsets]
    relief = np.stack(parts, axis=1)
    size = np.sqrt(np.mean(relief**2, axis=1)) + 20.0  # metres, also where the relief is flat
    log = np.log(size)
    scales = np.stack([log - log.mean(), predicted / 2000.0], axis=1)  # heights in units of 2 km
    return np.hstack([relief / size[:, None], scales]), size


def earth_page(r: Numbers) -> str:
    """Return the HTML of the demo's page."""
    truth, prediction, held_out = r["maps"].values()
    alphas = [row["alpha"] for row in r["methods"] if row["epsilon"] is not None]
    import_lines = imports(f"KernelRidge({r['kernel']}, {r['best']['code']})")
    words = load_earth().description.split("\n\n")
    rows, columns = truth.shape
    latitudes = -90 + (np.arange(rows) + 0.5) * 180 / rows
    error, area = prediction - truth, np.cos(np.deg2rad(latitudes))[:, None]
    errors = np.where(held_out, np.abs(error), np.nan)
    row, column = divmod(int(np.nanargmax(errors)), columns)
    rmse = lambda w: np.sqrt(np.nansum(w * errors**2) / (w * held_out).sum())
    latitude, longitude = latitudes[row], -180 + (column + 0.5) * 360 / columns
    north, east = "N" if latitude > 0 else "S", "E" if longitude > 0 else "W"
    text = page(
        "demo.html.j2",
        r=r,
        maps={
            "truth": _map("Relief as measured, m", truth, RELIEF, (-7500, 6000)),
            "prediction": _map("Relief as predicted, m", prediction, RELIEF, (-7500, 6000)),
            "error": _map("Prediction less truth, m", error, ERROR, (-1500, 1500)),
        },
        curves=picture(
            "Test error against the number of features", lambda ax: _draw_curves(ax, r["curves"])
        ),
        where={
            "median": np.nanmedian(errors),
            "inside": np.mean(errors[held_out] < 250),
            "sea": rmse(truth < 0),
            "land": rmse(truth >= 0),
            "area": rmse(area),
            "place": f"{abs(latitude):.1f}° {north}, {abs(longitude):.1f}° {east}",
            "predicted": f"{prediction[row, column]:,.0f} m".replace("-", "−"),
            "true": f"{truth[row, column]:,.0f} m".replace("-", "−"),
            "deviation": truth[held_out].std(),
        },
        alphas=f"{number(min(alphas), 1)} to {number(max(alphas), 1)}",
        ends=sorted(r["curves"], key=lambda curve: curve["rmse"][-1]),
        imports=sorted([*import_lines, "from bochner.datasets import load_earth"]),
        source=" ".join(" ".join(p.split()) for p in words if p.startswith(("Source", "Licence"))),
    )
    return re.sub(r"(?<=\d) (?=m\b|%)", "\u00a0", text)  # no line breaks before a unit


def colours(stops: tuple[str, ...]) -> Any:
    """Return the matplotlib colour map with five colours below its middle, and five above."""
    from matplotlib.colors import LinearSegmentedColormap

    places = np.sort(np.append(np.linspace(0, 1, 9), 0.5))
    return LinearSegmentedColormap.from_list("map", list(zip(places, stops, strict=True)), N=256)


def _map(title: str, values: Array, stops: tuple[str, ...], ends: tuple[int, int]) -> Any:
    """Return a picture of a map with degrees and a colour bar; ``ends`` are its limits."""
    from matplotlib.colors import TwoSlopeNorm

    def draw(ax: Any) -> None:
        image = ax.imshow(
            values,
            cmap=colours(stops),
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
        style = {"markersize": 5, "label": curve["name"]}
        ax.plot(curve["n_features"], curve["rmse"], f"{mark}-", **style)
    widths = curves[0]["n_features"]
    ax.set(xscale="log", yscale="log", xlabel="features D", ylabel="test RMSE, m")
    ax.set_xticks(widths, [f"{D:,}" for D in widths])
    ax.minorticks_off()
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.legend()
