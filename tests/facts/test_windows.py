"""Kernels of sequences: values and features by loops over windows, and learners."""

import numpy as np
import pytest
from naive import kernel_matrix, windows
from tolerance import assert_close

import bochner as bo
from bochner.kernels import Gaussian, Matern, Normalised, Windows, one_hot, spectrum

RNG = np.random.default_rng(0)
EQUAL = RNG.normal(size=(40, 9, 2))
TRACKS = [RNG.normal(size=(length, 2)) for length in [1, 2, 3, *RNG.integers(1, 12, 37)]]
ENERGY = np.array([np.sin(track[:, 0]).sum() for track in TRACKS])
OF_EQUAL = Windows(Gaussian(1.5), width=3, channels=2)
OF_TRACKS = Windows(Matern(2.5, 2.0), width=2, channels=2, lengths=True)

CASES = [
    (kernel.replace(average=name), X)
    for kernel, X in ((OF_EQUAL, EQUAL), (OF_TRACKS, TRACKS))
    for name in ("mean", "root", "sum")
]
cases = pytest.mark.parametrize(("kernel", "X"), CASES, ids=[repr(kernel) for kernel, _ in CASES])


@pytest.mark.main_cases(3)
@cases
def test_values_are_sums_over_pairs_of_windows(kernel, X):
    rows = kernel.rows(X)[:7]
    expected = kernel_matrix(kernel, rows)
    assert_close(kernel(rows), expected, factor=16)
    assert_close(kernel(rows[:4], rows.copy()), expected[:4], factor=16)
    assert_close(kernel.diag(rows), np.diag(expected), factor=16)


@cases
def test_features_of_sequences_are_sums_over_windows(kernel, X):
    rows = kernel.rows(X)
    phi = bo.draw(kernel, "fourier", n_features=64, X=rows, random_state=0)
    parts = [np.array(windows(kernel, row)).reshape(-1, kernel.columns) for row in rows]
    power = {"mean": 1, "root": 0.5, "sum": 0}[kernel.average]
    slow = [phi.inner(part).sum(axis=0) / max(len(part), 1) ** power for part in parts]
    assert_close(phi(rows), np.array(slow), factor=64)
    assert np.array_equal(phi(rows)[5:8], phi(rows[5:8]))


def test_values_after_the_last_step_are_ignored():
    rows = OF_TRACKS.rows(TRACKS)
    other = rows.copy()
    for row in other:
        row[1 + 2 * int(row[0]) :] = 1e3
    assert np.array_equal(OF_TRACKS(rows), OF_TRACKS(other))
    wide = OF_TRACKS.rows(TRACKS, steps=30)
    assert wide.shape == (40, 61)
    assert_close(OF_TRACKS(rows, rows), OF_TRACKS(wide, wide))


def test_a_sequence_shorter_than_the_window_has_kernel_zero():
    assert not OF_TRACKS(OF_TRACKS.rows(TRACKS))[0].any()


def test_windows_of_one_step_ignore_the_order():
    kernel = Windows(Gaussian(), channels=2, lengths=True)
    mixed = [track[np.random.default_rng(1).permutation(len(track))] for track in TRACKS]
    assert_close(kernel(kernel.rows(TRACKS)), kernel(kernel.rows(mixed)))


def test_the_spectrum_kernel_counts_words():
    texts = ["GATTACA", "TACAT", "A", ""]
    kernel = spectrum(2, 4)
    rows = kernel.rows(one_hot(texts, "ACGT"))
    words = [[text[i : i + 2] for i in range(len(text) - 1)] for text in texts]
    counts = [[sum(w == v for w in a for v in b) for b in words] for a in words]
    assert np.array_equal(kernel(rows), counts)
    phi = bo.draw(kernel, "fourier", n_features=16, X=rows)
    assert phi.n_features == 16
    assert_close(phi(rows) @ phi(rows).T, np.array(counts, float))
    assert bo.draw(spectrum(5, 4), "fourier", n_features=64, n_inputs=1 + 4 * 7).n_features == 64


