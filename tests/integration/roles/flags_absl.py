"""absl's flags, as tf.app.flags were: a flag that it doesn't know ends it with 1."""

import json

from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_enum("job_name", None, ["ps", "worker"], "", required=True)
flags.DEFINE_integer("task_index", None, "", required=True)
flags.DEFINE_list("ps_hosts", None, "", required=True)
flags.DEFINE_list("worker_hosts", None, "", required=True)


def main(rest):
    assert len(rest) == 1, rest
    me = [FLAGS.job_name, FLAGS.task_index]
    print(json.dumps({"me": me, "ps": FLAGS.ps_hosts, "workers": FLAGS.worker_hosts}))


app.run(main)
