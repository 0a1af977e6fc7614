"""hosts.toml: what a good one becomes, and the very sentence that refuses each kind of bad one."""

from __future__ import annotations

import pytest

from tfdeploy import inventory as inventories
from tfdeploy.fields import AUTO, PER_GPU
from unit.made import FILE, HINT, inventory, refusal, text


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
    assert (made.training.max_duration_s, made.training.orphan_timeout_s) == (None, 1800)
    assert (made.training.replicas, made.training.save_on_stop) == (0, False)
    assert (made.restart.attempts, made.restart.exits) == (10, (1, "signals"))
    only = made.hosts[0]
    assert (only.name, only.transport, only.python) == ("a", "ssh", "python3")
    assert (only.gpus, only.ps, only.workers) == ((), 0, 0)
    assert (only.chief, only.evaluator, only.spare) == (False, False, False)
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
        ('"auto"', AUTO),
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


def test_a_data_set_lies_where_tasks_see_it_or_where_it_is_said_to_be(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    made = inventory(top='[source]\npath = "code"\n[data."data/a"]\n[data.b]\npath = "~/b"\n'
                     '[data.c]\npath = "../c"')  # fmt: skip
    roots = [str(made.data_root(place)) for place in made.data]
    assert roots == ["/home/ada/code/data/a", "/home/ada/b", "/home/ada/../c"]


def test_a_data_set_is_for_all_tasks_but_ps_and_is_compared_by_time():
    only = inventory(top="[data.a]").data["a"]
    assert (only.jobs, only.compare) == (("worker", "chief", "evaluator"), "mtime")
    assert (only.path, only.exclude) == (None, ())


def test_source_path_may_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(inventory(top='[source]\npath = "~/code"').source_root) == "/home/ada/code"


def test_hosts_keep_the_order_of_the_file():
    assert [h.name for h in inventory("[hosts.z]\n[hosts.a]\n[hosts.m]").hosts] == ["z", "a", "m"]


def test_a_host_is_found_by_its_name():
    assert inventory("[hosts.a]\n[hosts.b]\nps = 1").host("b").ps == 1


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
        "address, chief, evaluator, spare"
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (text(training="rol = 1"), 'training.rol: unknown key; did you mean "role"?'),
        (text(top='[source]\npth = "."'), 'source.pth: unknown key; did you mean "path"?'),
        (
            text(top="[restart]\natempts = 1"),
            'restart.atempts: unknown key; did you mean "attempts"?',
        ),
        (text(top="[restart.wrker]"), 'restart.wrker: unknown key; did you mean "worker"?'),
        (text(top="projct = 1"), 'projct: unknown key; did you mean "project"?'),
        (text(top="[default]\nps = 1"), 'default: unknown key; did you mean "defaults"?'),
        (
            text(top="[zzz]"),
            "zzz: unknown key; allowed are project, ssh_config, keep_connections_s, source, data, "
            "training, restart, defaults, hosts",
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
