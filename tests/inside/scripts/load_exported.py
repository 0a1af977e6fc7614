"""Load a model that a cluster's coordinator has exported, with both loaders."""

import tensorflow as tf

module = tf.saved_model.load("exported")
print("eager", module.twice().numpy())
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    loaded = tf.compat.v1.saved_model.load(session, ["serve"], "exported")
    (output,) = loaded.signature_def["serving_default"].outputs.values()
    print("graph", session.run(output.name))
