"""Fits on Fourier grids: rows are summed as waves, and no feature is ever made."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from bochner._core.arrays import dense, to_numpy
from bochner._core.nufft import waves_at
from bochner._core.random import stream
from bochner._core.shapes import Array, Float
from bochner.certificates.certificate import Certificate, certify
from bochner.data.blocks import Blocks, count_rows
from bochner.data.sample import RowSample
from bochner.data.sources import required_targets
from bochner.errors import InvalidInput
from bochner.features.auto import Choice
from bochner.features.fourier.grid import EquispacedMap, FourierGrid, equispaced_map, given_box
from bochner.kernels.kernel import Kernel
from bochner.selection.chosen import Chosen, FeatureSpec
from bochner.selection.record import Tuning
from bochner.solvers.toeplitz import ToeplitzGram, from_real, full_of
from bochner.solvers.waves import WaveProblem
from bochner.sums.executor import LOCAL, Executor, Together
from bochner.sums.fourier import BoxOf, WavesOf, WaveSums, angles_of, as_complex
from bochner.sums.rows import SampleOf, sampled, some

#: Rows of a block: many, for every transform ends with an FFT of the whole grid.
BLOCK_ROWS = 1 << 19

#: Errors of transforms and of solutions, as shares of the tolerance: those of transforms grow by up
#: to W/alpha on the way to predictions.
TRANSFORMED, SOLVED = 1e-3, 0.01

#: The coarsest error of sums of rows: penalties below it are lost in their rounding.
SUMMED = 1e-8

#: Pairs of rows whose kernel is summed up together, for the certificate.
PAIRS = 1 << 20


#: Why there are no moments of features.
NO_FEATURES = "a fit on a Fourier grid makes no features; its sums are fit_.summed.sums."


def on_grid(features: FeatureSpec) -> bool:
    """Whether a fit is asked to sum waves in the place of features."""
    return isinstance(features.method, FourierGrid)


@dataclass(frozen=True, eq=False)
class SummedWaves:
    """What a pass over the rows made, and what further rows are added to.

    Attributes
    ----------
    who : str
        The class of the learner, as messages name it.
    chosen : Chosen
        Its map says which waves.
    fit_intercept : bool
    sums : WaveSums
    sample : RowSample
        For leave-one-out errors and the certificate.
    rows : int
        Rows that were read, those of zero weight too.
    target_shape : tuple of int
        Of one row of y: () or (t,).
    """

    who: str
    chosen: Chosen
    fit_intercept: bool
    sums: WaveSums
    sample: RowSample
    rows: int
    target_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        extent = self.map.shape
        shapes = [tuple(times * m + 1 for m in extent) for times in (4, 2)]
        sums, t = self.sums, len(self.sums.origin)
        if sums.gram.shape != (*shapes[0], 2) or sums.cross.shape != (t, *shapes[1], 2):
            raise InvalidInput(
                f"SummedWaves: sums must be those of the map's waves, {extent} each way; got "
                f"arrays of {sums.gram.shape} and {sums.cross.shape}."
            )

    @property
    def moments(self) -> None:
        """No moments of features: there are none."""

    @property
    def seen(self) -> None:
        """No moments of features: there are none."""

    @property
    def map(self) -> EquispacedMap:
        """φ."""
        return self.chosen.map  # type: ignore[return-value]

    @property
    def tolerance(self) -> float:
        """That of the method."""
        return self.chosen.choice.method.tolerance  # type: ignore[attr-defined]

    @property
    def target_mean(self) -> Float[Array, " t"]:
        """ȳ, or zero where there is no intercept."""
        sums = self.sums
        if not self.fit_intercept:
            return np.zeros_like(sums.origin)
        return sums.origin + sums.total / sums.weight

    @cached_property
    def problem(self) -> WaveProblem:
        """What is solved."""
        return self.problem_of(self.map.variances)

    def problem_of(self, variances: Array) -> WaveProblem:
        """Return the problem with other weights of the waves."""
        sums = self.sums.about(self.target_mean)
        gram = ToeplitzGram(as_complex(sums.gram), variances, self.fit_intercept)
        count = max(sums.weight, float(sums.rows))
        rng = stream(self.chosen.seed, "probes")
        return WaveProblem.of(gram, as_complex(sums.cross), sums.squares, count, rng)

    def intercept(self, coef: Float[Array, "D t"]) -> Float[Array, " t"]:
        """Return b = ȳ − φ̄·β, or zero."""
        if not self.fit_intercept:
            return np.zeros(coef.shape[1])
        means = self.feature_sums / self.sums.weight
        return self.target_mean - means @ coef

    @cached_property
    def feature_sums(self) -> Float[Array, " D"]:
        """Σ w φ."""
        from_waves = self.problem.gram
        upper = full_of(from_waves.sums[None]).ravel()
        upper = upper[len(upper) // 2 :] * np.sqrt(2)
        upper[0] /= np.sqrt(2)
        return np.concatenate([upper.real, -upper.imag[1:]])

    def values(self, coef: Float[Array, "D t"]) -> Callable[[Array], Float[Array, "b t"]]:
        """Return X ↦ φ(X) β, in NumPy."""
        waves = full_of(from_real(coef, self.map.shape)) * np.sqrt(self.map.variances)
        return self.of_waves(waves)

    def of_waves(self, waves: Array) -> Callable[[Array], Float[Array, "b s"]]:
        """Return the real functions of waves, each of those that the map has or more.

        Two functions share a transform, as its real and its imaginary part.
        """
        count = len(waves)
        pairs = waves[::2].copy()
        pairs[: count // 2] += 1j * waves[1::2]

        def at(X: Array) -> Float[Array, "b s"]:
            angles = angles_of(as_rows(X), self.map.centre, self.map.spacing)
            found = waves_at(angles, pairs, TRANSFORMED * self.tolerance)
            both = np.stack([found.real, found.imag], axis=1).reshape(-1, len(angles))
            return np.ascontiguousarray(both[:count].T)

        return at

    def with_rows_of(self, blocks: Blocks, where: Executor = LOCAL) -> "SummedWaves":
        """Return the sums of the rows before and of these."""
        keeper = SampleOf(self.chosen.seed, self.rows)
        summands = Together((summand_of(self.chosen, self.sums.origin), keeper))
        sums, kept = where.sum(summands, blocks.with_rows(BLOCK_ROWS))
        more = self.rows + count_rows(blocks)
        return replace(self, sums=self.sums + sums, sample=self.sample.merge(some(kept)), rows=more)

    def merge(self, other: "SummedWaves") -> "SummedWaves":
        """Return the sums of the rows of both."""
        return replace(
            self,
            sums=self.sums + other.sums,
            sample=self.sample.merge(other.sample),
            rows=self.rows + other.rows,
        )

    def again(self, chosen: Chosen, blocks: Blocks, where: Executor) -> "SummedWaves":
        """Return the sums of the same rows for other waves."""
        summand = summand_of(chosen, self.sums.origin)
        return replace(self, chosen=chosen, sums=where.sum(summand, blocks.with_rows(BLOCK_ROWS)))

    def certificate(self, alpha: float) -> Certificate:
        """Return how far the waves are from the kernel on the rows of the fit, by their sample."""
        return self.certified(self.sample.X, self.sums.rows, alpha)

    def certified(self, X: Array, n_rows: int, alpha: float) -> Certificate:
        """Return the certificate on rows, of a penalty for ``n_rows``."""
        found = certify(
            WaveKernelRoot(self),
            as_rows(X),
            alpha=alpha,
            kernel=self.chosen.kernel,
            n_rows=n_rows,
            random_state=self.chosen.seed,
        )
        return replace(found, n_features=self.map.n_features, features_to_halve=None)

    def certified_blocks(self, blocks: Blocks, alpha: float) -> Certificate:
        """Return the certificate on other rows; alpha in proportion to their number."""
        n = count_rows(blocks)
        return self.certified(
            sampled(blocks, self.chosen.seed).X, n, alpha * n / max(self.sums.rows, 1)
        )


@dataclass(frozen=True, eq=False)
class WaveKernelRoot:
    """Rows as features of as many: Z Zᵀ is what the waves make of the kernel, pair by pair."""

    summed: SummedWaves

    @property
    def kernel(self) -> Kernel:
        """The kernel itself."""
        return self.summed.chosen.kernel

    def __call__(self, X: Array) -> Float[Array, "m m"]:
        """Return Z, (m, m), of m rows."""
        values, vectors = np.linalg.eigh(self.matrix(X))
        return vectors * np.sqrt(np.maximum(values, 0.0))

    def matrix(self, X: Float[Array, "m d"]) -> Float[Array, "m m"]:
        """Return Σ_j v_j cos j·(θ(x) − θ(y)) of all pairs of rows."""
        phi = self.summed.map
        angles = angles_of(X, phi.centre, phi.spacing)
        waves = phi.variances[None].astype(np.complex128)
        m = len(angles)
        i, j = np.tril_indices(m)
        K = np.empty((m, m))
        for start in range(0, len(i), PAIRS):
            some = slice(start, start + PAIRS)
            steps = angles[i[some]] - angles[j[some]]
            found = waves_at(steps, waves, TRANSFORMED * self.summed.tolerance)[0].real
            K[i[some], j[some]] = found
            K[j[some], i[some]] = found
        return K


def as_rows(X: Array) -> Float[Array, "n d"]:
    """Return rows in NumPy's float64, dense."""
    return to_numpy(dense(X)).astype(np.float64, copy=False)


