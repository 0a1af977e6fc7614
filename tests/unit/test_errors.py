"""The tree of errors: exit codes, sentences, and that one error never hides another."""

from __future__ import annotations

import inspect
import re
import time

import pytest

from tfdeploy import errors
from tfdeploy.errors import (
    AgentError,
    AuthenticationFailed,
    FleetError,
    HostError,
    InventoryError,
    PlanError,
    RunError,
    TaskFailed,
    TaskNotReady,
    TfdeployError,
    Unreachable,
    raise_all,
)

PICTURE = re.sub(r"[·()]", " ", errors.__doc__)
LEAVES = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, TfdeployError) and not each.__subclasses__()
]


def raised(*given, hint=""):
    with pytest.raises(TfdeployError) as caught:
        raise_all(given, hint)
    return caught.value


# The tree


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_leaf_stands_in_the_picture_of_the_tree(leaf):
    assert leaf.__name__ in PICTURE.split()


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_leaf_says_what_it_means(leaf):
    assert leaf.__doc__ != leaf.__base__.__doc__


def test_the_picture_names_no_error_that_is_not_there():
    words = {word for word in PICTURE.split() if word.isalnum()}
    picture = {word for word in words if word[0].isupper() and any(c.islower() for c in word[1:])}
    assert {word for word in picture if "Error" in word} <= set(dir(errors))


@pytest.mark.parametrize("leaf", LEAVES)
def test_what_was_refused_before_anything_was_touched_exits_with_2(leaf):
    before = leaf in (InventoryError, PlanError, RunError)
    assert leaf.exit_code == (2 if before else 1)


# Sentences


def test_an_error_is_its_message_and_under_it_the_hint():
    assert str(PlanError("found a", "say b")) == "found a\n  say b"
    assert str(PlanError("found a")) == "found a"


def test_an_error_of_a_host_begins_with_its_name():
    assert str(Unreachable("gpu-01", "no answer", "try ssh")) == "gpu-01: no answer\n  try ssh"


def test_an_error_of_a_task_shows_the_end_of_its_log():
    error = TaskFailed("worker:1", "gpu-01", "it ended: exit 1", "see logs", ["Traceback", "Oops"])
    assert str(error) == (
        "worker:1 on gpu-01: it ended: exit 1\n  | Traceback\n  | Oops\n  see logs"
    )


def test_several_errors_are_all_told_and_the_hint_once():
    error = FleetError([Unreachable("a", "x"), Unreachable("b", "y")], "say c")
    assert str(error) == "a: x\nb: y\n  say c"
    assert error.exit_code == 1


# raise_all


def test_no_errors_raise_nothing():
    raise_all([])
    raise_all([], "a hint")


def test_one_error_is_raised_as_it_is():
    one = AgentError("a", "no")
    assert raised(one) is one


def test_several_errors_are_raised_together_in_their_order():
    first, second = Unreachable("b", "no"), AgentError("a", "no")
    error = raised(first, second)
    assert isinstance(error, FleetError)
    assert error.errors == (first, second)


def test_errors_of_errors_are_told_side_by_side():
    error = raised(
        FleetError([Unreachable("a", "x"), Unreachable("b", "x")]), Unreachable("c", "x")
    )
    assert [one.host for one in error.errors] == ["a", "b", "c"]


def test_what_is_told_already_is_not_told_again():
    error = raised(Unreachable("a", "x"), Unreachable("b", "x"), Unreachable("a", "x"))
    assert str(error) == "a: x\nb: x"
    assert str(raised(Unreachable("a", "x"), Unreachable("a", "x"))) == "a: x"


def test_a_hint_for_all_stands_at_the_end():
    assert str(raised(Unreachable("a", "x"), hint="say y")) == "a: x\n  say y"
    assert str(raised(HostError("a", "x"), HostError("b", "x"), hint="say y")).endswith("\n  say y")


def test_the_hint_of_several_is_kept_when_more_come():
    several = FleetError([TaskFailed("w:0", "a", "x"), TaskFailed("w:1", "a", "x")], "see logs")
    assert str(raised(several, Unreachable("b", "y"))).endswith("b: y\n  see logs")


