"""The values of hosts.toml: the message that refuses each kind of wrong value."""

from __future__ import annotations

import pytest
from support.builders import EXAMPLE_HINT, FILE, hosts_toml, make_inventory, refusal_of

from tfdeploy.config import inventory as inventories
from tfdeploy.config import toml_text

ADDRESS = "expected a host name or an IP address, without user, port or scheme"
NAME = 'expected letters, digits, ".", "_" and "-", first a letter or a digit, and not "agent"'
USER = "expected the name of a user: letters, digits and . _ - + @ %"
JUMP = "expected [USER@]HOST[:PORT], or several of them with commas"
WORD = 'expected printable text that does not start with "-"'
FOLDER = 'expected a folder such as "~/.tfdeploy" or "/scratch/me/tfdeploy"'
RANGE = 'expected a range such as "2222-2299", a list such as [2222, 2223], or "auto"'


def host(lines):
    return make_inventory(f"[hosts.a]\n{lines}").hosts[0]


def refused_host(lines):
    """Return the only message about host a, without the path of its table."""
    messages, hint = refusal_of(hosts_toml(f"[hosts.a]\n{lines}"))
    assert hint == EXAMPLE_HINT
    assert len(messages) == 1, messages[:5]
    return messages[0].removeprefix("hosts.a.")


# Values


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("port = 0", "port: found 0; expected at least 1"),
        ("port = -22", "port: found -22; expected at least 1"),
        ("port = 99999", "port: found 99999; expected at most 65535"),
        ('port = "ssh"', 'port: found "ssh"; expected a whole number'),
        ('port = "22"', 'port: found "22"; expected a whole number'),
        ("port = 22.5", "port: found 22.5; expected a whole number"),
        ("port = true", "port: found true; expected a whole number"),
        ("ports = []", 'ports: found []; expected at least one port, or "auto"'),
        ("spare = 1", "spare: found 1; expected true or false"),
        ("ports = [0]", "ports.0: found 0; expected at least 1"),
        ('ports = "2222"', f'ports: found "2222"; {RANGE}'),
        ('ports = "2299-2222"', f'ports: found "2299-2222"; {RANGE}'),
        ('ports = "many"', f'ports: found "many"; {RANGE}'),
        (
            "ports = [7, 8, 7]",
            "ports: found [7, 8, 7]; expected each number once, but 7 occurs twice",
        ),
        ("user = 1", "user: found 1; expected text in quotes"),
        ('user = "-oProxy"', f'user: found "-oProxy"; {WORD}'),
        ('user = "a$IFS-o"', f'user: found "a$IFS-o"; {USER}'),
        ('proxy_jump = "a$IFS-o@b"', f'proxy_jump: found "a$IFS-o@b"; {JUMP}'),
        ('proxy_jump = "a@-ob"', f'proxy_jump: found "a@-ob"; {JUMP}'),
        ('proxy_jump = "-J"', f'proxy_jump: found "-J"; {WORD}'),
        ('identity_file = ""', 'identity_file: found ""; expected the path of a file or a folder'),
        (
            'identity_file = "~bob/key"',
            'identity_file: found "~bob/key"; expected "~/" for your home directory, or the whole '
            "path",
        ),
        ('python = " "', f'python: found " "; {WORD}'),
        ('directory = "tfdeploy"', f'directory: found "tfdeploy"; {FOLDER}'),
        ('directory = "~"', f'directory: found "~"; {FOLDER}'),
        ('directory = "/"', f'directory: found "/"; {FOLDER}'),
        (
            'directory = "/{hots}"',
            'directory: found "/{hots}"; unknown field {hots}; expected {host}, the host\'s name',
        ),
        ('directory = "~/a/../.."', f'directory: found "~/a/../.."; {FOLDER}'),
        ("ps = -1", "ps: found -1; expected at least 0"),
        ("ps = 1.0", "ps: found 1.0; expected a whole number"),
        ("chief = 1", "chief: found 1; expected true or false"),
        ('chief = "yes"', 'chief: found "yes"; expected true or false'),
        ("workers = -1", 'workers: found -1; expected a count from 0 to 1024, or "per-gpu"'),
        ("workers = true", 'workers: found true; expected a count from 0 to 1024, or "per-gpu"'),
        ('workers = "all"', 'workers: found "all"; expected a count from 0 to 1024, or "per-gpu"'),
        (
            "gpus = -1",
            "gpus: found -1; expected a count from 0 to 64, or a list of ids such as [0, 1]",
        ),
        (
            'gpus = "all"',
            'gpus: found "all"; expected a count from 0 to 64, or a list of ids such as [0, 1]',
        ),
        (
            "gpus = 65",
            "gpus: found 65; expected a count from 0 to 64, or a list of ids such as [0, 1]",
        ),
        ("gpus = [1, 1]", "gpus: found [1, 1]; expected each number once, but 1 occurs twice"),
        ("gpus = [-1]", "gpus.0: found -1; expected at least 0"),
        (
            'transport = "sh"',
            'transport: found "sh"; expected "ssh", "fabric", "openssh" or "local"',
        ),
        ("env = {A = 1}", "env.A: found 1; expected text in quotes"),
        ("env = 1", "env: found 1; expected the table [hosts.a.env]"),
    ],
)
def test_a_wrong_value_of_a_host_is_refused(line, message):
    assert refused_host(line) == message


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
def test_an_invalid_address_is_refused(address):
    assert refused_host(f'hostname = "{address}"') == f'hostname: found "{address}"; {ADDRESS}'


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_an_address_that_is_only_for_listening_is_refused(address):
    assert refused_host(f'address = "{address}"') == (
        f'address: found "{address}"; '
        "expected an address that other hosts can connect to; this one is only for listening"
    )