# --- Choosing and summing ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Surveyed:
    """What a first pass finds out: a sample of the rows, and the box that they lie in."""

    features: FeatureSpec
    sample: RowSample
    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    target_shape: tuple[int, ...]

    @property
    def method(self) -> FourierGrid:
        """How waves are chosen."""
        return self.features.method  # type: ignore[return-value]

    def chosen(self, found: Tuning, phi: EquispacedMap | None = None) -> Chosen:
        """Return what is chosen for a kernel; its map is that of the tolerance, or the given."""
        if phi is None:
            phi = equispaced_map(found.kernel, self.lower, self.upper, self.method.tolerance)
        shape = " x ".join(f"{2 * m + 1:,}" for m in phi.shape)
        reason = f"{self.method}: as asked; {shape} waves are within {phi.error:.2g} of the kernel."
        return Chosen(self.features.seed, found, Choice(phi, self.method, (), reason))


def survey(features: FeatureSpec, blocks: Blocks, where: Executor = LOCAL) -> Surveyed:
    """Look at all rows once: a sample, and the box; refuse what a grid does not serve."""
    who, d = features.who, blocks.n_columns
    if features.learns_metric:
        raise InvalidInput(
            f'{who}: metric="learned" chooses features of many columns, FourierGrid serves one to '
            'three; set one of them. lengthscale="evidence" of a Gaussian process scales columns.'
        )
    shape = required_targets(who, blocks.target_shape)
    summands = Together((SampleOf(features.seed), BoxOf(d)))
    kept, box = where.sum(summands, blocks.with_rows(BLOCK_ROWS))
    lower, upper = box
    method: FourierGrid = features.method  # type: ignore[assignment]
    if not np.isfinite(box).all():
        raise InvalidInput(
            f"{who}: sample weights must have a sum above 0; got no row of positive weight."
        )
    if method.box is not None:
        lower, upper = given_box(method.box, d)
    return Surveyed(features, some(kept), lower, upper, shape)


