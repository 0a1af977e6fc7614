"""Folders out of which nothing leads: the one place that writes and deletes below runs/.

Somebody else's repository may contain a runs/ with links at any level, through which a file of a
host would replace one of the user's own. So every folder is opened from the one above it, by its
descriptor, and no link is followed (openat(2), O_NOFOLLOW). openat2(2) could open a whole path in
this way; Python does not offer it, macOS does not have it, and a path below runs/ is short.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import RunError
from tfdeploy.folders.disk_errors import explain
from tfdeploy.shared.filesystem import folders_above, is_disk_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedReader, FileIO
    from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO or a device is opened without waiting, and refused.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
UPDATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVATE_FOLDER, PRIVATE = 0o700, 0o600  # whatever the umask: results may have secrets
# The agent's listings and reports skip hidden names, should a crash leave such a file behind.
FRESH, NEW_ENDING = ".tfdeploy-", ".new"
BLOCK = 1 << 20
MAX_NAMES = 1_000_000
LOCK_POLL_S = 0.1
LINK = "it is a link, and below runs/ none is followed; delete it"


class Budget:
    """What one fetch may add: bytes, and names of files and folders. Threads may share it."""

    def __init__(self, max_bytes: int, max_names: int = MAX_NAMES) -> None:
        self.bytes, self.names = max_bytes, max_names
        self._lock = threading.Lock()

    def take(self, size: int, names: int = 0) -> None:
        """Count what is about to be added. Raises OSError if it is too much."""
        with self._lock:
            if size > self.bytes or names > self.names:
                what = "bytes than it announced" if size > self.bytes else "names than are allowed"
                raise OSError(errno.EDQUOT, f"the host sends more {what}")
            self.bytes -= max(0, size)
            self.names -= names


class _Top:
    """The descriptor from which paths are opened; closed with the last folder that uses it."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, -1
        self.number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Who owns the project's folder can replace all of it.
        self.owners = {os.geteuid(), os.fstat(self.number).st_uid}

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


