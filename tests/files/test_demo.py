"""The demo runs, and its page shows what was found, by itself."""

import base64
import re
from dataclasses import replace
from html import unescape
from io import BytesIO

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import TwoSlopeNorm
from pages import drawings, read

from bochner import datasets
from bochner.errors import DataFileError, InvalidInput, InvalidType
from bochner.report import run_demo
from bochner.report.demo import METHODS, relief_around
from bochner.report.demo_page import ERROR, RELIEF, colours, earth_page


def coarse_earth():
    """Every fourth row and column of cells."""
    earth = datasets.load_earth()
    kept = np.arange(64800).reshape(180, 360)[::4, ::4].ravel()
    parts = {name: getattr(earth, name)[kept] for name in ("X", "y", "latitude", "longitude")}
    return replace(earth, **parts)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One quick demo on coarse cells: the result, the lines shown, the page."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bochner.report.demo.load_earth", coarse_earth)
        out = tmp_path_factory.mktemp("demo") / "new" / "folder"
        result = run_demo(out, quick=True, seed=3, show=lines.append)
    return result, lines, result.path.read_text(encoding="utf-8")


def test_page_is_whole_and_balanced(run):
    reader = read(run[2])
    assert reader.tags.count("html") == reader.tags.count("body") == reader.tags.count("h1") == 1
    assert reader.tags.count("table") == 2
    assert "$" not in re.sub(r"\$ bochner demo", "", "".join(reader.text))


def test_page_fetches_and_runs_nothing(run):
    reader = read(run[2])
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(reader.tags)
    ids = [value for name, value in reader.attrs if name == "id"]
    assert len(set(ids)) == len(ids)
    kinds = ("src", "href", "srcset", "xlink:href", "data")
    addresses = [value for name, value in reader.attrs if name in kinds]
    pictures = [a for a in addresses if a.startswith("data:image/svg+xml;base64,")]
    assert len(pictures) == 4  # three maps and the curves
    inside = {*addresses, *re.findall(r"url\(([^)]*)", run[2])} - {*pictures}
    assert inside <= {f"#{name}" for name in ids}
    assert "@import" not in run[2]
    assert "http" not in run[2]


def test_table_shows_the_results(run):
    result, _, page = run
    header, *rows = read(page, without=["small"]).cells[:8]
    assert header == ["Method", "Test RMSE, m", "R²", "Seconds", "Kernel error, %", "ε"]
    assert len(rows) == len(result.methods) == 7
    for cells, row in zip(rows, result.methods, strict=True):
        assert cells[0] == row.name
        assert float(cells[1].replace(",", "")) == round(row.rmse)
        assert float(cells[2]) == pytest.approx(row.r_squared, abs=5.1e-4)
        assert float(cells[3]) == pytest.approx(row.seconds, abs=0.051)
        if row.epsilon is None:
            assert cells[4:] == ["–", "–"]
        else:
            assert float(cells[4]) == pytest.approx(100 * row.frobenius, abs=0.051)
            assert float(cells[5]) == pytest.approx(row.epsilon, rel=6e-3)


def test_second_table_shows_harmonics_and_neighbours(run):
    result, lines, page = run
    header, *rows = read(page, without=["small"]).cells[8:]
    assert header == ["What predicts a cell", "Made of", "Test RMSE, m", "Seconds"]
    assert len(rows) == len(result.near) == 4
    for cells, row in zip(rows, result.near, strict=True):
        assert cells[:2] == [row.name, row.detail]
        assert float(cells[2].replace(",", "")) == round(row.rmse)
        assert any(row.name in line and f"{row.rmse:.0f} m" in line for line in lines)
    assert result.near[1].detail == "256 harmonics"  # degree 15, of 23 rows of cells
    assert result.near[2].rmse < result.near[0].rmse < result.methods[0].rmse
    assert "lengthscale='auto'" in result.near[2].code  # quick: numbers are not searched for


def test_relief_around_a_cell_is_that_of_cells_as_far_away():
    """At 60° north steps along the parallel are two cells, and over the pole rows go on."""
    shape = (6, 12)
    latitude, longitude = np.meshgrid(
        -75 + 30.0 * np.arange(6), -165 + 30.0 * np.arange(12), indexing="ij"
    )
    places = np.stack([latitude.ravel(), longitude.ravel()], axis=1)
    y = np.random.default_rng(0).standard_normal(72) * 100
    found, size = relief_around(places, shape, y, 0 * y)
    heights = (found[:, :-2] * size[:, None]).reshape((*shape, 48))
    grid = y.reshape(shape)
    offsets = [(a, b) for a in range(-3, 4) for b in range(-3, 4) if a or b]
    beside, over = offsets.index((0, 1)), offsets.index((3, 0))
    np.testing.assert_allclose(heights[3, 2, beside], grid[3, 3])  # 15° north: one cell
    np.testing.assert_allclose(heights[5, 2, beside], grid[5, 6])  # 75°: four
    np.testing.assert_allclose(heights[4, 2, over], grid[4, 8])  # 45°, 90° further north
    np.testing.assert_allclose(size, np.sqrt((heights**2).mean(axis=2)).ravel() + 20)


def test_only_the_rival_has_no_certificate(run):
    *own, rival = run[0].methods
    assert all(row.epsilon is not None for row in own)
    assert "scikit-learn" in rival.name
    assert rival.epsilon is None


def test_numbers_are_of_held_out_cells_only(run):
    result = run[0]
    held_out = result.held_out
    assert held_out.sum() == result.n_test == held_out.size // 10
    assert result.n_train + result.n_test == held_out.size
    errors = (result.prediction - result.truth)[held_out]
    truth = result.truth[held_out]
    assert result.best.rmse == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
    assert result.best.r_squared == pytest.approx(1 - np.mean(errors**2) / truth.var(), rel=1e-6)


