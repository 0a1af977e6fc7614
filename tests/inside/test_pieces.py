"""Large checkpoints pass through the chief in pieces: files, values and memory."""

import pytest
from separate_machines import SCRIPTS, FreshCluster
from support import warm

pytestmark = pytest.mark.slow

# The model is 21 values in pieces of 4 MB, so that few of its 104 MB are in flight at any time.
# All at once would be 200 %: TensorFlow has each value twice, in a message and as a tensor.
AT_MOST_PERCENT = 60

READ = """
import sys
sys.path.insert(0, sys.argv[3])
import large, numpy as np, tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
for index in range(len(large.SHAPES)):
    value = reader.get_tensor(sys.argv[2].format(index))
    assert np.array_equal(value, large.expected(index)), index
print(len(reader.get_variable_to_shape_map()))
"""

LOAD = """
import sys
sys.path.insert(0, sys.argv[1])
import large, numpy as np, tensorflow as tf
last = len(large.SHAPES) - 1
loaded = tf.saved_model.load("exported")
assert np.array_equal(loaded.last(), large.expected(last))
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    signature = tf.compat.v1.saved_model.load(session, ["serve"], "exported").signature_def
    output, = signature["serving_default"].outputs.values()
    assert np.array_equal(session.run(output.name), large.expected(last))
"""


def shards(cluster, task, prefix):
    """Return the numbers of data files that complete checkpoints of this name have."""
    files = cluster.files(task)
    names = {f.rpartition("-")[2] for f in files if f.startswith(prefix + ".data-")}
    assert len(names) == 1, files
    count = int(names.pop())
    assert sum(f.startswith(prefix + ".data-") for f in files) == count
    return count


def read_without_tfdeploy(cluster, task, prefix, key):
    """Compare all values in another process; return how many the checkpoint has."""
    done = warm.run("-c", READ, prefix, key, SCRIPTS, cwd=cluster.home(task))
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


def growth(cluster, task, what):
    return int(cluster.logged(task, f"{what} grew by"))


DIFFERS = (
    "tfdeploy: a checkpoint passes through the chief at once: AttributeError: another TensorFlow"
)


def test_parameter_server_strategy_saves_and_restores_in_pieces(cluster):
    one = cluster(FreshCluster, ps=2, worker=1, chief=1)
    one.start("save_large_tf2.py", device="/job:chief/task:0/device:CPU:0")
    assert one.wait("chief-0") == [0], one.log("chief-0")[-3000:]
    assert shards(one, "chief-0", "model") > 20
    assert growth(one, "chief-0", "save") < AT_MOST_PERCENT
    assert growth(one, "chief-0", "restore") < AT_MOST_PERCENT
    key = "weights/{}/.ATTRIBUTES/VARIABLE_VALUE"
    assert read_without_tfdeploy(one, "chief-0", "model", key) > 20
    done = warm.run("-c", LOAD, SCRIPTS, cwd=one.home("chief-0"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert one.log("chief-0").count(DIFFERS) == 2
    # One for each machine, as TensorFlow does: the ps, and the chief for the table.
    assert shards(one, "chief-0", "whole") == shards(one, "chief-0", "chosen") == 3
    assert shards(one, "chief-0", "differs") == 3


def test_a_saver_saves_and_restores_in_pieces(cluster):
    one = cluster(FreshCluster, ps=2, worker=1)
    one.start("save_large_v1.py", device="/job:worker/task:0/device:CPU:0")
    assert one.wait("worker-0") == [0], one.log("worker-0")[-3000:]
    assert shards(one, "worker-0", "model-2") > 20
    assert growth(one, "worker-0", "save") < AT_MOST_PERCENT
    assert growth(one, "worker-0", "restore") < AT_MOST_PERCENT
    assert not any(f.startswith("model-1") for f in one.files("worker-0"))
    assert read_without_tfdeploy(one, "worker-0", "model-2", "weight{}") > 20
    assert shards(one, "worker-0", "whole") == shards(one, "worker-0", "differs") == 1
    assert one.log("worker-0").count(DIFFERS) == 2
