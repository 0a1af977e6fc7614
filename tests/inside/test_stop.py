"""On SIGTERM between two checkpoints, compat.v1 sessions save a last one before they end."""

import re
import signal
import time

import pytest
from separate_machines import SCRIPTS, environment
from support import tensors, warm
from support.waiting import until

pytestmark = pytest.mark.slow

CHIEF = "/job:worker/task:0/device:CPU:0"
TERMINATED = -signal.SIGTERM


class Training:
    """A process that runs the function `how` of scripts/stop_v1.py."""

    def __init__(self, home, inside, how, **more):
        self.home = home
        env = environment(inside, **more)
        self.process = warm.start(SCRIPTS / "stop_v1.py", how, cwd=home, **env)

    @property
    def output(self):
        return self.process.output + self.process.errors

    def wait_until_printed(self, start):
        def printed():
            assert self.process.poll() is None or start in self.output, self.output
            return re.search(f"^{start}", self.output, re.MULTILINE)

        until(printed, f"{start!r}", lambda: self.output)

    def stop(self):
        self.process.terminate()
        return self.end()

    def end(self):
        return self.process.wait()

    def last_step(self):
        """Read all tensors of the newest checkpoint, and return its step."""
        state = (self.home / "checkpoints" / "checkpoint").read_text()
        step = int(re.search(r'^model_checkpoint_path: ".*-(\d+)"', state, re.MULTILINE)[1])
        saved = tensors.read(self.home / "checkpoints")
        assert saved["global_step"] == step
        assert step <= saved["weight"] <= step + 1
        return step


@pytest.fixture
def training(tmp_path, inside):
    trainings = []

    def make(how, **more):
        trainings.append(Training(tmp_path, inside, how, **more))
        trainings[-1].wait_until_printed("trained to")
        return trainings[-1]

    yield make
    for one in trainings:
        one.process.kill()


def test_without_save_on_stop_no_checkpoint_is_saved_on_sigterm(training):
    one = training("asks_should_stop")
    assert one.stop() == TERMINATED
    assert one.last_step() == 0


@pytest.mark.parametrize(
    "how",
    ["asks_should_stop", "never_asks", "by_step_functions", "without_with", "two_sessions"],
)
def test_a_training_loop_of_any_shape_saves_and_ends_normally(training, how):
    one = training(how, TFDEPLOY_SAVE_ON_STOP="1")
    assert one.stop() == 0, one.output
    assert "SIGTERM: the session stops after this step" in one.output
    assert "ended normally" in one.output
    assert one.last_step() > 0


def test_an_iteration_of_two_runs_is_ended_between_them(training):
    one = training("two_runs_a_turn", TFDEPLOY_SAVE_ON_STOP="1")
    assert one.end() == 0, one.output
    assert one.last_step() == 2


def test_a_second_sigterm_ends_a_step_that_never_returns(training):
    one = training("hangs", TFDEPLOY_SAVE_ON_STOP="1")
    one.wait_until_printed("in the step")
    sent = 0
    while one.process.poll() is None:
        one.process.terminate()
        sent += 1
        time.sleep(0.2)
    assert (one.process.poll(), sent > 1) == (TERMINATED, True)


@pytest.mark.parametrize("how", ["has_its_own_handler", "gets_its_own_handler"])
def test_a_sigterm_handler_of_the_script_is_kept(training, how):
    one = training(how, TFDEPLOY_SAVE_ON_STOP="1")
    assert one.stop() == 7
    assert "tfdeploy: " not in one.output
    assert one.last_step() == 0


@pytest.mark.parametrize(
    "how", ["has_no_session_yet", "has_no_session_any_more", "lost_its_session"]
)
def test_sigterm_ends_a_process_without_a_session(training, how):
    one = training(how, TFDEPLOY_SAVE_ON_STOP="1")
    if how == "has_no_session_any_more":
        one.wait_until_printed("the session ended")
    assert one.stop() == TERMINATED
    assert "tfdeploy: " not in one.output


def test_a_session_of_another_thread_is_not_saved_and_a_line_says_so(training):
    one = training("in_a_thread", TFDEPLOY_SAVE_ON_STOP="1")
    assert one.stop() == TERMINATED
    assert re.search("^tfdeploy: a stop saves no last checkpoint: ValueError: ", one.output, re.M)


def test_sigterm_ends_a_forked_child_and_not_the_training(training):
    one = training("with_a_child", TFDEPLOY_SAVE_ON_STOP="1")
    assert "the children ended by {15}\n" in one.output
    assert one.stop() == 0, one.output
    assert one.last_step() > 1


def test_without_a_shared_disk_the_chief_saves_and_every_worker_ends(cluster):
    both = cluster(ps=1, worker=2)
    options = ("--steps=1000000000", "--save_every=1000000000", "--device_filters")
    # A worker that comes before the chief is ready would sleep for 30 seconds.
    for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
        env = {"device": CHIEF, "TFDEPLOY_SAVE_ON_STOP": "1"}
        both.start_task("train_v1.py", job, index, *options, **env)
        if job == "worker":
            both.wait_until_logged("trained to", f"worker-{index}")
    for task in ("worker-0", "worker-1"):
        both.processes[task].terminate()
    assert both.wait("worker-0", "worker-1") == [0, 0], both.log("worker-0")[-3000:]
    both.processes["ps-0"].terminate()
    assert both.wait("ps-0") == [TERMINATED]
    saved = {f for f in both.files("worker-0") if re.search(r"ckpt-[1-9]\d*\.index$", f)}
    assert len(saved) == 1
    assert both.files("ps-0") == both.files("worker-1") == set()