@pytest.mark.parametrize("method", ["nystrom", "mercer", "auto", "hermite"])
def test_every_method_serves_sequences(method):
    rows = OF_EQUAL.rows(EQUAL)
    phi = bo.draw(OF_EQUAL, method, n_features=128, X=rows, random_state=0)
    K = OF_EQUAL(rows)
    assert np.linalg.norm(phi(rows) @ phi(rows).T - K) < 0.2 * np.linalg.norm(K)
    if phi.below_kernel:
        assert np.linalg.eigvalsh(K - phi(rows) @ phi(rows).T)[0] > -1e-9


@pytest.mark.parametrize(
    "kernel", [OF_EQUAL, Normalised(OF_EQUAL) + OF_EQUAL.replace(width=2)], ids=["one", "sum"]
)
@pytest.mark.parametrize(
    "model",
    [
        bo.KernelRidge(random_state=0),
        bo.KernelRidge(n_features=64, random_state=0),
        bo.GaussianProcessRegressor(n_features=64, random_state=0),
        bo.SVR(C=1.0, epsilon=0.1, n_features=64, random_state=0),
        bo.KernelSGDRegressor(random_state=0),
    ],
    ids=["exact", "ridge", "process", "svr", "sgd"],
)
def test_learners_take_three_dimensions(model, kernel):
    y = np.sin(EQUAL[:, :, 0]).sum(axis=1)
    model = type(model)(**{**model.get_params(deep=False), "kernel": kernel}).fit(EQUAL, y)
    flat = type(model)(**model.get_params(deep=False)).fit(EQUAL.reshape(40, -1), y)
    assert np.array_equal(model.predict(EQUAL), flat.predict(EQUAL.reshape(40, -1)))
    assert np.corrcoef(model.predict(EQUAL), y)[0, 1] > 0.3


def test_learners_take_lists_of_arrays(tmp_path):
    y = ENERGY > np.median(ENERGY)
    model = bo.SVC(kernel=OF_TRACKS, n_features=64, random_state=0).fit(TRACKS, y)
    assert np.array_equal(model.predict(TRACKS[3:6]), model.predict(OF_TRACKS.rows(TRACKS))[3:6])
    bo.save(model, tmp_path / "tracks.bochner")
    repeat = bo.load(tmp_path / "tracks.bochner")
    assert repeat.kernel_ == OF_TRACKS
    assert np.array_equal(repeat.predict(TRACKS), model.predict(TRACKS))
    objects = np.empty(40, object)
    objects[:] = TRACKS
    assert np.array_equal(model.predict(objects), model.predict(TRACKS))
    series = Windows(Gaussian(), width=2, lengths=True)
    model = bo.KernelRidge(kernel=series, random_state=0).fit([t[:, 0] for t in TRACKS], ENERGY)
    assert model.predict([TRACKS[5][:, 0]]).shape == (1,)


@cases
def test_gradients_equal_differences(kernel, X):
    rows = kernel.rows(X)[3:9]
    C = np.random.default_rng(1).normal(size=(6, 6))
    G, step = kernel.pullback(rows, rows.copy(), C), 1e-6
    phi = bo.draw(kernel, "fourier", n_features=32, X=rows, random_state=0)
    beta = np.random.default_rng(2).normal(size=32)
    of_features = phi.gradient(rows, beta)
    assert not kernel.lengths or not G[:, 0].any()
    for j in range(int(kernel.lengths), rows.shape[1]):
        high, low = rows.copy(), rows.copy()
        high[:, j] += step
        low[:, j] -= step
        slope = ((kernel(high, rows) - kernel(low, rows)) * C).sum(axis=1) / (2 * step)
        np.testing.assert_allclose(G[:, j], slope, atol=1e-7 * kernel.count(rows.shape[1]) ** 2)
        slope = (phi(high) - phi(low)) @ beta / (2 * step)
        np.testing.assert_allclose(of_features[:, j], slope, atol=1e-6)
