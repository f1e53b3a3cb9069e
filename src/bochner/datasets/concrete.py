"""The compressive strength of concrete: a small table for tests and docs."""

from bochner.datasets.dataset import Dataset, stored

_NAMES = (
    "cement",
    "blast_furnace_slag",
    "fly_ash",
    "water",
    "superplasticizer",
    "coarse_aggregate",
    "fine_aggregate",
    "age",
)

_CONCRETE = """\
Compressive strength (MPa) of 1,030 samples of concrete, from seven ingredients (kg in a cubic
metre) and the age (days). Inputs and target are centred: the mean of each column is zero.

Source: I-Cheng Yeh, Modeling of strength of high-performance concrete using artificial neural
networks, Cement and Concrete Research 28 (1998) 1797-1808; UCI Machine Learning Repository,
Concrete Compressive Strength (data set 165); centred copy from the GitHub repository
treforevans/uci_datasets.

Licence: the UCI repository gives the data under CC BY 4.0; the copy is under the MIT licence,
copyright (c) 2022 Trefor Evans.
"""


def load_concrete() -> Dataset:
    """Return the strength of concrete: 1,030 samples, eight columns, centred.

    Returns
    -------
    Dataset
        ``X`` (1030, 8) float32, kg/m³ and days about their means; ``y`` (1030,) float32, MPa
        about the mean.

    Notes
    -----
    Source: I-Cheng Yeh (1998), UCI Machine Learning Repository (CC BY 4.0), in the copy of
    treforevans/uci_datasets (MIT).

    Examples
    --------
    >>> from bochner.datasets import load_concrete
    >>> load_concrete()
    Dataset(n=1030, d=8, target='strength (MPa)')
    """
    arrays = stored("concrete.npz")
    return Dataset(arrays["X"], arrays["y"], _NAMES, "strength (MPa)", _CONCRETE)
