"""Row 3a: what to choose: kernel, lengthscales, metric, width.

Names for those who build on bochner; each is loaded from its module when first used.
"""

from typing import Any

from bochner._core.names import handed_out

#: Names for those who build on bochner, by the module that defines each.
FOR_DEVELOPERS = {
    "candidates": "choose_among choose_kernel",
    "chosen": "Chosen FeatureSpec",
    "columns": "CellsOf columns_from",
    "curves": "choose_curves",
    "density": "DensePlaces stretched",
    "descent": "Hyperparameters LOWEST OnFeatures Prior Rescaled TimeBudget descend",
    "gridded": "most_waves waves_for",
    "held_out": "relative_losses",
    "judges": "Matrices Trials TunedKernel",
    "metric": "average_outer_product learn_metric",
    "near": "NearRows OnBlocks tuned_among_near_rows",
    "numbers": "OnNumbers spectral_peaks tune_numbers",
    "process": "OnProcess ProcessRows SPREAD",
    "record": "KernelComparison",
    "rows": "TuningRows column_means column_spread near_rows rows_of screen",
    "search": "KernelWalk error_near_median tune_kernel",
    "spec": "EFFORTS Effort NAMED Tolerance accepts_sparse as_effort",
    "tree": "grow neighbourhoods",
    "trials": "APART FOLDS HeldOutTrials KernelCandidate crossed first_least split_rows",
    "width": "least_exact_error penalty_for required_features",
}


def __getattr__(name: str) -> Any:
    return handed_out(__name__, name, FOR_DEVELOPERS)


def __dir__() -> list[str]:
    return " ".join(FOR_DEVELOPERS.values()).split()
