"""Row 1: from sums to solutions.

Names for those who build on bochner; each is loaded from its module when first used.
"""

from typing import Any

from bochner._core.names import handed_out

#: Names for those who build on bochner, by the module that defines each.
FOR_DEVELOPERS = {
    "cg": "FeaturePreconditioner KernelOperator System solve_system",
    "factorisations": (
        "accept eigenvalues lower_factor randomly_pivoted_cholesky solve_lower symmetric"
    ),
    "gram": "conjugate_gradients inner",
    "harmonics": "from_waves harmonics_of_real real_of_harmonics to_waves",
    "lloyd": "CentroidsOf StepsOf assign in_order run_lloyd",
    "neighbours": "LocalLaw condition",
    "sgd": "CLASS_LOSSES NUMBER_LOSSES Patience as_loss",
    "toeplitz": "full_of",
    "waves": "WaveProblem draws square_sums",
    "convex.class_losses": "Hinge Logistic Multinomial SquaredHinge",
    "convex.conjugate_gradients": "active_rows from_moments",
    "convex.dense": "DenseProblem Table changed factored",
    "convex.driver": "algorithm_for minimise solve",
    "convex.factors": "cholesky solved",
    "convex.joint_losses": "MultinomialShares",
    "convex.kernel": "KernelProblem minimise_on_kernel",
    "convex.libsvm": "hinge_of_pairs hinge_on_kernel",
    "convex.losses": (
        "Absolute BelowZero CustomLoss EpsilonInsensitive GammaDeviance Huber Loss "
        "PoissonDeviance Quantile Squared SquaredEpsilonInsensitive as_levels huber_scale "
        "hubers"
    ),
    "convex.named_losses": "NAMES by_name",
    "convex.optimum": (
        "ActiveRows CommonFactor ConjugateGradients Convergence Dense Libsvm Newton Optimum "
        "Smoothed"
    ),
    "convex.penalty_path": "held_out_path",
    "convex.problem": "Problem best_constant best_length next_best_length optimum",
    "convex.smoothing": "from_multipliers",
    "ridge.criteria": "CRITERIA FEW LeaveOneOutError coefficients evidence leave_one_out_error",
    "ridge.dual": "KernelRows kernel_leave_one_out",
    "ridge.eigen": "FLOAT32_FLOOR LOWEST Eigen Triangle decompose decompose_rows floor penalties",
    "ridge.evidence": (
        "Evidence EvidenceOutcome as_variance evidence_of log_evidence maximise_evidence"
    ),
    "ridge.groups": "Group reduced_at",
    "ridge.iterative": (
        "JudgingRows RowFactor WideProblem guessed least_of_parabola left_out solve_wide"
    ),
    "ridge.kernel_evidence": "kernel_evidence",
    "ridge.kernel_path": "least_along solve_kernel",
    "ridge.leave_one_out": "extrapolate leave_one_out left_out_path limited resolved_slacks",
    "ridge.path": "PENALTY_CRITERIA as_alpha gcv_of path_of solve_ridge",
    "ridge.solution": "Outcome Path Solution",
    "ridge.subspace": "GrowingSubspace ShiftedSystems",
}


def __getattr__(name: str) -> Any:
    return handed_out(__name__, name, FOR_DEVELOPERS)


def __dir__() -> list[str]:
    return " ".join(FOR_DEVELOPERS.values()).split()
