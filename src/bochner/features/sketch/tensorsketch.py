"""TensorSketch: the CountSketch of x^{⊗p}, without forming it, by FFT.

A CountSketch C x adds each coordinate, with a random sign, to one of D buckets. The one of x^{⊗p}
whose buckets are sums modulo D, and whose signs are products, of those of p independent
CountSketches is their circular convolution:

    z(x) = FFT⁻¹( FFT(C₁x) ∘ … ∘ FFT(C_p x) ),   E z(x)·z(y) = ⟨x, y⟩ᵖ.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.fft
import scipy.sparse

from bochner._core.arrays import dense
from bochner._core.checks import MaybePositive
from bochner._core.shapes import Array
from bochner.features.method import Method, Request
from bochner.features.sketch import powers
from bochner.kernels.dotproduct import Polynomial
from bochner.kernels.kernel import Kernel


@dataclass(frozen=True)
class TensorSketch(Method):
    """CountSketches of x combined by FFT: Pham and Pagh (2013), Algorithm 1.

    Parameters
    ----------
    radius : float, optional
        Length of rows at which the terms of a power series are weighed, in units of the
        lengthscale where the kernel has one. Default: the median of the rows it is drawn with.

    See Also
    --------
    PolySketch : Better for dense rows.

    Notes
    -----
    Polynomial(degree p, offset c, scale γ) is sketched as published: that of (√γ x, √c), p times.
    Other power series of ⟨x, y⟩, and the Gaussian as e^{−|x|²/2} e^{⟨x, y⟩} e^{−|y|²/2}, are sums:
    the constant exactly, each power by its own sketch, with features in proportion to its term.
    Unbiased; a sketch of degree p has a variance of at most (2 + 3ᵖ)|x|²ᵖ|y|²ᵖ/D. Cost of φ(X):
    O(p (nnz(X) + n D log D)); memory O(p d). Sparse rows are not made dense. Choose it for sparse
    rows and as the published standard; :class:`PolySketch` is better for dense rows.

    Examples
    --------
    >>> import scipy.sparse
    >>> import bochner as bo
    >>> from bochner.kernels import Polynomial
    >>> X = scipy.sparse.random_array((50, 40), density=0.1, format="csr", rng=0)
    >>> phi = bo.draw(Polynomial(2), bo.TensorSketch(), n_features=64, X=X, random_state=0)
    >>> phi(X).shape
    (50, 64)
    """

    radius: MaybePositive = None

    numbers_each = 1


@dataclass(frozen=True, eq=False)
class CountSketch(powers.SketchBlock):
    """Hashes of the CountSketches of one power, one row for each."""

    buckets: Array  # h, below ``width``
    signs: Array  # s
    width: int

    @cached_property
    def _matrices(self) -> dict[np.dtype, list[scipy.sparse.csr_array]]:
        """The CountSketches of all rows, by precision."""
        shape, columns = (self.width, self.buckets.shape[1]), np.arange(self.buckets.shape[1])
        matrix = lambda h, s: scipy.sparse.csr_array((s, (h, columns)), shape=shape)
        return {
            np.dtype(t): list(map(matrix, self.buckets, self.signs.astype(t))) for t in ("f4", "f8")
        }

    def fill(self, Z: Array, U: Array, earlier: list[Array], weight: Array) -> None:
        first, *others = self._matrices[U.dtype]
        if not others:
            np.multiply(dense(first @ U.T).T, weight, out=Z)
            return
        transformed = lambda C: scipy.fft.rfft(dense(C @ U.T), axis=0)
        spectrum = transformed(first)
        for C in others:
            spectrum *= transformed(C)
        sketch = scipy.fft.irfft(spectrum, n=self.width, axis=0, overwrite_x=True).T
        np.multiply(sketch, weight, out=Z)


def draw_tensorsketch(method: TensorSketch, kernel: Kernel, ask: Request) -> powers.SketchMap:
    """Draw a CountSketch of each power, or of the polynomial with its offset as a coordinate."""
    if isinstance(kernel, Polynomial) and kernel.offset:
        inputs = powers.UnitRows(np.full(ask.n_inputs, kernel.scale**0.5), kernel.offset**0.5)
        sketch = _hashes(kernel.degree, ask.n_features, inputs.width, ask.stream("hashes"))
        weights = powers.Weights(np.array([kernel.degree]), np.zeros(1), False)
        return powers.SketchMap(kernel, inputs, weights, (sketch,), (), False)
    parts = powers.powers(kernel, method, ask.n_inputs)
    exact, energy, left = powers.split_off(kernel, method, parts, ask)
    shared = powers.shares(energy, lambda _: np.inf, left, ask.stream("degrees"))
    sketches = (
        _hashes(n, width, ask.n_inputs, ask.stream(f"hashes {n}"))
        for n, width in zip(shared.degrees, shared.widths, strict=True)
    )
    return powers.sketch_map(kernel, parts, exact, shared, sketches)


def _hashes(p: int, width: int, d: int, rng: np.random.Generator) -> CountSketch:
    """Return fully random hashes: stronger than the independence that the proof needs."""
    buckets = rng.integers(0, width, (p, d), dtype=np.int32)
    return CountSketch(buckets, powers.random_signs(rng, (p, d)), width)
