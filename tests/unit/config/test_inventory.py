"""hosts.toml: the inventory of a valid file, and the message that refuses each invalid one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.builders import EXAMPLE_HINT, FILE, hosts_toml, make_inventory, refusal_of

from tfdeploy.config import AUTO_PORTS, PER_GPU
from tfdeploy.config import inventory as inventories
from tfdeploy.errors import InventoryError


def host(lines):
    return make_inventory(f"[hosts.a]\n{lines}").hosts[0]


def refused_host(lines):
    """Return the only message about host a, without the path of its table."""
    messages, hint = refusal_of(hosts_toml(f"[hosts.a]\n{lines}"))
    assert hint == EXAMPLE_HINT
    assert len(messages) == 1, messages[:5]
    return messages[0].removeprefix("hosts.a.")


# Valid files


def test_a_minimal_file_has_every_default():
    minimal = make_inventory("[hosts.a]")
    assert (minimal.project, minimal.ssh_config, minimal.file) == ("p", None, FILE)
    assert (minimal.source.path, minimal.source.exclude) == (".", ())
    assert minimal.training.command == ("python", "train.py")
    assert (minimal.training.role, minimal.training.checkpoint_dir) == (
        "tf_config",
        "checkpoints",
    )
    assert (minimal.training.ready_timeout_s, minimal.training.stop_grace_s) == (180, 10)
    assert minimal.training.checkpoints_on_chief
    assert (minimal.training.max_duration_s, minimal.training.orphan_timeout_s) == (None, 1800)
    assert (minimal.training.replicas, minimal.training.save_on_stop) == (0, False)
    assert (minimal.restart.attempts, minimal.restart.exits) == (10, (1, "signals"))
    only = minimal.hosts[0]
    assert (only.name, only.transport, only.python) == ("a", "ssh", "python3")
    assert (only.gpus, only.ps, only.workers) == ((), 0, 0)
    assert (only.chief, only.evaluator, only.spare) == (False, False, False)
    assert (only.ports[0], only.ports[-1], only.directory) == (2222, 2299, "~/.tfdeploy")


def test_a_command_in_a_string_is_split_as_a_shell_splits_it():
    inventory = inventories.parse(
        hosts_toml().replace('"python train.py"', "'''run \"a b\" c\\ d'''"), FILE
    )
    assert inventory.training.command == ("run", "a b", "c d")


@pytest.mark.parametrize(
    ("written", "ports"),
    [
        ('"2222-2224"', (2222, 2223, 2224)),
        ('"7-7"', (7,)),
        ("2222", (2222,)),
        ("[9, 7]", (9, 7)),
        ('"auto"', AUTO_PORTS),
        ('"65534-65535"', (65534, 65535)),
    ],
)
def test_ports_are_a_range_a_number_a_list_or_auto(written, ports):
    assert host(f"ports = {written}").ports == ports


@pytest.mark.parametrize(
    ("written", "gpus"), [("0", range(0)), ("3", range(3)), ("[3, 1]", (3, 1)), ("[]", ())]
)
def test_gpus_are_a_count_or_ids(written, gpus):
    assert host(f"gpus = {written}").gpus == gpus


def test_workers_accepts_per_gpu():
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
def test_an_address_is_a_host_name_or_an_ip_address(address):
    assert host(f'address = "{address}"').address == address


def test_a_key_of_defaults_applies_to_hosts_without_that_key():
    first, second = make_inventory(
        '[defaults]\nuser = "ada"\npython = "py"\n[hosts.a]\n[hosts.b]\nuser = "bob"'
    ).hosts
    assert (first.user, first.python, second.user, second.python) == ("ada", "py", "bob", "py")


def test_env_of_defaults_and_of_a_host_is_merged():
    inventory = make_inventory('[defaults]\nenv = {A="1", B="1"}\n[hosts.a]\nenv = {B="2", C="2"}')
    assert inventory.hosts[0].env == {"A": "1", "B": "2", "C": "2"}


def test_source_path_is_relative_to_the_file(tmp_path):
    file = tmp_path / "deep" / "hosts.toml"
    file.parent.mkdir()
    file.write_text(hosts_toml(top='[source]\npath = "../code"'))
    assert inventories.load(file).source_root == tmp_path / "code"


def test_the_path_of_a_data_set_is_relative_to_the_file_and_defaults_to_its_place(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    tables = '[data."data/a"]\n[data.b]\npath = "~/b"\n[data.c]\npath = "../c"'
    inventory = make_inventory(top=f'[source]\npath = "code"\n{tables}')
    roots = [str(inventory.data_root(place)) for place in inventory.data]
    assert roots == ["/home/ada/code/data/a", "/home/ada/b", "/home/ada/../c"]


def test_a_data_set_has_every_default():
    only = make_inventory(top="[data.a]").data["a"]
    assert (only.jobs, only.compare) == (("worker", "chief", "evaluator"), "mtime")
    assert (only.path, only.exclude) == (None, ())


def test_source_path_may_start_with_a_tilde(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(make_inventory(top='[source]\npath = "~/code"').source_root) == "/home/ada/code"


def test_hosts_keep_the_order_of_the_file():
    assert [h.name for h in make_inventory("[hosts.z]\n[hosts.a]\n[hosts.m]").hosts] == [
        "z",
        "a",
        "m",
    ]


def test_a_host_is_found_by_its_name():
    assert make_inventory("[hosts.a]\n[hosts.b]\nps = 1").host("b").ps == 1


# Keys and tables


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("workres = 1", "workers"), ("gpu = 1", "gpus"), ('adress = "a"', "address")],
)
def test_an_unknown_key_of_a_host_suggests_the_nearest_one(wrong, meant):
    key = wrong.split()[0]
    assert refused_host(wrong) == f'{key}: unknown key; did you mean "{meant}"?'


def test_an_unknown_key_that_resembles_none_lists_all_keys():
    assert refused_host("zzz = 1") == (
        "zzz: unknown key; expected one of transport, user, port, identity_file, proxy_jump, gpus, "
        "gpus_shared, exclude_sick, gpus_per_worker, gpus_per_chief, ps, workers, ports, python, "
        "directory, shared_fs, env, hostname, address, chief, evaluator, spare"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (hosts_toml(training="rol = 1"), 'training.rol: unknown key; did you mean "role"?'),
        (hosts_toml(top='[source]\npth = "."'), 'source.pth: unknown key; did you mean "path"?'),
        (
            hosts_toml(top="[restart]\natempts = 1"),
            'restart.atempts: unknown key; did you mean "attempts"?',
        ),
        (hosts_toml(top="[restart.wrker]"), 'restart.wrker: unknown key; did you mean "worker"?'),
        (hosts_toml(top="projct = 1"), 'projct: unknown key; did you mean "project"?'),
        (hosts_toml(top="[default]\nps = 1"), 'default: unknown key; did you mean "defaults"?'),
        (
            hosts_toml(top="[zzz]"),
            "zzz: unknown key; expected one of project, ssh_config, keep_connections_s, network, "
            "source, data, env, training, restart, notify, trials, defaults, hosts",
        ),
    ],
)
def test_an_unknown_key_or_table_suggests_the_nearest_one(content, message):
    assert refusal_of(content) == ([message], EXAMPLE_HINT)


def test_a_misspelled_hosts_table_is_reported_as_missing_and_unknown():
    assert refusal_of(hosts_toml("[host.a]\nps = 1")) == (
        ["hosts is missing", 'host: unknown key; did you mean "hosts"?'],
        EXAMPLE_HINT,
    )


def test_a_host_with_a_name_key_is_refused():
    assert refused_host('name = "b"') == (
        "name: unknown key; the name of a host is that of its table, [hosts.NAME]"
    )


def test_a_file_without_hosts_is_refused():
    assert refusal_of(hosts_toml("[hosts]"))[0] == ["hosts is empty; expected at least one entry"]


def test_a_missing_command_is_reported():
    assert refusal_of(hosts_toml().replace('command = "python train.py"', ""))[0] == [
        "training.command is missing"
    ]


def test_all_missing_keys_are_reported_together():
    assert refusal_of("# nothing")[0] == [
        "project is missing",
        "training is missing",
        "hosts is missing",
    ]


@pytest.mark.parametrize("written", ['""', "[]", '" "'])
def test_an_empty_command_is_refused(written):
    messages, _ = refusal_of(hosts_toml().replace('"python train.py"', written))
    assert messages == ["training.command is empty; expected at least one entry"]


def test_a_command_whose_program_has_no_name_is_refused():
    messages, _ = refusal_of(hosts_toml().replace('"python train.py"', '["", "train.py"]'))
    assert messages == [
        'training.command: found ["", "train.py"]; expected a program as the first word'
    ]


def test_a_command_with_an_open_quote_is_refused():
    messages, _ = refusal_of(hosts_toml().replace('"python train.py"', '"""python \'a"""'))
    assert messages == [
        "training.command: found \"python 'a\"; can't be split into words: no closing quotation"
    ]