class OwnFolder:
    """A folder that this user owns, and what is below it. Names are relative paths.

    It need not exist: what is written creates it, for this user alone. Each method raises OSError
    if a folder on the way is a link or belongs to another user, and if a name leads out.
    """

    def __init__(
        self, top: _Top, parts: tuple[str, ...] = (), budget: Budget | None = None
    ) -> None:
        self.budget = budget
        self._top, self._parts = top, parts

    @classmethod
    def at(cls, path: Path) -> OwnFolder:
        """Open an existing folder that the user named, also by links and of another user."""
        return cls(_Top(path))

    @classmethod
    def named(cls, path: Path) -> OwnFolder:
        """Return a folder that the user named, which may not exist; it must not be a link."""
        base = next(each for each in path.absolute().parents if each.is_dir())
        return cls.at(base) / path.absolute().relative_to(base).as_posix()

    def __truediv__(self, name: str) -> OwnFolder:
        return OwnFolder(self._top, (*self._parts, *parts_below(name)), self.budget)

    def within(self, budget: Budget) -> OwnFolder:
        """Return the folder with a limit for what is added to it."""
        return OwnFolder(self._top, self._parts, budget)

    @property
    def path(self) -> Path:
        """Return its path, for messages; programs that need one get it from `checked`."""
        return self._top.path.joinpath(*self._parts)

    # Look

    def checked(self) -> Path:
        """Create the folder, and return its path, in which no step is a link by now: for programs
        that need a path."""
        self.make()
        return self.path

    def stat(self, name: str) -> os.stat_result | None:
        """Return the status of a regular file; None for anything else, also below a link."""
        try:
            with self._above(name) as (folder, last):
                info = os.stat(last, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        return info if stat.S_ISREG(info.st_mode) else None

    def size(self, name: str) -> int:
        """Return the size of a regular file; 0 for anything else."""
        info = self.stat(name)
        return info.st_size if info else 0

    def has(self, name: str) -> bool:
        """Return whether a regular file or a folder has this name, and no step to it is a link."""
        try:
            with self._above(name) as (folder, last):
                mode = os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode
        except OSError:
            return False
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)

    def open(self, name: str) -> BufferedReader:
        """Open a regular file to read it."""
        with self._above(name) as (folder, last):
            return os.fdopen(_open_regular(last, READ, folder), "rb")

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return the content of a regular file with at most this size."""
        with self.open(name) as file:
            return _read_all(file, max_bytes, self.path / name)

    def head(self, name: str, size: int) -> Iterator[bytes]:
        """Yield the first `size` bytes of a file, in blocks. Raises OSError if it is shorter."""
        with self.open(name) as file:
            while size:
                block = file.read(min(BLOCK, size))
                if not block:
                    raise OSError(errno.EINVAL, "it is too short", str(self.path / name))
                yield block
                size -= len(block)

    def sha256(self, name: str) -> str:
        """Return the hash of a file's content in hex."""
        with self.open(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def files(self) -> dict[str, os.stat_result]:
        """Return all regular files below the folder; none if it is missing, or a link."""
        try:
            return {name: info for name, info in self._walk() if stat.S_ISREG(info.st_mode)}
        except OSError:
            return {}

    def free_bytes(self) -> int:
        """Return the free space of the disk."""
        return shutil.disk_usage(self.checked()).free

    # Change

    def make(self) -> bool:
        """Create the folder and those above it; return whether it was missing."""
        exists = self._exists()
        os.close(self._open_folder(self._parts, make=True))
        return not exists

    def is_empty(self) -> bool:
        """Return whether nothing is in the folder, except what `clean_up` deletes."""
        descriptor = self._open_folder(self._parts)
        try:
            return all(map(_is_fresh, _names(descriptor)))
        finally:
            os.close(descriptor)

    def write(self, name: str, blocks: Iterable[bytes], mtime_ns: int | None = None) -> None:
        """Write a file that replaces the one of this name at once: a reader sees the old content or
        the new one, and a link is replaced, not followed."""
        with self._above(name, make=True) as (folder, last), _new_file(folder) as (fresh, new):
            with os.fdopen(os.dup(new), "wb") as file:  # to close it may fail on a network disk
                file.writelines(blocks)
                file.flush()
                self._take_growth(folder, last, file.tell())
                if mtime_ns is not None:
                    os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
            os.replace(fresh, last, src_dir_fd=folder, dst_dir_fd=folder)

    def append(self, name: str, data: bytes) -> None:
        """Append all of the data to a regular file, or nothing."""
        self._take(len(data), 0 if self.stat(name) else 1)
        with self.update(name) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path / name))
            except OSError:
                file.truncate(size)
                raise

    def update(self, name: str) -> FileIO:
        """Open a regular file to read and change it in place, unbuffered; create a missing one."""
        with self._above(name, make=True) as (folder, last):
            return os.fdopen(_open_regular(last, UPDATE, folder), "r+b", buffering=0)

    def take(self, size: int) -> None:
        """Count bytes that are about to be written with `update`."""
        self._take(size, 1)

    def set_time(self, name: str, mtime_ns: int) -> None:
        """Set when a file was last changed, and read."""
        with self._above(name) as (folder, last):
            os.utime(last, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)

    def give(self, name: str, to: OwnFolder) -> None:
        """Give a regular file the same name in another folder, too, in place of what has it; copy
        the file if the disk can't."""
        with self.open(name) as file:
            info = os.fstat(file.fileno())
        with (
            self._above(name) as (own, last),
            to._above(name, make=True) as (other, _),
            _fresh(other) as fresh,
        ):
            try:
                os.link(last, fresh, src_dir_fd=own, dst_dir_fd=other, follow_symlinks=False)
            except OSError:
                to.write(name, self.head(name, info.st_size), info.st_mtime_ns)
            else:
                os.replace(fresh, last, src_dir_fd=other, dst_dir_fd=other)

    def move(self, name: str, to: OwnFolder) -> None:
        """Move a file or a folder to the same name in another folder, in place of what has it, or
        of a regular file that has the name of a folder above it."""
        try:
            self._move(name, to)
        except NotADirectoryError:
            to._remove_file_above(name)
            self._move(name, to)

    def _remove_file_above(self, name: str) -> None:
        for path in filter(self.stat, folders_above(name)):
            self.remove(path)

    def _move(self, name: str, to: OwnFolder) -> None:
        with (
            self._above(name) as (own, last),
            to._above(name, make=True) as (other, _),
            _fresh(other) as aside,
        ):
            if _is_folder(last, other) or _is_folder(last, own):  # neither is replaced at once
                os.mkdir(aside, PRIVATE_FOLDER, dir_fd=other)
                with suppress(FileNotFoundError):  # it keeps its name, see `clean_up`
                    os.rename(last, f"{aside}/{last}", src_dir_fd=other, dst_dir_fd=other)
            try:
                os.replace(last, last, src_dir_fd=own, dst_dir_fd=other)
            except OSError:
                _put_back(aside, other)
                raise

    def remove(self, name: str) -> None:
        """Delete a file, a link or a folder with its content; do nothing if it is missing."""
        with suppress(FileNotFoundError), self._above(name) as (folder, last):
            _remove(last, folder)

    def delete(self) -> None:
        """Delete the folder with its content, as far as possible."""
        *above, last = self._parts
        with suppress(OSError):
            OwnFolder(self._top, tuple(above)).remove(last)

    def clean(self, is_wanted: Callable[[str], bool]) -> None:
        """Create the folder; delete all of its content but regular files that are wanted."""
        self.make()
        top = self._open_folder(self._parts)
        try:  # a folder after its content
            for folder, below, names, descriptor in os.fwalk(".", topdown=False, dir_fd=top):
                for name in names:
                    with suppress(FileNotFoundError):  # another process was faster
                        _remove_unless(is_wanted, os.path.normpath(f"{folder}/{name}"), descriptor)
                for name in below:
                    with suppress(FileNotFoundError):
                        _remove_if_empty(name, descriptor)
        finally:
            os.close(top)

    def clean_up_files(self) -> None:
        """Delete the incomplete files that processes which were killed have left in the folder
        itself."""
        with suppress(OSError):
            top = self._open_folder(self._parts)
            try:
                _remove_abandoned(_names(top), top)
            finally:
                os.close(top)

    def clean_up(self) -> None:
        """Delete the incomplete files that processes which were killed have left in the folder, and
        below it. What they had only moved aside gets its name again. Raises OSError.

        No other process may move or give files meanwhile; another one may write.
        """
        top = self._open_folder(self._parts)
        try:
            for _, below, names, descriptor in os.fwalk(".", topdown=False, dir_fd=top):
                _remove_abandoned(names, descriptor)
                for name in filter(_is_fresh, below):
                    _put_back(name, descriptor)
                    _remove(name, descriptor)
        finally:
            os.close(top)

    @contextmanager
    def locked(
        self,
        name: str,
        refusal: RunError | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Hold the lock of a file; the kernel releases it when the process ends.

        The file is created, and keeps its content. If another process holds the lock, raises
        `refusal`, or without one waits for it; what `check` raises ends the wait. Raises RunError
        if the file can't be opened.
        """
        try:
            file = self.update(name)
        except OSError as error:
            if is_disk_full(error):
                raise RunError(*explain(error, self.path / name)) from None
            raise RunError(f"can't lock {error.filename or name}: {error.strerror}") from None
        with file:
            while not _took_lock(file):
                if refusal:
                    raise refusal
                check()
                time.sleep(LOCK_POLL_S)
            yield

    # By descriptors

    @contextmanager
    def _above(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the descriptor of the folder that has, or will have, a name, and its last part."""
        *folders, last = parts_below(name)
        descriptor = self._open_folder((*self._parts, *folders), make=make)
        try:
            yield descriptor, last
        except OSError as error:
            if not isinstance(error.filename, str) or not error.filename.startswith("/"):
                error.filename = str(self.path / name)
            raise
        finally:
            os.close(descriptor)

    def _open_folder(self, parts: tuple[str, ...], *, make: bool = False) -> int:
        descriptor = os.dup(self._top.number)
        for depth, part in enumerate(parts, 1):
            try:
                below = self._open_below(descriptor, part, make)
            except OSError as error:
                path = self._top.path.joinpath(*parts[:depth])
                raise OSError(error.errno, error.strerror, str(path)) from None
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor

    def _open_below(self, above: int, name: str, make: bool) -> int:
        try:
            descriptor = os.open(name, FOLDER, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
            self._take(0, 1)
            with suppress(FileExistsError):  # another thread was faster
                os.mkdir(name, PRIVATE_FOLDER, dir_fd=above)
            descriptor = os.open(name, FOLDER, dir_fd=above)
        except OSError:
            if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, LINK) from None
            raise
        try:
            self._require_own(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _require_own(self, descriptor: int) -> None:
        """Refuse a folder of another user, and close one of our own to them."""
        info = os.fstat(descriptor)
        if info.st_uid not in self._top.owners:
            raise PermissionError(errno.EPERM, "it belongs to another user")
        if info.st_mode & stat.S_IWOTH:  # it was created with the umask 000
            with suppress(OSError):  # a read-only disk
                os.fchmod(descriptor, stat.S_IMODE(info.st_mode) & ~stat.S_IWOTH)

    def _exists(self) -> bool:
        try:
            os.close(self._open_folder(self._parts))
        except FileNotFoundError:
            return False
        return True

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield everything below the folder that is no folder."""
        top = self._open_folder(self._parts)
        try:
            for folder, below, names, descriptor in os.fwalk(".", dir_fd=top):
                links = [each for each in below if not _is_folder(each, descriptor)]
                for name in (*names, *links):
                    with suppress(FileNotFoundError):
                        info = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                        yield os.path.normpath(f"{folder}/{name}"), info
        finally:
            os.close(top)

    def _take_growth(self, folder: int, last: str, size: int) -> None:
        if self.budget:
            try:
                old = os.stat(last, dir_fd=folder, follow_symlinks=False).st_size
            except FileNotFoundError:
                self._take(size, 1)
            else:
                self._take(size - old, 0)

    def _take(self, size: int, names: int) -> None:
        if self.budget:
            self.budget.take(size, names)


def _took_lock(file: FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_file(file: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file, which is no link and has at most this size. Raises
    OSError."""
    with os.fdopen(_open_regular(str(file), READ, None), "rb") as content:
        return _read_all(content, max_bytes, file)


def is_own(folder: Path) -> bool:
    """Return whether a path is a folder, not a link, of this user or of the user who owns the
    folder two levels up: the project's."""
    try:
        info, owner = folder.lstat(), folder.parent.parent.stat().st_uid
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid in (os.geteuid(), owner)


def parts_below(name: str) -> list[str]:
    """Return the parts of a relative path. Raises OSError if it leads out of its folder."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or not parts or ".." in parts:
        raise OSError(errno.EINVAL, "its name leads out of its folder", name)
    try:
        if "\0" not in name and os.fsencode(name):
            return parts
    except UnicodeEncodeError:  # it is no file's name, or none in the controller's locale
        pass
    raise OSError(errno.EINVAL, "its name can't be used on the controller", name)


def _open_regular(name: str, flags: int, folder: int | None) -> int:
    """Return the descriptor of a regular file. Raises OSError for anything else."""
    try:
        descriptor = os.open(name, flags, PRIVATE, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = LINK
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    return descriptor


def _read_all(file: BufferedReader, max_bytes: int, path: Path) -> bytes:
    content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes >> 20} MB", str(path))
    return content


def _is_folder(name: str, above: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _remove(name: str, above: int) -> None:
    if _is_folder(name, above):
        shutil.rmtree(name, dir_fd=above)
    else:
        os.unlink(name, dir_fd=above)


def _remove_unless(is_wanted: Callable[[str], bool], path: str, above: int) -> None:
    name = os.path.basename(path)  # noqa: PTH119 - ten thousands of them
    info = os.stat(name, dir_fd=above, follow_symlinks=False)
    if not (stat.S_ISREG(info.st_mode) and is_wanted(path)):
        os.unlink(name, dir_fd=above)


def _remove_if_empty(name: str, above: int) -> None:
    """Delete a folder that is empty, or a link to a folder."""
    if not _is_folder(name, above):
        os.unlink(name, dir_fd=above)
        return
    with suppress(OSError):
        os.rmdir(name, dir_fd=above)


@contextmanager
def _new_file(folder: int) -> Iterator[tuple[str, int]]:
    """Yield the name and the descriptor of a new file, locked meanwhile: one that is not locked was
    left by a process that was killed."""
    with _fresh(folder) as fresh:
        while True:
            descriptor = os.open(fresh, NEW, PRIVATE, dir_fd=folder)
            with suppress(OSError):  # a file system without locks: there such files stay
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                break
            os.close(descriptor)  # `clean_up` has deleted it before it was locked
        try:
            yield fresh, descriptor
        finally:
            os.close(descriptor)


def _names(folder: int) -> list[str]:
    return os.listdir(folder)


def _is_fresh(name: str) -> bool:
    return name.startswith(FRESH) and name.endswith(NEW_ENDING)


def _remove_abandoned(names: Iterable[str], above: int) -> None:
    for name in filter(_is_fresh, names):
        with suppress(OSError), os.fdopen(_open_regular(name, READ, above), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=above)


def _put_back(aside: str, above: int) -> None:
    """Give what was moved into the folder `aside` its place again, unless something has it."""
    with suppress(OSError):
        descriptor = os.open(aside, FOLDER, dir_fd=above)
        try:
            there = _names(above)
            for name in _names(descriptor):
                if name not in there:
                    os.rename(name, name, src_dir_fd=descriptor, dst_dir_fd=above)
        finally:
            os.close(descriptor)


@contextmanager
def _fresh(folder: int) -> Iterator[str]:
    """Yield a name that nothing in the folder has, and that is as long for each file; delete what
    has it afterwards."""
    name = f"{FRESH}{secrets.token_hex(8)}{NEW_ENDING}"
    try:
        yield name
    finally:
        with suppress(OSError):
            _remove(name, folder)
