"""TensorFlow's messages: what is noise, what repeats, and what others mean."""

from __future__ import annotations

import pytest

from tfdeploy.formatting.known_messages import (
    COUNT_S,
    NoiseFolder,
    first_meaning,
    is_startup_noise,
    meaning,
)

NOISE = """
2026-11-23 02:53:16.1: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on. You may
E0000 00:00:1732330396.1 4711 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to
E0000 00:00:1732330396.1 4711 cuda_blas.cc:1418] Unable to register cuBLAS factory: Attempting to
2026-11-23 02:53:16.1: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary \
is optimized to use available CPU instructions in performance-critical operations.
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the
2026-11-23 02:53:16.1: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: \
Could not find TensorRT
I0000 00:00:1 4711 cuda_executor.cc:1015] successful NUMA node read from SysFS had negative value \
(-1), but there must be at least one NUMA node
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
""".strip().splitlines()

MEANT = [
    ("I tensorflow/core/distributed_runtime/master.cc:270] CreateSession still waiting for "
     "response from worker: /job:worker/replica:0/task:1", "waits for the server"),
    ("tensorflow.python.framework.errors_impl.AbortedError: Session 3f was aborted", "restarted"),
    ("ResourceExhaustedError: OOM when allocating tensor with shape[64,1024]", "GPU's memory"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.00 GiB. GPU 0 has", "GPU's"),
    ("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
     "300.00GiB with allocator GPU_0_bfc on device 0.", "GPU's memory"),
    ("torch.AcceleratorError: CUDA error: device-side assert triggered", "does not exist"),
    ("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60", "gpus_per_worker"),
    ("RuntimeError: No CUDA GPUs are available", "uses no GPU"),
    ("An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed.",
     "uses no GPU"),
    ("failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY", "GPU's"),
    ("UnknownError: Failed to get convolution algorithm. This is probably because cuDNN", "cuDNN"),
    ("Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.6.0.", "another version"),
    ("CUDA driver version is insufficient for CUDA runtime version", "driver is too old"),
    ("OSError: [Errno 98] Address already in use", "has the port"),
    ("Could not find cuda drivers on your machine, GPU will not be used.", "uses no GPU"),
    ("OSError: [Errno 28] No space left on device", "tfdeploy prune"),
    ("MemoryError", "host's memory"),
    ("PermissionError: [Errno 13] Permission denied: 'data/mnist/cache.npy'", "read-only"),
    ("PermissionError: [Errno 13] Permission denied: "
     "'/home/ann/.tfdeploy/p/runs/1/worker-0/work/data/mnist/cache.npy'", "read-only"),
]  # fmt: skip


@pytest.mark.parametrize("line", NOISE)
def test_the_noise_of_a_start_is_recognized(line):
    assert is_startup_noise(line)
    assert meaning(line) == ""


@pytest.mark.parametrize(("line", "part"), MEANT)
def test_a_known_message_has_a_meaning(line, part):
    assert part in meaning(line)
    assert not is_startup_noise(line)


@pytest.mark.parametrize("line", ["", "step 5 loss 0.1", "MyMemoryErrors: 3", "registered cuDNN"])
def test_any_other_line_has_none(line):
    assert (meaning(line), is_startup_noise(line)) == ("", False)


def test_the_first_known_message_explains_a_log():
    in_use = next(line for line, _ in MEANT if "Address already in use" in line)
    log = ["step 1", MEANT[2][0], in_use]
    assert "GPU's memory" in first_meaning(log, has_gpus=True)
    assert "has the port" in first_meaning(log, has_gpus=False)
    assert first_meaning(["step 1"], has_gpus=True) == ""


REPEATED = "Ignoring error status when releasing multi-device function"
LINE = f"W0000 00:00:1 2 process_function_library_runtime.cc:1] {REPEATED} handle INVALID"
COUNT = f"{REPEATED} … ({{}} like this)"


def test_the_first_line_of_each_task_is_shown_and_the_others_are_counted():
    folder = NoiseFolder(lambda: 0.0)
    lines = [LINE, "step 1", LINE, "step 2", LINE]
    assert [folder.fold("a", line) for line in lines] == [LINE, "step 1", None, "step 2", None]
    assert folder.fold("b", LINE) == LINE
    assert list(folder.take_hidden()) == [("a", COUNT.format("2 more lines"))]
    assert list(folder.take_hidden()) == []


def test_a_log_that_is_followed_shows_the_count_from_time_to_time():
    seconds = iter([0.0, 1.0, COUNT_S + 1, COUNT_S + 2])
    folder = NoiseFolder(lambda: next(seconds))
    shown = [folder.fold("a", LINE) for _ in range(4)]
    assert shown == [LINE, None, COUNT.format("2 more lines"), None]
