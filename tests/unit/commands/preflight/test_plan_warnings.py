"""Warnings about a plan: no task that trains, GPUs that no task uses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.commands.intent import Intent
from tfdeploy.commands.preflight.plan_warnings import placeholder_notes, plan_warnings
from tfdeploy.release import snapshot

PS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 1"


STRATEGY = "s = tf.distribute.ParameterServerStrategy(resolver)"


def warnings_of(hosts, top="", release=None, training=""):
    inventory = make_inventory(hosts, top=top, training=training)
    intent = Intent(inventory, make_plan(hosts), release, {}, {})
    return [str(warning) for warning in plan_warnings(intent)]


def source(folder, **modules):
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return snapshot.take(folder)


def test_ps_without_a_chief_give_a_warning_if_the_program_needs_one(tmp_path):
    [warning] = warnings_of(PS, release=source(tmp_path, train="import model", model=STRATEGY))
    assert warning.startswith("no host has chief = true: with ParameterServerStrategy")


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (PS, "os.environ['TF_CONFIG']  # not ParameterServerStrategy"),
        (PS + "\nchief = true", STRATEGY),
        ("[hosts.w]\nworkers = 2", STRATEGY),
    ],
)
def test_a_plan_in_which_a_task_trains_gives_no_warning(tmp_path, hosts, text):
    assert warnings_of(hosts, release=source(tmp_path, train=text)) == []


@pytest.mark.parametrize(
    ("command", "hosts", "is_lonely"),
    [
        ("torchrun train.py", "[hosts.w]\nworkers = 2", True),
        ("accelerate launch train.py", "[hosts.w]\nworkers = 2", True),
        ("torchrun train.py", "[hosts.w]\nworkers = 1", False),
        ("torchrun --master_addr={chief_address} train.py", "[hosts.w]\nworkers = 2", False),
        ("accelerate launch --config_file a.yaml train.py", "[hosts.w]\nworkers = 2", False),
    ],
)
def test_a_launcher_that_is_not_told_of_the_other_workers_gives_a_warning(
    command, hosts, is_lonely
):
    found = warnings_of(hosts, training=f'worker.command = "{command}"')
    assert [line.partition(" ")[2].splitlines()[0] for line in found] == (
        ["does not know the other workers: each would train alone"] if is_lonely else []
    )


@pytest.mark.parametrize(
    ("host", "warning"),
    [
        ("gpus = [0, 1, 2, 3]\nworkers = 1", "w: no task uses its GPUs 1, 2, 3"),
        ("gpus = 4\nworkers = 1", ""),
        ("gpus = [0, 5]\nworkers = 1", "w: no task uses its GPU 5"),
        ('gpus = 4\nworkers = "per-gpu"', ""),
        (
            "gpus = [0, 1, 2, 3]\nworkers = 1\n[hosts.s]\ngpus = 2\nspare = true",
            "w: no task uses its GPUs 1, 2, 3",
        ),
    ],
)
def test_gpus_that_no_task_uses_give_a_warning(host, warning):
    found = warnings_of(f"[hosts.w]\n{host}")
    assert [line.splitlines()[0] for line in found] == ([warning] if warning else [])


def test_an_open_network_gives_a_warning():
    [warning] = warnings_of("[hosts.w]\nworkers = 2", top='network = "open"')
    assert [line.strip() for line in warning.splitlines()] == [
        'network = "open": anyone who reaches w:2222, w:2223 can run programs there as the tasks\' '
        "user",
        'network = "guarded", the default, admits only the hosts of the run',
    ]


def test_what_stands_for_files_in_a_clone_is_one_note_of_each_kind(tmp_path):
    release = source(tmp_path, train="")
    data = replace(release, pointers=("a.bin",))
    source_release = replace(release, pointers=("b", "c"), submodules=("vendor/tool",))
    hosts = "[hosts.w]\nworkers = 1"
    intent = Intent(make_inventory(hosts), make_plan(hosts), source_release, {"mnist": data}, {})
    assert [str(note) for note in placeholder_notes(intent)] == [
        "source: 2 pointers of Git LFS in place of files: b, c\n  git lfs pull fetches the files",
        "source: 1 empty submodule: vendor/tool\n"
        "  git submodule update --init --recursive fetches the files",
        "data.mnist: 1 pointer of Git LFS in place of files: a.bin\n"
        "  git lfs pull fetches the files",
    ]
