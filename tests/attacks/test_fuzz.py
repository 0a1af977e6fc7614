"""Damaged and hostile input for everything that tfdeploy reads of a repository or from a host.

Each input is made from a valid one. It may be refused with an error of tfdeploy, and with no other;
it costs little time and memory. The inputs are the same in each run, except in a soak.
"""

from __future__ import annotations

import json
import os
import random
import re
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import get_args, get_origin

import pytest
from support.builders import FILE, hosts_toml, make_inventory, run_json

from attacks import run_folders, signed_messages
from tfdeploy import run as runs
from tfdeploy.agent import verbs
from tfdeploy.agent.reports import progress
from tfdeploy.config import inventory as inventories
from tfdeploy.config import toml_text
from tfdeploy.documents import Failure, to_json
from tfdeploy.environments import requirements
from tfdeploy.errors import PlanError, TfdeployError
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.hosts.agent_session import AgentExited, Query, Session
from tfdeploy.hosts.answers import ANSWERS
from tfdeploy.hosts.following import Subscription
from tfdeploy.release import gitignore
from tfdeploy.shared import event_scalars, state_file
from tfdeploy.shared.objective import Objective
from tfdeploy.shared.protocol.message import Request, answer_class, parse_lines
from tfdeploy.shared.protocol.record import field_types
from tfdeploy.shared.protocol.reports import Follow
from tfdeploy.shared.trials import RUNNING, TrialRecord, to_line
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.ssh import config as ssh_config
from tfdeploy.transport.ssh import known_hosts
from tfdeploy.trust import sensitive_values, ssh_keywords

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDER = tempfile.TemporaryDirectory()
SSH_CONFIG = Path(FOLDER.name) / "ssh_config"
KNOWN_HOSTS_FILE = Path(FOLDER.name) / "known_hosts"
INPUTS = int(os.environ.get("TFDEPLOY_FUZZ_INPUTS", "400"))  # of each kind
SEED = os.environ.get("TFDEPLOY_FUZZ_SEED", "")
# The limit for one input, in loops over its bytes (over 100 kB if it is shorter). The most that was
# measured is 200; a cost that grows with the square of the input is thousands.
MAX_LOOPS = 600
CHEAP_S = 0.1  # of which less is not compared: the loop itself takes time
MAX_BYTES = 64 << 20
# What parsers stumble over: depth, length, numbers without end, half characters, directions.
TOKENS = [
    *(b"[" * 3000, b"{" * 50, b'{"a":' * 3000, b"9" * 5000, b"1e999", b"-1", b"NaN", b"null"),
    *(b"true", b'"', b"'", b"\\", b"\\ud800", b"\0", b"\n", b"\r", b"\xff\xfe", b"\xe2\x80\xae"),
    *(b"../..", b"/", b"~", b"=", b",", b"]", b"}", b"#", b" " * 5000, b"\x80" * 50, b"x" * 70000),
]


def mutate(chance: random.Random, seeds: list[bytes]) -> bytes:
    """Return a seed with some changes: cut, repeated, overwritten, or with a token."""
    data = chance.choice(seeds)
    for _ in range(chance.randrange(6)):
        start, end = sorted(chance.choices(range(len(data) + 1), k=2))
        middle = chance.choice(
            [b"", data[start:end] * 2, chance.randbytes(end - start), chance.choice(TOKENS)]
        )
        data = data[:start] + middle + data[chance.choice([start, end]) :]
    return data


# hosts.toml

HOSTS_TOML = [
    (ROOT / "hosts.example.toml").read_bytes(),
    hosts_toml('[hosts."a[1-3]"]\nworkers = 1\nports = "2222-2229"').encode(),
    *(file.read_bytes() for file in sorted((ROOT / "examples").glob("*/hosts.toml"))),
]


