"""Each value of hosts.toml: the very sentence that refuses each kind of wrong one."""

from __future__ import annotations

import pytest

from unit.made import HINT, inventory, refusal, text

ADDRESS = "expected a host name or an IP address, without user, port or scheme"
NAME = 'expected letters, digits, ".", "_" and "-", and not the word "agent"'
WORD = 'expected a word that doesn\'t begin with "-"'
FOLDER = 'expected a folder as "~/.tfdeploy" or "/scratch/me/tfdeploy"'
RANGE = 'expected a range as "2222-2299", a list as [2222, 2223], or "auto"'


def host(lines):
    return inventory(f"[hosts.a]\n{lines}").hosts[0]


def refused_host(lines):
    """The one sentence against host a, without the path of its table."""
    sentences, hint = refusal(text(f"[hosts.a]\n{lines}"))
    assert hint == HINT
    assert len(sentences) == 1, sentences[:5]
    return sentences[0].removeprefix("hosts.a.")


# Values


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("port = 0", "port: found 0; it should be greater than or equal to 1"),
        ("port = -22", "port: found -22; it should be greater than or equal to 1"),
        ("port = 99999", "port: found 99999; it should be less than or equal to 65535"),
        ('port = "ssh"', 'port: found "ssh"; expected a whole number'),
        ('port = "22"', 'port: found "22"; expected a whole number'),
        ("port = 22.5", "port: found 22.5; expected a whole number"),
        ("port = true", "port: found true; expected a whole number"),
        ("ports = []", 'ports: found []; expected at least one port, or "auto"'),
        ("spare = 1", "spare: found 1; expected true or false"),
        ("ports = [0]", "ports.0: found 0; it should be greater than or equal to 1"),
        ('ports = "2222"', f'ports: found "2222"; {RANGE}'),
        ('ports = "2299-2222"', f'ports: found "2299-2222"; {RANGE}'),
        ('ports = "many"', f'ports: found "many"; {RANGE}'),
        ("ports = [7, 8, 7]", "ports: found [7, 8, 7]; expected each number once, found 7 twice"),
        ("user = 1", "user: found 1; expected text in quotes"),
        ('user = "-oProxy"', f'user: found "-oProxy"; {WORD}'),
        ('proxy_jump = "-J"', f'proxy_jump: found "-J"; {WORD}'),
        ('python = " "', f'python: found " "; {WORD}'),
        ('directory = "tfdeploy"', f'directory: found "tfdeploy"; {FOLDER}'),
        ('directory = "~"', f'directory: found "~"; {FOLDER}'),
        ('directory = "/"', f'directory: found "/"; {FOLDER}'),
        (
            'directory = "/{hots}"',
            'directory: found "/{hots}"; {hots} is unknown here; {host}, the host\'s name, is not',
        ),
        ('directory = "~/a/../.."', f'directory: found "~/a/../.."; {FOLDER}'),
        ("ps = -1", "ps: found -1; it should be greater than or equal to 0"),
        ("ps = 1.0", "ps: found 1.0; expected a whole number"),
        ("chief = 1", "chief: found 1; expected true or false"),
        ('chief = "yes"', 'chief: found "yes"; expected true or false'),
        ("workers = -1", 'workers: found -1; expected a count from 0 to 1024, or "per-gpu"'),
        ("workers = true", 'workers: found true; expected a count from 0 to 1024, or "per-gpu"'),
        ('workers = "all"', 'workers: found "all"; expected a count from 0 to 1024, or "per-gpu"'),
        ("gpus = -1", "gpus: found -1; expected a count from 0 to 64, or a list of ids as [0, 1]"),
        ("gpus = 65", "gpus: found 65; expected a count from 0 to 64, or a list of ids as [0, 1]"),
        ("gpus = [1, 1]", "gpus: found [1, 1]; expected each number once, found 1 twice"),
        ("gpus = [-1]", "gpus.0: found -1; it should be greater than or equal to 0"),
        ('transport = "sh"', "transport: found \"sh\"; it should be 'ssh' or 'local'"),
        ("env = {A = 1}", "env.A: found 1; expected text in quotes"),
        ("env = 1", "env: found 1; expected a table"),
    ],
)
def test_a_wrong_value_of_a_host_is_refused(line, sentence):
    assert refused_host(line) == sentence


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1:22",
        "ada@gpu",
        "ssh://gpu",
        "10.0.0",
        "256.0.0.1",
        "",
        "-gpu",
        "a b",
        "a..b",
        "[::1]",
    ],
)
def test_what_is_no_address_is_refused(address):
    assert refused_host(f'hostname = "{address}"') == f'hostname: found "{address}"; {ADDRESS}'


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_an_address_that_nobody_can_dial_is_refused(address):
    assert refused_host(f'address = "{address}"') == (
        f'address: found "{address}"; '
        "expected an address that others can dial; this one only listens"
    )


def test_an_ip_address_has_one_spelling():
    assert host('address = "2001:DB8:0::1"').address == "2001:db8::1"


