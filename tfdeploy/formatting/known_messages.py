"""Messages that a log often has: the noise of TensorFlow's start, what it repeats, and what others
mean.

The one table of them. Patterns are parts of lines that TensorFlow 2.x, CUDA and gRPC print, and
PyTorch 2.11 and JAX 0.11 on an H200. Pure, except for the clock that a NoiseFolder is given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

STARTUP_NOISE = re.compile(
    "|".join(
        (
            r"oneDNN custom operations are on",
            r"Unable to register cu\w+ factory",
            r"computation placer already registered",
            r"This TensorFlow binary is optimized (?:to use|with)",
            r"To enable the following instructions:|To enable them in other operations, rebuild",
            r"TF-TRT Warning: Could not find TensorRT",
            r"successful NUMA node read from SysFS had negative value",
            r"could not open file to read NUMA node",
            r"Your kernel may have been built without NUMA support",
            r"All log messages before absl::InitializeLog\(\) is called are written to STDERR",
            r"Failed to find bogomips or clock in /proc/cpuinfo",
            r"XLA service 0x\w+ initialized for platform",
            r"StreamExecutor device \(\d+\): ",
            r"Created device /job:\w+/replica:\d+/task:\d+/device:GPU",
            r"disabling MLIR crash reproducer",
        )
    )
)
# What TensorFlow repeats while all is well: ParameterServerStrategy at each step, datasets at each
# epoch, inputs that take much memory at each batch.
REPEATED_NOISE = re.compile(
    r"Ignoring error status when releasing multi-device function"
    r"|Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence"
    r"|exceeds \d{1,3}% of free system memory"
)

# Each: what the line contains, and what it means for the reader of the log.
MEANINGS = (
    (
        r"CreateSession still waiting for response from worker",
        "TensorFlow waits for the server of that task; tfdeploy status shows how the task is",
    ),
    (
        r"AbortedError|Session handle is not found|RecvTensor expects a different device "
        r"incarnation|Worker .{0,60} was restarted",
        "another task was restarted and has lost the session; this task has to create a new one",
    ),
    (
        r"OOM when allocating tensor|CUDA_ERROR_OUT_OF_MEMORY|ran out of memory trying to allocate|"
        r"CUDA out of memory|CUDA error: out of memory|Out of memory while trying to allocate",
        "the GPU's memory is full: use smaller batches; if another process uses this GPU (tfdeploy "
        "hosts), set TF_FORCE_GPU_ALLOW_GROWTH=true for TensorFlow",
    ),
    (
        r"CUDA error: device-side assert triggered",
        "the GPU got an index or a label that does not exist; CUDA_LAUNCH_BLOCKING=1 shows where",
    ),
    (
        r"Duplicate GPU detected",
        "two processes of the run use one GPU: gpus_per_worker = 1 gives each its own, as cuda:0",
    ),
    (
        r"\bMemoryError\b|std::bad_alloc|Cannot allocate memory",
        "the host's memory is full: use smaller batches or buffers, or fewer tasks on this host",
    ),
    (
        r"Loaded runtime CuDNN library: .{0,80}but source was compiled with",
        "this TensorFlow needs another version of cuDNN; tfdeploy check compares the hosts",
    ),
    (
        r"Failed to get convolution algorithm|Could not create cudnn handle|"
        r"CUDNN_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED)",
        "cuDNN did not start: usually the GPU's memory is full (TF_FORCE_GPU_ALLOW_GROWTH=true), "
        "or its version does not fit TensorFlow",
    ),
    (
        r"CUDA driver version is insufficient|CUDA_ERROR_UNSUPPORTED_PTX_VERSION|"
        r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|forward compatibility was attempted",
        "NVIDIA's driver is too old for this CUDA; tfdeploy check shows both versions",
    ),
    (
        r"Could not find cuda drivers on your machine|Cannot dlopen some GPU libraries|"
        r"CUDA_ERROR_NO_DEVICE|no CUDA-capable device is detected|No CUDA GPUs are available|"
        r"Torch not compiled with CUDA enabled|CUDA-enabled jaxlib is not installed",
        "this task uses no GPU; if its host has one, tfdeploy check says why it is not found",
    ),
    (
        r"Address already in use|Could not start gRPC server|Failed to bind to address",
        'another process has the port; tfdeploy check names it, ports = "auto" takes free ones',
    ),
    (
        r"failed to connect to all addresses|Socket closed|Connection reset by peer",
        "a connection to another task has ended; tfdeploy status shows how the tasks are",
    ),
    (
        r"NaN loss during training|Model diverged with loss = NaN",
        "the loss is not a number: the learning rate may be too high, or the data have such values",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "the host's disk is full; tfdeploy prune deletes old runs",
    ),
    (
        # A path in the task's directory: relative, or below runs/.
        r"Permission denied: '(?:[^/']|/[^']*/runs/[^']*/work/)",
        "data sets are read-only on the hosts, and so is what does not fit into a task's copy of "
        "the source; write into another folder of the task's directory",
    ),
    (
        r"Key \S+ not found in checkpoint|Assign requires shapes of both tensors to match",
        "the checkpoint was saved by another model: use a new checkpoint directory for this one",
    ),
)
_KNOWN = re.compile("|".join(f"({pattern})" for pattern, _ in MEANINGS))
ABOUT_GPUS = re.compile("GPU|CUDA|cuDNN")  # in the meanings
W = TypeVar("W")
COUNT_S = 30.0  # between two lines with a count


def is_startup_noise(line: str) -> bool:
    """Return whether TensorFlow prints such a line at every start, whatever the program does."""
    return STARTUP_NOISE.search(line) is not None


def repeated_noise(line: str) -> str:
    """Return what TensorFlow says in a line that it repeats while all is well; "" for any other."""
    match = REPEATED_NOISE.search(line)
    return match[0] if match else ""


def is_noise(line: str) -> bool:
    """Return whether TensorFlow prints such a line whatever the program does."""
    return is_startup_noise(line) or bool(repeated_noise(line))


def meaning(line: str) -> str:
    """Return what a known message means; "" for any other line."""
    match = _KNOWN.search(line)
    return MEANINGS[match.lastindex - 1][1] if match and match.lastindex else ""


def first_meaning(lines: Iterable[str], *, has_gpus: bool) -> str:
    """Return what the first known message of a log means; "" if there is none. Messages about GPUs
    count only if the task has any."""
    found = filter(None, map(meaning, lines))
    return next((text for text in found if has_gpus or not ABOUT_GPUS.search(text)), "")


@dataclass
class _Repeated:
    shown_at: float
    hidden: int = 0


class NoiseFolder(Generic[W]):
    """The repeated lines of each writer, for example of each task. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._repeated: dict[tuple[W, str], _Repeated] = {}

    def fold(self, writer: W, line: str) -> str | None:
        """Return what to show for a line: the line itself, a line with the count of those that were
        hidden, or None."""
        noise = repeated_noise(line)
        if not noise:
            return line
        now = self._clock()
        repeated = self._repeated.get((writer, noise))
        if repeated is None:
            self._repeated[writer, noise] = _Repeated(now)
            return line
        repeated.hidden += 1
        return _take_count(noise, repeated, now) if now - repeated.shown_at > COUNT_S else None

    def take_hidden(self) -> Iterator[tuple[W, str]]:
        """Yield each writer with the count of its lines that were hidden since the last count."""
        now = self._clock()
        for (writer, noise), repeated in self._repeated.items():
            if repeated.hidden:
                yield writer, _take_count(noise, repeated, now)


def _take_count(noise: str, repeated: _Repeated, now: float) -> str:
    count = format_count(repeated.hidden, "more line")
    repeated.hidden, repeated.shown_at = 0, now
    return f"{noise} … ({count} like this)"