def read_hosts_toml(data: bytes) -> None:
    inventory = inventories.parse(data.decode(errors="replace"), FILE)
    sensitive_values.find(inventory)
    inventories.parse(toml_text.write(inventory.to_toml()), FILE)


# Records of runs

RUN_JSON = run_json()
RECORD_HOSTS = hosts_toml('[hosts.a]\nworkers = 2\naddress = "127.0.0.1"')
RECORDS = [
    json.dumps({**RUN_JSON, "auto_ports": ["a"], "data": {"d": "r"}}).encode() + b"\f",
    json.dumps(RUN_JSON).encode() + b"\f" + RECORD_HOSTS.encode(),
]


def read_record(data: bytes) -> None:
    run_json, _, hosts = data.decode(errors="replace").partition("\f")
    record = runs.RecordText(run_json, hosts or RECORD_HOSTS)
    found = runs.from_record(record, Path("/home/ada/runs/r"), FILE)
    runs.to_record(found)


# ssh -G

SSH_G = [
    b"host a\nuser ada\nhostname 10.0.0.1\nport 22\nidentityfile ~/.ssh/id\nidentitiesonly yes\n"
    b"proxycommand nc %h %p\nuserknownhostsfile ~/.ssh/known_hosts ~/.ssh/known_hosts2\n"
    b"globalknownhostsfile /etc/ssh/known_hosts\nhostkeyalias b\nproxyjump none\n"
]


def read_ssh_g(data: bytes) -> None:
    ssh_config._read_answer(data.decode(errors="replace"), "a")


SSH_CONFIGS = [
    b"Host a\n  HostName 10.0.0.1\n  User ada\n  UserKnownHostsFile ./known_hosts\nMatch host b\n"
    b"  ProxyJump c\nInclude ~/.ssh/more ~x/y\nHostKeyAlias z\n"
]


def read_ssh_config(data: bytes) -> None:
    SSH_CONFIG.write_bytes(data)
    ssh_keywords.read(SSH_CONFIG, SSH_CONFIG.parent)


# Ignore files and outputs

PATHS = ["a", "a.pyc", "data/raw/x.bin", "b/a/b/a/b/a", "a" * 250, "/".join("a" * 500)]
IGNORE_FILES = [
    b"*.py[cod]\n!keep/**/x\n/a/**/b/**/c\n# x\n\\#y\n[!a-c]*?b\ndata/\n**\n",
    b"*a*a*a*a*a*a*a*a*b\na/**/a/**/a/**/b\n*?*?*?*?b\n[[:alpha:]-z]\n\\ \n/**/*\n",
]


def read_ignore_file(data: bytes) -> None:
    ignores = [gitignore.from_gitignore("", data)]
    for path in PATHS:
        gitignore.is_ignored(path, True, ignores)
    for line in data.decode(errors="replace").split("\n"):
        with suppress(PlanError):
            for _, expression in gitignore.to_expressions("training.outputs", [line]):
                for path in PATHS:
                    re.match(expression, path)


# known_hosts

KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + b"A" * 43
KNOWN_HOSTS = [
    b"gpu-1,10.0.0.1 " + KEY + b" note\n[gpu-*]:2200,!gpu-2 " + KEY + b"\n@revoked * " + KEY,
    b"*a*a*a*a*a*a*b,*?*?*?*?c " + KEY + b"\n|1|c2FsdA==|aGFzaA== " + KEY + b"\n@cert-authority a",
]


def read_known_hosts(data: bytes) -> None:
    KNOWN_HOSTS_FILE.write_bytes(data)
    known_hosts._parse_cached.cache_clear()  # it knows a file by its size and time
    for host in ("gpu-1", "[gpu-1]:2200", "a" * 250):
        known_hosts.look_up_keys([KNOWN_HOSTS_FILE], [host, "gpu-1"])


# pyproject.toml and requirements files

