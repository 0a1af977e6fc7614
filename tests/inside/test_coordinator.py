"""If a worker and a ps are lost at the same time, the coordinator's wait ends with the error."""

import pytest
from separate_machines import environment
from support import warm

pytestmark = pytest.mark.slow
# As cluster_coordinator.Worker does it: a step is taken, put back because its worker is gone, and
# then failed, because a ps is gone too.
SCRIPT = """
import threading
import tensorflow as tf
from tensorflow.python.distribute.coordinator import cluster_coordinator as lib

class Step:
    tag = None
    def mark_cancelled(self):
        pass

steps = lib._CoordinatedClosureQueue()
steps.put(Step())
def work():
    steps.put_back(steps.get())
    steps.mark_failed(tf.errors.UnavailableError(None, None, "the ps is gone"))
thread = threading.Thread(target=work)
thread.start()
thread.join()
try:
    print("waited:", steps.wait(timeout=1.0))
except tf.errors.UnavailableError as error:
    print("raised:", error.message)
"""


@pytest.mark.parametrize(
    ("env", "output"),
    [({"TFDEPLOY_END_AT_EXIT": "1"}, "raised: the ps is gone"), ({}, "waited: False")],
    ids=["patched", "TensorFlow alone"],
)
def test_a_step_that_fails_after_it_was_put_back_ends_the_wait(inside, tmp_path, env, output):
    done = warm.run("-c", SCRIPT, cwd=tmp_path, **environment(inside, **env))
    assert output in done.stdout, done.stdout + done.stderr
    assert "tfdeploy:" not in done.stderr