@pytest.mark.parametrize("command", ['"python\\u0000x"', '["python", "a\\u0000b"]'])
def test_a_command_with_a_nul_character_is_refused(command):
    messages, _ = refusal_of(hosts_toml().replace('"python train.py"', command))
    assert messages[0].startswith("training.command: found ")
    assert messages[0].endswith("expected words without a NUL character")


# The path of a problem, and that it is reported once


def test_a_wrong_default_is_reported_once_with_its_own_path():
    messages, _ = refusal_of(hosts_toml("[defaults]\nps = -1\nprot = 1\n[hosts.a]\n[hosts.b]"))
    assert messages == [
        "defaults.ps: found -1; expected at least 0",
        'defaults.prot: unknown key; did you mean "port"?',
    ]


def test_a_wrong_environment_in_defaults_is_reported_once():
    messages, _ = refusal_of(hosts_toml('[defaults]\nenv = "A=1"\n[hosts.a]\nenv = {A = "1"}'))
    assert messages == ['defaults.env: found "A=1"; expected the table [defaults.env]']


def test_keys_that_only_a_host_may_have_are_unknown_in_defaults():
    messages, _ = refusal_of(hosts_toml('[defaults]\naddress = "a"\n[hosts.a]'))
    assert messages[0].startswith("defaults.address: unknown key")