PROJECTS = [
    b'[project]\nname = "p"\nversion = "1"\ndependencies = ["a >= 1", "b[c]"]\ndynamic = ["x"]\n'
    b'[tool.a.b]\nc = {d = [1, 2.5, 2020-01-01]}\n"" = true\n',
    b"-r more.txt\n-i https://me:pw@example.org/simple\na==1 \\\n  --hash=sha256:00\n-e .\n# x\n",
]


def read_project(data: bytes) -> None:
    for name in ("pyproject.toml", "requirements.txt"):
        file = Path(FOLDER.name) / name
        file.write_bytes(data)
        list(requirements.files(with_requirements(file)))
        with suppress(PlanError):
            requirements.read(with_requirements(file))


@cache
def with_requirements(file: Path) -> inventories.Inventory:
    text = f"[hosts.a]\nworkers = 1\n[env]\nrequirements = {json.dumps(str(file))}\n"
    return inventories.parse(hosts_toml(text), FILE)


# Answers, and events of a followed run

REQUESTS = [object.__new__(verbs.resolve(request)) for request, _ in verbs.VERBS.values()]
FOLLOW = [request for request in REQUESTS if isinstance(request, Follow)]
SUBSCRIPTION = Subscription(Follow("p", "r", ["ps:0"], logs=True, lines=None, forever=True))
VALUES = {str: "ps:0", int: 3, float: 1.5, bool: True}
AGENT = Agent(None, make_inventory().hosts[0])


def answers_of(requests: list) -> list[bytes]:
    """Return an answer of each kind, and a refusal, as an agent writes them."""
    answers = [{"refused": "no", "hint": "x", "held_by": "r"}, {"failed": "E"}, {"end": True}]
    expected = tuple(answer_class(type(request)) for request in requests)
    for tag, kind in ANSWERS.items():
        if issubclass(kind, expected):
            fields = {name: _value(type_) for name, type_ in field_types(kind).items()}
            answers.append({"tag": tag, **fields})
    return [b"hello\n" + verbs.MARK.encode() + json.dumps(a).encode() + b"\n" for a in answers]


def _value(type_: object) -> object:
    inner = get_args(type_)
    if type(None) in inner:
        return _value(inner[0])
    if get_origin(type_) is list:
        return [VALUES.get(inner[0], {})]
    return VALUES.get(type_, {"task": "ps:0"})


