"""hosts.toml: what a good one becomes, and the very sentence that refuses each kind of bad one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy import inventory as inventories
from tfdeploy.errors import InventoryError
from tfdeploy.fields import PER_GPU
from unit.made import FILE, HINT, inventory, refusal, text

ADDRESS = "expected a host name or an IP address, without user, port or scheme"
NAME = 'expected letters, digits, ".", "_" and "-", and not the word "agent"'
WORD = 'expected a word that doesn\'t begin with "-"'
FOLDER = 'expected a folder as "~/.tfdeploy" or "/scratch/me/tfdeploy"'
RANGE = 'expected a range as "2222-2299", or a list as [2222, 2223]'


def host(lines):
    return inventory(f"[hosts.a]\n{lines}").hosts[0]


def refused_host(lines):
    """The one sentence against host a, without the path of its table."""
    sentences, hint = refusal(text(f"[hosts.a]\n{lines}"))
    assert hint == HINT
    assert len(sentences) == 1, sentences[:5]
    return sentences[0].removeprefix("hosts.a.")


# Good files


def test_the_shortest_file_has_all_defaults():
    made = inventory("[hosts.a]")
    assert (made.project, made.ssh_config, made.file) == ("p", None, FILE)
    assert (made.source.path, made.source.exclude) == (".", ())
    assert made.training.command == ("python", "train.py")
    assert (made.training.role, made.training.checkpoint_dir) == ("tf_config", "checkpoints")
    assert (made.training.ready_timeout_s, made.training.stop_grace_s) == (180, 10)
    assert made.training.checkpoints_on_chief
    only = made.hosts[0]
    assert (only.name, only.transport, only.python) == ("a", "ssh", "python3")
    assert (only.gpus, only.ps, only.workers, only.chief, only.evaluator) == (
        (),
        0,
        0,
        False,
        False,
    )
    assert (only.ports[0], only.ports[-1], only.directory) == (2222, 2299, "~/.tfdeploy")


def test_a_command_in_a_string_is_split_as_a_shell_splits_it():
    made = inventories.parse(text().replace('"python train.py"', "'''run \"a b\" c\\ d'''"), FILE)
    assert made.training.command == ("run", "a b", "c d")


@pytest.mark.parametrize(
    ("written", "ports"),
    [
        ('"2222-2224"', (2222, 2223, 2224)),
        ('"7-7"', (7,)),
        ("2222", (2222,)),
        ("[9, 7]", (9, 7)),
        ('"65534-65535"', (65534, 65535)),
    ],
)
def test_ports_are_a_range_a_number_or_a_list(written, ports):
    assert host(f"ports = {written}").ports == ports


@pytest.mark.parametrize(
    ("written", "gpus"), [("0", ()), ("3", (0, 1, 2)), ("[3, 1]", (3, 1)), ("[]", ())]
)
def test_gpus_are_a_count_or_ids(written, gpus):
    assert host(f"gpus = {written}").gpus == gpus


def test_workers_per_gpu_is_kept_for_the_plan():
    assert host('workers = "per-gpu"').workers == PER_GPU


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "gpu-01",
        "gpu_01.example.org",
        "example.org.",
        "::1",
        "2001:db8::7",
        "9a.example",
    ],
)
def test_addresses_are_names_and_ip_addresses(address):
    assert host(f'address = "{address}"').address == address


def test_what_defaults_say_holds_for_hosts_that_do_not_say_it():
    first, second = inventory(
        '[defaults]\nuser = "ada"\npython = "py"\n[hosts.a]\n[hosts.b]\nuser = "bob"'
    ).hosts
    assert (first.user, first.python, second.user, second.python) == ("ada", "py", "bob", "py")


def test_the_environment_of_defaults_and_host_is_merged():
    made = inventory('[defaults]\nenv = {A="1", B="1"}\n[hosts.a]\nenv = {B="2", C="2"}')
    assert made.hosts[0].env == {"A": "1", "B": "2", "C": "2"}


def test_source_path_is_relative_to_the_file(tmp_path):
    file = tmp_path / "deep" / "hosts.toml"
    file.parent.mkdir()
    file.write_text(text(top='[source]\npath = "../code"'))
    assert inventories.load(file).source_root == tmp_path / "code"


def test_source_path_may_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(inventory(top='[source]\npath = "~/code"').source_root) == "/home/ada/code"


def test_hosts_keep_the_order_of_the_file():
    assert [h.name for h in inventory("[hosts.z]\n[hosts.a]\n[hosts.m]").hosts] == ["z", "a", "m"]


def test_a_host_is_found_by_its_name():
    assert inventory("[hosts.a]\n[hosts.b]\nps = 1").host("b").ps == 1


# The file itself


def load_refused(file):
    with pytest.raises(InventoryError) as refused:
        inventories.load(file)
    assert refused.value.exit_code == 2
    return str(refused.value)


def test_a_missing_file_says_where_to_get_one(tmp_path):
    file = tmp_path / "hosts.toml"
    assert load_refused(file) == (
        f"{file}: there is no such file\n  copy hosts.example.toml to it, or say --hosts FILE"
    )


def test_a_folder_is_no_file(tmp_path):
    assert load_refused(tmp_path) == f"{tmp_path}: can't be read: Is a directory"


@pytest.mark.parametrize("content", ["", " \n\t\n"])
def test_an_empty_file_is_called_empty(tmp_path, content):
    file = tmp_path / "hosts.toml"
    file.write_text(content)
    assert load_refused(file) == f"{file}: the file is empty\n  {HINT}"


def test_what_is_not_utf8_is_shown_with_its_line(tmp_path):
    file = tmp_path / "hosts.toml"
    file.write_bytes(b'project = "p"\n\n# caf\xe9\n')
    assert load_refused(file) == f"{file}: line 3 is not UTF-8 (byte 0xe9), which TOML must be"


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    file = tmp_path / "hosts.toml"
    file.write_bytes(b"\xef\xbb\xbf" + text().encode())
    assert inventories.load(file).project == "p"


def test_what_is_not_toml_is_shown_with_line_and_column():
    assert refusal('project = "p"\nhosts = [1,,2]\n') == (
        ["not TOML: Invalid value (at line 2, column 12)"],
        "",
    )


def test_one_table_twice_is_refused_with_its_line():
    sentences, _ = refusal(text("[hosts.a]\nps = 1\n[hosts.a]\nps = 2"))
    assert sentences == ["not TOML: Cannot declare ('hosts', 'a') twice (at line 8, column 9)"]


def test_one_key_twice_is_refused_with_its_line():
    sentences, _ = refusal(text("[hosts.a]\nps = 1\nps = 2"))
    assert sentences == ["not TOML: Cannot overwrite a value (at line 8, column 7)"]


# Keys and tables


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("workres = 1", "workers"), ("gpu = 1", "gpus"), ('adress = "a"', "address")],
)
def test_an_unknown_key_of_a_host_is_met_with_the_nearest(wrong, meant):
    key = wrong.split()[0]
    assert refused_host(wrong) == f'{key}: unknown key; did you mean "{meant}"?'


def test_an_unknown_key_that_resembles_none_is_met_with_all():
    assert refused_host("zzz = 1") == (
        "zzz: unknown key; allowed are transport, user, port, identity_file, proxy_jump, gpus, "
        "gpus_per_worker, gpus_per_chief, ps, workers, ports, python, directory, env, hostname, "
        "address, chief, evaluator"
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (text(training="rol = 1"), 'training.rol: unknown key; did you mean "role"?'),
        (text(top='[source]\npth = "."'), 'source.pth: unknown key; did you mean "path"?'),
        (text(top="projct = 1"), 'projct: unknown key; did you mean "project"?'),
        (text(top="[default]\nps = 1"), 'default: unknown key; did you mean "defaults"?'),
        (
            text(top="[zzz]"),
            "zzz: unknown key; allowed are project, ssh_config, source, training, defaults, hosts",
        ),
    ],
)
def test_an_unknown_key_or_table_elsewhere_is_met_with_the_nearest(content, sentence):
    assert refusal(content) == ([sentence], HINT)


def test_the_table_hosts_is_asked_for_where_it_is_misspelled():
    assert refusal(text("[host.a]\nps = 1")) == (
        ["hosts is missing", 'host: unknown key; did you mean "hosts"?'],
        HINT,
    )


def test_a_host_is_named_by_its_table_alone():
    assert refused_host('name = "b"') == (
        "name: unknown key; a host is named by its table, [hosts.NAME]"
    )


def test_a_file_without_hosts_is_refused():
    assert refusal(text("[hosts]"))[0] == ["hosts: found nothing, expected at least one"]


def test_a_missing_command_is_asked_for():
    assert refusal(text().replace('command = "python train.py"', ""))[0] == [
        "training.command is missing"
    ]


def test_everything_that_is_missing_is_told_at_once():
    assert refusal("# nothing")[0] == [
        "project is missing",
        "training is missing",
        "hosts is missing",
    ]


@pytest.mark.parametrize("written", ['""', "[]", '" "'])
def test_an_empty_command_is_refused(written):
    sentences, _ = refusal(text().replace('"python train.py"', written))
    assert sentences == ["training.command: found nothing, expected at least one"]


def test_a_command_whose_program_has_no_name_is_refused():
    sentences, _ = refusal(text().replace('"python train.py"', '["", "train.py"]'))
    assert sentences == [
        'training.command: found ["", "train.py"]; expected a program as the first word'
    ]


def test_a_command_with_an_open_quote_is_refused():
    sentences, _ = refusal(text().replace('"python train.py"', '"""python \'a"""'))
    assert sentences == ['training.command: found "python \'a"; No closing quotation']


