"""What a repository may have below runs/: records, and what a collect has stored. Read as commands
do that ask no host."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from itertools import zip_longest
from pathlib import Path
from unittest import mock

from support.builders import hosts_toml, run_json

from tfdeploy import run as runs
from tfdeploy.branches.measuring import compare, history, plots
from tfdeploy.branches.measuring.run_report import facts, page
from tfdeploy.commands import trials
from tfdeploy.errors import TfdeployError
from tfdeploy.results import run_folder
from tfdeploy.results.hashes import Hashes
from tfdeploy.shared import pace
from tfdeploy.shared.trials import RUNNING, TrialRecord, to_line

FOLDER = tempfile.TemporaryDirectory()
PROJECT = Path(FOLDER.name)
HOSTS = PROJECT / "hosts.toml"
ID = "20260101-000000-aaaa"
RECORD_HOSTS = '[hosts.a]\nworkers = 2\naddress = "127.0.0.1"'
HOSTS_TEXT = hosts_toml(RECORD_HOSTS)
TRIALS = '[trials]\nobjective = "loss:min"\nparams = { lr = [1, 2] }'
TRIALS_TEXT = hosts_toml(f"{RECORD_HOSTS}\n{TRIALS}")
RUN_JSON = run_json(
    **{"name": "n", "words": ["--lr=1"], "source": {"commit": "c", "diff": "d"}},
    **{"written": {"training.command": "x"}, "environments": {"a": "e"}, "launched": "l"},
)
BOTH = {"run_json": json.dumps(RUN_JSON), "hosts_toml": HOSTS_TEXT}
# The first is the name of a folder.
RECORDS = [
    b"99991231-235959-ffff\f" + json.dumps(RUN_JSON).encode() + b"\f" + HOSTS_TEXT.encode(),
    b"20260101-000000-bbbb\f" + json.dumps(RUN_JSON).encode() + b"\f\f" + json.dumps(BOTH).encode(),
    "２０２６0101-000000-cccc\f".encode() + json.dumps(RUN_JSON).encode() + b"\f\f\f00\n{}",
]
RECORD_FILES = ("run.json", "hosts.toml", runs.BOTH, runs.PLAN)


def read_records(data: bytes) -> None:
    name, *texts = data.split(b"\f")
    name = name[:80].decode(errors="replace").replace("/", "").replace("\0", "")
    folder = made_base() / (name if name.strip(".") else "x")
    write(folder, RECORD_FILES, texts)
    try:
        _read_records(folder)
    finally:
        shutil.rmtree(folder)


def _read_records(folder: Path) -> None:
    base = folder.parent
    assert runs.new_id(base) > ID
    list(runs.records(base))
    runs.newest_hint(base)
    runs.hosts_files(base)
    runs.ids_by_name(base, "*")
    runs.age_s(folder.name)
    for chosen in (None, folder.name, "n"):
        with suppress(TfdeployError):
            runs.to_record(runs.load(HOSTS, chosen))
    with suppress(OSError):
        runs.read_folder(folder)


AT = 1_767_225_600.5
EVENTS = bytes.fromhex(
    "1f0000000000000000000000" "09000080a0c4d6da411003" "2a120a100a046c6f737315cdcccc3d"
    "00000000" "1f0000000000000000000000" "09000080b0c4d6da411004" "2a120a100a046c6f737315cdcccc3d"
    "00000000"
)  # fmt: skip
CHANGE = {"at": AT, "state": "READY", "restarts": 1, "reason": "r", "cause": "", "lost": 2}
GPUS = {"at": AT, "gpus": [[0, 90.0, 1024, 81920], [1, None, 1, 2]]}
PACE = dict.fromkeys(pace.GROWING, 3) | {"at": AT, "cpus": 2, "gpu_problems": ["hot"]}
LATER = {**PACE, "at": AT + 60, "step": 90}
TRIAL = TrialRecord(0, 1, RUNNING, "worker:0", value=1.5, step=3)
FILES = (
    "logs/worker-0.history.jsonl",
    "logs/worker-0.gpus.jsonl",
    "logs/worker-0.pace.jsonl",
    "logs/worker-0.trials.jsonl",
    "logs/worker-0.log",
    "hashes.json",
    "checkpoints/checkpoint",
    "events/events.out.tfevents.1.host",
)
COLLECTED = [
    b"\f".join(
        (
            "\n".join(
                json.dumps(each)
                for each in (
                    {**CHANGE, "state": "STARTING", "versions": {"tensorflow": "2.21"}},
                    CHANGE,
                    {**CHANGE, "at": AT + 60, "state": "FAILED", "reason": "exit 1"},
                )
            ).encode(),
            json.dumps(GPUS).encode() + b"\n" + json.dumps(GPUS).encode(),
            json.dumps(PACE).encode() + b"\n" + json.dumps(LATER).encode(),
            to_line(TRIAL),
            b"Epoch 1/2\n1/2 - loss: 0.5\nstep 1, loss = 0.5\nstep 2, loss = nan\r\x1b[2Kx",
            json.dumps({"checkpoints/model.ckpt-1.index": ["00", "11"]}).encode(),
            b'model_checkpoint_path: "model.ckpt-1"\nall_model_checkpoint_paths: "model.ckpt-1"\n',
            *events,
        )
    )
    for events in ((), (EVENTS,))
]


def read_collected(data: bytes) -> None:
    folder = made_base() / ID
    write(folder, FILES, data.split(b"\f"))
    for run in (made_run(HOSTS_TEXT), made_run(TRIALS_TEXT)):
        found = facts.gather(run, None, trials.trials_of(None, run))
        with mock.patch.object(plots, "to_web_svg", return_value=""):  # it takes most of the time
            page.view(found)
    history.read_versions(folder / FILES[0])
    run_folder.has_end_of(run, "model.ckpt-1")
    checkpoints = run.open() / "checkpoints"
    run_folder.read_state(checkpoints)
    Hashes(run, checkpoints).differ("model.ckpt-1.index", "00")
    with suppress(TfdeployError):
        compare.compare(HOSTS, [ID])


@cache
def made_base() -> Path:
    """Return the folder runs/, with an honest run."""
    HOSTS.write_text(HOSTS_TEXT)
    base = PROJECT / runs.FOLDER
    write(base / ID, RECORD_FILES, [json.dumps(RUN_JSON).encode(), HOSTS_TEXT.encode()])
    return base


@cache
def made_run(hosts: str) -> runs.Run:
    record = runs.RecordText(json.dumps(RUN_JSON), hosts)
    return runs.from_record(record, made_base() / ID, HOSTS)


def write(folder: Path, names: tuple[str, ...], contents: list[bytes]) -> None:
    """Write files into a folder; none for those without a content."""
    folder.mkdir(exist_ok=True, parents=True)
    for name, content in zip_longest(names, contents[: len(names)], fillvalue=b""):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        if content:
            file.write_bytes(content)
        else:
            file.unlink(missing_ok=True)
