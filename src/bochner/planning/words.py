"""The certificate in sentences."""

from typing import Any

__all__ = ["describe"]


def describe(c: Any) -> str:
    """Return what a certificate says, in three to five short sentences."""
    parts = [_distance(c), _trust(c), _meaning(c), _more(c), _matrix(c)]
    return " ".join(part for part in parts if part)


def _distance(c: Any) -> str:
    low, high = c.epsilon_interval
    on = "all" if c.exact else f"{c.n_sample:,}"
    interval = f"{100 * c.confidence:.3g} % interval {low:.2g} to {high:.2g}, "
    measured = f"{'' if low == high else interval}measured on {on} of them"
    return (
        f"With {c.n_features:,} features, {c.n_rows:,} rows and alpha = {c.alpha_measured:.3g}, "
        f"the features are within ε = {c.epsilon:.2g} of the exact kernel ({measured})."
    )


def _trust(c: Any) -> str:
    if c.alpha_measured > c.alpha:
        return (
            f"The alpha asked for, {c.alpha:.3g}, is lost to rounding in float64, so ε there is "
            "this or larger."
        )
    if not c.resolved and c.how == "lanczos":
        return (
            "The effective dimension is that of a sample, which is too small to resolve this "
            "alpha: raise n_sample for more of it."
        )
    if not c.resolved:
        return (
            "The sample is too small to resolve this alpha, so the upper end is coarse: measure "
            "more rows (n_sample) or raise alpha."
        )
    return ""


def _meaning(c: Any) -> str:
    if c.risk_factor is not None:
        return (
            "So the expected squared error of the fit on its rows is at most "
            f"{c.risk_factor:.4g} times what theory guarantees for the exact kernel, plus "
            f"{100 * c.risk_noise:.2g} % of the noise variance."
        )
    if c.alpha_measured > c.alpha:
        return "So there is no bound on how much worse than the exact kernel the fit can be."
    reaches = "ε" if c.epsilon >= 1 else "the interval"
    return (
        f"There is no bound on how much worse than the exact kernel the fit can be, because "
        f"{reaches} reaches 1; the fit may still be good."
    )


def _more(c: Any) -> str:
    if c.epsilon == 0:
        return "That is zero up to rounding."
    if c.features_to_halve is None:
        return _biased(c)
    if c.below_kernel:
        return (
            f"Halving ε takes about {c.features_to_halve:,} features or more: the error of these "
            "features follows the spectrum of the kernel."
        )
    return (
        f"Halving ε takes about {c.features_to_halve:,} features: the error of random features "
        "falls like 1/√D."
    )


def _biased(c: Any) -> str:
    if c.left_out is None:
        return (
            "How many features halve ε cannot be told: the error of these features is not noise, "
            "and does not fall like 1/√D."
        )
    return (
        f"More features of the kind need not lower ε: these leave out {100 * c.left_out:.2g} % of "
        "the kernel's trace, whatever their number. Raise their degree or order."
    )


def _matrix(c: Any) -> str:
    least = "" if c.resolved else "at least "
    return (
        f"The kernel matrix is off by {100 * c.frobenius:.2g} % (Frobenius) or "
        f"{100 * c.operator_norm:.2g} % (operator norm), its entries by at most "
        f"{c.entrywise:.2g}{_pairs(c)}; its effective dimension is {least}"
        f"{c.effective_dimension:.3g}."
    )


def _pairs(c: Any) -> str:
    if c.exact:
        return ""
    return f" on the sample (and at most {100 * c.pairs_beyond:.2g} % of all pairs by more)"