@pytest.mark.parametrize("command", ['"python\\u0000x"', '["python", "a\\u0000b"]'])
def test_a_command_that_no_process_can_have_is_refused(command):
    sentences, _ = refusal(text().replace('"python train.py"', command))
    assert sentences[0].startswith("training.command: found ")
    assert sentences[0].endswith("expected words without a NUL, which no process can be given")


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
            "training.role: found \"flag\"; it should be 'flags', 'positional', 'environment' or "
            "'tf_config'",
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


@pytest.mark.parametrize("key", ["ready_timeout_s", "stop_grace_s"])
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


# Where an error stands, and how often it is told


def test_a_wrong_default_is_told_once_and_where_it_stands():
    sentences, _ = refusal(text("[defaults]\nps = -1\nprot = 1\n[hosts.a]\n[hosts.b]"))
    assert sentences == [
        "defaults.ps: found -1; it should be greater than or equal to 0",
        'defaults.prot: unknown key; did you mean "port"?',
    ]


def test_a_wrong_environment_in_defaults_is_told_once():
    sentences, _ = refusal(text('[defaults]\nenv = "A=1"\n[hosts.a]\nenv = {A = "1"}'))
    assert sentences == ['defaults.env: found "A=1"; expected a table']


def test_keys_of_one_host_alone_are_unknown_in_defaults():
    sentences, _ = refusal(text('[defaults]\naddress = "a"\n[hosts.a]'))
    assert sentences[0].startswith("defaults.address: unknown key")


