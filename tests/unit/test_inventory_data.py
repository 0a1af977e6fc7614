"""[data] in hosts.toml: which places, jobs and ways to compare there are."""

from __future__ import annotations

import pytest

from tfdeploy import inventory as inventories
from unit.made import FILE, HINT, inventory, refusal, text


def refused(table):
    """The one sentence that refuses a [data] table, without `data.`."""
    sentences, hint = refusal(text(top=table))
    assert (len(sentences), hint) == (1, HINT)
    return sentences[0].removeprefix("data.")


@pytest.mark.parametrize("place", ["data/mnist", "a b", "x.y", "漢", "-", "a'b", 'a"b'])
def test_a_run_is_asked_for_the_same_data_later(place):
    quoted = place.replace('"', '\\"')
    table = f'[data."{quoted}"]\njobs = ["ps"]\ncompare = "hash"\nexclude = ["*"]\n[data.other]'
    made = inventory(top=table)
    assert list(made.data) == [place, "other"]
    assert inventories.parse(inventories.dump(made), FILE).data == made.data


@pytest.mark.parametrize(
    "place", ["/x", "../x", "a/../b", ".", "a//b", "a/", "", "~/x", "a\\tb", "\\\\"]
)
def test_a_place_that_leaves_the_tasks_directory_or_has_two_spellings_is_refused(place):
    said = refused(f'[data."{place}"]')
    assert said.endswith('expected a path within the task\'s directory, as "data/mnist"')


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ('compare = "md5"', "a.compare: found \"md5\"; it should be 'mtime' or 'hash'"),
        ('jobs = ["wroker"]', "a.jobs.0: found \"wroker\"; it should be 'ps', 'worker', 'chief' or "
         "'evaluator'"),
        ('jobs = "worker"', 'a.jobs: found "worker"; expected a list'),
        ("jobs = []", "a.jobs: found nothing, expected at least one"),
        ('pth = "x"', 'a.pth: unknown key; did you mean "path"?'),
    ],
)  # fmt: skip
def test_what_a_table_holds_wrongly_is_refused(keys, sentence):
    assert refused(f"[data.a]\n{keys}") == sentence


@pytest.mark.parametrize("order", [("data", "data/a/b"), ("data/a/b", "data")])
def test_a_data_set_within_another_is_refused(order):
    tables = "".join(f'[data."{place}"]\n' for place in order)
    assert refusal(text(top=tables)) == (
        ["data.data/a/b would lie in data.data, which is read-only"],
        "give one of them a place of its own, or both in one data set",
    )


def test_places_that_only_begin_alike_are_two():
    assert len(inventory(top="[data.a]\n[data.ab]").data) == 2