def test_maps_show_the_fit_of_least_leave_one_out_error(run):
    result = run[0]
    assert result.best.loo <= min(r.loo for r in result.methods if r.name == result.best.name)
    curve = next(c for c in result.curves if c.name == result.best.name)
    assert result.best.rmse in curve.rmse


def test_learning_beats_the_mean_by_far(run):
    assert all(row.r_squared > 0.6 for row in run[0].methods)
    assert all(c.rmse[-1] < c.rmse[0] for c in run[0].curves)


def test_lines_end_with_the_path_of_the_page(run):
    result, lines, _ = run
    assert lines[-1] == f"Wrote {result.path}"
    shown = "\n".join(lines)
    assert all(row.name in shown and f"{row.rmse:.0f} m" in shown for row in result.methods)


def test_code_on_the_page_makes_the_same_model(run):
    result, _, page = run
    code = unescape(re.search(r"<code>(\$ bochner.*?)</code>", page, re.DOTALL)[1])
    shell, python = code.split("\n\n", 1)
    assert shell == "$ bochner demo --seed 3 --quick"
    setup, fit = python.split(").fit(")
    names = {}
    exec(setup.replace("earth = load_earth()", "") + ")", names)  # noqa: S102
    assert "predict" in fit
    model = names["model"]
    assert repr(model.kernel) == result.kernel
    assert repr(model.method) == result.best.code
    assert (model.n_features, model.random_state) == (result.best.n_features, 3)


def test_text_from_outside_is_escaped(run):
    nasty = replace(run[0].methods[0], name="<script>alert(1)</script> & \"'")
    result = replace(run[0], methods=(nasty, *run[0].methods[1:]), certificate="a < b <img src=x>")
    reader = read(earth_page(result), without=["small"])
    assert "script" not in reader.tags
    assert "a < b <img src=x>" in "".join(reader.text)
    assert reader.cells[1][0] == nasty.name


def test_the_same_seed_gives_the_same_numbers(run, tmp_path, monkeypatch):
    monkeypatch.setattr("bochner.report.demo.load_earth", coarse_earth)
    monkeypatch.setattr("bochner.report.demo.METHODS", METHODS[:1])
    monkeypatch.setattr("bochner.report.demo.CURVES", METHODS[:1])
    again = run_demo(tmp_path, quick=True, seed=3)
    assert again.methods[0].rmse == pytest.approx(run[0].methods[0].rmse, rel=1e-9)
    np.testing.assert_array_equal(again.held_out, run[0].held_out)


def test_lines_may_go_to_an_object_that_prints(tmp_path, monkeypatch):
    class Console:
        lines = []  # noqa: RUF012

        def print(self, line):
            self.lines.append(line)

    monkeypatch.setattr("bochner.report.demo.load_earth", coarse_earth)
    monkeypatch.setattr("bochner.report.demo.METHODS", METHODS[:1])
    monkeypatch.setattr("bochner.report.demo.CURVES", METHODS[:1])
    result = run_demo(tmp_path / "relief.html", quick=True, show=Console())
    assert result.path.name == "relief.html"
    assert Console.lines[-1].startswith("Wrote ")


def test_a_folder_that_cannot_be_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "bochner.report.demo.load_earth", lambda: pytest.fail("computed before it looked")
    )
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(DataFileError, match=r"needs a folder that can be written.*Name another"):
        run_demo(file / "folder", quick=True)
    assert file.read_text() == "in the way"


@pytest.mark.parametrize(("seed", "error"), [(-1, InvalidInput), ("zero", InvalidType)])
def test_a_seed_that_is_no_seed_is_refused(tmp_path, seed, error):
    with pytest.raises(error, match="run_demo: seed must be an integer, 0 or above"):
        run_demo(tmp_path, seed=seed)


# --- pictures ------------------------------------------------------------------------------------


def test_map_has_north_above_and_its_colours(run):
    result, _, page = run
    title, figure = drawings(page)[0]
    assert title == "Relief as measured, m"
    address = re.search(r'<image [^>]*href="data:image/png;base64,([^"]+)"', figure, re.DOTALL)[1]
    found = image.imread(BytesIO(base64.b64decode(address)))[..., :3]
    assert found.shape[:2] == result.truth.shape
    expected = colours(RELIEF)(TwoSlopeNorm(0, -7500, 6000)(result.truth[::-1]))[..., :3]
    turned = re.search(
        r"scale\(1 -1\)|matrix\([\d.]+ 0 0 -", re.search("<image [^>]*>", figure, re.DOTALL)[0]
    )
    assert np.abs((found[::-1] if turned else found) - expected).max() < 0.01


@pytest.mark.parametrize("ramp", [RELIEF, ERROR])
def test_lightness_changes_by_equal_steps_on_each_side_of_zero(ramp):
    for side in np.split(lightness(colours(ramp)(np.arange(256))[:, :3]), 2):
        steps = np.diff(side)
        assert np.all(steps > 0) or np.all(steps < 0) or np.abs(steps).min() >= 0
        straight = np.linspace(side[0], side[-1], 128)
        assert np.abs(side - straight).max() < 0.015


def lightness(rgb):
    """Oklab's L of sRGB colours, by Ottosson's matrices in the direction from colour to L."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = linear @ np.array(
        [
            [0.4122214708, 0.2119034982, 0.0883024619],
            [0.5363325363, 0.6806995451, 0.2817188376],
            [0.0514459929, 0.1073969566, 0.6299787005],
        ]
    )
    return np.cbrt(cones) @ np.array([0.2104542553, 0.7936177850, -0.0040720468])
