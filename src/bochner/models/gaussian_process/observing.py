"""The method ``observe``: condition a fitted process on derivatives and averages."""

from dataclasses import replace
from typing import Any, Self

from bochner.models._base import KernelEstimator
from bochner.models.gaussian_process.observations import BlockAverages, Derivatives


def of_values(law: Any) -> Any:
    """Return the law given the values alone."""
    return getattr(law, "base", law)


class Observing(KernelEstimator):
    """An estimator of a process that can be conditioned on derivatives and averages."""

    def observe(self, *observations: Derivatives | BlockAverages) -> Self:
        """Take in derivatives of f at places, and averages of f over boxes, after ``fit``.

        Parameters
        ----------
        *observations : Derivatives or BlockAverages
            With the encoded columns (``schema_``). Pass all at once: they replace those of earlier
            calls. ``fit``, ``partial_fit`` and ``solve_again`` drop them.

        Returns
        -------
        self
            Means, deviations, covariances, functions and intervals are conditioned on the values
            and the observations; with the kernel itself exactly.
            Kernel, noise and amplitude stay as the values have chosen them.

        Raises
        ------
        InvalidInput
            If columns or targets differ from the fit, or the fit is on a Fourier grid or on nearest
            neighbours.
        UnsupportedKernel
            If a derivative is given, and the kernel or the features have none in closed form.

        Notes
        -----
        For o observations O(o n²) with the kernel itself; through features O(o D²) for averages,
        and D evaluations of φ for derivatives. Then O(o³), and O(o (n + o)) per predicted row.
        Sources: Solak et al. (2003), *Derivative observations in Gaussian process models of dynamic
        systems*, eq. 2 and 3; Cressie (1993), section 3.2.4, for averages over blocks.
        """
        from bochner.models.gaussian_process.observed import observed  # noqa: PLC0415

        fit = self._fitted
        law = observed(of_values(fit.law), observations, type(self).__name__)
        self.fit_ = replace(fit, law=law, calibrated=None)
        return self
