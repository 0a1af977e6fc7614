"""Loads in a process of its own, by both loaders, what a coordinator of a cluster has exported."""

import tensorflow as tf

module = tf.saved_model.load("exported")
print("eager", module.twice().numpy())
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.compat.v1.saved_model.load(session, ["serve"], "exported")
    print("graph", session.run(tf.compat.v1.global_variables()))
