"""The error classes: exit codes, messages, and merging without hiding any error."""

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
    NotTrusted,
    PlanError,
    RunError,
    TaskFailed,
    TaskNotReady,
    TfdeployError,
    Unreachable,
    raise_all,
)

DOCSTRING_WORDS = re.sub(r"[·()]", " ", errors.__doc__).split()
LEAVES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, TfdeployError) and not cls.__subclasses__()
]


def raised(*several, hint=""):
    """Return what raise_all raises for these errors."""
    with pytest.raises(TfdeployError) as caught:
        raise_all(several, hint)
    return caught.value


# The classes


@pytest.mark.parametrize("leaf", LEAVES)
def test_the_module_docstring_lists_every_error_class(leaf):
    assert leaf.__name__ in DOCSTRING_WORDS


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_error_class_has_its_own_docstring(leaf):
    assert leaf.__doc__ != leaf.__base__.__doc__


def test_the_module_docstring_lists_no_class_that_does_not_exist():
    words = {word for word in DOCSTRING_WORDS if word.isalnum() and word[0].isupper()}
    assert {word for word in words if "Error" in word} <= set(dir(errors))


@pytest.mark.parametrize("leaf", LEAVES)
def test_errors_raised_before_any_change_have_exit_code_2(leaf):
    nothing_changed = issubclass(leaf, InventoryError | NotTrusted | PlanError | RunError)
    assert leaf.exit_code == (2 if nothing_changed else 1)


# Messages


def test_an_error_prints_its_message_and_the_hint_below_it():
    assert str(PlanError("found a", "say b")) == "found a\n  say b"
    assert str(PlanError("found a")) == "found a"


def test_a_host_error_starts_with_the_host_name():
    assert str(Unreachable("gpu-01", "no answer", "try ssh")) == "gpu-01: no answer\n  try ssh"


def test_an_error_of_a_task_shows_the_end_of_its_log():
    error = TaskFailed("worker:1", "gpu-01", "it ended: exit 1", "see logs", ["Traceback", "Oops"])
    assert str(error) == (
        "worker:1 on gpu-01: it ended: exit 1\n  | Traceback\n  | Oops\n  see logs"
    )


def test_a_fleet_error_prints_every_error_and_the_hint_once():
    error = FleetError([Unreachable("a", "x"), Unreachable("b", "y")], "say c")
    assert str(error) == "a: x\nb: y\n  say c"
    assert error.exit_code == 1


# raise_all


def test_raise_all_without_errors_returns():
    raise_all([])
    raise_all([], "a hint")


def test_raise_all_raises_a_single_error_unchanged():
    one = AgentError("a", "no")
    assert raised(one) is one


def test_raise_all_keeps_the_order_of_several_errors():
    first, second = Unreachable("b", "no"), AgentError("a", "no")
    error = raised(first, second)
    assert isinstance(error, FleetError)
    assert error.errors == (first, second)


def test_raise_all_flattens_fleet_errors():
    error = raised(
        FleetError([Unreachable("a", "x"), Unreachable("b", "x")]), Unreachable("c", "x")
    )
    assert [one.host for one in error.errors] == ["a", "b", "c"]


def test_raise_all_drops_duplicates():
    error = raised(Unreachable("a", "x"), Unreachable("b", "x"), Unreachable("a", "x"))
    assert [one.host for one in error.errors] == ["a", "b"]
    assert str(raised(Unreachable("a", "x"), Unreachable("a", "x"))) == "a: x"


def test_a_hint_for_all_errors_is_printed_last():
    assert str(raised(Unreachable("a", "x"), hint="say y")) == "a: x\n  say y"
    assert str(raised(HostError("a", "x"), HostError("b", "x"), hint="say y")).endswith("\n  say y")


def test_raise_all_keeps_the_hint_of_a_fleet_error():
    several = FleetError([TaskFailed("w:0", "a", "x"), TaskFailed("w:1", "a", "x")], "see logs")
    assert str(raised(several, Unreachable("b", "y"))).endswith("b: y\n  see logs")


@pytest.mark.parametrize("error", [TaskFailed, TaskNotReady])
def test_raise_all_keeps_the_hint_of_a_fleet_error_with_one_error(error):
    one = FleetError([error("worker:0", "a", "it ended: exit 1")], "the logs are kept")
    assert str(raised(one)) == "worker:0 on a: it ended: exit 1\n  the logs are kept"


# The same error on many hosts


