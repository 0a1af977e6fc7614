"""Which task this is, and what goes wrong in worker:1 as soon as ~/trouble exists."""

import json
import os
import socket
import time
from pathlib import Path

config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]


def listen():
    """Listen on the task's port, in place of a server of TensorFlow."""
    return socket.create_server(("", int(config["cluster"]["worker"][index].rpartition(":")[2])))


def is_in_trouble():
    return index == 1 and Path("~/trouble").expanduser().exists()


def pause():
    time.sleep(0.1)
