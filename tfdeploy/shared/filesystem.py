"""Read, open, hash, compare, replace, move, link or copy a file, append to one that stays small;
walk through a folder, or remove it; recognize a full disk."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections import deque
from contextlib import suppress
from typing import Callable, Iterator, List, Tuple, Union

Shorten = Callable[[List[bytes]], List[bytes]]


PRIVATE = 0o600
CHUNK = 1 << 16
BLOCK = 1 << 20
HASH_THREADS = 8  # for several files: hashlib releases the interpreter's lock
# What programs print if the disk is full: strerror of ENOSPC and EDQUOT.
NO_SPACE = ("No space left on device", "Disk quota exceeded")


def read_bytes(path: str) -> bytes:
    """Return the content of a file. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def read_if_possible(path: str) -> bytes:
    """Return the content of a file; b"" if it can't be read."""
    try:
        return read_bytes(path)
    except OSError:
        return b""


def read_end(path: str, size: int) -> bytes:
    """Return the last `size` bytes of a file; b"" if it can't be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except OSError:
        return b""


def replace_file(path: str, content: bytes, mode: int = 0o666, fresh: str = "") -> None:
    """Write a file beside `path` and rename it: a reader sees the old content or the new one.

    `mode` is that of open(2), limited by the umask; `fresh` is the file's path until it is renamed
    (default: a hidden one). Raises OSError; the old content is unchanged then.
    """
    folder, name = os.path.split(path)
    fresh = fresh or os.path.join(folder, ".tfdeploy-{}.{}.new".format(name, os.getpid()))
    try:
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
        os.replace(fresh, path)
    except OSError:
        remove_file(fresh)
        raise


def newest_half(lines: List[bytes]) -> List[bytes]:
    """Return the newest lines, together at most half of the bytes. Pure."""
    left, kept = sum(map(len, lines)) // 2, len(lines)
    while kept and len(lines[kept - 1]) <= left:
        kept -= 1
        left -= len(lines[kept])
    return lines[kept:]


def every_second(lines: List[bytes]) -> List[bytes]:
    """Halve the resolution: the whole time that the lines cover stays covered. Pure."""
    return lines[::2]


def append_line(path: str, line: bytes, max_bytes: int, shorten: Shorten = newest_half) -> bool:
    """Append a line, which ends with a newline; only this user can read the file.

    If the file would exceed `max_bytes`, first keep only what `shorten` returns of its lines, about
    half of them. Return whether it was asked. Raises OSError; then nothing was appended.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(path, flags, PRIVATE)
    try:
        size = os.fstat(descriptor).st_size
        if size + len(line) > max_bytes:
            lines = os.pread(descriptor, size, 0)[-max_bytes:].splitlines(keepends=True)
            whole = [each for each in lines if each.endswith(b"\n")]
            replace_file(path, b"".join([*shorten(whole), line]), PRIVATE)
            return True
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a line that a crash cut off
            line = b"\n" + line
        if os.write(descriptor, line) < len(line):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, "no space for the whole line")
        return False
    finally:
        os.close(descriptor)


def open_regular(path: str, flags: int = os.O_NOFOLLOW) -> int:
    """Open a regular file to read it; return its descriptor. Raises OSError, also if it is none."""
    # Do not block on a fifo that no process writes to.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileNotFoundError(path)


def stamp(file: Union[str, int]) -> Tuple[int, ...]:
    """Return what changes if a file is written or replaced: size, mtime in ns and inode; () if it
    does not exist. `file` is a path, also of a link itself, or a descriptor."""
    try:
        info = os.fstat(file) if isinstance(file, int) else os.lstat(file)
    except OSError:
        return ()
    return info.st_size, info.st_mtime_ns, info.st_ino


def write_all(descriptor: int, data: Union[bytes, memoryview]) -> None:
    """Write all of `data`, of which one write(2) may take only a part. Raises OSError."""
    while data:
        data = data[os.write(descriptor, data) :]


def memory_file(data: bytes) -> int:
    """Return a descriptor from which a process reads `data`: unlike a pipe it is never full, and
    unlike a file it needs no disk and has no name."""
    try:
        descriptor = os.memfd_create("data")
    except (AttributeError, OSError):  # Linux before 3.17, or a Python built with an older glibc
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    write_all(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def move_file(source: str, target: str) -> None:
    """Move a file, also to another file system: at `target` it is whole at once. Raises OSError."""
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        fresh = temporary_name(target)
        shutil.copy2(source, fresh)
        os.replace(fresh, target)
        os.remove(source)


def temporary_name(path: str) -> str:
    """Return the name of a file until it is renamed to `path`, as TensorFlow names its own. Source:
    tensorflow/python/lib/io/file_io.py, atomic_write_string_to_file."""
    return "{}.tmp{}".format(path, os.urandom(16).hex())


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def link_or_copy(source: str, target: str) -> None:
    """Link a regular file, or copy it if the file system has no hard links. Raises OSError."""
    if not os.path.isfile(source) or os.path.islink(source):
        raise FileNotFoundError(source)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def walk(folder: str, excluded: str = "") -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a folder, level by level, so that a limit skips the deepest."""
    remaining = deque([folder])
    while remaining:
        try:
            with os.scandir(remaining.popleft()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and entry.path != excluded:
                        remaining.append(entry.path)
                    yield entry
        except OSError:
            continue


def remove_folder(folder: str) -> None:
    """Remove a folder with its content; ignore errors."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_empty_folder(folder: str) -> None:
    """Remove a folder if it is empty; ignore errors."""
    with suppress(OSError):
        os.rmdir(folder)


def remove_file(path: str) -> None:
    """Remove a file; ignore errors."""
    with suppress(OSError):
        os.remove(path)


def sha256(path: str) -> str:
    """Return the hash of a file's content in hex. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()
