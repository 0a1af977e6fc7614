"""What needs trust is shown in few lines, without loss."""

from __future__ import annotations

from tfdeploy.trust import words
from tfdeploy.trust.sensitive_values import SensitiveValue


def of_host(name, key, value):
    return SensitiveValue(f"hosts.{name}{key}", value, "runs there", host=name)


def test_hosts_with_the_same_key_share_a_line_and_no_name_is_lost():
    hosts = [of_host(name, ".python", "/opt/tf/bin/python") for name in ("gpu-1", "gpu-2")]
    lines = words.lines(hosts, {})
    assert lines == ['hosts.gpu-[1-2].python = "/opt/tf/bin/python" runs there']


def test_equal_texts_of_other_keys_have_lines_of_their_own():
    steps = [SensitiveValue("env.setup", f"step {n}", "runs") for n in (1, 2)]
    assert words.lines(steps, {}) == ['env.setup = "step 1" runs', 'env.setup = "step 2" runs']


def test_a_line_says_what_was_trusted_until_now():
    value = SensitiveValue("training.command", "python b.py", "runs", "digest")
    was = {"training.command": "python a.py"}
    assert words.lines([value], was) == [
        'training.command = "python b.py" runs (until now "python a.py")'
    ]
    [line] = words.lines([value], {"training.command": "python b.py"})
    assert line.endswith("runs (its files have changed)")


def test_hosts_share_a_line_only_if_it_shows_which_one_has_which_value():
    hosts = {"gpu-1": "10.0.0.1", "gpu-2": "10.0.0.3", "gpu-3": "10.0.0.2"}
    lines = words.lines([of_host(name, "", value) for name, value in hosts.items()], {})
    assert lines == [f'hosts.{name} = "{value}" runs there' for name, value in hosts.items()]
