"""[data] in hosts.toml: places, jobs and ways to compare files."""

from __future__ import annotations

import pytest
from support.builders import EXAMPLE_HINT, FILE, hosts_toml, make_inventory, refusal_of

from tfdeploy.config import inventory as inventories
from tfdeploy.config import toml_text


def refused(table):
    """Return the only message about a [data] table, without `data.`."""
    messages, hint = refusal_of(hosts_toml(top=table))
    assert (len(messages), hint) == (1, EXAMPLE_HINT)
    return messages[0].removeprefix("data.")


@pytest.mark.parametrize("place", ["data/mnist", "a b", "x.y", "漢", "-", "a'b", 'a"b'])
def test_dump_keeps_data_sets(place):
    quoted = place.replace('"', '\\"')
    table = f'[data."{quoted}"]\njobs = ["ps"]\ncompare = "hash"\nexclude = ["*"]\n[data.other]'
    inventory = make_inventory(top=table)
    assert list(inventory.data) == [place, "other"]
    assert inventories.parse(toml_text.write(inventory.to_toml()), FILE).data == inventory.data


@pytest.mark.parametrize(
    "place", ["/x", "../x", "a/../b", ".", "a//b", "a/", "", "~/x", "a\\tb", "\\\\"]
)
def test_a_place_outside_the_tasks_directory_or_with_two_spellings_is_refused(place):
    message = refused(f'[data."{place}"]')
    assert 'expected a path inside the task\'s directory, such as "data/mnist"' in message


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('compare = "md5"', 'a.compare: found "md5"; expected "mtime" or "hash"'),
        ('jobs = ["wroker"]', 'a.jobs.0: found "wroker"; expected "ps", "worker", "chief" or '
         '"evaluator"'),
        ('jobs = "worker"', 'a.jobs: found "worker"; expected a list'),
        ("jobs = []", "a.jobs is empty; expected at least one entry"),
        ('pth = "x"', 'a.pth: unknown key; did you mean "path"?'),
    ],
)  # fmt: skip
def test_a_wrong_value_of_a_data_set_is_refused(keys, message):
    assert refused(f"[data.a]\n{keys}") == message


@pytest.mark.parametrize("order", [("data", "data/a/b"), ("data/a/b", "data")])
def test_a_data_set_inside_another_is_refused(order):
    tables = "".join(f'[data."{place}"]\n' for place in order)
    assert refusal_of(hosts_toml(top=tables)) == (
        ["data.data/a/b is inside data.data, which is read-only for tasks"],
        "give one of them another place, or make them one data set",
    )


def test_places_with_a_common_prefix_are_two_data_sets():
    assert len(make_inventory(top="[data.a]\n[data.ab]").data) == 2


@pytest.mark.parametrize("path", ["~/mnist", "../data/mnist", "/data/mnist"])
def test_the_lines_for_a_folder_elsewhere_are_shown(path):
    [message], _ = refusal_of(hosts_toml(top=f'[data."{path}"]'))
    assert message.endswith(f'; for another folder, two lines: [data.mnist] and path = "{path}"')
