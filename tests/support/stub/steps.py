"""A trainer with a known speed: 40 steps per second and worker, and at most 60 per second and ps.

The chief writes its steps to its log and to an event file in TensorFlow's format.
"""

import argparse
import pathlib
import socket
import struct
import sys
import time
from contextlib import suppress

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts", default="")
parser.add_argument("--worker_hosts", default="")
parser.add_argument("--ends", type=float, default=3600.0, help="seconds until the task exits")
parser.add_argument(
    "--breaks", type=int, help="the number of workers with which the last one fails"
)
parser.add_argument("--silent", action="store_true", help="report no steps")
parser.add_argument("--no-events", action="store_true", help="write steps only to the log")
parser.add_argument("--coarse", action="store_true", help="report only the first step")
FLAGS = parser.parse_args()
PS, WORKERS = (hosts.split(",") for hosts in (FLAGS.ps_hosts, FLAGS.worker_hosts))
PACE = min(40 * len(WORKERS), 60 * len(PS) if FLAGS.ps_hosts else 1000)
IS_CHIEF = (FLAGS.job_name, FLAGS.task_index) == ("worker", 0)


def main():
    own = (PS if FLAGS.job_name == "ps" else WORKERS)[FLAGS.task_index]
    server = socket.create_server(("", int(own.rpartition(":")[2])))  # ready = "port" needs no more
    server.settimeout(0.1)
    start_s, events = time.monotonic(), open_events() if IS_CHIEF else None
    reported = False
    while time.monotonic() < start_s + FLAGS.ends or FLAGS.job_name == "ps":
        accept(server)
        step = int(PACE * (time.monotonic() - start_s))
        if IS_CHIEF and not FLAGS.silent and not (FLAGS.coarse and reported):
            print(f"step {0 if FLAGS.coarse else step} loss {1 / (1 + step):.3f}", flush=True)
            if not FLAGS.no_events:
                write_event(events, 0 if FLAGS.coarse else step)
            reported = True
        if FLAGS.breaks == len(WORKERS) == FLAGS.task_index + 1 and FLAGS.job_name == "worker":
            time.sleep(1.0)
            sys.exit("it is broken")


def accept(server):
    with suppress(TimeoutError):
        server.accept()[0].close()


def open_events():
    folder = pathlib.Path("checkpoints")
    folder.mkdir(exist_ok=True)
    return (folder / f"events.out.tfevents.{time.time():.0f}.stub").open("ab", buffering=0)


def write_event(events, step):
    """Write one scalar. Format: event.proto, summary.proto, and record_writer.h for the record."""
    value = b"\x0a\x04loss" + b"\x15" + struct.pack("<f", 1 / (1 + step))
    summary = b"\x0a" + bytes([len(value)]) + value
    event = b"\x09" + struct.pack("<d", time.time())
    event += b"\x10" + varint(step) + b"\x2a" + bytes([len(summary)]) + summary
    length = struct.pack("<Q", len(event))
    events.write(length + struct.pack("<I", masked_crc(length)) + event + b"\0" * 4)


def varint(number):
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


main()
