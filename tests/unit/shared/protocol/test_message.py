"""Messages are checked, field by field, where they arrive."""

from __future__ import annotations

import inspect
import json
import math
import sys
import typing
from collections import ChainMap
from collections.abc import Iterator
from itertools import cycle, islice
from typing import get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import make_launch

from tfdeploy.agent import verbs
from tfdeploy.shared.protocol.message import OLDER_VERBS, Invalid, first_that_fits, parse
from tfdeploy.shared.protocol.outputs import HashedFile, HeldCopy
from tfdeploy.shared.protocol.record import field_types, to_json
from tfdeploy.shared.protocol.reports import Follow, LogLines, NewCheckpoint, StateChange
from tfdeploy.shared.protocol.runs import HeldRun, Start
from tfdeploy.shared.records import TaskReport, TaskState

REPORT = TaskReport("ps:0", "READY", 1, 7, None, 0, "", step=3, step_age_s=0.5, log=["a"])
HELD = HeldRun(
    "r", "f00d", "worker:0", True, {"ps:0": TaskState("READY", 1.0)}, 1.5, 10, ["d"], ["e"]
)
COPY = HeldCopy("ckpt-7", 7, True, [HashedFile("ckpt-7.index", 3, "ab")], "/tmp/pin")


@pytest.mark.parametrize("message", [REPORT, HELD, COPY, Start([make_launch()])], ids=repr)
def test_a_message_arrives_as_it_was_sent(message):
    sent = json.loads(json.dumps(to_json(message)))
    assert parse(type(message), sent | {"of_a_newer_version": 1}) == message


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


def test_an_unknown_field_is_refused_between_equal_versions():
    with pytest.raises(Invalid, match=r"^HeldRun has no field 'extra'$"):
        parse(HeldRun, to_json(HELD) | {"extra": 1}, strict=True)


def test_an_event_is_read_by_its_first_field():
    def event(data):
        return first_that_fits(Follow.ANSWER, data)

    assert event({"checkpoint": "ckpt-7"}) == NewCheckpoint("ckpt-7")
    assert event({"task": "ps:0", "lines": ["a"], "cursor": "1"}) == LogLines("ps:0", ["a"], "1")
    assert event({"state": to_json(REPORT)}) == StateChange(REPORT)
    with pytest.raises(Invalid):
        event({"lines": ["a"]})


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
ANSWERS = sorted(
    {answer for request, _ in verbs.VERBS.values() for answer in verbs.resolve(request).ANSWER},
    key=lambda kind: kind.__name__,
)


@given(document=JSON, values=st.lists(JSON, min_size=1))
def test_no_answer_raises_anything_but_invalid(document, values):
    for answer in ANSWERS:
        fields = dict(zip([*field_types(answer), "end"], cycle(values), strict=False))
        for data in (document, fields, dict(islice(fields.items(), 1, None))):
            try:
                parse(answer, data)
            except Invalid as invalid:
                assert len(str(invalid)) < 200


# Each verb


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_a_verb_takes_the_fields_of_its_request(verb):
    request, function = map(verbs.resolve, verbs.VERBS[verb])
    assert verb == request.VERB
    parameters = inspect.signature(function).parameters
    assert list(parameters) == list(field_types(request))
    for name, annotation in field_types(request).items():
        taken = evaluated(parameters[name].annotation, function, request)
        assert taken == evaluated(annotation, request), name


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_a_verb_returns_or_yields_the_answer_of_its_request(verb):
    request, function = map(verbs.resolve, verbs.VERBS[verb])
    answer = evaluated(inspect.signature(function).return_annotation, function, request)
    if get_origin(answer) is Iterator:
        (answer,) = get_args(answer)
    assert (tuple(answer.__subclasses__()) or (answer,)) == request.ANSWER


def test_every_type_of_a_field_is_known():
    for name, _ in verbs.VERBS.values():
        request = verbs.resolve(name)
        for kind in (request, *request.ANSWER):
            for annotation in field_types(kind).values():
                evaluated(annotation, kind)


def evaluated(annotation, *places):
    """Evaluate an annotation in the modules of classes and functions. The agent itself imports some
    names only for type checkers."""
    modules = (sys.modules[place.__module__] for place in places)
    return eval(annotation, dict(ChainMap(*map(vars, modules), vars(typing))))


def test_an_agent_knows_the_words_of_older_versions():
    assert {verbs.NEWER_VERBS[older] for older in OLDER_VERBS.values()} == {*OLDER_VERBS}
    assert {*OLDER_VERBS} <= {*verbs.VERBS}
    assert not {*OLDER_VERBS.values()} & {*verbs.VERBS}
