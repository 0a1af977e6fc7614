"""Words and variables of the command line, for one run."""

from __future__ import annotations

import pytest
from support.builders import FILE, make_inventory

from tfdeploy.config import toml_text
from tfdeploy.config.inventory import parse
from tfdeploy.config.overrides import check_run_name, check_words, override, parse_counts
from tfdeploy.errors import InventoryError

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
    assert parse(toml_text.write(changed.to_toml()), FILE).training == changed.training


def test_without_any_nothing_changes():
    inventory = make_inventory(training=OWN_ENV)
    assert override(inventory, [], []) == inventory
    assert override(inventory, [], []).to_toml() == inventory.to_toml()


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


@pytest.mark.parametrize(("role", "name"), [("torch", "RANK"), ("jax", "PROCESS_ID")])
def test_a_variable_of_the_role_is_refused(role, name):
    with pytest.raises(InventoryError, match=f'--env: role = "{role}" sets {name}; leave it out'):
        override(make_inventory(training=f'role = "{role}"'), [], [f"{name}=1"])


def test_counts_may_come_in_one_text_or_several():
    assert parse_counts(["ps=2, workers=8"], "--with") == {"ps": 2, "workers": 8}
    assert parse_counts(["ps=2", "workers=0"], "scale") == {"ps": 2, "workers": 0}


@pytest.mark.parametrize("text", ["8", "worker=8", "workers=-1", "workers=1025", "ps=", "", "ps=²"])
def test_a_wrong_count_is_refused(text):
    with pytest.raises(InventoryError) as refused:
        parse_counts([text], "--with")
    assert refused.value.message == (
        f'--with: found "{text}"; expected ps=COUNT or workers=COUNT, up to 1024'
    )


def test_a_count_that_occurs_twice_is_refused():
    with pytest.raises(InventoryError, match="--with: ps occurs twice; expected it once"):
        parse_counts(["ps=1,ps=2"], "--with")


def test_the_name_of_a_run_is_a_word_and_no_id():
    assert check_run_name("wide-lr0.1") == "wide-lr0.1"
    with pytest.raises(InventoryError, match='--name: found "a b"; expected letters'):
        check_run_name("a b")
    with pytest.raises(InventoryError, match="which looks like the id of a run"):
        check_run_name("20260101-000000-aaaa")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--lr 3", """words: found "--lr 3"; expected a list, such as ['--lr', '3']"""),
        (["--lr", 3], 'words: found 3; expected text, such as "3"'),
    ],
)
def test_words_of_a_program_are_a_list_of_texts(words, message):
    assert check_words("words", ["--lr", "3"]) == ("--lr", "3")
    with pytest.raises(InventoryError) as refused:
        check_words("words", words)
    assert str(refused.value) == message
