"""SIGTERM in mid-interval: compat.v1 sessions save a last checkpoint, and all else is as before."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from separate_machines import LIMIT_S, SCRIPTS, environment

pytestmark = pytest.mark.slow

CHIEF = "/job:worker/task:0/device:CPU:0"
TERMINATED = -signal.SIGTERM


class Training:
    """One process that trains as the script's function of that name does."""

    def __init__(self, home, inside, how, **more):
        self.home, self.said = home, ""
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(SCRIPTS / "stop_v1.py"), how],
            cwd=home,
            env=environment(inside, **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # with all of its children
        )

    def wait_until_said(self, what):
        for line in self.process.stdout:
            self.said += line
            if line.startswith(what):
                return
        pytest.fail(self.said)

    def stop(self):
        self.process.terminate()
        return self.end()

    def end(self):
        self.said += self.process.communicate(timeout=LIMIT_S)[0]
        return self.process.returncode

    def last_step(self):
        """The step of the newest checkpoint, whose every tensor is read."""
        import tensorflow as tf

        path = tf.train.latest_checkpoint(str(self.home / "checkpoints"))
        reader = tf.train.load_checkpoint(path)
        step = int(path.rpartition("-")[2])
        assert reader.get_tensor("global_step") == step
        assert step <= reader.get_tensor("weight") <= step + 1
        return step


@pytest.fixture
def training(tmp_path, inside):
    made = []

    def make(how, **more):
        made.append(Training(tmp_path, inside, how, **more))
        made[-1].wait_until_said("trained to")
        return made[-1]

    yield make
    for one in made:
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.communicate()


def test_without_being_asked_for_all_since_the_last_checkpoint_is_lost(training):
    one = training("asks_should_stop")
    assert one.stop() == TERMINATED
    assert one.last_step() == 0


@pytest.mark.parametrize(
    "how",
    ["asks_should_stop", "never_asks", "by_step_functions", "without_with", "two_sessions"],
)
def test_a_loop_of_any_shape_saves_and_ends_as_the_script_does(training, how):
    one = training(how, TFDEPLOY_SAVE_ON_STOP="1")
    assert one.stop() == 0, one.said
    assert "SIGTERM: the session stops after this step" in one.said
    assert "ends as ever" in one.said
    assert one.last_step() > 0


def test_a_turn_of_two_runs_is_left_between_them(training):
    one = training("two_runs_a_turn", TFDEPLOY_SAVE_ON_STOP="1")
    assert one.end() == 0, one.said
    assert one.last_step() == 2


def test_a_second_signal_ends_even_a_step_that_never_returns(training):
    one = training("hangs", TFDEPLOY_SAVE_ON_STOP="1")
    one.wait_until_said("in the step")
    until = time.monotonic() + LIMIT_S
    sent = 0
    while one.process.poll() is None and time.monotonic() < until:
        one.process.terminate()
        sent += 1
        time.sleep(0.2)
    assert (one.process.poll(), sent > 1) == (TERMINATED, True)


@pytest.mark.parametrize("how", ["has_its_own_handler", "gets_its_own_handler"])
def test_a_handler_of_the_script_wins(training, how):
    one = training(how, TFDEPLOY_SAVE_ON_STOP="1")
    assert one.stop() == 7
    assert "tfdeploy" not in one.said
    assert one.last_step() == 0


@pytest.mark.parametrize(
    "how", ["has_no_session_yet", "has_no_session_any_more", "lost_its_session"]
)
def test_a_process_without_a_session_ends_as_ever(training, how):
    one = training(how, TFDEPLOY_SAVE_ON_STOP="1")
    if how == "has_no_session_any_more":
        one.wait_until_said("the session ended")
    assert one.stop() == TERMINATED
    assert "tfdeploy" not in one.said


def test_a_session_made_in_a_thread_is_not_saved_and_that_is_said(training):
    one = training("in_a_thread", TFDEPLOY_SAVE_ON_STOP="1")
    assert one.stop() == TERMINATED
    assert re.search("^tfdeploy: a stop saves no last checkpoint: ValueError: ", one.said, re.M)


def test_a_forked_child_ends_and_the_training_goes_on_until_it_is_asked(training):
    one = training("with_a_child", TFDEPLOY_SAVE_ON_STOP="1")
    assert "the children ended by {15}\n" in one.said
    assert one.stop() == 0, one.said
    assert one.last_step() > 1


def test_on_machines_that_share_no_disk_the_chief_saves_and_every_worker_ends(cluster):
    both = cluster(ps=1, worker=2)
    options = ("--steps=1000000000", "--save_every=1000000000", "--device_filters")
    # A worker that comes before the chief is ready would sleep for 30 seconds.
    for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
        told = {"device": CHIEF, "TFDEPLOY_SAVE_ON_STOP": "1"}
        both.start_task("train_v1.py", job, index, *options, **told)
        if job == "worker":
            both.wait_until_said("trained to", f"worker-{index}")
    for task in ("worker-0", "worker-1"):
        both.processes[task].terminate()
    assert both.wait("worker-0", "worker-1") == [0, 0], both.log("worker-0")[-3000:]
    both.processes["ps-0"].terminate()
    assert both.wait("ps-0") == [TERMINATED]
    saved = {f for f in both.files("worker-0") if re.search(r"ckpt-[1-9]\d*\.index$", f)}
    assert len(saved) == 1
    assert both.files("ps-0") == both.files("worker-1") == set()
