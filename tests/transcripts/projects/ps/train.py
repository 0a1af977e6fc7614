"""Learn y = x0 - 2 x1 + 3 x2 with ParameterServerStrategy and a training loop."""

import tensorflow as tf

cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if cluster.task_type in ("ps", "worker"):
    server = tf.distribute.Server(cluster.cluster_spec(), cluster.task_type, cluster.task_id)
    server.join()

strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros([3, 1]))
checkpoints = tf.train.CheckpointManager(
    tf.train.Checkpoint(weights=weights), "checkpoints", max_to_keep=3
)


@tf.function
def train_step():
    x = tf.random.normal([64, 3])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - x @ [[1.0], [-2.0], [3.0]]) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


for step in range(50, 201, 50):
    losses = [coordinator.schedule(train_step) for _ in range(50)]
    coordinator.join()
    print(f"step {step} loss {losses[-1].fetch():.4f}", flush=True)
    checkpoints.save(step)
