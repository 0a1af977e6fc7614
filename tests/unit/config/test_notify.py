"""[notify] and --wait: which values they take, and what a message shows of a URL."""

from __future__ import annotations

import math

import pytest
from support.builders import FILE, hosts_toml, make_inventory, refusal_of

from tfdeploy.config import inventory as inventories
from tfdeploy.config import toml_text
from tfdeploy.config.overrides import parse_wait
from tfdeploy.errors import InventoryError
from tfdeploy.formatting.humanize import mask_urls

URL = "https://hooks.example.org/services/T0/SECRET"


def with_notify(line):
    return hosts_toml() + f"[notify]\n{line}\n"


@pytest.mark.parametrize(
    ("value", "target"),
    [
        (f'"{URL}"', (URL,)),
        ('["python", "tell.py"]', ("python", "tell.py")),
        ("\"mail -s 'run ended' me\"", ("mail", "-s", "run ended", "me")),
        ('"HTTPS://hooks.example.org/{TOKEN}?a=\'b"', ("HTTPS://hooks.example.org/{TOKEN}?a='b",)),
    ],
)
def test_a_target_is_a_command_or_a_url(value, target):
    loaded = inventories.parse(with_notify(f"on_end = {value}"), FILE)
    assert (loaded.notify.on_end, loaded.notify.on_failure) == (target, None)
    again = inventories.parse(toml_text.write(loaded.to_toml()), FILE)
    assert again.notify == loaded.notify


def test_nobody_is_notified_by_default():
    loaded = make_inventory()
    assert (loaded.notify.on_end, loaded.notify.on_failure) == (None, None)
    assert "notify" not in toml_text.write(loaded.to_toml())


@pytest.mark.parametrize(
    "value",
    ["ftp://h/x", "https://", "https://u:SECRET@h/x", "http://h:0/SECRET", "https://h:x/SECRET",
     "https://h/SECRET x"],
)  # fmt: skip
def test_a_url_that_no_webhook_has_is_refused_and_not_shown(value):
    messages, _ = refusal_of(with_notify(f'on_end = "{value}"'))
    assert len(messages) == 1
    assert messages[0].startswith("notify.on_end: found ")
    assert messages[0].endswith(
        "; expected a command, or an http:// or https:// URL without user and password"
    )
    assert "SECRET" not in messages[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("on_end = []", "notify.on_end is empty; expected at least one entry"),
        (f'on_end = ["{URL}", "x"]', "notify.on_end: found "
         '["https://hooks.example.org/***", "x"]; expected a command, or a URL alone'),
        ("on_end = 5", "notify.on_end: found 5; expected text in quotes, or a list of words"),
        ('on_fail = "x"', 'notify.on_fail: unknown key; did you mean "on_failure"?'),
    ],
)  # fmt: skip
def test_other_values_are_refused(line, message):
    assert refusal_of(with_notify(line))[0] == [message]


def test_a_masked_text_shows_only_the_hosts_of_urls():
    text = f"curl -d @- {URL} --referer 'http://a.b?q=1' x"
    masked = "curl -d @- https://hooks.example.org/*** --referer 'http://a.b/***' x"
    assert mask_urls(text) == masked
    assert mask_urls("https://me:pw@h:8443/x") == "https://h:8443/***"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90.0), ("30m", 1800.0), ("1.5h", 5400.0), ("2d", 172800.0), ("forever", math.inf)],
)
def test_a_waiting_time_has_a_unit(written, seconds):
    assert parse_wait(written) == seconds


@pytest.mark.parametrize("written", ["", "5", "5x", "h", "-1s", "1h30m", "inf", "1 h"])
def test_another_waiting_time_is_refused(written):
    with pytest.raises(InventoryError) as refused:
        parse_wait(written)
    assert refused.value.message == (
        f'--wait: found "{written}"; expected a duration such as 90s, 30m or 1h, or forever'
    )