@pytest.mark.parametrize("name", ["gpu 1", "agent", "", "-a", "gpu/1", "é"])
def test_what_is_no_name_is_refused(name):
    sentences, _ = refusal(text(f'[hosts."{name}"]\nps = 1'))
    assert sentences == [f'hosts.{name}.name: found "{name}"; {NAME}']
    sentences, _ = refusal(text().replace('"p"', f'"{name}"'))
    assert sentences == [f'project: found "{name}"; {NAME}']


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            'role = "flag"',
            "training.role: found \"flag\"; it should be 'flags', 'dashed', 'positional', "
            "'environment' or 'tf_config'",
        ),
        (
            "ready_timeout_s = 0",
            "training.ready_timeout_s: found 0; it should be greater than 0",
        ),
        (
            'ready_timeout_s = "3m"',
            'training.ready_timeout_s: found "3m"; it should be a valid number',
        ),
        (
            "stop_grace_s = -1",
            "training.stop_grace_s: found -1; it should be greater than or equal to 0",
        ),
        ("replicas = 9", "training.replicas: found 9; it should be less than or equal to 8"),
        ("max_duration_s = 0", "training.max_duration_s: found 0; it should be greater than 0"),
        (
            "orphan_timeout_s = 9",
            "training.orphan_timeout_s: found 9; it should be greater than or equal to 10",
        ),
        (
            "log_limit_mb = 0",
            "training.log_limit_mb: found 0; it should be greater than or equal to 1",
        ),
        ("save_on_stop = 1", "training.save_on_stop: found 1; expected true or false"),
        ('role_args = "a"', 'training.role_args: found "a"; expected a list'),
    ],
)
def test_a_wrong_value_of_training_is_refused(line, sentence):
    assert refusal(text(training=line)) == ([sentence], HINT)


@pytest.mark.parametrize("value", ["", "~/checkpoints", "../checkpoints", "a/../../b", "a\\u0000"])
def test_a_checkpoint_dir_that_means_two_things_is_refused(value):
    sentences, _ = refusal(text(training=f'checkpoint_dir = "{value}"'))
    assert sentences == [
        f'training.checkpoint_dir: found "{value}"; '
        'expected a path without "~" and "..": relative to the task, or absolute'
    ]


@pytest.mark.parametrize("key", ["ready_timeout_s", "stop_grace_s", "max_duration_s"])
@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_time_that_never_comes_is_refused(key, value):
    sentences, _ = refusal(text(training=f"{key} = {value}"))
    assert sentences[0].startswith(f"training.{key}: found ")


@pytest.mark.parametrize("name", ["TF_CONFIG", "CUDA_VISIBLE_DEVICES", "TFDEPLOY_TASK"])
def test_variables_that_the_plan_sets_are_refused(name):
    assert refused_host(f'env = {{{name} = "1"}}') == (
        f'env: found {{"{name}": "1"}}; {name} is set by tfdeploy itself, from the plan'
    )


@pytest.mark.parametrize("table", ["env", "role_env"])
def test_training_may_not_set_tf_config_either(table):
    sentences, _ = refusal(text(training=f'{table} = {{TF_CONFIG = "{{}}"}}'))
    assert sentences[0].endswith("TF_CONFIG is set by tfdeploy itself, from the plan")


@pytest.mark.parametrize("name", ["", "A=B", "A B", "1A", "é", "A-B"])
def test_what_is_no_name_of_a_variable_is_refused(name):
    assert refused_host(f'env = {{"{name}" = "1"}}').endswith(
        f"{name!r} can't be the name of an environment variable"
    )


def test_a_variable_whose_value_no_process_can_have_is_refused():
    assert refused_host('env = {A = "\\u0000"}').endswith(
        "the value of A holds a NUL, which no variable can"
    )


def test_a_range_beyond_the_last_port_is_refused_in_one_sentence():
    assert refused_host('ports = "2222-70000"') == (
        'ports: found "2222-70000"; expected ports above 0 and below 65536'
    )


def test_a_range_of_ports_may_be_as_wide_as_there_are_ports():
    assert host('ports = "1-65535"').ports == tuple(range(1, 65536))


def test_a_long_value_is_cut_in_the_sentence():
    sentence = refused_host(f'hostname = "{"a/" * 100}"')
    assert sentence.startswith('hostname: found "a/a/') and "…; expected" in sentence


EXIT = 'expected an exit code, a signal as "SIGKILL", or "signals" for all'


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("attempts = -1", "attempts: found -1; it should be greater than or equal to 0"),
        ("window_s = 0", "window_s: found 0; it should be greater than 0"),
        ("delay_s = -1", "delay_s: found -1; it should be greater than or equal to 0"),
        ("stall_timeout_s = 0", "stall_timeout_s: found 0; it should be greater than 0"),
        ('exits = "signals"', 'exits: found "signals"; expected a list'),
        ("exits = [0]", "exits.0: found 0; expected an exit code from 1 to 255"),
        ("exits = [1, 256]", "exits.1: found 256; expected an exit code from 1 to 255"),
        ('exits = ["SIGFOO"]', f'exits.0: found "SIGFOO"; {EXIT}'),
        ('exits = ["9"]', f'exits.0: found "9"; {EXIT}'),
        ("exits = [true]", f"exits.0: found true; {EXIT}"),
        ("exits = [1.5]", f"exits.0: found 1.5; {EXIT}"),
        ("exits = [[1]]", f"exits.0: found [1]; {EXIT}"),
    ],
)
@pytest.mark.parametrize("table", ["restart", "restart.worker"])
def test_a_wrong_value_of_restart_is_refused(table, line, sentence):
    assert refusal(text(top=f"[{table}]\n{line}")) == ([f"{table}.{sentence}"], HINT)


@pytest.mark.parametrize("exits", [[], [255, 1], ["SIGKILL", "signals", 7]])
def test_exits_are_codes_and_signals(exits):
    assert inventory(top=f"[restart]\nexits = {exits}").restart.exits == tuple(exits)
