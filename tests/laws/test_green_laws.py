"""Eigenfunctions of the Laplacian on boxes and the disc, and Green's functions: two routes each."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import jv, jvp
from tolerance import assert_close

import bochner as bo
from bochner.errors import InvalidInput, InvalidType, UnsupportedKernel
from bochner.kernels import Box, Disc, Gaussian, GreenFunction, Laplace, Matern
from bochner.kernels.green import half_turns

DISC = Disc(2.0, (1.0, -1.0))
INTERVAL = Box([(1.0, 3.0)])
PLATE = Box([(0.0, 1.0), (-1.0, 1.5)])


def quadrature(disc, n=24, turns=48):
    """Places of a disc and weights: Gauss in the radius, equal steps in the angle."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    r, angle = (nodes + 1) / 2, np.arange(turns) * 2 * np.pi / turns
    places = np.stack([np.outer(r, np.cos(angle)), np.outer(r, np.sin(angle))], axis=2)
    share = np.repeat(weights / 2 * r, turns) * (2 * np.pi / turns) * disc.radius**2
    return places.reshape(-1, 2) * disc.radius + disc.centre, share


@pytest.mark.parametrize("conditions", ["dirichlet", "neumann"])
def test_functions_of_the_disc_are_orthonormal_and_keep_their_conditions(conditions):
    X, w = quadrature(DISC)
    modes = DISC.modes(80, conditions)
    Z = DISC.functions(X, conditions, modes.numbers)
    assert np.abs(Z.T * w @ Z - np.eye(80)).max() < 1e-11
    angle = np.linspace(0, 6, 7)
    rim = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    at = lambda r: DISC.functions(r * rim + DISC.centre, conditions, modes.numbers)
    slope = (3 * at(2.0) - 4 * at(2.0 - 1e-4) + at(2.0 - 2e-4)) / 2e-4
    assert np.abs(at(2.0) if conditions == "dirichlet" else slope).max() < 1e-3
    assert np.abs(slope if conditions == "dirichlet" else at(2.0)).max() > 0.1
    # the nearest place of the rim stands for rows outside
    assert_close(at(7.0), at(2.0))


@pytest.mark.parametrize("conditions", ["dirichlet", "neumann"])
def test_no_function_of_the_disc_is_missing(conditions):
    """Signs of J_m or of its slope change once between zeros: counted on a fine grid."""
    modes = Disc().modes(150, conditions)
    alpha = np.sqrt(modes.eigenvalues)
    assert (np.diff(alpha) >= 0).all()
    last, step = alpha[-1] - 1e-6, 1e-3
    count = int(conditions == "neumann")  # the constant
    for m in range(math.ceil(last) + 1):
        grid = np.arange(step, last, step)
        values = jv(m, grid) if conditions == "dirichlet" else jvp(m, grid)
        values = values[np.abs(values) > 1e-200]
        count += (1 if m == 0 else 2) * int((values[:-1] * values[1:] < 0).sum())
    assert count == int((alpha < last).sum())


@pytest.mark.parametrize("conditions", ["dirichlet", "neumann", "periodic"])
def test_modes_of_a_box_are_those_of_least_eigenvalue(conditions):
    box = Box([(0.0, 1.0), (-1.0, 1.5), (2.0, 2.7)])
    modes, turned = box.modes(200, conditions), half_turns(conditions, 40)
    sides = [(np.pi * turned / (b - a)) ** 2 for a, b in box.sides]
    every = sorted(sum(product) for product in itertools.product(*sides))[:200]
    assert_close(modes.eigenvalues, every)
    of_numbers = sum(side[k] for side, k in zip(sides, modes.numbers.T, strict=True))
    assert_close(of_numbers, modes.eigenvalues)


def test_loads_on_a_disc_bend_it_as_closed_forms_say():
    """∫ k(x, y) dy solves (−Δ)² u = 1, u = Δu = 0 at the rim: (3R⁴ − 4R²r² + r⁴)/64."""
    X, w = quadrature(DISC)
    P = np.array([[1.3, -0.2], [1.0, -1.0], [2.9, -1.0]])
    r, R = np.linalg.norm(P - DISC.centre, axis=1), DISC.radius
    bent = GreenFunction(DISC, terms=300)(P, X) @ w
    assert bent == pytest.approx((3 * R**4 - 4 * R**2 * r**2 + r**4) / 64, abs=1e-5)
    # without the square, the solution of another equation: the planted fault
    assert np.abs(GreenFunction(DISC, power=3, terms=300)(P, X) @ w - bent).max() > 0.1


