"""Results of small fits and maps equal the records in ``tests/frozen_answers``.

An intended change is recorded again: ``python -m tests.frozen --update NAME``.
"""

import copy

import frozen
import pytest

pytestmark = pytest.mark.usefixtures("one_thread")


#: Pattern of the names of fits with long searches.
LONG = "process on a (named|chosen)|svr, C chosen"


@pytest.mark.parametrize("path", frozen.KINDS, ids=lambda path: path.stem)
def test_answers_equal_their_records(path):
    assert frozen.changes(path, f"(?!{LONG})") == []


@pytest.mark.slow
def test_answers_of_long_searches_equal_their_records():
    assert frozen.changes(frozen.FITS, LONG) == []


def test_a_changed_answer_is_reported():
    """Planted faults: one entry of each kind changes by little more than its tolerance."""
    record = {"kernel": "Gaussian(lengthscale=0.8)", "scale": 2.0, "alpha_": 0.3}
    record |= {"prediction": [1.0, 2.0], "value": [0.5]}
    changes = {"kernel": "Gaussian(lengthscale=0.80001)", "alpha_": 0.3000004}
    changes |= {"prediction": [1.0, 2.0 + 3e-7], "value": [0.5 + 2e-10]}
    assert frozen.differences(record, copy.deepcopy(record)) == []
    for key, value in changes.items():
        (sentence,) = frozen.differences(record, record | {key: value})
        assert sentence.startswith(key)
    assert frozen.differences(record, {k: v for k, v in record.items() if k != "value"}) == [
        "value: recorded only"
    ]