def summand_of(chosen: Chosen, origin: Float[Array, " t"]) -> WavesOf:
    """Return the sums of the waves of a map, with an origin of the targets."""
    phi: EquispacedMap = chosen.map  # type: ignore[assignment]
    method: FourierGrid = chosen.choice.method  # type: ignore[assignment]
    error = min(TRANSFORMED * method.tolerance, SUMMED)
    return WavesOf(phi.centre, phi.spacing, phi.shape, phi.half, origin, error)


def summed_waves(
    surveyed: Surveyed, chosen: Chosen, centred: bool, blocks: Blocks, where: Executor = LOCAL
) -> SummedWaves:
    """Sum all rows as the waves of the chosen map."""
    sample = surveyed.sample
    origin = np.average(sample.y, axis=0, weights=sample.w)
    sums = where.sum(summand_of(chosen, origin), blocks.with_rows(BLOCK_ROWS))
    who, rows = surveyed.features.who, count_rows(blocks)
    return SummedWaves(who, chosen, centred, sums, sample, rows, surveyed.target_shape)


def merged_waves(parts: list[SummedWaves]) -> SummedWaves:
    """Return the sums of all parts."""
    return reduce(SummedWaves.merge, parts)


def require_penalty(who: str, smallest: float) -> None:
    """Refuse a fit without penalty."""
    if not smallest > 0:
        raise InvalidInput(
            f"{who}: alpha must be above 0 with FourierGrid, whose waves are more than rows "
            'determine; got 0. Pass a small alpha, or alpha="evidence".'
        )