@pytest.mark.parametrize("error", [TaskFailed, TaskNotReady])
def test_the_hint_of_several_is_kept_where_there_is_one(error):
    one = FleetError([error("worker:0", "a", "it ended: exit 1")], "the logs are kept")
    assert str(raised(one)) == "worker:0 on a: it ended: exit 1\n  the logs are kept"


# Many hosts that have met the same


def refused(numbers):
    return [
        Unreachable(
            f"gpu{n:02}", f"no SSH connection: 10.0.0.{n} port 22: refused", f"try: ssh gpu{n:02}"
        )
        for n in numbers
    ]


def test_many_that_differ_in_names_and_addresses_alone_are_one():
    assert str(raised(*refused(range(1, 51)))) == (
        "gpu[01-50]: no SSH connection: 10.0.0.[1-50] port 22: refused\n  try: ssh gpu01"
    )


def test_a_few_are_told_one_by_one():
    errors = refused(range(1, 4))
    assert str(raised(*errors)) == "\n".join(map(str, errors))


def test_what_is_another_error_is_not_hidden_among_many():
    others = [
        AuthenticationFailed("gpu90", "no SSH connection: 10.0.0.90 port 22: refused"),
        Unreachable("gpu91", "no SSH connection: 10.0.0.91 port 22: timed out", "try: ssh gpu91"),
        Unreachable("gpu92", "no SSH connection: 10.0.0.92 port 22: refused", "look at gpu92"),
        RunError("gone"),
    ]
    text = str(raised(*refused(range(1, 11)), *others, *refused(range(11, 21))))
    assert text.splitlines()[:2] == [
        "gpu[01-20]: no SSH connection: 10.0.0.[1-20] port 22: refused", "  try: ssh gpu01",
    ]  # fmt: skip
    assert text.endswith("\n".join(map(str, others)))


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (["{host} is full"] * 4, "gpu[0-3]: gpu[0-3] is full"),
        (["2001:db8::{n} is mute"] * 4, "gpu[0-3]: 2001:db8::[0-3] is mute"),
        (["10.0.0.1:222{n} is mute"] * 4, "gpu[0-3]: 10.0.0.1:[2220-2223] is mute"),
        (["port 22001: no"] * 4, "gpu[0-3]: port 22001: no"),
        (["port 2200{n}: no"] * 4, "gpu[0-3]: port [22000-22003]: no"),
        (["it knows no worker:{n} of 7"] * 4, "gpu[0-3]: it knows no worker:[0-3] of 7"),
        (["no /data/{host}/x"] * 4, "gpu[0-3]: no /data/gpu[0-3]/x"),
        (["pid {n} is in the way"] * 4, None),
        (["{n} MB are free"] * 4, None),
        (["gpu9{n} is its peer"] * 4, None),
        (["{host}.lab is full"] * 4, None),
    ],
)
def test_only_what_tells_the_hosts_apart_is_taken_together(messages, text):
    """Not what was found there: that could not be told apart again."""
    errors = [
        AgentError(f"gpu{n}", message.format(host=f"gpu{n}", n=n))
        for n, message in enumerate(messages)
    ]
    assert str(raised(*errors)) == (text or "\n".join(map(str, errors)))


def test_many_tasks_that_are_not_ready_show_one_log():
    errors = [
        TaskNotReady(f"worker:{n}", f"gpu{n}", "not ready", "", [f"log {n}"]) for n in range(9)
    ]
    assert str(raised(*errors, hint="see logs")) == (
        "worker:[0-8] on gpu[0-8]: not ready\n"
        "  the end of the log of worker:0:\n  | log 0\n  see logs"
    )


def test_each_of_many_is_still_there():
    errors = refused(range(1, 51))
    assert raised(*errors).errors == tuple(errors)


@pytest.mark.parametrize("char", ".-:x")
def test_a_host_that_says_much_nonsense_holds_nobody_up(char):
    """In a second or so; it were hours if each letter were looked at from every other."""
    began = time.process_time()
    said = str(FleetError([AgentError(host, char * 300_000) for host in ("a", "b", "c", "d")]))
    assert char * 300_000 in said
    assert time.process_time() - began < 20
