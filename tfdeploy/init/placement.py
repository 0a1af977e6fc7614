"""Decide which machine runs which tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.init import strategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.init.machine import Machine

    Keys = dict[str, int | str]

WORKERS_TO_TRY = 2
TO_TRY = (
    "2 workers on one machine: they share its CPUs, but show that the script works in a cluster"
)
NO_ROOM = "1 worker: the script lists the addresses of its cluster, with no other; set its ports"


@dataclass(frozen=True)
class ProposedPlacement:
    """The keys for tasks and GPUs of each host, by its name, and sentences that say why."""

    keys: Mapping[str, Keys]
    reasons: tuple[str, ...] = ()


def place(tasks: str, machines: Sequence[Machine], most_workers: int = 0) -> ProposedPlacement:
    """Return where the `tasks` that a script needs should run; see init/strategy.py for them, and
    for `most_workers`."""
    if tasks in (strategy.ONE, strategy.ONE_WITH_ALL_GPUS):
        return _place_one(tasks, machines)
    with_gpus = [machine for machine in machines if machine.gpus]
    without = [machine for machine in machines if not machine.gpus]
    if tasks == strategy.DATA_SERVICE:
        return _place_data_service(machines)
    if tasks == strategy.CHIEF_AND_WORKERS:
        return _place_tuners(with_gpus, without)
    if tasks in (strategy.PS_AND_WORKERS, strategy.PS_AND_CHIEF):
        return _place_ps(tasks, with_gpus, without, most_workers)
    keys = {m.name: _worker_keys(tasks, m) for m in with_gpus or without}
    if len(machines) == 1 and without:
        workers = keys[machines[0].name]["workers"] = _workers_to_try(most_workers)
        return ProposedPlacement(keys, (TO_TRY if workers > 1 else NO_ROOM,))
    spare = without if with_gpus else []
    reasons = (f"{_names(spare)}: spare, no GPU; the slowest worker sets the pace",)
    keys |= {machine.name: {"spare": True} for machine in spare}
    return ProposedPlacement(keys, reasons if spare else ())


def task_count(keys: Keys) -> int:
    """Return the number of tasks with a port that these keys of a host mean."""
    workers = keys.get("workers", 0)
    workers = keys.get("gpus", 0) if workers == "per-gpu" else workers
    return sum(map(int, (workers, keys.get("ps", 0), keys.get("chief", 0))))


def _place_one(tasks: str, machines: Sequence[Machine]) -> ProposedPlacement:
    """Place one worker on the machine with the most GPUs, memory and CPUs."""
    best = max(machines, key=lambda m: (len(m.gpus), m.memory_bytes, m.cpus))
    others = [machine for machine in machines if machine is not best]
    keys = {best.name: _worker_keys(tasks, best)}
    keys |= {m.name: {**_gpu_count(m), "spare": True} for m in others}
    if not others:
        return ProposedPlacement(keys)
    has_most = "has the most GPUs" if best.gpus else "has the most memory"
    reason = f"{best.name} {has_most} and runs the worker; {_names(others)}: spare"
    return ProposedPlacement(keys, (reason,))


def _worker_keys(tasks: str, machine: Machine) -> Keys:
    """Return the keys of a host that runs workers."""
    count = len(machine.gpus)
    if not count:
        return {"workers": 1}
    if tasks == strategy.ONE:  # TensorFlow uses one GPU unless a script asks for more
        return {"gpus": 1, "workers": 1}
    if tasks in (strategy.ALL_GPUS_EACH, strategy.ONE_WITH_ALL_GPUS):
        return {"gpus": count, "workers": 1, **({"gpus_per_worker": count} if count > 1 else {})}
    return {"gpus": count, "workers": 1 if count == 1 else "per-gpu"}


def _place_data_service(machines: Sequence[Machine]) -> ProposedPlacement:
    """Place the trainer and the dispatcher on the machine with the most GPUs, or else the first;
    the CPUs of all others prepare the input."""
    trainer = max(machines, key=lambda m: len(m.gpus))
    workers = {} if len(machines) > 1 else {"workers": WORKERS_TO_TRY}
    keys: dict[str, Keys] = {machine.name: {"workers": 1} for machine in machines}
    keys[trainer.name] = {**_gpu_count(trainer), **workers, "ps": 1, "chief": True}
    return ProposedPlacement(keys, () if len(machines) > 1 else (TO_TRY,))


def _place_tuners(with_gpus: list[Machine], without: list[Machine]) -> ProposedPlacement:
    """Place a tuner on each GPU, or on each machine if there are no GPUs; the oracle needs none."""
    workers = with_gpus or without
    keys = {m.name: _worker_keys(strategy.CHIEF_AND_WORKERS, m) for m in workers}
    oracle, *spare = without if with_gpus and without else workers[:1]
    keys[oracle.name] = {**keys.get(oracle.name, {}), "chief": True}
    if oracle.gpus:
        keys[oracle.name]["gpus_per_chief"] = 0
    keys |= {machine.name: {"spare": True} for machine in spare}
    if len(without) == 1 and not with_gpus:
        keys[oracle.name]["workers"] = WORKERS_TO_TRY
        return ProposedPlacement(keys, (TO_TRY,))
    return ProposedPlacement(keys, (f"{_names(spare)}: spare, no GPU",) if spare else ())


def _workers_to_try(most_workers: int) -> int:
    return min(WORKERS_TO_TRY, most_workers or WORKERS_TO_TRY)


def _place_ps(
    tasks: str, with_gpus: list[Machine], without: list[Machine], most_workers: int
) -> ProposedPlacement:
    """Place ps on machines without GPUs, if others have some; else beside the first workers."""
    workers = with_gpus or without
    keys = {machine.name: _worker_keys(tasks, machine) for machine in workers}
    count = sum(task_count(each) for each in keys.values())
    ps = without[:count] if with_gpus else []
    spare = without[count:] if with_gpus else []
    first = (ps or workers)[0]
    if not ps:
        keys[first.name]["ps"] = 1
        if len(workers) == 1 and not with_gpus:
            keys[first.name]["workers"] = _workers_to_try(most_workers)
    keys |= {machine.name: {"ps": 1} for machine in ps}
    if tasks == strategy.PS_AND_CHIEF:
        keys[first.name] |= {"chief": True, **({"gpus_per_chief": 0} if first.gpus else {})}
    keys |= {machine.name: {"spare": True} for machine in spare}
    reasons = _ps_reasons(ps, first, spare, len(workers))
    no_room = most_workers == 1 and TO_TRY in reasons
    return ProposedPlacement(keys, (NO_ROOM,) if no_room else reasons)


def _ps_reasons(
    ps: list[Machine], first: Machine, spare: list[Machine], workers: int
) -> tuple[str, ...]:
    reasons = []
    if ps:
        reasons.append(f"{_names(ps)}: no GPU, so a ps, which needs none")
    elif workers == 1 and not first.gpus:
        reasons.append(TO_TRY)
    elif workers > 1:
        reasons.append(f"{first.name} runs the ps beside its workers")
    if spare:
        reasons.append(f"{_names(spare)}: spare, there are as many ps as workers")
    return tuple(reasons)


def _gpu_count(machine: Machine) -> Keys:
    return {"gpus": len(machine.gpus)} if machine.gpus else {}


def _names(machines: Sequence[Machine]) -> str:
    return fold_names(machine.name for machine in machines)
