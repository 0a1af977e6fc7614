"""A command whose script no host can run is refused before anything is sent."""

from __future__ import annotations

import json
import os

import pytest
from support.builders import hosts_toml, put

from tfdeploy.commands.preflight import scripts
from tfdeploy.config import inventory as inventories
from tfdeploy.errors import PlanError
from tfdeploy.release import snapshot


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty source folder, which is the current one."""
    source = tmp_path / "source"
    source.mkdir()
    monkeypatch.chdir(source)
    return source


def check(folder, command="python train.py", training="", top=""):
    text = hosts_toml(training=training, top=top).replace('"python train.py"', json.dumps(command))
    put(folder, "other.txt")
    release = snapshot.take(folder)
    scripts.check_scripts(inventories.parse(text, folder / "hosts.toml"), release)


def refusal(folder, *words, **changes):
    with pytest.raises(PlanError) as refused:
        check(folder, *words, **changes)
    return str(refused.value).replace(str(folder), "SOURCE")


def executable(folder, path, content):
    put(folder, path, content)
    os.chmod(folder / path, 0o755)


MISSING = " is not among the files that would be pushed from SOURCE\n  "


# Files that are missing


@pytest.mark.parametrize(
    ("command", "path", "close"),
    [
        ("python trian.py", "trian.py", "train.py"),
        ("./rnu.sh", "rnu.sh", "run.sh"),
        ("bash scripts/start.hs", "scripts/start.hs", "scripts/start.sh"),
        ("bash rnu.sh", "rnu.sh", "run.sh"),
        ("python -m lib.trian", "lib.trian", "lib.train"),
        ("python -m space.trian", "space.trian", "space.train"),
        ("torchrun --nproc_per_node 4 trian.py", "trian.py", "train.py"),
        ("accelerate launch trian.py", "trian.py", "train.py"),
        ("python -m torch.distributed.run trian.py", "trian.py", "train.py"),
    ],
)
def test_a_missing_script_is_refused_with_the_nearest_name(folder, command, path, close):
    for file in ("train.py", "run.sh", "scripts/start.sh", "lib/__init__.py", "lib/train.py"):
        put(folder, file)
    put(folder, "space/train.py")
    found = refusal(folder, command)
    assert found == f"training.command: {path}{MISSING}did you mean {close}?"


def test_the_hint_for_a_missing_script_says_what_to_check(folder):
    found = refusal(folder, "python3 ./x.py")
    hint = "check source.path, source.exclude and what git ignores"
    assert found == f"training.command: x.py{MISSING}{hint}"
    put(folder, "x.py")
    put(folder, ".gitignore", "x.py")
    assert refusal(folder, "python3 ./x.py").endswith(
        "\n  source.exclude or a rule of git leaves it out: correct that"
    )


def test_the_commands_of_jobs_and_of_notifications_are_checked(folder):
    put(folder, "train.py")
    own = '[training.ps]\ncommand = "python serve.py"'
    assert refusal(folder, training=own).startswith("training.ps.command: serve.py is not among")
    notify = '[notify]\non_end = "./tell.sh"\n'
    assert refusal(folder, training=notify).startswith("notify.on_end: tell.sh is not among")
    check(folder, training='[notify]\non_end = "https://example.org/train.py"\n')


@pytest.mark.parametrize(
    "command",
    [
        *("python train.py", "python ./lib/../train.py", "python app", "python linked/train.py"),
        *("python -m lib.train", "python -m lib", "python -m gone", "python -m torch.gone"),
        *("python -m space.gone", "bash gone.sh", "run ./gone.sh", "python train_{job}.py"),
        *("python digits/make.py", "./roles/cluster.sh", "../gone.sh", "python -m lib.fast"),
        *("bash scripts/start.sh", "python -m lib.digits.make"),
    ],
)
def test_a_command_whose_script_may_exist_is_accepted(folder, command):
    for file in ("train.py", "app/__main__.py", "lib/__init__.py", "lib/train.py", "lib/fast.so"):
        put(folder, file)
    put(folder, "space/unlike.py")
    put(folder, "shell/start.sh", "echo\n")
    (folder / "linked").symlink_to("lib")
    (folder / "scripts").symlink_to("shell")
    data = "".join(f'[data."{place}"]\npath = "/d"\n' for place in ("digits", "lib/digits"))
    training = f'[training.role_files]\n"roles/cluster.sh" = "x"\n{data}'
    check(folder, command, training)


# Files that can't be run


def test_a_script_that_is_not_executable_is_refused(folder):
    put(folder, "bin/run it.sh", "#!/bin/sh\n")
    found = refusal(folder, "'bin/run it.sh'")
    assert found == (
        "training.command: bin/run it.sh is not executable\n  chmod +x 'bin/run it.sh'"
    )
    check(folder, "sh 'bin/run it.sh'")
    executable(folder, "bin/run it.sh", "#!/bin/sh\n")
    check(folder, "'bin/run it.sh'")


def test_another_current_folder_is_part_of_the_command_to_type(folder, monkeypatch, tmp_path):
    put(folder, "run.sh", "#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    assert refusal(folder, "./run.sh").endswith("\n  chmod +x source/run.sh")
    monkeypatch.chdir("/usr")
    assert refusal(folder, "./run.sh").endswith("\n  chmod +x SOURCE/run.sh")


CRLF = "run.sh has line ends of Windows (CRLF), with which Linux can't run it"


@pytest.mark.parametrize(
    ("command", "content"),
    [
        ("./run.sh", "#!/bin/bash\r\npython train.py\r\n"),
        ("./run.sh", "#!/bin/bash -e\r\n"),
        ("./run.sh", "#!/usr/bin/env bash\r\necho\n"),
        ("./run.sh", "#!/bin/bash\r"),
        ("bash run.sh", "#!/bin/bash\r\npython train.py\r\n"),
        ("sh run.sh", "python train.py\r\n"),
    ],
)
def test_line_ends_of_windows_are_refused(folder, command, content):
    executable(folder, "run.sh", content)
    found = refusal(folder, command)
    assert found == f"training.command: {CRLF}\n  sed -i 's/\\r$//' run.sh"


@pytest.mark.parametrize(
    ("command", "content"),
    [
        ("python run.sh", "import tensorflow\r\n"),
        ("bash run.sh", "#!/bin/bash\r\necho\n"),
        ("bash run.sh", "cat <<END\na\r\nEND\n"),
        ("bash run.sh", ""),
    ],
)
def test_line_ends_that_the_program_reads_are_accepted(folder, command, content):
    executable(folder, "run.sh", content)
    check(folder, command)


@pytest.mark.parametrize(
    ("content", "problem", "hint"),
    [
        (
            "python train.py\n",
            "has a first line that names no interpreter",
            '"bash run.sh" as the command, or a first line such as #!/bin/bash',
        ),
        (
            "#! \n",
            "has a first line that names no interpreter",
            '"bash run.sh" as the command, or a first line such as #!/bin/bash',
        ),
        (
            "\ufeff#!/bin/sh\n",
            "starts with a byte order mark, so Linux ignores its first line",
            r"sed -i '1s/^\xEF\xBB\xBF//' run.sh",
        ),
        (
            "#!python3\n",
            "names an interpreter without an absolute path",
            "write #!/usr/bin/env python3",
        ),
        (
            "#!/usr/bin/env python3 -u\n",
            "has a first line that gives env several words as one",
            "write #!/usr/bin/env -S python3 -u",
        ),
    ],
)
def test_a_first_line_that_linux_can_not_use_is_refused(folder, content, problem, hint):
    executable(folder, "run.sh", content)
    assert refusal(folder, "./run.sh") == f"training.command: run.sh {problem}\n  {hint}"


@pytest.mark.parametrize(
    "content",
    [
        *(
            "#!/bin/sh\n",
            "#! /usr/bin/env python3\n",
            "#!/usr/bin/env -S python3 -u\n",
            "#!/bin/sh",
        ),
        *("\x7fELF\x02\0", "PK\x03\x04\0\0"),
    ],
)
def test_a_file_that_linux_can_run_is_accepted(folder, content):
    executable(folder, "run.sh", content)
    check(folder, "./run.sh")