def refused_connections(numbers):
    return [
        Unreachable(
            f"gpu{n:02}", f"no SSH connection: 10.0.0.{n} port 22: refused", f"try: ssh gpu{n:02}"
        )
        for n in numbers
    ]


def test_many_errors_that_differ_only_in_names_and_addresses_are_merged():
    assert str(raised(*refused_connections(range(1, 51)))) == (
        "gpu[01-50]: no SSH connection: 10.0.0.[1-50] port 22: refused\n  try: ssh gpu01"
    )


def test_the_same_error_of_two_hosts_is_one_sentence_though_a_second_has_passed():
    errors = [HostError(f"gpu{n}", f"port 2222 is taken, started {n}s ago") for n in (1, 2)]
    assert str(FleetError(errors)) == "gpu1, gpu2: port 2222 is taken, started 1s ago"


def test_the_same_error_of_two_hosts_is_printed_once_with_both_names():
    hint = "correct its name"
    errors = [Unreachable(host, "its name is unknown", hint) for host in ("a", "gpu-01")]
    assert str(raised(*errors)) == f"a, gpu-01: its name is unknown\n  {hint}"


def test_up_to_three_tasks_each_show_the_end_of_their_own_log():
    errors = [TaskFailed(f"worker:{n}", "a", "it ended", log=[f"log {n}"]) for n in range(3)]
    assert str(raised(*errors)) == "\n".join(map(str, errors))
    same = [TaskFailed(f"worker:{n}", "a", "it ended", log=["Oops"]) for n in range(2)]
    assert str(raised(*same)).startswith("worker:0, worker:1 on a: it ended\n")


def test_the_noise_of_tensorflow_is_counted_below_the_lines_of_the_program():
    noise = "I tensorflow/core/util/port.cc:153] oneDNN custom operations are on."
    log = [noise, "Traceback", noise, "ValueError: bad\x1b[0m", "bye"]
    error = TaskFailed("worker:1", "a", "it ended", log=log)
    assert str(error) == (
        "worker:1 on a: it ended\n  | Traceback\n  | ValueError: bad\n  | bye\n"
        "  (2 usual lines of TensorFlow)"
    )
    assert str(error.with_main_line()) == "worker:1 on a: it ended\n  | ValueError: bad"


def test_a_different_error_is_not_hidden_among_many_similar_ones():
    others = [
        AuthenticationFailed("gpu90", "no SSH connection: 10.0.0.90 port 22: refused"),
        Unreachable("gpu91", "no SSH connection: 10.0.0.91 port 22: timed out", "try: ssh gpu91"),
        Unreachable("gpu92", "no SSH connection: 10.0.0.92 port 22: refused", "look at gpu92"),
        RunError("gone"),
    ]
    similar = refused_connections(range(1, 21))
    text = str(raised(*similar[:10], *others, *similar[10:]))
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
def test_only_host_specific_words_are_merged(messages, text):
    """Values that were measured on the hosts stay apart: merged, nobody could assign them."""
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


def test_a_merged_fleet_error_still_holds_every_error():
    errors = refused_connections(range(1, 51))
    assert raised(*errors).errors == tuple(errors)


@pytest.mark.parametrize("char", ".-:x")
def test_a_very_long_message_is_merged_in_seconds(char):
    """It takes a tenth of a second; a quadratic search would take minutes."""
    start_s = time.process_time()
    reasons = [TaskFailed("worker:1", host, char * 30_000) for host in ("a", "b", "c", "d")]
    assert char * 30_000 in str(FleetError(reasons))
    assert time.process_time() - start_s < 20


def test_what_a_host_says_is_cut():
    error = AgentError("a", "x" * 30_000, "y" * 30_000)
    assert (error.message, error.hint) == ("x" * 4000 + "…", "y" * 4000 + "…")


@pytest.mark.parametrize(
    "original",
    [
        RunError("no run", "start one"),
        Unreachable("gpu-01", "no answer", "is it on?"),
        TaskFailed("worker:1", "gpu-01", "it ended", log=["Oops"]),
        FleetError([Unreachable("a", "no answer"), Unreachable("b", "no answer")]),
    ],
)
def test_an_error_with_another_hint_is_a_copy(original):
    before = str(original)
    copy = original.with_hint("try again")
    assert (type(copy), copy.hint, copy.message) == (type(original), "try again", original.message)
    assert copy.args == original.args
    assert copy.names == original.names
    assert str(copy).endswith("\n  try again")
    assert str(original) == before
