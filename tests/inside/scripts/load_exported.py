"""Loads in a process of its own, by both loaders, what a coordinator of a cluster has exported."""

import tensorflow as tf

module = tf.saved_model.load("exported")
print("eager", module.twice().numpy())
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    loaded = tf.compat.v1.saved_model.load(session, ["serve"], "exported")
    (output,) = loaded.signature_def["serving_default"].outputs.values()
    print("graph", session.run(output.name))
