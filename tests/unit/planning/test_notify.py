"""[notify] in the launches: only the chief has it, with the python of its host."""

from __future__ import annotations

import pytest
from support.builders import FILE, hosts_toml

from tfdeploy.config import inventory as inventories
from tfdeploy.errors import PlanError
from tfdeploy.planning import launch, placing
from tfdeploy.planning.roles import RunNames
from tfdeploy.shared.records import Notification

HOSTS = '[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1\npython = "/opt/python"\n'


def launches(notify, *, training="", file=FILE):
    text = hosts_toml(HOSTS, training=training) + f"[notify]\n{notify}\n"
    inventory = inventories.parse(text, file)
    plan = placing.make_plan(inventory, {"a": "a", "b": "b"})
    names = RunNames("r-1", "f00d", "wide")
    return {each.task: each for each in launch.make(inventory, plan, names, "secret")}


def test_only_the_chief_notifies():
    made = launches('on_end = "python tell.py"\non_failure = "https://h/x"')
    assert made["ps:0"].notify == Notification()
    assert made["worker:0"].notify == Notification(
        on_end=["/opt/python", "tell.py"],
        on_failure=["https://h/x"],
        hosts={"ps:0": "a", "worker:0": "b"},
        flags="--run r-1",
        name="wide",
    )


def test_another_hosts_file_is_named():
    made = launches('on_end = "x"', file=FILE.with_name("my lab.toml"))
    assert made["worker:0"].notify.flags == "--hosts 'my lab.toml' --run r-1"


def test_targets_are_those_that_are_set():
    notify = launches('on_end = "a"\non_slow = "b"')["worker:0"].notify
    assert notify.targets() == {"on_end": ["a"], "on_slow": ["b"]}
    assert notify.targets("on_end", "on_failure") == {"on_end": ["a"]}


def test_a_url_may_have_secrets_and_no_other_field():
    url = 'on_end = "https://h/{TOKEN}"'
    assert launches(url, training='secrets = ["TOKEN"]')["worker:0"].notify.on_end == [
        "https://h/{TOKEN}"
    ]
    with pytest.raises(PlanError) as refused:
        launches(url)
    expected = "notify.on_end: unknown field {TOKEN}; expected one of training.secrets"
    assert refused.value.message == expected
    assert refused.value.hint == 'add it: secrets = ["TOKEN"] under [training]'


def test_braces_in_a_command_stay():
    assert launches("on_end = ['jq', '{a: .text}']")["worker:0"].notify.on_end[1] == "{a: .text}"