class Stream:
    """A connection to a host that has sent some data, in pieces, and then has ended."""

    def __init__(self, data: bytes) -> None:
        size = max(1, len(data) // 3)
        self._pieces = [data[i : i + size] for i in range(0, len(data), size)]

    def read(self, timeout_s: float | None = None) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def result(self) -> CompletedCommand:
        return CompletedCommand(1, b"", b"")


def read_answers(data: bytes, requests: list = REQUESTS) -> None:
    session = Session("a", Stream(data))
    try:
        while True:
            answer = session.answer(60.0, 4 << 20)
            for request in requests:
                _read_answer(request, answer)
    except AgentExited:
        pass


def _read_answer(request: Request, answer: dict) -> None:
    try:
        message = AGENT.parse(Query(request, b""), answer)
        if request in FOLLOW:
            SUBSCRIPTION.accept(AGENT, message)
    except TfdeployError as error:
        to_json(Failure(error))


def read_events_of_run(data: bytes) -> None:
    read_answers(data, FOLLOW)


# Event files and state files

EVENT_FILES = [
    bytes.fromhex(text)
    for text in (
        "18000000000000000000000009000080a0c4d6da411a0d627261696e2e4576656e743a3200000000",
        "1f0000000000000000000000" + "09000080a0c4d6da411003" + "2a120a100a046c6f737315cdcccc3d"
        "00000000000000000000",
    )
]
STATE_FILES = [
    b'model_checkpoint_path: "model.ckpt-3"\nall_model_checkpoint_paths: "model.ckpt-2"\n'
    b'all_model_checkpoint_paths: "model.ckpt-3"\nlast_preserved_timestamp: 1.5\n'
]


def read_event_file(data: bytes) -> None:
    list(event_scalars.read_scalars(data))
    for event in progress.events(data):
        progress._step(event)
    progress._highest_step(data)


def read_state_file(data: bytes) -> None:
    for name in state_file.parse(data.decode(errors="replace")):
        state_file.step(name)
        state_file.file_set([f"{name}.index", "x"], name)


# What a trial writes

TRIALS = [
    b"Epoch 1/2\n1/2 \xe2\x94\x81 1s 9ms/step - loss: 0.5\r2/2 - loss: 1e-3\nversion: 2.21.0\n"
    b'step 12, loss = nan\n{"step": 3, "loss": 0.5, "x": [1]}\n'
    b'\fepoch,loss,"a,b"\n0,0.5,"1,2"\n1,inf,\n\f{"epoch": 2, "loss": -Infinity}\n'
]


def read_trial(data: bytes) -> None:
    folder = Path(FOLDER.name) / "trial"
    folder.mkdir(exist_ok=True)
    files = (folder.with_suffix(".log"), folder / "a.csv", folder / "a.jsonl")
    for file, content in zip(files, (*data.split(b"\f"), b"", b""), strict=False):
        file.write_bytes(content)
    found = Objective("loss", "min", str(folder), str(files[0]))
    found.read()
    value, step = found.best()
    record = TrialRecord(0, 1, RUNNING, "worker:0", value=value, step=step, rungs=found.rungs())
    assert [*parse_lines(TrialRecord, to_line(record))] == [record]


KINDS = {
    "hosts.toml": (read_hosts_toml, HOSTS_TOML),
    "records": (read_record, RECORDS),
    "folders in runs/": (run_folders.read_records, run_folders.RECORDS),
    "collected files": (run_folders.read_collected, run_folders.COLLECTED),
    "ssh -G": (read_ssh_g, SSH_G),
    "ssh_config": (read_ssh_config, SSH_CONFIGS),
    "ignore files": (read_ignore_file, IGNORE_FILES),
    "known_hosts": (read_known_hosts, KNOWN_HOSTS),
    "pyproject": (read_project, PROJECTS),
    "answers": (read_answers, answers_of(REQUESTS)),
    "events of a run": (read_events_of_run, answers_of(FOLLOW)),
    "event files": (read_event_file, EVENT_FILES),
    "state files": (read_state_file, STATE_FILES),
    "trials": (read_trial, TRIALS),
    "questions of a host": (signed_messages.read_question, signed_messages.QUESTIONS),
    "answers of the chief's host": (signed_messages.read_answer, signed_messages.ANSWERS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_input_is_answered_by_anything_but_an_error_of_tfdeploy(kind):
    read, seeds = KINDS[kind]
    refused = 0
    for number in range(INPUTS):
        data = mutate(random.Random(f"{SEED} {kind} {number}"), seeds)
        rss, start_s = start_to_measure(), time.process_time()
        try:
            read(data)
        except TfdeployError:
            refused += 1
        except Exception as error:
            pytest.fail(f"input {number}, {data[:2000]!r}: {error!r}")
        cpu_s, grown = time.process_time() - start_s, peak_memory() - rss
        if cpu_s > CHEAP_S:
            assert cpu_s < MAX_LOOPS * loop_s(len(data)), (number, cpu_s, data[:2000])
        assert grown < MAX_BYTES, (number, grown, data[:2000])
    assert refused < INPUTS


def loop_s(length: int) -> float:
    """Return the CPU seconds of one loop over `length` bytes (at least 100 kB), measured now."""
    start_s = time.process_time()
    sum(1 for _ in bytes(max(length, 100_000)))
    return time.process_time() - start_s


def start_to_measure() -> int:
    """Forget the highest memory use so far; return the current one, in bytes. Source: proc(5)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def peak_memory() -> int:
    return _memory("VmHWM")


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) << 10
