"""absl's flags, as tf.app.flags: the script exits with 1 on an unknown flag."""

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
