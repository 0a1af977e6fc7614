"""Words and variables of the command line, for one run."""

from __future__ import annotations

import pytest

from tfdeploy.config.inventory import dump, parse
from tfdeploy.config.overrides import override
from tfdeploy.errors import InventoryError
from unit.builders import FILE, make_inventory

OWN_ENV = """
env = {A = "all"}
role_env = {R = "r", S = "{job}"}
[training.ps]
env = {A = "ps", B = "b"}
command = "python ps.py"
"""


def test_words_are_added_to_the_command_and_to_no_other():
    training = override(make_inventory(training=OWN_ENV), ["--lr", "0.1 {run}"], []).training
    assert training.command == ("python", "train.py", "--lr", "0.1 {run}")
    assert training.ps.command == ("python", "ps.py")


def test_a_variable_overrides_every_other_value():
    inventory = make_inventory('[hosts.a]\nenv = {A = "host"}\n[hosts.b]\nps = 1', training=OWN_ENV)
    changed = override(inventory, [], ["A=x=y", "C=", "R=1"])
    assert changed.training.env == {"A": "x=y", "C": "", "R": "1"}
    assert changed.training.role_env == {"S": "{job}"}
    assert changed.training.ps.env == {"B": "b"}
    assert [host.env for host in changed.hosts] == [{}, {}]


def test_a_record_keeps_them():
    changed = override(make_inventory(training=OWN_ENV), ['--json={"a": "b"}\n'], ["A=1"])
    assert parse(dump(changed), FILE).training == changed.training


def test_without_any_nothing_changes():
    inventory = make_inventory(training=OWN_ENV)
    assert override(inventory, [], []) == inventory
    assert dump(override(inventory, [], [])) == dump(inventory)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("A", '--env: found "A"; expected NAME=VALUE'),
        ("", '--env: found ""; expected NAME=VALUE'),
        ("=x", "--env: '' is not a valid name of an environment variable"),
        ("a-b=x", "--env: 'a-b' is not a valid name of an environment variable"),
        ("TF_CONFIG={}", "--env: tfdeploy itself sets TF_CONFIG; remove it"),
        ("JOB_NAME=x", '--env: role = "environment" sets JOB_NAME; leave it out'),
        ("PS_HOSTS=x", '--env: role = "environment" sets PS_HOSTS; leave it out'),
        ("KEY=x", "--env: KEY is one of training.secrets; export it instead"),
        ("A=\0", "--env: expected a value of A without a NUL character"),
    ],
)
def test_invalid_variables_are_refused(written, message):
    with pytest.raises(InventoryError) as refused:
        override(make_inventory(training='role = "environment"\nsecrets = ["KEY"]'), [], [written])
    assert refused.value.message == message
