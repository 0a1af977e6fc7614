"""TensorFlow 2's strategies, trained on this machine: they learn, and resume."""

from __future__ import annotations

import json
import re

import pytest
from support import warm
from support.ports import free_ports
from support.recipes import EXAMPLES

from examples.forks import train
from tfdeploy.branches.measuring import scalars

pytestmark = pytest.mark.slow

ON_PS = "/job:ps/replica:0/task:0/device:CPU:0"


def evaluated(done):
    """Return the accuracy and the step of the newest collected checkpoint."""
    output = done.python("-m", f"{done.recipe}.train", "--evaluate", str(done.checkpoints))
    accuracy, step = re.fullmatch(r"test accuracy (\S+) at step (\d+)\n", output).groups()
    return float(accuracy), int(step)


def assert_learned(done, serial, steps):
    """Check that it learned nearly what one process learns, and that its loss was collected."""
    accuracy, step = evaluated(done)
    assert step == steps
    assert accuracy >= serial.accuracy() - 0.04
    loss = scalars.read_events(done.collected)["loss"]
    assert loss[-1].step == steps
    assert loss[-1].value < min(0.2, loss[0].value / 2)


def places(log):
    """Return the devices of the weights that a log names."""
    return re.findall(r"^weights on (\S+)$", log, re.MULTILINE)


def assert_ended_with_the_chief(done):
    """Check that only the chief ended by itself: the others serve it."""
    assert done.tasks.pop("chief:0") == "SUCCEEDED"
    assert done.tasks == {"ps:0": "STOPPED", "worker:0": "STOPPED", "worker:1": "STOPPED"}


def assert_ended_by_themselves(done, steps):
    """Check that all ended; a worker that exits after the chief may be stopped."""
    assert done.tasks["worker:0"] == "SUCCEEDED"
    assert done.tasks["worker:1"] in ("SUCCEEDED", "STOPPED")
    for task in done.ended_workers():
        assert f"\nstopped at step {steps}\n" in done.log(task)


def assert_a_copy_each(done):
    for task in (0, 1):
        [place] = places(done.log(f"worker:{task}"))
        assert place == f"/job:worker/replica:0/task:{task}/device:CPU:0"


def resume_by_hand(done, jobs, steps):
    """Run the script without tfdeploy on the collected checkpoints; return the leaders' output."""
    ports = iter(free_ports(sum(jobs.values())))
    cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(jobs[job])] for job in jobs}
    flags = [f"--checkpoint_dir={done.checkpoints}", f"--steps={steps}", "--save_steps=100"]
    words = [f"{done.recipe}.train", *flags]
    tasks = {
        (job, index): warm.start(
            "-m", *words, cwd=done.folder, **task_environment(cluster, job, index)
        )
        for job, addresses in cluster.items()
        for index in range(len(addresses))
    }
    lead = "chief" if "chief" in jobs else "worker"  # The others never end by themselves.
    leaders = [task for (job, _), task in tasks.items() if job == lead]
    try:
        codes = [task.wait() for task in leaders]
    finally:
        for task in tasks.values():
            task.kill()
            task.wait()
    outputs = [task.output for task in leaders]
    assert codes == [0] * len(leaders), (outputs, [task.errors for task in leaders])
    return outputs


def assert_the_second_gets_the_weights_of_the_first(done, serial):
    """The second worker finds no checkpoint of its own."""
    first, second = resume_by_hand(done, {"worker": 2}, steps=400)
    assert "restored step 300\n" in first
    assert "restored" not in second
    assert "\nstopped at step 400\n" in second
    accuracy, step = evaluated(done)
    assert step == 400
    assert accuracy >= serial.accuracy() - 0.04


def task_environment(cluster, job, index):
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    return {"TF_CONFIG": json.dumps(config), "GRPC_FAIL_FAST": "use_caller"}


@pytest.fixture
def keras_2(monkeypatch):
    """Return a function that selects Keras 2 for this process, after the recipe's run."""
    return lambda: monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")


def test_parameter_servers_hold_a_keras_3_model(tmp_path, serial):
    done = train("ps_strategy", tmp_path)
    assert places(done.log("chief:0")) == [ON_PS]
    assert_learned(done, serial, steps=600)
    assert_ended_with_the_chief(done)
    [chief] = resume_by_hand(done, {"chief": 1, "ps": 1, "worker": 1}, steps=650)
    assert "\nrestored step 600\nstep 650 loss 0.0" in chief
    assert evaluated(done)[1] == 650


def test_workers_mirror_a_keras_3_model(tmp_path, serial):
    done = train("multi_worker_mirrored", tmp_path)
    assert_ended_by_themselves(done, steps=300)
    assert_learned(done, serial, steps=300)
    assert_a_copy_each(done)
    assert_the_second_gets_the_weights_of_the_first(done, serial)


def test_devices_of_one_machine_mirror_a_keras_3_model(tmp_path, serial):
    done = train("mirrored", tmp_path)
    assert done.tasks == {"worker:0": "SUCCEEDED"}
    cpu = "/job:localhost/replica:0/task:0/device:CPU:"
    assert places(done.log("worker:0")) == [f"{cpu}0", f"{cpu}1"]
    assert_learned(done, serial, steps=300)
    flags = [f"--checkpoint_dir={done.checkpoints}", "--steps=350", "--save_steps=50"]
    output = done.python("-m", "mirrored.train", *flags)
    assert "restored step 300\nstep 350 loss 0.0" in output


def test_fit_with_parameter_servers(tmp_path, serial, keras_2):
    done = train("keras_ps", tmp_path)
    assert places(done.log("chief:0")) == [ON_PS]
    keras_2()
    assert_learned(done, serial, steps=600)
    assert_ended_with_the_chief(done)


def test_fit_with_mirrored_workers(tmp_path, serial, keras_2):
    done = train("keras_multi_worker", tmp_path)
    assert_ended_by_themselves(done, steps=300)
    assert_a_copy_each(done)
    keras_2()
    assert_learned(done, serial, steps=300)
    assert_the_second_gets_the_weights_of_the_first(done, serial)


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ("ps_strategy", "nowhere holds no checkpoint: train first\n"),
        ("keras_ps", "fit needs tf_keras here, not Keras 3: set TF_USE_LEGACY_KERAS=1\n"),
    ],
)
def test_evaluation_fails_with_one_sentence(recipe, sentence):
    done = warm.run("-m", f"{recipe}.train", "--evaluate", "nowhere", cwd=EXAMPLES)
    assert (done.returncode, done.stderr) == (1, sentence)
