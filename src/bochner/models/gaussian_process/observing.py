"""What a user says to a fitted process: derivatives and averages beside the values of its fit."""

from dataclasses import replace
from typing import Any, Self

from bochner.models._base import KernelEstimator
from bochner.models.gaussian_process.observations import BlockAverages, Derivatives


def of_values(law: Any) -> Any:
    """Return the law given the values alone."""
    return getattr(law, "base", law)


class Observing(KernelEstimator):
    """An estimator of a process that may be told derivatives and averages beside values."""

    def observe(self, *observations: Derivatives | BlockAverages) -> Self:
        """Take in derivatives of f at places, and averages of f over boxes, after ``fit``.

        Parameters
        ----------
        *observations : Derivatives or BlockAverages
            With the columns that features see (``schema_``), all at once: they take the place of
            those of an earlier call. ``fit``, ``partial_fit`` and ``solve_again`` forget them.

        Returns
        -------
        self
            Means, deviations, covariances, functions and intervals are those of f given the values
            and the observations; with the kernel itself, what conditioning on all at once gives.
            Kernel, noise and amplitude stay as the values have chosen them.

        Raises
        ------
        InvalidInput
            If columns or targets are not those of the fit, or it is one on a Fourier grid or on
            nearest neighbours.
        UnsupportedKernel
            If a derivative is given, and the kernel or the features have none in closed form.

        Notes
        -----
        Of o observations O(o n²) with the kernel itself, or O(o D²) through features for averages
        and D times that of φ for derivatives; then O(o³), and O(o (n + o)) for each row predicted.
        Sources: Solak et al. (2003), *Derivative observations in Gaussian process models of dynamic
        systems*, eq. 2 and 3; Cressie (1993), section 3.2.4, for averages over blocks.
        """
        from bochner.models.gaussian_process.observed import observed  # noqa: PLC0415

        fit = self._fitted
        law = observed(of_values(fit.law), observations, type(self).__name__)
        self.fit_ = replace(fit, law=law, calibrated=None)
        return self
