"""CSV files, the good and the bad: each bad one ends in one sentence."""

import gzip
import re

import numpy as np
import pandas as pd
import pytest

from bochner import Blocks, KernelRidge
from bochner.data.formats import sniff
from bochner.errors import DataFileError, DataWarning, InvalidInput

# More than the 1 MiB that types are learned from.
LONG = "1,2\n" * 400_000


@pytest.fixture
def csv(tmp_path):
    def write(content, name="x.csv", **arguments):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Blocks.from_files(path, **arguments)

    return write


def numbers(blocks):
    return np.concatenate([block.X for block in blocks])


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separator_is_found(csv, separator, end):
    lines = [["a", "b", "c"], ["1", "2.5", "x"], ["-3", "1e3", "y"]]
    blocks = csv(end.join(separator.join(line) for line in lines) + end)
    assert blocks.feature_names == ("a", "b", "c=x", "c=y")
    np.testing.assert_array_equal(numbers(blocks), [[1, 2.5, 1, 0], [-3, 1000, 0, 1]])


def test_separator_within_quotes_does_not_mislead():
    assert sniff('a;b\n"1,5,6,7";2\n"1,5";3\n') == ";"
    assert sniff('name,note\nx,"a;b;c;d"\ny,"e"\n') == ","
    assert sniff("a\n1\n2\n") == ","
    assert sniff("a,b\n1,2\n3\n") == ","


def test_a_line_cut_by_the_end_of_the_sample_does_not_mislead():
    assert sniff("a;b;c\n1;2;3\n4;5", whole=False) == ";"


def test_separator_may_be_given(csv):
    assert csv("a:b\n1:2\n", separator=":").feature_names == ("a", "b")
    with pytest.raises(InvalidInput, match=r"separator must be one character; got ';;'"):
        csv("a;b\n1;2\n", separator=";;")


@pytest.mark.parametrize("given", [None, ","])
def test_wrong_separator_is_named(csv, given):
    with pytest.raises(
        InvalidInput,
        match=r"must have a target column 'b'; its columns are 'a:b' \(read with separator ','",
    ):
        csv("a:b\n1:2\n", target="b", separator=given)


def test_whole_numbers_may_become_floats_later(csv):
    X = numbers(csv("a,b\n" + LONG + "3.5,-4e2\n"))
    assert X.shape == (400_001, 2)
    np.testing.assert_array_equal(X[-2:], [[1, 2], [3.5, -400]])


def test_text_that_looks_like_numbers_is_text_where_the_schema_says_so(csv):
    schema = csv("code,b\n1x,2\n07,2\n").schema
    blocks = csv("code,b\n07,2\n07,3\n", schema=schema)
    np.testing.assert_array_equal(numbers(blocks), [[1, 0, 2], [1, 0, 3]])


def test_quotes_blank_lines_and_a_byte_order_mark_are_understood(csv):
    blocks = csv('\ufeffa,b\n"x\ny",1\n\n"z,""q""",2\n')
    assert blocks.feature_names == ("a=x\ny", 'a=z,"q"', "b")


def test_NA_in_quotes_is_text(csv):
    blocks = csv('a,b\nSE,1\n"NA",2\n')
    assert blocks.feature_names == ("a=NA", "a=SE", "b")


def test_true_and_false_are_one_and_zero(csv):
    np.testing.assert_array_equal(numbers(csv("a,b\ntrue,1\nFalse,2\n"))[:, 0], [1, 0])


def test_very_wide_rows_are_read(csv):
    names = ",".join(f"c{i}" for i in range(8_000))
    row = ",".join(["0.123456789"] * 8_000)
    assert numbers(csv(f"{names}\n{row}\n{row}\n{row}\n")).shape == (3, 8_000)


def test_numbers_are_read_as_python_reads_them(csv):
    values = np.random.default_rng(0).normal(size=500) * 10.0 ** np.arange(-250, 250)
    X = numbers(csv("a\n" + "\n".join(map(repr, values.tolist())) + "\n"))
    np.testing.assert_array_equal(X[:, 0], values)


