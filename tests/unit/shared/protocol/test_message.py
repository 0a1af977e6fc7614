"""Messages are checked, field by field, where they arrive."""

from __future__ import annotations

import json
import math
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from itertools import cycle, islice
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import make_launch

from tfdeploy import agent
from tfdeploy.agent import verbs
from tfdeploy.hosts.answers import ANSWERS, read_answer
from tfdeploy.hosts.answers import CLASSES as CLASSES_OF_ANSWERS
from tfdeploy.shared import protocol, records, trials
from tfdeploy.shared.protocol.message import (
    Invalid,
    Message,
    Request,
    answer_class,
    parse,
    to_answer,
)
from tfdeploy.shared.protocol.outputs import Hold, Unit
from tfdeploy.shared.protocol.record import Fields, field_names, field_types, to_json
from tfdeploy.shared.protocol.reports import Follow, LogLines, NewCheckpoint, StateChange
from tfdeploy.shared.protocol.runs import HeldRun, Start
from tfdeploy.shared.records import TaskReport, TaskState

PREFIX = f"{protocol.__name__}."
REPORT = TaskReport("ps:0", "READY", 1, 7, None, 0, "", step=3, step_age_s=0.5, log=["a"])
HELD = HeldRun(
    "r", "f00d", "worker:0", True, {"ps:0": TaskState("READY", 1.0)}, 1.5, 10, ["d"], ["e"]
)
HOLD = Hold("p", "r", "ps:0", [Unit("m", "saved_model", {"m/saved_model.pb": (3, 7)})])


@pytest.mark.parametrize("message", [REPORT, HELD, HOLD, Start([make_launch()])], ids=repr)
def test_a_message_arrives_as_it_was_sent(message):
    sent = json.loads(json.dumps(to_json(message)))
    assert parse(type(message), sent | {"unknown": 1}) == message


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("state", 5, "5, expected str"), ("state", None, "None, expected str"),
        ("task", ["ps:0"], "['ps:0'], expected str"), ("age_s", "1", "'1', expected float"),
        ("age_s", math.inf, "inf, expected float"), ("age_s", math.nan, "nan, expected float"),
        ("age_s", True, "True, expected float"), ("pid", 1.5, "1.5, expected int"),
        ("restarts", None, "None, expected int"), ("log", "a", "'a', expected List[str]"),
        ("restarts", 10**40, "1" + "0" * 39 + ", expected int"),
        ("log", ["a", 1], "1, expected str"),
        ("log", {"a": 1}, "{'a': 1}, expected List[str]"), ("step_age_s", [], "[], expected float"),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_named(key, value, shown):
    with pytest.raises(Invalid) as invalid:
        parse(TaskReport, to_json(REPORT) | {key: value})
    assert str(invalid.value) == f"TaskReport.{key} is {shown}"


@pytest.mark.parametrize("tasks", [[], {"ps:0": 1}, "ps:0", None])
def test_values_inside_a_field_are_checked(tasks):
    with pytest.raises(Invalid, match=r"^(HeldRun\.tasks|TaskState) is "):
        parse(HeldRun, to_json(HELD) | {"tasks": tasks})


@pytest.mark.parametrize("data", [None, 3, "x", [], {}, {"task": "ps:0"}])
def test_anything_else_than_the_message_is_refused(data):
    with pytest.raises(Invalid):
        parse(TaskReport, data)


def test_an_answer_is_read_by_its_tag():
    follow = Follow("p", "r", [], logs=True, lines=None, forever=True)
    for event in (NewCheckpoint("c"), LogLines("ps:0", ["a"], "1"), StateChange(REPORT)):
        assert read_answer(follow, json.loads(json.dumps(to_answer(event)))) == event
    for tag in (None, 3, [], {}, "", "x" * 99, "stopped", "follow", "task_report"):
        with pytest.raises(Invalid, match=r"^tag is '.{0,40}, expected that of RunEvent$"):
            read_answer(follow, {"checkpoint": "c", "tag": tag})
    with pytest.raises(Invalid, match=r"^LogLines has no task, cursor$"):
        read_answer(follow, {"lines": ["a"], "tag": "log_lines"})


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(document=JSON, values=st.lists(JSON, min_size=1))
def test_no_answer_raises_anything_but_invalid(document, values):
    for answer in ANSWERS.values():
        fields = dict(zip([*field_types(answer), "end"], cycle(values), strict=False))
        for data in (document, fields, dict(islice(fields.items(), 1, None))):
            try:
                parse(answer, data)
            except Invalid as invalid:
                assert len(str(invalid)) < 200


# The tables of tags

MODULES = [import_module(each.name) for each in pkgutil.iter_modules(protocol.__path__, PREFIX)]
CLASSES = [
    kind
    for module in (*MODULES, records, trials)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Fields) and kind.__module__ == module.__name__
]
REQUESTS = {verb: verbs.resolve(request) for verb, (request, _) in verbs.VERBS.items()}


def test_each_message_with_a_tag_is_in_the_table_of_requests_or_of_answers():
    tagged = [kind for kind in CLASSES if issubclass(kind, Message) and kind.TAG]
    tables = [*REQUESTS.values(), *CLASSES_OF_ANSWERS]
    assert sorted(tagged, key=repr) == sorted(tables, key=repr)
    assert {kind.TAG: kind for kind in tagged} == REQUESTS | ANSWERS


def test_no_two_messages_or_records_have_the_same_name_or_tag():
    for names in ([each.__name__ for each in CLASSES], [*filter(None, map(tag_of, CLASSES))]):
        assert sorted(names) == sorted({*names})


def tag_of(kind):
    return getattr(kind, "TAG", "")


def test_what_answers_a_request_has_a_tag_and_what_has_a_tag_answers_one():
    expected = {answer_class(request) for request in REQUESTS.values()}
    for kind in CLASSES:
        if issubclass(kind, Message) and not issubclass(kind, Request):
            is_base = any(kind in other.__bases__ for other in CLASSES)
            is_answer = issubclass(kind, tuple(expected)) and not (kind in expected and is_base)
            assert bool(kind.TAG) == is_answer, kind


# Each verb


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_a_verb_takes_the_fields_of_its_request(verb):
    function = verbs.resolve(verbs.VERBS[verb][1])
    taken = {name: get_type_hints(function).get(name) for name in signature(function).parameters}
    assert taken == field_types(REQUESTS[verb])


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_a_verb_returns_or_yields_the_answer_of_its_request(verb):
    answer = get_type_hints(verbs.resolve(verbs.VERBS[verb][1]))["return"]
    if get_origin(answer) is Iterator:
        (answer,) = get_args(answer)
    assert answer is answer_class(REQUESTS[verb])


def test_every_type_of_a_field_is_known():
    """A name that only type checkers import would be found when the message is received."""
    names = [each.name for each in pkgutil.walk_packages(agent.__path__, f"{agent.__name__}.")]
    for name in names:
        if not name.endswith("__main__"):
            import_module(name)
    kinds = subclasses(Fields)
    assert {*CLASSES} <= kinds
    for kind in kinds:
        assert [*field_types(kind)] == field_names(kind)


def subclasses(kind):
    return {kind}.union(*map(subclasses, kind.__subclasses__()))
