"""A compat.v1 training script without any tfdeploy code: every step adds one."""

import argparse

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
parser.add_argument("--steps", type=int)
parser.add_argument("--save_every", type=int, default=5)
parser.add_argument("--device_filters", action="store_true")
flags = parser.parse_args()

cluster = tf.train.ClusterSpec(
    {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
)
server = tf1.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
if flags.job_name == "ps":
    server.join()

me = f"/job:worker/task:{flags.task_index}"
with tf1.device(tf1.train.replica_device_setter(cluster=cluster, worker_device=me)):
    step = tf1.train.get_or_create_global_step()
    weights = tf1.get_variable("weights", initializer=tf.zeros([10]))
    table = tf1.get_variable(
        "table",
        shape=[5, 2],
        initializer=tf1.zeros_initializer(),
        partitioner=tf1.fixed_size_partitioner(2),
    )
    ones = [part.assign_add(tf.ones_like(part)) for part in [weights, *table]]
    with tf1.control_dependencies([tf1.group(*ones)]):
        train = step.assign_add(1)

print("variables on", sorted({part.device for part in [weights, step, *table]}), flush=True)
with tf1.train.MonitoredTrainingSession(
    master=server.target,
    is_chief=flags.task_index == 0,
    checkpoint_dir="checkpoints",
    save_checkpoint_steps=flags.save_every,
    hooks=[tf1.train.StopAtStepHook(last_step=flags.steps)],
    config=tf1.ConfigProto(device_filters=["/job:ps", me] if flags.device_filters else []),
) as session:
    print("started at", session.run(step), flush=True)
    if not session.should_stop():  # a late worker may find all steps done
        print("trained to", session.run(train), flush=True)
    while not session.should_stop():
        session.run(train)
