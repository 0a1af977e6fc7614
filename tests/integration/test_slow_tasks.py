"""status, watch and collect of a run with a slow worker."""

from __future__ import annotations

import json
import time

import pytest

pytestmark = pytest.mark.slow

LINES = 11
EVERY_S = 30.0
USUAL = {
    **{"cpus": 8, "disk_wait_s": 0.0, "swapped_bytes": 0, "segments_sent": 0},
    **{"segments_resent": 0, "hot_s": 0.0, "stopped_s": 0.0},
}


def write_pace(project, host, task, steps_per_s, other_cpus=0.0):
    """Write what a supervisor keeps in five minutes."""
    folder = project.on(host) / "runs" / project.run_folder.name / "logs"
    first = time.time() - LINES * EVERY_S
    times = [n * EVERY_S for n in range(LINES)]
    lines = [
        {"at": first + at, "step": int(at * steps_per_s), "own_s": at, **USUAL,
         "busy_s": at * (1.0 + other_cpus)}
        for at in times
    ]  # fmt: skip
    file = folder / f"{task.replace(':', '-')}.pace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def project(by_ssh):
    started = by_ssh.started("--hold", training={"imports": []})
    for host, task, steps_per_s in (("one", "ps:0", 0.0), ("two", "worker:0", 4.8)):
        write_pace(started, host, task, steps_per_s)
    write_pace(started, "two", "worker:1", 1.2, other_cpus=6.0)
    return started


def test_a_slow_worker_is_named_with_what_is_different_on_its_host(project):
    sentence = (
        "two: worker:1 makes 1.2 steps/s, 40% of the median of 2 workers (3) in the last 5m 00s; "
        "other programs use 6.0 CPUs (0.0 for the others)"
    )
    assert f"note: {sentence}" in project.tf("status").stderr
    document = json.loads(project.ok("status", "--json"))
    assert [f"{each['host']}: {each['message']}" for each in document["slow"]] == [sentence]
    pace = next(each["pace"] for each in document["tasks"] if each["task"] == "worker:1")
    assert (pace["steps_per_s"], pace["other_cpus"]) == (pytest.approx(1.2), pytest.approx(6.0))
    with project.start_command("watch") as watching:
        watching.wait_for_output(sentence)
    project.ok("collect")
    assert (project.run_folder / "logs/worker-1.pace.jsonl").is_file()
