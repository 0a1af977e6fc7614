"""Stand in for a TensorFlow script: open a port, save checkpoints, and misbehave on request."""

import argparse
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts", default="")
parser.add_argument("--worker_hosts", default="")
parser.add_argument("--checkpoint_dir", default="checkpoints")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--hold", action="store_true", help="keep running after the last step")
parser.add_argument("--gate", action="store_true", help="exit only when the file `go` exists")
parser.add_argument("--who", help="the only task that misbehaves, such as worker:1")
parser.add_argument("--exit", type=int, default=0)
parser.add_argument(
    "--broken", action="store_true", help="exit immediately, as after a failing import"
)
parser.add_argument("--deaf", metavar="TASK", help="this task never opens its port")
parser.add_argument("--impostor", metavar="TASK", help="this task answers as another task")
parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM, and start children")
parser.add_argument(
    "--dump", action="store_true", help="write arguments and environment to dump.json"
)
parser.add_argument("words", nargs="*")
FLAGS = parser.parse_args()

if FLAGS.job_name:
    JOB, INDEX = FLAGS.job_name, FLAGS.task_index
    CLUSTER = {"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")}
else:
    config = json.loads(os.environ["TF_CONFIG"])
    JOB, INDEX = config["task"]["type"], config["task"]["index"]
    CLUSTER = config["cluster"]
TASK = f"{JOB}:{INDEX}"
BAD = FLAGS.who in (None, TASK)
CHECKPOINTS = Path(FLAGS.checkpoint_dir)


def main():
    print(f"{TASK} starts", flush=True)
    if FLAGS.dump:
        found = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}
        Path("dump.json").write_text(json.dumps({**found, "files": sorted(os.listdir())}))
    if FLAGS.broken and BAD:
        sys.exit("ImportError: no module named nothing")
    if FLAGS.stubborn and BAD:
        ignore_sigterm()
    if FLAGS.deaf != TASK:
        serve()
    if JOB == "ps" or FLAGS.deaf == TASK:
        wait_forever()
    train()
    if FLAGS.hold:
        wait_forever()
    while FLAGS.gate and not Path("go").exists():
        time.sleep(0.02)
    sys.exit(FLAGS.exit if BAD else 0)


def serve():
    """Answer GetStatus with the task's name, as TensorFlow's server does.

    By hand: each start would take three times as long with gRPC. train_stub.py has a real server.
    """
    port = int(CLUSTER[JOB][INDEX].rpartition(":")[2])
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    server = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
    threading.Thread(target=accept, args=(server,), daemon=True).start()


def accept(server):
    while True:
        threading.Thread(target=answer, args=server.accept()[:1], daemon=True).start()


def answer(client):
    """Send SETTINGS, the status 200 and one message, whatever was asked (RFC 9113, RFC 7541)."""
    index = INDEX + 5 if FLAGS.impostor == TASK else INDEX
    name = f"/job:{JOB}/replica:0/task:{index}/device:CPU:0".encode()
    message = b"\0" + struct.pack(">I", len(name)) + name
    with suppress(ConnectionError), client:
        client.recv(4096)
        client.sendall(frame(4, 0, 0, b"") + frame(1, 4, 1, b"\x88") + frame(0, 0, 1, message))
        client.recv(4096)  # the client closes first, so that it loses nothing


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def train():
    is_chief = JOB == "chief" or (INDEX == 0 and "chief" not in CLUSTER)
    if is_chief:
        CHECKPOINTS.mkdir(parents=True, exist_ok=True)
        (CHECKPOINTS / "events.out.tfevents.1.host").write_bytes(b"events")
    for step in range(1, FLAGS.steps + 1):
        print(f"{TASK} step {step}", flush=True)
        if is_chief:
            save(step)
        time.sleep(0.02)


def save(step):
    """Write data, index, meta, then the state file with absolute paths, as TensorFlow 1 does."""
    name = f"model.ckpt-{step}"
    for suffix in ("data-00000-of-00001", "index", "meta"):
        (CHECKPOINTS / f"{name}.{suffix}").write_text(f"{suffix} of step {step}\n")
    lines = [f'model_checkpoint_path: "{escaped(CHECKPOINTS / name)}"']
    for number in range(1, step + 1):
        path = escaped(CHECKPOINTS / f"model.ckpt-{number}")
        lines.append(f'all_model_checkpoint_paths: "{path}"')
    temporary = CHECKPOINTS / "checkpoint.new"
    temporary.write_text("\n".join(lines) + "\n")
    temporary.replace(CHECKPOINTS / "checkpoint")


def escaped(path):
    return str(path.absolute()).replace("\\", "\\\\").replace('"', '\\"')


def ignore_sigterm():
    """Ignore SIGTERM, and start a child in this session and one in its own session."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    pids = [subprocess.Popen(sleep, start_new_session=own).pid for own in (False, True)]
    Path("children.json").write_text(json.dumps([os.getpid(), *pids]))


def wait_forever():
    while True:
        signal.pause()


main()