def test_defaults_that_are_no_table_are_told_once():
    sentences, _ = refusal(text("[hosts.a]\n[hosts.b]", top="defaults = 1"))
    assert sentences == ["defaults: found 1; expected a table"]


def test_all_errors_of_a_file_are_told_at_once():
    sentences, _ = refusal(text("[hosts.a]\nport = 0\n[hosts.b]\nps = -1", training="rol = 1"))
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "training.rol",
        "hosts.a.port",
        "hosts.b.ps",
    ]


def test_a_host_that_is_no_table_is_refused():
    assert refusal(text("[hosts]\na = 1"))[0] == ["hosts.a: found 1; expected a table"]


# One machine


@pytest.mark.parametrize(
    ("hosts", "how"),
    [
        ('[hosts.a]\nhostname = "h"\n[hosts.b]\nhostname = "h"', "h port 22"),
        ('[hosts.a]\nhostname = "b"\n[hosts.b]', "b port 22"),
        ('[hosts.a]\nhostname = "h"\nport = 22\n[hosts.b]\nhostname = "h"', "h port 22"),
        ('[hosts.a]\ntransport = "local"\n[hosts.b]\ntransport = "local"', 'transport = "local"'),
    ],
)
def test_two_names_for_one_machine_are_refused(hosts, how):
    assert refusal(text(hosts)) == (
        [f"hosts.b is the same machine as hosts.a ({how})"],
        "give one host all of its tasks: ps = 1 and workers = 2 can stand together",
    )


