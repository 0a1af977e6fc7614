"""Which differences between hosts keep tasks from training together."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.planning.versions import differences

OLD, NEW = {"tensorflow": "2.15.1", "Keras": "2.15"}, {"tensorflow": "2.16.1", "Keras": "3.3"}
REFUSED = ": the tasks of one run need the same minor version"


@pytest.mark.parametrize(
    ("found", "refused", "noted"),
    [
        ({"a": OLD, "b": OLD}, [], []),
        (
            {"a": NEW, "b": OLD, "c": NEW},
            ["TensorFlow 2.15.1 on b, 2.16.1 on a, c" + REFUSED],
            ["hosts differ: Keras 2.15 on b, 3.3 on a, c"],
        ),
        ({"a": {"torch": "2.1.0"}, "b": {"torch": "2.1.2+cpu"}}, [],
         ["hosts differ: PyTorch 2.1.0 on a, 2.1.2+cpu on b"]),
        ({"a": {"jax": "0.4.30"}, "b": {"jax": "0.5.0"}},
         ["JAX 0.4.30 on a, 0.5.0 on b" + REFUSED], []),
        ({"a": {"Python": "3.11.2"}, "b": {"Python": "3.11.9"}, "c": {}}, [], []),
        ({"a": {"Python": "3.11.2"}, "b": {"Python": "3.12.1"}}, [],
         ["hosts differ: Python 3.11 on a, 3.12 on b"]),
    ],
)  # fmt: skip
def test_only_another_minor_version_of_a_framework_is_refused(found, refused, noted):
    errors, notes = differences(found, make_inventory().training)
    assert ([each.message for each in errors], [each.message for each in notes]) == (refused, noted)


def test_any_version_is_only_noted_if_the_user_says_so():
    training = make_inventory(training='versions = "any"').training
    errors, [note] = differences({"a": OLD, "b": NEW}, training)
    assert not errors
    assert (
        note.message
        == "hosts differ: Keras 2.15 on a, 3.3 on b; TensorFlow 2.15.1 on a, 2.16.1 on b"
    )


def test_what_a_host_calls_a_version_adds_no_line():
    forged = {"torch": "2.1\nerror: x", "x\ny": "1"}
    errors, notes = differences({"a": forged, "b": {"torch": "9", "x\ny": "2"}},
                                make_inventory().training)  # fmt: skip
    assert not any("\n" in each.message for each in (*errors, *notes))
