"""TensorFlow 2's strategies, each run through tfdeploy on this machine: they learn, and go on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from integration.sshd import free_ports

from examples.recipes import EXAMPLES, run
from tfdeploy import curves

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
ON_PS = "/job:ps/replica:0/task:0/device:CPU:0"


def evaluated(done):
    """The accuracy and the step of the newest checkpoint at home."""
    said = done.python("-m", f"{done.recipe}.train", "--evaluate", str(done.checkpoints))
    accuracy, step = re.fullmatch(r"test accuracy (\S+) at step (\d+)\n", said).groups()
    return float(accuracy), int(step)


def learned(done, serial, steps):
    """Nearly what one process learns, in so many steps; and the curve of it came home."""
    accuracy, step = evaluated(done)
    assert step == steps
    assert accuracy >= serial.accuracy() - 0.04
    loss = curves.of_events(done.collected)["loss"]
    assert loss[-1].step == steps
    assert loss[-1].value < min(0.2, loss[0].value / 2)


def places(log):
    """Where the weights are, as a log tells it."""
    return re.findall(r"^weights on (\S+)$", log, re.MULTILINE)


def ended_with_the_chief(done):
    """Nobody but the chief ends by itself: the others serve it."""
    assert done.tasks.pop("chief:0") == "SUCCEEDED"
    assert done.tasks == {"ps:0": "STOPPED", "worker:0": "STOPPED", "worker:1": "STOPPED"}


def ended_by_themselves(done, steps):
    """Whoever is still about to leave when the chief has left counts as stopped."""
    assert done.tasks["worker:0"] == "SUCCEEDED"
    assert done.tasks["worker:1"] in ("SUCCEEDED", "STOPPED")
    for task in ("worker:0", "worker:1"):
        assert f"\nstopped at step {steps}\n" in done.log(task)


def a_copy_each(done):
    for task in (0, 1):
        [place] = places(done.log(f"worker:{task}"))
        assert place == f"/job:worker/replica:0/task:{task}/device:CPU:0"


def goes_on(done, jobs, steps):
    """Run the script by hand on the checkpoints at home; what each task said."""
    ports = iter(free_ports(sum(jobs.values())))
    cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(jobs[job])] for job in jobs}
    flags = [f"--checkpoint_dir={done.checkpoints}", f"--steps={steps}", "--save_steps=100"]
    words = [f"{done.recipe}.train", *flags]
    tasks = {
        (job, index): subprocess.Popen(
            [sys.executable, "-m", *words], cwd=done.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=told(cluster, job, index),
        )
        for job, addresses in cluster.items() for index in range(len(addresses))
    }  # fmt: skip
    lead = "chief" if "chief" in jobs else "worker"  # The others never end by themselves.
    leaders = [process for (job, _), process in tasks.items() if job == lead]
    try:
        said = [task.communicate(timeout=120)[0] for task in leaders]
    finally:
        for task in tasks.values():
            task.kill()
            task.wait()
    assert [task.returncode for task in leaders] == [0] * len(leaders), said
    return said


def the_second_takes_what_the_first_restores(done, serial):
    """It finds no checkpoint of its own."""
    first, second = goes_on(done, {"worker": 2}, steps=400)
    assert "restored step 300\n" in first
    assert "restored" not in second
    assert "\nstopped at step 400\n" in second
    accuracy, step = evaluated(done)
    assert step == 400
    assert accuracy >= serial.accuracy() - 0.04


def told(cluster, job, index):
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    return {**os.environ, **QUIET, "TF_CONFIG": json.dumps(config), "GRPC_FAIL_FAST": "use_caller"}


@pytest.fixture
def keras_2(monkeypatch):
    """Call it when a recipe's run is over: hosts.toml has told its tasks, nobody tells us."""
    return lambda: monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")


def test_parameter_servers_hold_a_keras_3_model(tmp_path, serial):
    done = run("ps_strategy", tmp_path)
    assert places(done.log("chief:0")) == [ON_PS]
    learned(done, serial, steps=600)
    ended_with_the_chief(done)
    [chief] = goes_on(done, {"chief": 1, "ps": 1, "worker": 1}, steps=650)
    assert "\nrestored step 600\nstep 650 loss 0.0" in chief
    assert evaluated(done)[1] == 650


def test_workers_mirror_a_keras_3_model(tmp_path, serial):
    done = run("multi_worker_mirrored", tmp_path)
    ended_by_themselves(done, steps=300)
    learned(done, serial, steps=300)
    a_copy_each(done)
    the_second_takes_what_the_first_restores(done, serial)


def test_devices_of_one_machine_mirror_a_keras_3_model(tmp_path, serial):
    done = run("mirrored", tmp_path)
    assert done.tasks == {"worker:0": "SUCCEEDED"}
    cpu = "/job:localhost/replica:0/task:0/device:CPU:"
    assert places(done.log("worker:0")) == [f"{cpu}0", f"{cpu}1"]
    learned(done, serial, steps=300)
    flags = [f"--checkpoint_dir={done.checkpoints}", "--steps=350", "--save_steps=50"]
    said = done.python("-m", "mirrored.train", *flags)
    assert "restored step 300\nstep 350 loss 0.0" in said


def test_fit_with_parameter_servers(tmp_path, serial, keras_2):
    done = run("keras_ps", tmp_path)
    assert places(done.log("chief:0")) == [ON_PS]
    keras_2()
    learned(done, serial, steps=600)
    ended_with_the_chief(done)


def test_fit_with_mirrored_workers(tmp_path, serial, keras_2):
    done = run("keras_multi_worker", tmp_path)
    ended_by_themselves(done, steps=300)
    a_copy_each(done)
    keras_2()
    learned(done, serial, steps=300)
    the_second_takes_what_the_first_restores(done, serial)


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ("ps_strategy", "nowhere holds no checkpoint: train first\n"),
        ("keras_ps", "fit needs tf_keras here, not Keras 3: set TF_USE_LEGACY_KERAS=1\n"),
    ],
)
def test_what_it_cannot_evaluate_it_says_in_one_sentence(recipe, sentence):
    words = [sys.executable, "-m", f"{recipe}.train", "--evaluate", "nowhere"]
    env = {**os.environ, **QUIET}
    done = subprocess.run(words, cwd=EXAMPLES, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, sentence)