@pytest.mark.parametrize("kappa", [0.0, 0.5, 4.0, 900.0])
@pytest.mark.parametrize("conditions", ["dirichlet", "neumann", "periodic"])
def test_the_closed_form_on_an_interval_is_the_series(conditions, kappa):
    if kappa == 0 and conditions != "dirichlet":
        return
    kernel = GreenFunction(INTERVAL, conditions, kappa)
    X = np.array([[0.5], [1.0], [1.1], [1.7], [2.2], [2.99], [3.4]])
    Z = kernel.features(X, 1024)
    left = kernel(X) - Z @ Z.T
    # Σ_{j > 1024} (2/L)/(κ² + (πj/L)²) is below (2/L) (L/π)²/1024
    assert np.abs(left).max() < 2 / 2 * (2 / np.pi) ** 2 / 1024 * 1.01
    assert np.linalg.eigvalsh(left)[0] > -1e-12
    assert_close(kernel.diag(X), np.diag(kernel(X)))
    assert_close(kernel(torch.from_numpy(X)).numpy(), kernel(X))


@pytest.mark.parametrize(
    ("conditions", "kappa"), [("dirichlet", 0.0), ("neumann", 3.0), ("periodic", 3.0)]
)
def test_the_kernel_of_a_plate_is_the_inverse_of_differences(conditions, kappa):
    """(κ² − Δ_h)^(−2)/h² on a grid, by a dense solve, nears the kernel like h²."""
    kernel = GreenFunction(PLATE, conditions, kappa, terms=4000)

    def side(length, n):
        h = length / n
        if conditions == "dirichlet":
            t = np.arange(1, n) * h
            A = 2 * np.eye(n - 1) - np.eye(n - 1, k=1) - np.eye(n - 1, k=-1)
        else:
            t = (np.arange(n) + 0.5) * h
            A = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
            if conditions == "neumann":
                A[0, 0] = A[-1, -1] = 1
            else:
                A[0, -1] = A[-1, 0] = -1
        return t, A / h**2

    errors = []
    for n in (10, 20):
        (x, A), (y, B) = side(1.0, n), side(2.5, n)
        L = (
            np.kron(A, np.eye(len(y)))
            + np.kron(np.eye(len(x)), B)
            + kappa**2 * np.eye(len(A) * len(B))
        )
        found = np.linalg.inv(L @ L) / (1.0 / n * 2.5 / n)
        places = np.stack(np.meshgrid(x, y - 1.0, indexing="ij"), axis=2).reshape(-1, 2)
        K = kernel(places)
        errors.append(np.abs(found - K).max() / K.max())
    assert errors[1] < 0.5 * errors[0] < 0.05


@pytest.mark.parametrize(
    "kernel",
    [
        GreenFunction(INTERVAL),
        GreenFunction(INTERVAL, "periodic", 2.0, power=2, terms=300),
        GreenFunction(PLATE, "neumann", 2.0, terms=300),
        GreenFunction(DISC, "neumann", 1.0, terms=300),
    ],
    ids=["interval", "periods", "plate", "disc"],
)
def test_features_are_below_the_kernel_and_exact_at_its_terms(kernel):
    d = kernel.domain.n_inputs
    X = np.random.default_rng(0).uniform(-1, 3, (40, d))
    K = kernel(X)
    assert np.linalg.eigvalsh(K)[0] > -1e-10 * K.max()
    few = bo.draw(kernel, bo.LaplacianEigenfunctions(), n_features=60, n_inputs=d)
    Z = few(X)
    assert few.below_kernel
    assert Z.shape == (40, 60)
    assert np.linalg.eigvalsh(K - Z @ Z.T)[0] > -1e-10 * K.max()
    assert few.residual(X) == pytest.approx(np.diag(K - Z @ Z.T), abs=1e-12)
    if not kernel.closed:
        phi = bo.draw(kernel, bo.LaplacianEigenfunctions(), n_features=999, n_inputs=d)
        assert phi.n_features == 300
        assert_close(phi(X) @ phi(X).T, K, factor=1e3)


