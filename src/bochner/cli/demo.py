"""bochner demo: the relief of the Earth, by several methods, on one page."""

from dataclasses import asdict
from typing import Any

import click

from bochner.cli.show import number, show, table
from bochner.report import DemoResult, MethodResult
from bochner.report import run_demo as write_page


def run_demo(*, out: str, quick: bool, seed: int, as_json: bool, quiet: bool) -> None:
    """Fit, write the page, say what was found."""
    result = write_page(out, quick=quick, seed=seed, show=None if quiet else _tell)
    if not (as_json or quiet):
        table(
            ("method", "features", "RMSE, m", "R²", "seconds", "ε"),
            [_row(method) for method in result.methods],
            f"ε: distance from the exact kernel at alpha = {result.alpha:.3g}",
        )
    lines = [
        ("kernel", result.kernel),
        ("best", _best(result.best)),
        ("certificate", result.certificate),
        ("seconds", number(result.seconds)),
        ("page", str(result.path)),
    ]
    show(_facts(result), [line for line in lines if line[1]], as_json, quiet)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _best(method: MethodResult) -> str:
    return (
        f"{method.name}, {method.n_features:,} features: "
        f"RMSE {number(method.rmse)} m, R² {number(method.r_squared)}"
    )


def _row(method: MethodResult) -> tuple[str, ...]:
    return (
        method.name,
        f"{method.n_features:,}",
        number(method.rmse),
        f"{method.r_squared:.4f}",
        f"{method.seconds:.2f}",
        number(method.epsilon),
    )


def _facts(result: DemoResult) -> dict[str, Any]:
    return {
        "kernel": result.kernel,
        "alpha": result.alpha,
        "certificate_words": result.certificate,
        "methods": [asdict(method) for method in result.methods],
        "best": asdict(result.best),
        "curves": [asdict(curve) for curve in result.curves],
        "train_rows": result.n_train,
        "test_rows": result.n_test,
        "seconds": result.seconds,
        "page": str(result.path),
    }
