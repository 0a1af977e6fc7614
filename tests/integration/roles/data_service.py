"""tf.data's service: a dispatcher, its workers, and a task that reads from them."""

import argparse

import tensorflow as tf

service = tf.data.experimental.service

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--job_name", choices=("dispatcher", "worker", "reader"), required=True)
parser.add_argument("--task_index", type=int, required=True)
parser.add_argument("--dispatcher_hosts", required=True)
parser.add_argument("--worker_hosts", required=True)
parser.add_argument("--reader_hosts", required=True)
given = parser.parse_args()
own = getattr(given, f"{given.job_name}_hosts").split(",")[given.task_index]
port = int(own.rpartition(":")[2])
if given.job_name == "dispatcher":
    service.DispatchServer(service.DispatcherConfig(port=port)).join()
elif given.job_name == "worker":
    config = service.WorkerConfig(given.dispatcher_hosts, worker_address=own, port=port)
    service.WorkerServer(config).join()
else:
    numbers = tf.data.Dataset.range(10).apply(
        service.distribute("parallel_epochs", f"grpc://{given.dispatcher_hosts}")
    )
    print("read", sorted(int(number) for number in numbers), flush=True)