def test_an_ip_address_is_normalized():
    assert host('address = "2001:DB8:0::1"').address == "2001:db8::1"


@pytest.mark.parametrize("name", ["gpu 1", "agent", "", "-a", "gpu/1", "é"])
def test_an_invalid_host_or_project_name_is_refused(name):
    messages, _ = refusal_of(hosts_toml(f'[hosts."{name}"]\nps = 1'))
    shown = name or '""'
    assert messages == [f'hosts.{shown}.name: found "{name}"; {NAME}']
    messages, _ = refusal_of(hosts_toml().replace('"p"', f'"{name}"'))
    assert messages == [f'project: found "{name}"; {NAME}']


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'role = "flag"',
            'training.role: found "flag"; expected "flags", "positional", '
            '"environment", "torch", "jax" or "tf_config"',
        ),
        (
            "ready_timeout_s = 0",
            "training.ready_timeout_s: found 0; expected more than 0",
        ),
        (
            'ready_timeout_s = "3m"',
            'training.ready_timeout_s: found "3m"; expected a number',
        ),
        (
            "stop_grace_s = -1",
            "training.stop_grace_s: found -1; expected at least 0",
        ),
        ("replicas = 9", "training.replicas: found 9; expected at most 8"),
        ("max_duration_s = 0", "training.max_duration_s: found 0; expected more than 0"),
        (
            "orphan_timeout_s = 9",
            "training.orphan_timeout_s: found 9; expected at least 10",
        ),
        ("save_on_stop = 1", "training.save_on_stop: found 1; expected true or false"),
        (
            "role_args = 1",
            "training.role_args: found 1; expected text in quotes, or a list of words",
        ),
        (
            """role_args = "it's\"""",
            "training.role_args: found \"it's\"; can't be split into words: no closing quotation",
        ),
        (
            'imports = ["jax", "a b"]',
            'training.imports: found ["jax", "a b"]; "a b" is not the name of a module; expected '
            'one such as "jax"',
        ),
        ('imports = "jax"', 'training.imports: found "jax"; expected a list'),
        (
            'worker.ready = "yes"',
            'training.worker.ready: found "yes"; expected "server", "port", "process" or '
            '"rendezvous"',
        ),
    ],
)
def test_a_wrong_value_of_training_is_refused(line, message):
    assert refusal_of(hosts_toml(training=line)) == ([message], EXAMPLE_HINT)


@pytest.mark.parametrize("value", ["", "~/checkpoints", "../checkpoints", "a/../../b", "a\\u0000"])
def test_an_ambiguous_checkpoint_dir_is_refused(value):
    messages, _ = refusal_of(hosts_toml(training=f'checkpoint_dir = "{value}"'))
    assert messages == [
        f'training.checkpoint_dir: found "{value}"; '
        'expected a path without "~" and "..", absolute or relative to the task\'s directory'
    ]


@pytest.mark.parametrize("value", ["gs://bucket/run", "s3://a", "hdfs://n:1/a", "file:///a"])
def test_a_checkpoint_dir_that_is_a_url_is_refused(value):
    messages, _ = refusal_of(hosts_toml(training=f'checkpoint_dir = "{value}"'))
    assert messages == [
        f'training.checkpoint_dir: found "{value}"; expected a folder on the chief\'s disk, '
        "from which tfdeploy fetches checkpoints, not a URL"
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("gs://b/x", '"gs://b/x" is a URL; expected files on the task\'s own disk'),
        ("../x", 'expected patterns such as "models/", or absolute folders, without "~" and ".."'),
        ("~/x", 'expected patterns such as "models/", or absolute folders, without "~" and ".."'),
        ("/", '"/": expected an absolute folder such as "/scratch/models"'),
        ("!x", '"!x" excludes files; expected a pattern before it that includes some'),
    ],
)
def test_outputs_that_no_task_can_write_are_refused(value, message):
    messages, _ = refusal_of(hosts_toml(training=f'outputs = ["{value}"]'))
    assert messages == [f'training.outputs: found ["{value}"]; {message}']