def test_a_host_name_in_capitals_is_the_same_machine():
    sentences, _ = refusal(text('[hosts.a]\nhostname = "GPU.org"\n[hosts.b]\nhostname = "gpu.org"'))
    assert "hosts.b is the same machine as hosts.a" in sentences[0]


def test_two_ports_of_one_address_are_two_machines():
    made = inventory('[hosts.a]\nhostname = "h"\nport = 1\n[hosts.b]\nhostname = "h"\nport = 2')
    assert len(made.hosts) == 2


@pytest.mark.parametrize(
    "line",
    ['hostname = "h"', 'user = "u"', "port = 22", 'identity_file = "k"', 'proxy_jump = "j"'],
)
def test_a_local_host_with_a_key_for_ssh_is_refused(line):
    sentences, _ = refusal(text(f'[hosts.a]\ntransport = "local"\n{line}'))
    key = line.split()[0]
    assert sentences == [f'hosts.a: {key} is an SSH key, and transport = "local" uses no SSH']


# Written again


STRINGS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
AWKWARD = st.sampled_from(
    [
        '"', "'", "\\", "\\x41", "\\u0041", "$(reboot)", "`id`", "${HOME}", "a b", "\n", "\r\n",
        "\t", "\x01\x1b[31m", "\x7f", "\x85", "\u2028", "é", "漢字", "😀", "\ufeff", "#", '"""',
        "'''", "",
    ]
)  # fmt: skip
WRITTEN = STRINGS | AWKWARD
VARIABLES = st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), WRITTEN, max_size=3)


def written_again(made):
    return inventories.parse(inventories.dump(made), made.file)


@given(st.lists(WRITTEN, min_size=1, max_size=4), VARIABLES)
def test_strings_survive_being_written(words, env):
    made = inventory('[hosts.a]\nps = 1\nenv = {A = "1"}')
    command = ("run", *words)
    training = made.training.model_copy(update={"command": command, "env": env})
    host = made.hosts[0].model_copy(update={"env": env})
    made = made.model_copy(update={"training": training, "hosts": (host,)})
    assert written_again(made) == made


@pytest.mark.parametrize(
    "hosts",
    [
        '[defaults]\nuser = "ada"\nenv = {A = "1"}\n[hosts.a]\nps = 1\n[hosts."b.c"]\nworkers = 2',
        '[hosts.a]\ngpus = [3, 1]\nworkers = "per-gpu"\nports = "5-9"\nchief = true',
        '[hosts.a]\ntransport = "local"\nevaluator = true\nworkers = 1\ngpus_per_worker = 0',
    ],
)
def test_hosts_survive_being_written(hosts):
    made = inventory(
        hosts,
        training='role = "flags"\nstop_grace_s = 2.5\nrole_env = {A = "{task}"}',
        top='ssh_config = "x"\n[source]\nexclude = ["*.c"]',
    )
    assert written_again(made) == made


def test_ssh_keys_of_the_defaults_are_for_the_other_hosts():
    made = inventory(
        '[defaults]\nuser = "ada"\nport = 2200\n'
        '[hosts.here]\ntransport = "local"\n[hosts.there]\nworkers = 1'
    )
    assert [(host.user, host.port) for host in made.hosts] == [(None, None), ("ada", 2200)]
