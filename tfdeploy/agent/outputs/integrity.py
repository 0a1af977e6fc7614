"""Check whether outputs are complete, by their format. A file of an unknown format is accepted.

- zip archives (.keras, .npz): the directory and every CRC.
- torch.save (.pt, .pth, .ckpt): the archive's directory. It may have no CRCs, see
  torch.serialization.set_crc32_options; older versions wrote no archive.
- safetensors: the length in its header.
- HDF5 (.h5): the length in its header; then h5py of the host's Python reads every data set.
- SavedModels: the variables that belong to them.
- Checkpoints and SavedModels: TensorFlow reads every tensor (see verify.py).
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from typing import Dict, List

from ...shared import filesystem, state_file
from ...shared.protocol.outputs import Unit
from ...shared.units import FILE, MODEL_FILES, SAVED_MODEL, SET
from . import verify

Units = List[Unit]


ZIP = (".keras", ".npz", ".zip")
ZIP_MAGIC = b"PK\x03\x04"
TORCH = (".pt", ".pth", ".ckpt")
SAFETENSORS = ".safetensors"
MAX_HEADER_BYTES = 100_000_000  # of safetensors' own reader
HDF5 = (".h5", ".hdf5", ".hdf")
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
# The offset of the end-of-file address in a superblock, by its version, if addresses have 8 bytes.
# Source: HDF5 File Format Specification 3.0, II.A.
HDF5_END = {0: 40, 1: 44, 2: 28, 3: 28}
READ_HDF5 = """
import json, sys
try:
    import h5py
except Exception:
    sys.exit(0)

def read(name, item):
    if isinstance(item, h5py.Dataset):
        item[()]

for path in sys.argv[1:]:
    try:
        with h5py.File(path, "r") as file:
            file.visititems(read)
    except Exception as error:
        print(json.dumps({"path": path, "error": str(error)}), flush=True)
"""
READ_TIMEOUT_S = 600.0


def find_errors(held_dir: str, units: Units) -> Dict[str, str]:
    """Return what is wrong with units, by path, without those that are complete.

    Their files are in `held_dir`, where they do not change.
    """
    errors = {unit.path: format_error(held_dir, unit.path, unit.kind) for unit in units}
    errors = {path: error for path, error in errors.items() if error}
    others = [unit for unit in units if unit.path not in errors]
    return {**errors, **_hdf5_errors(held_dir, others), **_tensor_errors(held_dir, others)}


def format_error(held_dir: str, path: str, kind: str) -> str:
    """Return what is wrong with a unit's format, without reading tensors; "" if nothing is."""
    path = os.path.join(held_dir, path)
    if kind == SAVED_MODEL:
        return _saved_model_error(path)
    if kind != FILE:
        return ""
    if path.endswith(ZIP):
        return _zip_error(path)
    if path.endswith(TORCH) and _starts_with(path, ZIP_MAGIC):
        return _zip_error(path, has_crcs=False)
    if path.endswith(SAFETENSORS):
        return _safetensors_error(path)
    return _hdf5_header_error(path) if path.endswith(HDF5) else ""


def _starts_with(path: str, magic: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def _zip_error(path: str, has_crcs: bool = True) -> str:
    import zipfile  # costs 10 ms, and few requests need it

    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip() if has_crcs else None
    except Exception as error:  # zipfile, zlib, lzma: each has its own exceptions
        return "{}: {}".format(type(error).__name__, error)
    return "{} in it is damaged".format(damaged) if damaged else ""


def _safetensors_error(path: str) -> str:
    """Source: the format in safetensors' README: the header's length, the header, the tensors."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(min(length, MAX_HEADER_BYTES))
        size = file.seek(0, os.SEEK_END)
    try:
        tensors = json.loads(text.decode())
        ends = [each["data_offsets"][1] for name, each in tensors.items() if name != "__metadata__"]
        end = 8 + length + max(ends, default=0)
    except (ValueError, LookupError, TypeError, AttributeError):
        return "it has no safetensors header"
    return "it has {} of {} bytes".format(size, end) if size < end else ""


def _hdf5_header_error(path: str) -> str:
    with os.fdopen(filesystem.open_regular(path, 0), "rb") as file:
        header = file.read(64)
        size = file.seek(0, os.SEEK_END)
    if not header.startswith(HDF5_MAGIC):
        return "it has no HDF5 header"
    offset = HDF5_END.get(header[8])
    if offset is None or header[13 if header[8] < 2 else 9] != 8:
        return ""
    (end,) = struct.unpack_from("<Q", header, offset)
    return "it has {} of {} bytes".format(size, end) if size < end else ""


def _saved_model_error(folder: str) -> str:
    """TensorFlow writes the variables first. The folder may be empty for a model without any."""
    if not any(_size(os.path.join(folder, name)) for name in MODEL_FILES):
        return "its saved_model.pb is empty"
    try:
        names = os.listdir(os.path.join(folder, "variables"))
    except OSError:
        return ""
    is_complete = not names or state_file.file_set(names, "variables")
    return "" if is_complete else "its variables are incomplete"


def _hdf5_errors(held_dir: str, units: Units) -> Dict[str, str]:
    """Return what h5py can't read; {} if the host's Python has no h5py."""
    paths = {os.path.join(held_dir, unit.path): unit.path for unit in units
             if unit.kind == FILE and unit.path.endswith(HDF5)}  # fmt: skip
    if not paths:
        return {}
    try:
        done = subprocess.run(
            [verify.task_python(held_dir), "-c", READ_HDF5, *paths],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=READ_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return {}
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"path"')]
    return {paths[line["path"]]: line["error"] for line in lines}


def _tensor_errors(held_dir: str, units: Units) -> Dict[str, str]:
    prefixes = {}
    for unit in units:
        path = os.path.join(held_dir, unit.path)
        if unit.kind == SAVED_MODEL:
            path = os.path.join(path, "variables", "variables")
        if unit.kind in (SET, SAVED_MODEL) and os.path.exists(path + ".index"):
            prefixes[path] = unit.path
    results = verify.find_errors(list(prefixes))
    return {prefixes[prefix]: error for prefix, error in results if error}


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
