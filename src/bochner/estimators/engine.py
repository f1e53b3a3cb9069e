"""fit = blocks → features → moments → solve, as functions that estimators share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bochner._ground.arrays import array_namespace, to_numpy
from bochner._ground.blocks import Blocks
from bochner._ground.checks import integer
from bochner._ground.shapes import Array
from bochner.errors import InvalidInput
from bochner.estimators.named import LengthscaleSearch, choose_lengthscale
from bochner.estimators.rows import Keeper, RowSample
from bochner.features import Auto, FeatureMap, Fourier, Method
from bochner.features.auto import Choice, choose
from bochner.features.fourier import require_real
from bochner.features.nystrom import Rounded
from bochner.features.rules import Request, draw_map
from bochner.kernels import Kernel
from bochner.moments import Accumulator, Moments, Precision

__all__ = [
    "Recipe",
    "as_features",
    "block_rows",
    "count_rows",
    "joined",
    "needs_rows",
    "prepare",
    "presample",
    "sweep",
    "sweep_unless",
]


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a fit draws before its sweep: the kernel, the map, and how both were chosen."""

    search: LengthscaleSearch
    choice: Choice

    @property
    def kernel(self) -> Kernel:
        """The kernel, with numbers."""
        return self.search.kernel

    @property
    def map(self) -> FeatureMap:
        """The map drawn from it."""
        return self.choice.map


def needs_rows(kernel: Kernel | str, method: Method) -> bool:
    """Whether something must be chosen from rows before the sweep."""
    return isinstance(kernel, str) or not isinstance(method, Fourier)


def presample(blocks: Blocks, seed: int) -> RowSample:
    """Return the sample of all rows, by one pass that makes no features."""
    keeper = Keeper(seed)
    for block in blocks:
        keeper.see(block)
    return keeper.sample


def prepare(
    kernel: Kernel | str,
    method: Method,
    n_features: int,
    n_inputs: int,
    sample: RowSample | None,
    seed: int,
    share: float | None = None,
) -> Recipe:
    """Choose what is open, and draw the map; ``share`` is a given penalty a row."""
    n_features = integer(n_features, "bochner", "n_features", 1)
    if isinstance(kernel, str):
        search = choose_lengthscale(kernel, _some(sample), n_features, seed, share)
    else:
        search = LengthscaleSearch(kernel)
    rows = None if sample is None else sample.X
    ask = Request(n_inputs, n_features, seed, X=rows)
    if isinstance(method, Auto):
        return Recipe(search, choose(method, search.kernel, ask))
    phi = draw_map(method, search.kernel, ask)
    require_real(phi, "A fit")
    return Recipe(search, Choice(phi, method, (), f"{method!r}: as asked."))


def _some(sample: RowSample | None) -> RowSample:
    if sample is None:
        raise InvalidInput("A kernel by name needs rows to choose its lengthscale from; got none.")
    return sample


def count_rows(blocks: Blocks) -> int:
    """Return the number of rows of blocks that were read to their end."""
    return blocks.n_rows if blocks.n_rows is not None else sum(b.X.shape[0] for b in blocks)


def block_rows(n_features: int) -> int:
    """Rows a block: its features take about 16 MB, and BLAS works at full speed."""
    return max(256, min(4096, (1 << 22) // n_features))


def as_features(phi: FeatureMap, X: Array, dtype: str) -> Array:
    """Return φ(X) rounded to this precision, as an array of X's library."""
    return Rounded(phi.kernel, phi, dtype)(X)


def joined(parts: list[Array]) -> Array:
    """Put arrays of one library one below the other."""
    return parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts, axis=0)


def sweep(
    phi: FeatureMap,
    blocks: Blocks,
    dtype: str,
    precision: Precision,
    keeper: Keeper | None = None,
) -> Moments:
    """Return the moments of all blocks in one pass; ``keeper`` sees the rows on their way."""
    return Accumulator(precision).sweep(_features(phi, blocks, dtype, keeper))


def sweep_unless(
    stop: Callable[[Moments], bool],
    phi: FeatureMap,
    blocks: Blocks,
    dtype: str,
    precision: Precision,
    keeper: Keeper,
) -> Moments | None:
    """Return the same, or None if ``stop`` says so of the moments of the first quarter of rows."""
    sums, asked = Accumulator(precision), False
    for Z, y, w in _features(phi, blocks, dtype, keeper):
        sums.add(Z, y, w)
        if not asked and blocks.n_rows is not None and 4 * sums.rows >= blocks.n_rows:
            asked = True
            if stop(sums.so_far()):
                return None
    return sums.moments()


def _features(
    phi: FeatureMap, blocks: Blocks, dtype: str, keeper: Keeper | None
) -> Iterator[tuple[Array, Array, Array | None]]:
    for block in blocks.with_rows(block_rows(phi.n_features)):
        if keeper is not None:
            keeper.see(block)
        y, w = to_numpy(block.y), None if block.w is None else to_numpy(block.w)
        yield to_numpy(as_features(phi, block.X, dtype)), y, w
