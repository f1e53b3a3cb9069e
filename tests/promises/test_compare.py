"""docs/compare.md says what was measured, and its command runs."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def measured(monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return import_module("benchmarks.measured")


def test_the_tables_of_the_page_are_those_of_the_file_of_results(measured):
    kept = json.loads(measured.KEPT.read_text(encoding="utf-8"))
    page = measured.PAGE.read_text(encoding="utf-8")
    assert set(kept) == {"accuracy", "proof", "scale"}
    assert measured.written(page, kept) == page
    kept["scale"]["rows"][0]["seconds"] += 100
    assert measured.written(page, kept) != page


def rows(table, errors):
    """Fits to a table, as ``benchmarks.tables`` writes them: two splits of each learner."""
    return [
        {
            "table": table,
            "rows": 100,
            "split": split,
            "learner": learner,
            "error": error + split,
            "core seconds": 3.0,
        }
        for learner, error in errors.items()
        for split in (0, 1)
    ]


def test_the_least_error_of_a_table_is_bold_and_ours_has_no_favour(measured):
    given = rows("uci_pol", {"KernelRidge": 1.0, "LightGBM": 2.0})
    given += rows("kin8nm", {"KernelRidge": 2.0, "LightGBM": 1.0})
    given += rows("protein", {"LightGBM": 1.0})  # ours was not fitted: not shown
    table = measured.accuracy_table(measured.accuracy(given), 0).splitlines()
    assert table[0] == "| table | rows | splits | bochner | LightGBM |"
    assert table[2:] == [
        "| kin8nm | 100 | 2 | 2.5 | **1.5** |",
        "| uci_pol | 100 | 2 | **1.5** | 2.5 |",
    ]


def test_certificates_of_the_page_hold_what_is_true_at_a_small_size(measured):
    fourier, nystrom, bound = measured.proof(n_features=64)
    for row in (fourier, nystrom):
        assert row["low"] <= row["true"] <= row["high"]
    assert bound["asked"] is None or bound["asked"] > 64


def test_fits_of_the_table_of_scale_run_in_processes_of_their_own(measured):
    pytest.importorskip("resource")
    (row,) = measured.scale([2000])
    assert row["rows"] == 2000
    assert 0 < row["error"] < 1
    assert np.isfinite(row["peak"])
