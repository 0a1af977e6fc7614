"""The scripts that work as root: nothing is archived or removed across a mount."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

HOSTS = Path(__file__).parents[1] / "hosts"
# What a machine may leave mounted: a bind mount, which has the same device number as its folder.
MOUNTS = 'mount --bind "$PRECIOUS" "$1"'
PROGRAMS = {
    "debootstrap": f"""
        while [ "$1" != bookworm ]; do shift; done
        mkdir -p "$2/bin" "$2/proc"; shift; set -- "$1/proc"
        {MOUNTS}; exit "$DEBOOTSTRAP" """,
    "docker": """
        case $1 in
        import) if [ "$2" = - ]; then cat; else cat "$2"; fi >"$IMAGE" ;;
        *) exit 1 ;;  # neither an image nor a registry
        esac""",
    "tar": 'PATH=$REAL; tar "$@" || exit; exit "$TAR"',
}


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "file").write_text("of the machine\n")
    return folder


def with_mounts(*command: object, **variables: object) -> subprocess.CompletedProcess[str]:
    """Run a command that may mount: as root, and without a trace in this machine's mounts."""
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    unshared = ["unshare", "--map-root-user", "--mount", *map(str, command)]
    return subprocess.run(unshared, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("debootstrap", "tar"), [(0, 0), (1, 0), (0, 2)])
def test_the_image_has_nothing_of_what_its_build_left_mounted_and_a_failed_build_leaves_none(
    tmp_path, precious, debootstrap, tar
):
    programs, image, work = (tmp_path / name for name in ("programs", "image", "work"))
    programs.mkdir()
    work.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    done = with_mounts(
        HOSTS / "base-image", PATH=f"{programs}:{os.environ['PATH']}", REAL=os.environ["PATH"],
        DEBOOTSTRAP=debootstrap, TAR=tar, PRECIOUS=precious, IMAGE=image, TMPDIR=work,
    )  # fmt: skip
    failed = bool(debootstrap or tar)
    assert (done.returncode != 0, image.exists()) == (failed, not failed), done
    if not failed:
        with tarfile.open(image) as archive:
            assert sorted(archive.getnames()) == [".", "./bin", "./proc"]
    assert (precious / "file").exists()
    assert [*work.iterdir()] == []


def test_remove_refuses_a_folder_in_which_something_is_mounted(tmp_path, precious):
    folder, other = tmp_path / "a folder", tmp_path / "other"
    (folder / "deep" / "mount point").mkdir(parents=True)
    other.mkdir()
    script = f'remove=$1; shift; (set -- "$1/deep/mount point"; {MOUNTS}); exec "$remove" "$@"'
    done = with_mounts("sh", "-c", script, "sh", HOSTS / "remove", folder, other, PRECIOUS=precious)
    assert done.returncode == 1
    assert done.stderr == (
        f"can't remove {folder}: {folder}/deep/mount point is mounted in it; unmount it first\n"
    )
    assert (precious / "file").exists() and other.exists()
    subprocess.run([HOSTS / "remove", folder, other, tmp_path / "missing"], check=True)
    assert [*tmp_path.iterdir()] == [precious]
