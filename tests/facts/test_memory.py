"""What takes more memory than there is, is refused in one sentence, and nothing else is."""

import numpy as np
import pytest

import bochner as bo
from bochner import features as f
from bochner import kernels as k
from bochner._core import checks
from bochner.errors import InvalidInput

ROWS = np.random.default_rng(0).standard_normal((50, 3))
TOO_MANY = 10**13
POWERS = k.Polynomial(degree=3, offset=1.0)
WIDE = [
    *((k.Gaussian(), f.Fourier(place)) for place in (f.IID(), f.Orthogonal(), f.QMC())),
    *((k.Gaussian(), f.Fourier(place)) for place in (f.Structured(), f.Fastfood())),
    (k.Laplace(1.0), f.Fourier(f.IID())),
    (k.Gaussian() + k.Matern(1.5), f.Fourier()),
    (k.Gaussian() * k.Laplace(1.0), f.Fourier(f.IID())),
    (k.Columns(k.Gaussian(), (0, 2)), f.Fourier()),
    (k.Gaussian(), f.Gegenbauer()),
    (k.Gaussian(), f.HermiteMercer()),
    (k.Gaussian(), f.LaplacianEigenfunctions(boundary=2.0)),
    (k.Gaussian(), f.Projected(f.Fourier(), 2)),
    (k.Gaussian(), f.LeverageFourier()),
    (k.Angular(), f.Sign()),
    (k.ArcCosine(1), f.ReLU(1)),
    (k.NeuralTangent(1), f.NeuralTangentFeatures()),
    (k.DotExponential(0.5), f.Positive()),
    (POWERS, f.Maclaurin()),
    (POWERS, f.TensorSketch()),
]
BOUNDED = [
    (k.Gaussian(), f.Nystrom()),
    (k.Gaussian(), f.Nystrom(bo.landmarks.Uniform())),
    (k.Gaussian(), f.Auto()),
    (k.Gaussian(), f.MercerHarmonic()),
    (k.Gaussian(), f.Compressed(f.Nystrom())),
    (k.Linear(), f.Fourier()),
    (k.Linear() + 1.0, f.Fourier()),
    (POWERS, f.PolySketch()),
    (k.FourierSeries(weights=(1.0, 0.5)), f.Explicit()),
]
said = pytest.raises(
    InvalidInput, match=r"takes [\d.e+]+ (GB|TB) of memory at least; there are .* Ask for fewer"
)


@pytest.mark.parametrize(("kernel", "method"), WIDE)
def test_a_map_larger_than_the_memory_is_refused_before_it_is_drawn(kernel, method):
    with said:
        bo.draw(kernel, method, n_features=TOO_MANY, X=ROWS, random_state=0)


@pytest.mark.parametrize(("kernel", "method"), BOUNDED)
def test_a_map_that_takes_what_there_is_to_take_is_not_refused(kernel, method):
    X = ROWS[:, :1] if isinstance(method, f.Explicit) else ROWS
    phi = bo.draw(kernel, method, n_features=10**9, X=X, random_state=0)
    assert phi.n_features < 10_000


@pytest.mark.parametrize(
    "model",
    [
        bo.KernelRidge(k.Gaussian(), method="fourier", n_features=TOO_MANY),
        bo.GaussianProcessRegressor(k.Gaussian(), method="iid", n_features=TOO_MANY),
        bo.SVR(k.Gaussian(), method="structured", n_features=TOO_MANY),
        bo.KernelSGDRegressor(
            k.Gaussian(), method="qmc", n_features=TOO_MANY, strategy="approximate_cached"
        ),
        bo.KernelPCA(2, k.Gaussian(), method="fourier", n_features=TOO_MANY),
        bo.KernelFeatures(k.Gaussian(), method="fourier", n_features=TOO_MANY),
    ],
)
def test_a_learner_with_more_features_than_memory_is_refused(model):
    with said:
        model.fit(ROWS, ROWS[:, 0])


@pytest.mark.parametrize(
    "model",
    [
        bo.KernelRidge(k.Gaussian(), method="fourier", n_features=6000, random_state=0),
        bo.KernelPCA(2, k.Gaussian(), method="fourier", n_features=6000, random_state=0),
    ],
)
def test_sums_of_products_larger_than_the_memory_are_refused(model, monkeypatch):
    """16 D² bytes at D = 6000 are 576 MB."""
    monkeypatch.setattr(checks, "_at_most", lambda: 500_000_000)
    match = r"A fit with 6,000 features .* takes 576 MB of memory at least; there are 500 MB"
    with pytest.raises(InvalidInput, match=match):
        model.fit(ROWS, ROWS[:, 0])


def test_a_search_for_the_width_stays_within_the_memory(monkeypatch):
    monkeypatch.setattr("bochner.selection.spec.free_bytes", lambda: 32 * 500**2)
    assert bo.Tolerance(bytes=10**18).most_features == 500


def test_memory_that_the_container_has_read_into_and_can_drop_is_free(monkeypatch, tmp_path):
    for name, text in {
        "memory.max": "10000000000",
        "memory.current": "9000000000",
        "memory.stat": "anon 1000000000\ninactive_file 7500000000",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(checks, "Path", lambda name: tmp_path)
    assert checks._left_in_container() == 8_500_000_000
