"""Other ways to save in compat.v1: savers, exports, a local graph."""

import argparse
import os

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
flags = parser.parse_args()

cluster = tf.train.ClusterSpec(
    {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
)
server = tf1.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
if flags.job_name == "ps":
    server.join()


def build(**saver_options):
    first = tf1.get_variable("first", initializer=tf.constant([1.0, 2.0]))
    with tf1.device("/device:CPU:1") if saver_options.get("apart") else tf1.device(None):
        second = tf1.get_variable("second", initializer=tf.constant(3.0))
    return first, second


def in_cluster():
    with tf1.Graph().as_default(), tf1.device(tf1.train.replica_device_setter(cluster=cluster)):
        first, second = build()
        saver = tf1.train.Saver(sharded=True)
        objects = tf1.train.Checkpoint(first=first, second=second)
        with tf1.Session(server.target) as session:
            session.run(tf1.global_variables_initializer())
            saver.save(session, "explicit/model")
            path = objects.save("objects/ckpt", session=session)
            session.run([first.assign([0.0, 0.0]), second.assign(0.0)])
            objects.restore(path).assert_consumed().run_restore_ops(session)
            print("objects restored", *session.run([first, second]))
            session.run([first.assign([0.0, 0.0]), second.assign(0.0)])
            saver.restore(session, "explicit/model")
            print("saver restored", *session.run([first, second]))
            builder = tf1.saved_model.Builder("exported")
            builder.add_meta_graph_and_variables(session, ["serve"], clear_devices=True)
            builder.save()


def meta_graph_in_local_session():
    with tf1.Graph().as_default(), tf1.Session() as session:
        tf1.train.import_meta_graph("explicit/model.meta", clear_devices=True).restore(
            session, "explicit/model"
        )
        print("meta graph restored", *session.run(tf1.global_variables()[:2]))
    with tf1.Graph().as_default(), tf1.Session() as session:
        tf1.saved_model.load(session, ["serve"], "exported")
        print("saved model loaded", *session.run(tf1.global_variables()[:2]))


def meta_graph_in_cluster():
    with tf1.Graph().as_default(), tf1.Session(server.target) as session:
        saver = tf1.train.import_meta_graph("explicit/model.meta")
        saver.restore(session, "explicit/model")
        saver.save(session, "imported/model", write_meta_graph=False)


def local():
    two_cpus = tf1.ConfigProto(device_count={"CPU": 2})
    with tf1.Graph().as_default(), tf1.Session(config=two_cpus) as session:
        build(apart=True)
        saver = tf1.train.Saver(sharded=True)
        session.run(tf1.global_variables_initializer())
        os.mkdir("local")  # a sharded saver creates only the last directory of its path
        saver.save(session, "local/model")


for save in (in_cluster, meta_graph_in_local_session, meta_graph_in_cluster, local):
    save()