def test_defaults_that_are_not_a_table_are_reported_once():
    messages, _ = refusal_of(hosts_toml("[hosts.a]\n[hosts.b]", top="defaults = 1"))
    assert messages == ["defaults: found 1; expected the table [defaults]"]


def test_all_problems_of_a_file_are_reported_together():
    messages, _ = refusal_of(
        hosts_toml("[hosts.a]\nport = 0\n[hosts.b]\nps = -1", training="rol = 1")
    )
    assert [message.split(":")[0] for message in messages] == [
        "training.rol",
        "hosts.a.port",
        "hosts.b.ps",
    ]


def test_a_host_that_is_not_a_table_is_refused():
    assert refusal_of(hosts_toml("[hosts]\na = 1"))[0] == [
        "hosts.a: found 1; expected the table [hosts.a]"
    ]


def test_an_empty_key_is_shown_as_it_is_written():
    messages, _ = refusal_of('"" = 1\n' + hosts_toml())
    assert messages[0].startswith('"": unknown key; expected one of project, ')


def test_a_long_key_is_cut():
    messages, _ = refusal_of("a" * 70_000 + " = 1\n" + hosts_toml())
    assert messages[0].startswith("a" * 199 + "…: unknown key; ")


# Hostile files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = " + "[" * 20_000 + "]" * 20_000, "its values are nested too deeply"),
        (".".join("a" * 1000) + " = 1", "its values are nested too deeply"),
        ("[hosts." + ".".join("a" * 1000) + "]", "its values are nested too deeply"),
        ("a = 0x" + "f" * 5000, "it has a number of too many digits"),
        ("a = " + "9" * 5000, "it has a number of too many digits"),
    ],
)
def test_a_file_that_python_can_not_parse_is_refused_in_one_sentence(content, message):
    assert refusal_of(content) == ([message], "")


def test_a_file_without_end_is_refused():
    with pytest.raises(InventoryError, match=r"^/dev/zero: the file is larger than 16 MB"):
        inventories.load(Path("/dev/zero"))
