"""Random Gegenbauer features: Han, Zandieh and Avron (2022), and what improves them.

A rotation-invariant kernel is Σ_l Σ_i h_{l,i}(|x|) h_{l,i}(|y|) P_l(cos θ). With directions w
uniform on the sphere and p_l = √α_l P_l the orthonormal Gegenbauer polynomials,

    φ_x(w)_i = Σ_l h_{l,i}(|x|) p_l(⟨x, w⟩/|x|),   E φ_x(w)·φ_y(w) = k(x, y),

and m directions give z(x) = m^{−1/2} [φ_x(w_1), ..., φ_x(w_m)], D = m·s of order s: definition 8.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bochner._core.arrays import array_namespace, is_numpy, moved
from bochner._core.checks import integer, one_of
from bochner._core.native import polynomials, polynomials_twin
from bochner._core.shapes import Array, Float
from bochner.features.map import FeatureMap
from bochner.features.method import Method
from bochner.features.polar import Polar
from bochner.features.radii import MonomialFunctions, RadialFunctions
from bochner.kernels import Kernel
from bochner.kernels.gegenbauer import recurrence

RADIAL = ("monomial", "optimal")
DIRECTIONS = ("iid", "orthogonal", "sobol", "fibonacci")


@dataclass(frozen=True)
class Gegenbauer(Method):
    """Random Gegenbauer features; without arguments, as published.

    Parameters
    ----------
    radial : {"monomial", "optimal"}, default "monomial"
        Radial functions h_{l,i}. "monomial": t^{l+2i} (with e^{−t²/2} for the Gaussian), lemmas 4
        and 15, for kernels of ⟨x, y⟩ and the Gaussian; one function for kernels of the angle
        (lemma 16) and for rows on one sphere. "optimal": those of :class:`MercerHarmonic`, for
        every rotation-invariant kernel.
    order : int, optional
        s, functions for each degree. Default: the one with the least error predicted, of bias
        and of noise s/D.
    degree : int, optional
        q, the largest l, and of monomials the largest total degree l + 2i. Default: the first after
        which less than 1e-12 of k(x, x) is left out at all but the 1 % longest rows (theorems 11
        and 12 have constants; this is the exact tail, at the least penalty a fit can have); with
        optimal functions 48 at most.
    directions : {"iid", "orthogonal", "sobol", "fibonacci"}, default "iid"
        Independent, as published; orthogonal blocks; scrambled Sobol points through the normal
        law; a randomly turned Fibonacci spiral (three columns), 7 to 400 times less error than
        independent ones on the sphere in R³.
    allocation : {"equal", "energy"}, default "equal"
        The same directions for all s components, or to each its own, in proportion to its energy.
    parity : bool, default False
        Even and odd degrees in features of their own, as if each direction came with its opposite:
        two features from one inner product, and no noise between them.
    alternating : bool, default False
        Signs (−1)^⌊l/2⌋ of the degrees, those of a cosine: the same mean squared error, the
        largest error of an entry two to six times smaller, because φ_x(w) no longer peaks at x.

    Notes
    -----
    Unbiased for the kernel cut at degree q and order s, for any rows: this error falls like 1/√D,
    as that of :class:`Fourier`, and on the sphere the spectral error at small penalties is lower.
    What is cut off comes back with no number of directions: where a default leaves out more than
    one per cent of k(x, x) in the mean, a ``FeatureWarning`` says how much. Of one column there are
    two directions, ±1, which come in turn: with an even number nothing is random. Take
    it to reproduce published numbers; :class:`MercerHarmonic` replaces the random directions by
    exact harmonics, with 5 to 10⁸ times less error where α_l is moderate. Cost of φ(X):
    O(n m (d + (3 + 2 s) q)), without elementary functions; memory, the result alone.
    """

    radial: str = "monomial"
    order: int | None = None
    degree: int | None = None
    directions: str = "iid"
    allocation: str = "equal"
    parity: bool = False
    alternating: bool = False

    def __post_init__(self) -> None:
        """Check the arguments."""
        who = "Gegenbauer"
        one_of(self.radial, who, "radial", RADIAL)
        one_of(self.directions, who, "directions", DIRECTIONS)
        one_of(self.allocation, who, "allocation", ("equal", "energy"))
        for name, least in (("order", 1), ("degree", 0)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, integer(value, who, name, least))


@dataclass(frozen=True, eq=False)
class GegenbauerMap(FeatureMap):
    """Σ_l h_{l,i}(|x|) p_l(⟨x, w_j⟩/|x|), components i one after the other, each at its w_j.

    Attributes
    ----------
    polar : Polar
        From rows to radii and directions.
    directions : (d, M)
        W, unit columns.
    radial : MonomialFunctions or RadialFunctions
        h, a column for each pair of a degree and a component.
    components : (B,) int
        The component that each of these columns belongs to.
    counts : (s,) int
        Directions of each component; with ``shared`` all are the same ones.
    shared : bool
    parity, alternating : bool

    Notes
    -----
    With ``parity`` the even degrees of a component come before its odd ones.
    """

    kernel: Kernel
    polar: Polar
    directions: Float[np.ndarray, "d M"]
    radial: MonomialFunctions | RadialFunctions
    components: np.ndarray
    counts: np.ndarray
    shared: bool
    parity: bool
    alternating: bool

    @property
    def n_inputs(self) -> int:
        """Columns d that X must have."""
        return self.directions.shape[0]

    @property
    def n_features(self) -> int:
        """D = m·s, twice that with parity."""
        return int(self.counts.sum()) * (1 + self.parity)

    @property
    def below_kernel(self) -> bool:
        """Random, so errors have both signs."""
        return False

    @property
    def unbiased(self) -> bool:
        """Only for the kernel cut at its degree and order: ``left_out`` says what that lacks."""
        return False

    @property
    def degree(self) -> int:
        """q, the largest degree."""
        return int(self.radial.degrees.max(initial=0))

    def features(self, X: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """Return the components side by side, (n, D)."""
        U, r = self.polar(X)
        xp = array_namespace(U)
        H = self.radial(r) @ moved(self._spread, like=U)
        functions = len(self.counts) * (1 + self.parity)
        H = xp.reshape(H, (U.shape[0], functions, self.degree + 1))
        W = moved(self.directions, like=U)
        if is_numpy(U):
            return self._compiled(U, W, H)
        return xp.concat(
            [polynomials_twin(U, W[:, w], H[:, f, :], *self._steps) for f, w, _ in self._groups],
            axis=1,
        )

    def _compiled(self, U: Array, W: Array, H: Array) -> Float[np.ndarray, "n D"]:
        Z = np.empty((len(U), self.n_features), U.dtype)
        steps = [step.astype(U.dtype) for step in self._steps]
        for f, w, columns in self._groups:
            directions, radial = np.ascontiguousarray(W[:, w]), np.ascontiguousarray(H[:, f])
            polynomials(U, directions, radial, steps[0], steps[1], out=Z[:, columns])
        return Z

    @cached_property
    def _groups(self) -> list[tuple[slice, slice, slice]]:
        """Functions, their directions and their columns: one group where directions are shared."""
        copies = 1 + self.parity
        m = self.counts.tolist()
        if self.shared:
            return [(slice(None), slice(None), slice(None))]
        ends = np.cumsum([0, *m]).tolist()
        return [
            (
                slice(copies * i, copies * (i + 1)),
                slice(ends[i], ends[i + 1]),
                slice(copies * ends[i], copies * ends[i + 1]),
            )
            for i in range(len(m))
        ]

    @cached_property
    def _spread(self) -> Float[np.ndarray, "B fq"]:
        """Where each radial function goes, (function, degree), with its sign and m^{−1/2}."""
        l, q = self.radial.degrees, self.degree
        function = self.components * 2 + l % 2 if self.parity else self.components
        spread = np.zeros((len(l), len(self.counts) * (1 + self.parity), q + 1))
        sign = np.where(self.alternating & (l // 2 % 2 == 1), -1.0, 1.0)
        spread[np.arange(len(l)), function, l] = sign * self.counts[self.components] ** -0.5
        return spread.reshape(len(l), -1)

    @cached_property
    def _steps(self) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
        """p_{l+1} = up_l t p_l − down_l p_{l−1}."""
        if self.n_inputs == 1:
            return np.eye(1, self.degree)[0], np.zeros(self.degree)
        b = recurrence(self.degree, self.n_inputs)
        return 1.0 / b[1:], b[:-1] / b[1:]
