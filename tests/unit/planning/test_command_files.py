"""Which file of the source a command runs."""

from __future__ import annotations

import shlex

import pytest

from tfdeploy.planning import command_files
from tfdeploy.planning.command_files import LINUX, MODULE, PYTHON, SHELL


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --x=a.py", ("train.py", PYTHON)),
        ("python3.11 -u -W ignore -X dev ./lib/train.py", ("./lib/train.py", PYTHON)),
        ("/opt/venv/bin/python train.py", ("train.py", PYTHON)),
        ("systemd-run --scope {python} train.py", ("train.py", PYTHON)),
        ("python -m lib.train x.py", ("lib.train", MODULE)),
        ("python app", ("app", PYTHON)),
        ("./run.sh a", ("./run.sh", LINUX)),
        ("scripts/run", ("scripts/run", LINUX)),
        ("bash -eux -o pipefail scripts/run.sh", ("scripts/run.sh", SHELL)),
        ("sh run.sh -c", ("run.sh", SHELL)),
        ("bash -euo pipefail run.sh", ("run.sh", SHELL)),
        ("torchrun --nnodes 2 --rdzv_endpoint={chief_address} train.py", ("train.py", PYTHON)),
        ("torchrun --nnodes=2 -m lib.train", ("lib.train", MODULE)),
        ("python -m torch.distributed.run --nnodes=2 train.py", ("train.py", PYTHON)),
        ("accelerate launch --config_file a.yaml lib/train.py", ("lib/train.py", PYTHON)),
    ],
)
def test_a_command_names_its_script_and_what_reads_it(command, found):
    assert command_files.of_command(shlex.split(command)) == found


@pytest.mark.parametrize(
    "command",
    [
        *("train", "run train.py", "docker run image python train.py", "env A=1 python train.py"),
        *("python", "python -", "python -c 'import x' train.py", "python -V", "python -m"),
        *("bash", "bash -c 'cd lib && python train.py'", "bash -lc ./run.sh", "sh -s train.sh"),
        *("/opt/run.sh", "~/run.sh", "{name}/run.sh", "./run_{job}.sh", "{name}.sh"),
        *("python /opt/train.py", "python ~/train.py", "python {job}.py", "bash $HOME/run.sh"),
        *("python lib/*.py", "torchrun --nnodes=2 prog", "accelerate config", "python -mtrain"),
    ],
)
def test_a_command_that_may_run_anything_names_none(command):
    assert command_files.of_command(shlex.split(command)) is None