BAD = {
    "empty": ("", DataFileError, r"'.*x.csv' is empty; it must hold a table"),
    "blank": ("  \n\n", DataFileError, r"'.*x.csv' is empty"),
    "no rows": ("a,b\n", InvalidInput, r"at least one row; '.*x.csv' has none"),
    "short line": (
        "a,b\n1,2\n3\n",
        DataFileError,
        r"all lines of '.*x.csv' must have 2 fields.*got 1 in line 3 \('3'\).*separator ','",
    ),
    "long line": ("a,b\n1,2\n3,4,5\n", DataFileError, r"got 3 in line 3 \('3,4,5'\)"),
    "late long line": ("a,b\n" + LONG + "3,4,5\n", DataFileError, r"got 3 in line 400002 "),
    "text in numbers": (
        "a,b\n" + LONG + "z,4\n",
        InvalidInput,
        r"column 'a' of '.*x.csv' must hold numbers to its end; got 'z' in line 400002. .*dtypes={'a': 'category'}",
    ),
    "comma in numbers": (
        "b;a\n" + LONG.replace(",", ";") + '3;"4,5"\n',
        InvalidInput,
        r"column 'a' .* got '4,5' in line 400002. Write decimals with a point",
    ),
    "text in booleans": (
        "a,b\n" + "true,2\n" * 300_000 + "maybe,4\n",
        InvalidInput,
        r"column 'a' .* must hold true and false to its end.* got 'maybe' in line 300002",
    ),
    "missing number": (
        "a,b\n" + LONG + ",4\n",
        InvalidInput,
        r"column 'a' must hold finite .* missing value .* in line 400002 of '.*x.csv'",
    ),
    "nan": ("a,b\n1,2\nnan,3\n", InvalidInput, r"column 'a' .* missing value .* in line 3 of"),
    "infinity": ("a,b\n1,2\n3,-inf\n", InvalidInput, r"column 'b' .* got -inf in line 3 of"),
    "missing text": ("a,b\nx,2\n,3\n", InvalidInput, r"'a' must have no missing .* in line 3 of"),
    "column of nothing": (
        "a,b\n,2\n,3\n",
        InvalidInput,
        r"column 'a' must hold numbers or text; got nothing \(all values missing\). Fill",
    ),
    "no header": (
        "1,2.5,-3,4\n3,4,5,6\n",
        DataFileError,
        r"first line of '.*x.csv' must hold the names .*; got numbers only \(1, 2.5, -3, ...\)",
    ),
    "same names": ("a,a\n1,2\n", InvalidInput, r"must have different names; got 'a' more than"),
    "no name": (",a\n1,2\n", InvalidInput, r"column 0 .* is called ''.*to_csv\(index=False\)"),
    "dates": ("a,b\n2020-01-01,2\n", InvalidInput, r"'a' must .* got dates or times"),
    "times": ("a,b\n2020-01-01 10:00,2\n", InvalidInput, r"'a' must .* got dates or times"),
    "latin-1": ("a,b\né,1\n".encode("latin1"), DataFileError, r"'.*' must be text in UTF-8"),
    "late latin-1": (
        b"a,b\n" + b"e,1\n" * 300_000 + "é,1\n".encode("latin1"),
        DataFileError,
        r"must be text in UTF-8",
    ),
    "UTF-16": ("a,b\n1,2\n".encode("utf16"), DataFileError, r"must be text in UTF-8"),
    "open quote": (
        'a,b\n1,2\n"' + "x" * 3_000_000,
        DataFileError,
        r"every row .* must be shorter than 1,048,576 bytes.*a quote that is never closed",
    ),
    "too many categories": (
        "a,b\n" + "".join(f"s{i},1\n" for i in range(1001)),
        InvalidInput,
        r"column 'a' must have at most 1000 different texts .*; got more, e.g. 's0', 's1', 's10'",
    ),
}


@pytest.mark.main_cases(8)
@pytest.mark.parametrize("case", BAD)
def test_bad_text_files_are_refused_in_a_sentence(csv, case):
    content, error, message = BAD[case]
    with pytest.raises(error, match=message) as caught:
        list(csv(content))
    assert "\n" not in str(caught.value)


def test_decimals_may_have_commas(csv):
    np.testing.assert_array_equal(numbers(csv("a;b\n1,5;2\n-3,25;4\n7;4\n"))[:, 0], [1.5, -3.25, 7])