@pytest.mark.parametrize("key", ["ready_timeout_s", "stop_grace_s", "max_duration_s"])
@pytest.mark.parametrize("value", ["inf", "nan"])
def test_an_infinite_time_is_refused(key, value):
    messages, _ = refusal_of(hosts_toml(training=f"{key} = {value}"))
    assert messages[0].startswith(f"training.{key}: found ")


@pytest.mark.parametrize("name", ["TF_CONFIG", "CUDA_VISIBLE_DEVICES", "TFDEPLOY_TASK"])
def test_a_variable_that_tfdeploy_sets_is_refused(name):
    assert refused_host(f'env = {{{name} = "1"}}') == (
        f'env: found {{"{name}": "1"}}; tfdeploy itself sets {name}; remove it'
    )


@pytest.mark.parametrize("table", ["env", "role_env"])
def test_training_may_not_set_tf_config(table):
    messages, _ = refusal_of(hosts_toml(training=f'{table} = {{TF_CONFIG = "{{}}"}}'))
    assert messages[0].endswith("tfdeploy itself sets TF_CONFIG; remove it")


@pytest.mark.parametrize("name", ["", "A=B", "A B", "1A", "é", "A-B"])
def test_an_invalid_name_of_a_variable_is_refused(name):
    assert refused_host(f'env = {{"{name}" = "1"}}').endswith(
        f"{name!r} is not a valid name of an environment variable"
    )


def test_a_variable_with_a_nul_character_is_refused():
    assert refused_host('env = {A = "\\u0000"}').endswith(
        "expected a value of A without a NUL character"
    )


def test_a_range_beyond_the_last_port_is_refused():
    assert refused_host('ports = "2222-70000"') == (
        'ports: found "2222-70000"; expected ports from 1 to 65535'
    )


def test_a_range_may_cover_every_port():
    assert host('ports = "1-65535"').ports == tuple(range(1, 65536))


def test_a_long_value_is_shortened_in_the_message():
    message = refused_host(f'hostname = "{"a/" * 100}"')
    assert message.startswith('hostname: found "a/a/') and "…; expected" in message


EXIT = 'expected an exit code, a signal such as "SIGKILL", or "signals" for every signal'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("attempts = -1", "attempts: found -1; expected at least 0"),
        ("delay_s = -1", "delay_s: found -1; expected at least 0"),
        ("stall_timeout_s = 0", "stall_timeout_s: found 0; expected more than 0"),
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
def test_a_wrong_value_of_restart_is_refused(table, line, message):
    assert refusal_of(hosts_toml(top=f"[{table}]\n{line}")) == (
        [f"{table}.{message}"],
        EXAMPLE_HINT,
    )


@pytest.mark.parametrize("exits", [[], [255, 1], ["SIGKILL", "signals", 7]])
def test_exits_accepts_codes_and_signals(exits):
    assert make_inventory(top=f"[restart]\nexits = {exits}").restart.exits == tuple(exits)


# [env]

FILE_OR_LIST = 'expected a file such as "requirements.txt", or a list of packages'


def refused_env(line):
    messages, _ = refusal_of(hosts_toml(top=f"[env]\n{line}"))
    assert len(messages) == 1
    return messages[0].removeprefix("env.")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("requirements = 3", f"requirements: found 3; {FILE_OR_LIST}"),
        ("requirements = [3]", f"requirements: found [3]; {FILE_OR_LIST}"),
        (
            'requirements = ["-r x"]',
            'requirements: found ["-r x"]; "-r x": expected a package such as "tensorflow" or '
            '"numpy>=2"',
        ),
        ("python = 3.12", "python: found 3.12; expected text in quotes"),
        ('python = "three"', 'python: found "three"; expected a version such as "3.12"'),
        ('python = "3.12; reboot"',
         'python: found "3.12; reboot"; expected a version such as "3.12"'),
        ('setup = "make"', 'setup: found "make"; expected a list'),
        ('setup = [" "]', 'setup: found [" "]; expected commands for a shell'),
        ("requirments = 3", 'requirments: unknown key; did you mean "requirements"?'),
    ],
)  # fmt: skip
def test_a_wrong_value_of_an_environment_is_refused(line, message):
    assert refused_env(line) == message


@pytest.mark.parametrize(
    "line",
    ['requirements = ["tensorflow", "pandas>=2"]', 'requirements = "r.txt"\npython = "3.12"', "",
     "requirements = []", 'setup = ["a && b"]'],
)  # fmt: skip
def test_an_environment_is_the_same_in_the_record_of_a_run(line):
    loaded = make_inventory(top=f"[env]\n{line}")
    assert inventories.parse(toml_text.write(loaded.to_toml()), FILE).env == loaded.env