@pytest.mark.parametrize("kernel", [Gaussian(0.5), 2.0 * Matern(2.5, 0.4)], ids=repr)
@pytest.mark.parametrize("conditions", ["dirichlet", "neumann"])
def test_far_from_the_rim_features_of_a_disc_are_the_kernel(kernel, conditions):
    method = bo.LaplacianEigenfunctions(disc=Disc(4.0), conditions=conditions)
    X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    phi = bo.draw(kernel, method, n_features=1500, n_inputs=2)
    assert np.abs(phi(X) @ phi(X).T - kernel(X)).max() < (1e-6 if kernel == Gaussian(0.5) else 1e-2)
    assert not phi.below_kernel
    assert not phi.unbiased
    small = bo.LaplacianEigenfunctions(disc=Disc(1.2), conditions=conditions)
    near = bo.draw(kernel, small, n_features=500, n_inputs=2)
    assert np.abs(near(X) @ near(X).T - kernel(X)).max() > 0.1  # the rim is seen


def test_learners_keep_what_holds_at_the_boundary():
    g = np.random.default_rng(0)
    X = g.uniform(-1.0, 1.0, (80, 2))
    y = 4 - (X**2).sum(axis=1)
    rim = 2 * np.array([[1.0, 0.0], [0.6, -0.8]])
    for method in ("auto", bo.LaplacianEigenfunctions()):
        model = bo.KernelRidge(
            GreenFunction(Disc(2.0)), method=method, alpha=1e-3, fit_intercept=False
        )
        predicted = model.fit(X, y).predict(np.vstack([rim, X[:9]]))
        assert np.abs(predicted[:2]).max() < 1e-8
        assert np.abs(predicted[2:] - y[:9]).max() < 0.1


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: Box([]), InvalidInput, "Box: sides must be one to 3 pairs"),
        (lambda: Box([(1.0, 0.0)]), InvalidInput, "Box: sides must have lower below upper"),
        (lambda: Box([(1.0,)]), InvalidInput, "Box: sides must be a pair"),
        (lambda: Disc(-1.0), InvalidInput, "Disc: radius must be a positive finite number"),
        (lambda: Disc(1.0, (0.0,)), InvalidInput, "Disc: centre must be a pair of numbers"),
        (lambda: GreenFunction("disc"), InvalidType, "domain must be a Box or a Disc; got 'disc'"),
        (lambda: GreenFunction(DISC, "robin"), InvalidInput, "conditions must be one of"),
        (lambda: GreenFunction(DISC, "periodic", 1.0), InvalidInput, "a disc has no periods"),
        (lambda: GreenFunction(DISC, "neumann"), InvalidInput, "kappa must be above zero where"),
        (lambda: GreenFunction(DISC, power=1), InvalidInput, "power must be above half the 2 col"),
        (lambda: GreenFunction(DISC, terms=0), InvalidInput, "terms must be an integer, 1 or"),
        (lambda: GreenFunction(DISC, kappa=-1.0), InvalidInput, "kappa must be"),
        (lambda: GreenFunction(DISC)([[1.0]], [[1.0]]), InvalidInput, "must have the 2 columns of"),
        (
            lambda: bo.draw(
                GreenFunction(DISC), bo.LaplacianEigenfunctions(disc=DISC), n_features=9, n_inputs=2
            ),
            InvalidInput,
            "GreenFunction has a domain and conditions of its own",
        ),
        (
            lambda: bo.draw(
                GreenFunction(DISC), bo.LaplacianEigenfunctions(), n_features=9, n_inputs=3
            ),
            UnsupportedKernel,
            "requires the 2 columns of the domain",
        ),
        (
            lambda: bo.draw(
                Laplace(), bo.LaplacianEigenfunctions(disc=DISC), n_features=9, n_inputs=2
            ),
            UnsupportedKernel,
            "a kernel of the Euclidean distance on a disc; got 2 columns and Laplace",
        ),
        (lambda: bo.LaplacianEigenfunctions(disc=2.0), InvalidType, "disc must be a Disc; got 2.0"),
        (
            lambda: bo.LaplacianEigenfunctions(disc=DISC, box=((0, 1),)),
            InvalidInput,
            "a disc must stand alone",
        ),
        (
            lambda: bo.LaplacianEigenfunctions(disc=DISC, conditions="periodic"),
            InvalidInput,
            "a disc has no periods",
        ),
    ],
)
def test_what_has_no_eigenfunctions_is_refused_in_a_sentence(ask, error, message):
    with pytest.raises(error, match=message):
        ask()