def test_targets_and_weights_may_have_commas(csv):
    rows = "a;y;z;w\n1,5;0,25;3;1\n-3,25;-7;4,5;0,5\n7;2,5;5;2\n"
    (one,) = csv(rows, target="y", weight="w", columns=["a"])
    np.testing.assert_array_equal(one.y, [0.25, -7, 2.5])
    np.testing.assert_array_equal(one.w, [1, 0.5, 2])
    (both,) = csv(rows, target=["y", "z"], weight="w")
    np.testing.assert_array_equal(both.y, [[0.25, 3], [-7, 4.5], [2.5, 5]])
    np.testing.assert_array_equal(both.X[:, 0], [1.5, -3.25, 7])


def test_a_fit_to_a_target_with_commas_is_that_of_points(csv):
    x = np.arange(100) / 8
    lines = [f"{a};{b}" for a, b in zip(x, np.sin(x), strict=True)]
    points = "x;y\n" + "\n".join(lines) + "\n"
    commas = points.replace(".", ",")
    with_points, with_commas = (
        KernelRidge(random_state=0).fit_blocks(csv(text, name, target="y"))
        for text, name in ((points, "points.csv"), (commas, "commas.csv"))
    )
    assert with_commas.kernel_ == with_points.kernel_
    found, expected = (
        model.predict(csv(text, "again.csv", target="y"))
        for model, text in ((with_commas, commas), (with_points, points))
    )
    np.testing.assert_array_equal(found, expected)
    bad = csv(commas.replace("\n0,125;", "\n0,125;z"), "bad.csv", target="y")
    assert bad.schema.classes  # labels, where one cell is no number
    with pytest.raises(InvalidInput, match="target 'y' must hold numbers; got text"):
        KernelRidge().fit_blocks(bad)


def test_a_thousand_categories_are_allowed(csv):
    blocks = csv("a,b\n" + "".join(f"s{i},1\n" for i in range(1000)))
    np.testing.assert_array_equal(numbers(blocks).sum(0), [*[1] * 1000, 1000])


