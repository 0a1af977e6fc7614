"""A ParameterServerStrategy script without any tfdeploy code: save, change, restore, continue."""

import json
import os

import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if task["type"] != "chief":
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=task["type"], task_index=task["index"], protocol="grpc"
    ).join()

early = tf.train.CheckpointOptions()
strategy = tf.distribute.ParameterServerStrategy(
    resolver,
    tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=8, max_shards=2),
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
optimizer = tf.compat.v1.train.MomentumOptimizer(1.0, momentum=0.5)
checkpoint = tf.train.Checkpoint(optimizer=optimizer)
manager = tf.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)
# There are no variables yet: each is restored when it is created.
checkpoint.restore(manager.latest_checkpoint)

with strategy.scope():
    checkpoint.table = tf.Variable(tf.range(10.0))
    checkpoint.weight = tf.Variable(5.0)
    checkpoint.step = tf.Variable(0, dtype=tf.int64)
optimizer._create_slots([checkpoint.weight])
momentum = optimizer.get_slot(checkpoint.weight, "momentum")


def show(what):
    table = tf.convert_to_tensor(checkpoint.table).numpy().tolist()
    values = [v.numpy().item() for v in (checkpoint.step, checkpoint.weight, momentum)]
    print(what, *values, table, flush=True)


@tf.function
def train():
    checkpoint.weight.assign_add(1.0)
    momentum.assign_add(0.25)
    checkpoint.step.assign_add(1)


print("variables on", sorted(v.device for v in [checkpoint.weight, *checkpoint.table.variables]))
show("started at")
for _ in range(10):
    coordinator.schedule(train)
coordinator.join()
path = manager.save()
checkpoint.weight.assign(-1.0)
momentum.assign(-1.0)
checkpoint.table.assign(tf.zeros([10]))
checkpoint.restore(path).assert_existing_objects_matched()
show("restored")

written = checkpoint.write("written/model", options=early)
checkpoint.weight.assign(-1.0)
checkpoint.read(written, options=early).assert_existing_objects_matched()
show("read")


@tf.function
def write():
    return tf.train.Checkpoint(weight=checkpoint.weight, table=checkpoint.table).write("traced")


write()
module = tf.Module()
module.weight = checkpoint.weight
module.twice = tf.function(lambda: module.weight * 2.0, input_signature=[])
tf.saved_model.save(module, "exported", signatures=module.twice)
print("loaded", tf.saved_model.load("exported").weight.numpy())

on_ps = tf.train.CheckpointOptions(experimental_io_device="/job:ps/task:0/device:CPU:0")
checkpoint.write("chosen", options=on_ps)
