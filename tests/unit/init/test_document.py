"""The text of a proposed hosts.toml: short, valid, and safe whatever a host answered."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tfdeploy.config import inventory
from tfdeploy.init import document
from tfdeploy.init.document import FoundRequirements, Proposal
from tfdeploy.init.machine import missing_packages
from tfdeploy.init.placement import place
from tfdeploy.init.program import Program, find
from tfdeploy.init.strategy import recognize
from tfdeploy.release.modules import Module
from tfdeploy.release.syntax import read
from unit.init.machines import machine

PROGRAMS = (Path(__file__).parents[3] / "docs/programs.md").read_text()
MULTI_WORKER = 'MultiWorkerMirroredStrategy\nparser.add_argument("--model_dir")'


def propose(*machines, text=MULTI_WORKER, left_out=(), program=None, **more):
    files = {"train.py": Module(read(text))}
    program = program or Program("train.py", ("python", "train.py"), ".", files)
    recognized = recognize({path: each.syntax for path, each in program.files.items()})
    placed = place(recognized.tasks, machines)
    return Proposal("digits", program, recognized, machines, placed, dict(left_out), **more)


def loaded(proposal):
    return inventory.parse(document.write(proposal), Path("/p/hosts.toml"))


def test_equal_hosts_share_a_table_and_defaults_are_not_written():
    machines = [machine(f"gpu-{n:02}", 4, python="~/tf/bin/python") for n in range(1, 17)]
    assert document.write(propose(*machines)) == (
        "# Written by tfdeploy init. All other keys: tfdeploy example\n"
        'project = "digits"\n'
        "\n"
        "[training]\n"
        "# train.py uses MultiWorkerMirroredStrategy: workers only, worker:0 is the chief\n"
        'command = "python train.py --model_dir={checkpoint_dir}"\n'
        "\n"
        "[defaults]\n"
        'python = "~/tf/bin/python"\n'
        'ports = "auto"                   # free ports, found at each start\n'
        "\n"
        '[hosts."gpu-[01-16]"]            # 4 NVIDIA H100, 8 CPUs, 64.0 GB\n'
        "gpus = 4\n"
        "workers = 1\n"
        "gpus_per_worker = 4\n"
    )


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("TF_CONFIG", "json.loads(os.environ['TF_CONFIG'])"),
        ("Flags", "f('--job_name')\nf('--task_index')\nf('--worker_hosts')"),
        ("MASTER_ADDR and RANK", "import torch\ntorch.distributed.init_process_group('gloo')"),
        (
            "Ranks as flags",
            "f('--rank')\nf('--world_size')\nf('--master_addr')\nf('--master_port')\n"
            "import torch\nrpc.init_rpc('trainer')",
        ),
        ("COORDINATOR_ADDRESS and PROCESS_ID", "import jax\njax.distributed.initialize()"),
        ("KERASTUNER_TUNER_ID", "import keras_tuner\nkeras_tuner.RandomSearch(build)"),
        ("tf.data's service", "os.environ['TF_CONFIG']\nservice.DispatchServer(config)"),
    ],
)
def test_the_lines_for_a_program_are_those_of_the_page(section, text):
    [lines] = re.findall(rf"^## {section}\n.*?```toml\n(.*?)```", PROGRAMS, re.M | re.S)
    expected = tomllib.loads(lines.replace("tune.py", "train.py"))["training"]
    text = text.replace("f('", "parser.add_argument('")
    written = document.write(propose(machine("a"), machine("b"), text=text))
    assert tomllib.loads(written)["training"] == expected
    loaded(propose(machine("a"), machine("b"), text=text))


def test_what_one_host_needs_is_in_its_own_table():
    machines = [
        machine("gpu-01", 1, user="ml", ports="2322-2399"),
        machine("gpu-02", 1, user="ml", address="10.0.0.2"),
        machine("gpu-03", 1, user="ml", address="10.0.0.3"),
    ]
    result = loaded(propose(*machines))
    assert [host.user for host in result.hosts] == ["ml"] * 3
    assert [host.address for host in result.hosts] == [None, "10.0.0.2", "10.0.0.3"]
    assert [result.host(f"gpu-0{n}").ports for n in (1, 2)] == [tuple(range(2322, 2400)), ()]
    text = document.write(propose(*machines))
    assert '[hosts."gpu-[02-03]"]' in text
    assert 'address = "10.0.0.[2-3]"' in text


def test_addresses_in_another_order_than_the_names_get_tables_of_their_own():
    machines = [machine("a1", address="10.0.0.9"), machine("a2", address="10.0.0.3")]
    result = loaded(propose(*machines))
    assert [(h.name, h.address) for h in result.hosts] == [("a1", "10.0.0.9"), ("a2", "10.0.0.3")]


def test_hosts_behind_one_address_have_that_address():
    """As behind a router that forwards other ports to each."""
    machines = [machine(f"a{n}", address="192.0.2.2") for n in (1, 2, 3)]
    text = document.write(propose(*machines))
    assert '[hosts."a[1-3]"]' in text
    assert 'address = "192.0.2.2"' in text


def test_hosts_of_which_all_share_one_home_share_releases_and_environments():
    machines = [machine(name, sharing="all") for name in ("a", "b")]
    text = document.write(propose(*machines))
    assert re.search(
        r"\[defaults\]\nports.*\nshared_fs = true +# they share a home directory\n", text
    )
    assert {host.store for host in loaded(propose(*machines)).hosts} == {"~/.tfdeploy"}


def test_hosts_of_which_some_share_a_home_get_directories_of_their_own():
    machines = [machine(name, sharing="some") for name in ("a", "b")]
    text = document.write(propose(*machines))
    own = '\ndirectory = "~/.tfdeploy/{host}" # some hosts share a home directory\n'
    assert own in text
    assert [host.root for host in loaded(propose(*machines)).hosts] == [
        "~/.tfdeploy/a", "~/.tfdeploy/b",
    ]  # fmt: skip


def test_this_machine_gets_no_key_of_ssh():
    machines = [
        machine("this-machine", is_local=True, address="10.0.0.9"),
        *(machine(name, user="ml") for name in ("a", "b")),
    ]
    result = loaded(propose(*machines))
    assert [host.user for host in result.hosts] == [None, "ml", "ml"]
    assert result.hosts[0].is_local


def test_a_host_that_is_left_out_stays_as_a_comment_with_its_reason():
    left_out = {"gpu-02.lab": 'its name is unknown\n[hosts.evil]\npython = "/evil"'}
    text = document.write(propose(machine("gpu-01"), left_out=left_out))
    assert text.endswith(
        '\n# [hosts."gpu-02.lab"]\n# its name is unknown\n# [hosts.evil]\n# python = "/evil"\n'
    )
    assert len(loaded(propose(machine("gpu-01"), left_out=left_out)).hosts) == 1


def test_what_a_host_answers_ends_no_comment_and_no_string():
    evil = 'x"\n[training]\ncommand = "evil"\n'
    bad = machine("a", cpus=1, python=f"/{evil}".replace("\n", " "))
    bad = type(bad)(**{**vars(bad), "gpus": (evil,)})
    result = loaded(propose(bad))
    assert result.training.command == ("python", "train.py", "--model_dir={checkpoint_dir}")
    assert result.hosts[0].python == bad.python


def test_a_path_with_spaces_and_quotes_becomes_a_list_of_words():
    program = Program(
        "it's a.py", ("python", "it's a.py"), ".", {"it's a.py": Module(read("x.fit()"))}
    )
    assert loaded(propose(machine("a"), program=program)).training.command == (
        "python", "it's a.py",
    )  # fmt: skip


def test_source_role_and_environments_are_written():
    text = (
        'parser.add_argument("--job_name")\nparser.add_argument("--task_index")\n'
        'parser.add_argument("--worker_hosts")\nparser.add_argument("--data", required=True)'
    )
    command = ("python", "-m", "pkg.train")
    program = Program(
        "train.py", command, "..", {"train.py": Module(read(text))}, environments=(".venv/",)
    )
    written = document.write(propose(machine("a"), program=program))
    result = loaded(propose(machine("a"), program=program))
    assert (result.source.path, result.source.exclude) == ("..", (".venv/",))
    assert result.training.role == "flags"
    assert "# train.py requires --data too: add it to the command\n" in written


def test_a_script_that_is_no_python_says_so():
    files = {"train.py": Module(read(""), unreadable="line 3: invalid syntax")}
    program = Program("train.py", ("python", "train.py"), ".", files)
    text = document.write(propose(machine("a"), program=program))
    assert "# train.py can't be read as Python (line 3: invalid syntax): one worker\n" in text


def test_an_ssh_config_is_named():
    assert loaded(propose(machine("a"), ssh_config="/c")).ssh_config == "/c"


@pytest.mark.parametrize(
    ("requirements", "table"),
    [
        (FoundRequirements("requirements.txt"), 'requirements = "requirements.txt"\n'),
        (FoundRequirements(("tensorflow==2.21",)), 'requirements = ["tensorflow==2.21"]\n'),
        (
            FoundRequirements(("tensorflow",), "no\nnetwork"),
            '# without versions: no\\nnetwork\nrequirements = ["tensorflow"]\n',
        ),
        (
            FoundRequirements("requirements.txt", setup=("pip install x",)),
            'requirements = "requirements.txt"\nsetup = ["pip install x"]\n',
        ),
        (
            FoundRequirements(("a" * 40, "b" * 40)),
            f'requirements = [\n    "{"a" * 40}",\n    "{"b" * 40}",\n]\n',
        ),
    ],
)
def test_requirements_are_a_file_or_a_list_that_fits_the_screen(requirements, table):
    text = document.write(propose(machine("a", framework=""), requirements=requirements))
    assert f"\n[env]\n{table}\n" in text


@pytest.mark.parametrize(
    ("program", "machines", "reason"),
    [
        ("tensorflow", [machine("a")], ""),
        ("keras", [machine("a"), machine("b", framework="")], "no Python with TensorFlow on b"),
        ("torch", [machine("a"), machine("b", framework="")], "no Python with PyTorch on b"),
        ("torch", [machine("a", missing=("pandas",)), machine("b")], "no pandas on a"),
    ],
)
def test_the_packages_that_hosts_lack_are_named(tmp_path, program, machines, reason):
    (tmp_path / "train.py").write_text(f"import {program}, pandas")
    text = f"{reason}: tfdeploy installs the packages of [env]" if reason else ""
    assert missing_packages(find(tmp_path, None), machines) == text


def test_the_environment_is_written_with_its_reason():
    proposal = propose(machine("a", framework=""), requirements=FoundRequirements(("tensorflow",)))
    text = document.write(proposal)
    assert "# no Python with TensorFlow on a: tfdeploy installs the packages of [env]\n" in text
    assert loaded(proposal).env.requirements == ("tensorflow",)