def test_packed_files_are_read_and_damaged_ones_refused(csv):
    packed = gzip.compress(b"a,b\n" + b"1.23,4.1\n" * 300_000)
    assert numbers(csv(packed, "x.csv.gz")).shape == (300_000, 2)
    with pytest.raises(DataFileError, match=r"cannot be read as a table of text: .*incorrect head"):
        csv(b"a,b\n1,2\n", "x.csv.gz")
    with pytest.raises(DataFileError, match=r"cannot be read as a table of text: .*Truncated"):
        list(csv(packed[: len(packed) // 2], "x.csv.gz"))


def test_pandas_row_numbers_are_refused_and_not_learned_from(csv):
    with pytest.raises(InvalidInput, match=r"often a row number saved by mistake"):
        csv(pd.DataFrame({"a": [1.0]}).to_csv())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("c,a\n5,1\n", r"column 'c' must hold categories seen .* \('x', 'y'\); got '5', first in"),
        ("c,a\nx,foo\n", r"'a' of '.*' must hold numbers; got text"),
        ("c,a\nx,\n", r"column 'a' must hold finite numbers; got a missing value .* line 2"),
        ("c,A\nx,1\n", r"must have a column 'a' \(did you mean 'A'\?\); its columns are 'c', 'A'"),
    ],
)
def test_files_that_do_not_fit_the_schema_are_refused(csv, content, message):
    schema = csv("a,c\n1,x\n2,y\n").schema
    with pytest.raises(InvalidInput, match=message):
        list(csv(content, schema=schema))


# --- One bad cell in a column of numbers ---------------------------------------------------------

VALUES = [repr(v) for v in np.random.default_rng(3).normal(size=2000).round(2).tolist()]


def with_cell(cell, at, name="a"):
    """A table of 2,000 numbers and 0, one of the numbers replaced."""
    lines = [f"{cell if row == at else value},0" for row, value in enumerate(VALUES)]
    return f"{name},b\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("at", [0, 17, 1999])
@pytest.mark.parametrize("cell", ["?", "1_000", '"1,000.5"', "[m/s]", "0x1F", "1 2"])
def test_a_stray_cell_is_named_and_the_column_is_text(csv, cell, at):
    plain = re.escape(repr(cell.strip('"')))
    said = rf"column 'a' is text, since it holds {plain} beside \d+ different numbers\. Mend or"
    with pytest.warns(DataWarning, match=said):
        csv(with_cell(cell, at))
    with pytest.raises(
        InvalidInput, match=rf"must hold numbers to its end; got .* in line {at + 2}"
    ):
        numbers(csv(with_cell(cell, at), dtypes={"a": "number"}))


def test_the_file_of_a_stray_cell_is_named(tmp_path):
    for name, cell in (("1.csv", "5"), ("2.csv", "none"), ("3.csv", "6")):
        (tmp_path / name).write_text(f"a\n1\n2\n3\n4\n{cell}\n7\n8\n9\n0\n1\n")
    match = (
        r"column 'a' holds text in '.*2.csv' and numbers in '.*1.csv', first 'none' in line 6 of '"
    )
    with pytest.raises(InvalidInput, match=match):
        Blocks.from_files(tmp_path)
    blocks = Blocks.from_files(tmp_path, dtypes={"a": "category"})
    assert "a=none" in blocks.feature_names
    assert numbers(blocks).sum() == 30
    with pytest.raises(
        InvalidInput, match=r"column .a. of .*2.csv. must hold numbers to its end; got"
    ):
        numbers(Blocks.from_files(tmp_path, dtypes={"a": "number"}))


@pytest.mark.parametrize("rows", [1, 7, 4096])
def test_types_that_are_given_hold_for_any_block_size(csv, rows):
    text = "a,b\n1,x\n1,2\n2,3\n"
    codes = csv(text, dtypes={"a": "category"}, block_rows=rows)
    assert codes.feature_names == ("a=1", "a=2", "b=2", "b=3", "b=x")
    np.testing.assert_array_equal(numbers(codes)[:, :2], [[1, 0], [1, 0], [0, 1]])
    with pytest.raises(InvalidInput, match=r"column 'b' .* got 'x' in line 2"):
        numbers(csv(text, dtypes={"b": "number"}, block_rows=rows))


def test_categories_of_many_numbers_stay_categories(csv):
    """Half of the cells are no numbers: that is a code, not an accident."""
    text = "a,b\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(["1", "2", "A1", "B"] * 10))
    assert csv(text).feature_names[:4] == ("a=1", "a=2", "a=A1", "a=B")


def test_the_target_may_be_said_to_be_categories(csv):
    blocks = csv("a,y\n1,0\n2,1\n3,7\n", target="y", dtypes={"y": "category"})
    assert blocks.schema.classes == ("0", "1", "7")


@pytest.mark.parametrize(
    ("dtypes", "match"),
    [
        (
            {"a": "float"},
            r"dtypes must say 'number' or 'category' of a column; got 'float' for 'a'",
        ),
        ({"c": "number"}, r"dtypes must name columns of '.*x.csv'; got 'c', which it does not use"),
        (["a"], r"dtypes must be a mapping from names of columns to .*; got list"),
    ],
)
def test_types_that_cannot_be_are_refused(csv, dtypes, match):
    with pytest.raises((InvalidInput, TypeError), match=match):
        csv("a,b\n1,2\n", dtypes=dtypes)


def test_types_and_a_schema_are_not_given_together(csv):
    schema = csv("a,b\n1,2\n").schema
    with pytest.raises(InvalidInput, match="dtypes must be left out where schema is given"):
        csv("a,b\n1,2\n", schema=schema, dtypes={"a": "number"})


def test_a_stray_cell_in_rows_to_predict_is_named(csv):
    schema = csv("a,b\n1,2\n").schema
    with pytest.raises(
        InvalidInput, match=r"'a' of '.*' must hold numbers; got text, first '\?' in line 3"
    ):
        csv("a,b\n1,2\n?,3\n", schema=schema)


@pytest.mark.parametrize("columns", [[], "ab"])
def test_columns_must_name_some(csv, columns):
    with pytest.raises(InvalidInput, match="columns must name at least one feature column"):
        csv("a,b\n1,2\n", columns=columns)
