"""A resume continues from the newest whole copy of each file, wherever it is."""

from __future__ import annotations

import io
import os
import zipfile

import pytest
from support.waiting import until

CONTENT = bytes(range(256)) * 20


def flip(path, content):
    path.write_bytes(content[:99] + b"\0" * 9 + content[108:])


def flip_silently(path, content):
    """Change a byte as a failing disk does: the time stays."""
    stamp = path.stat()
    flip(path, content)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def cut(path, content):
    path.write_bytes(content[: len(content) // 3])


def empty(path, content):
    path.write_bytes(b"")


def delete(path, content):
    path.unlink()


WHY = {
    "cut": "it was changed after the task had ended",
    "empty": "it is empty",
    "flip": "it was changed after the task had ended",
    "flip_silently": "its content has changed, but not its time",
}


def model(word: bytes) -> bytes:
    """Return a file as torch.save writes one: a ZIP archive that is not compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", word * 300)
    return file.getvalue()


OLD, NEW = model(b"old"), model(b"new")


def started(local, steps=3):
    project = local.started(f"--steps={steps}", "--hold")
    saved = project.work("worker:0") / "checkpoints"
    until(lambda: f"ckpt-{steps}" in (saved / "checkpoint").read_text(), "the last checkpoint")
    return project


def write(folder, name, content=CONTENT):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def resumed(project):
    """Resume; return what was printed, notes first."""
    done = project.tf("resume")
    assert done.returncode == 0, done.stderr
    return done.stderr + done.stdout


def test_a_damaged_file_is_replaced_by_what_was_collected(local):
    project = started(local)
    damages = [cut, empty, flip, flip_silently, delete]
    work = project.work("worker:0")
    files = {damage: write(work, f"a/{damage.__name__}.bin") for damage in damages}
    project.ok("collect")
    project.ok("stop")
    for damage, file in files.items():
        damage(file, CONTENT)
    output = resumed(project)
    assert [file.read_bytes() for file in files.values()] == [CONTENT] * 5
    for name, why in WHY.items():
        place = "the collected copy replaces it, and its host keeps it in ../replaced"
        assert f"a/{name}.bin on here is damaged: {why}; {place}\n" in output
        assert (work.parent / f"replaced/a/{name}.bin").read_bytes() != CONTENT
    assert output.count("is damaged") == len(WHY)


@pytest.mark.parametrize("damage", [cut, flip_silently, delete])
def test_a_damaged_checkpoint_is_replaced_by_what_was_collected(local, damage):
    project = started(local)
    data = project.work("worker:0") / "checkpoints/model.ckpt-3.data-00000-of-00001"
    content = data.read_bytes()
    project.ok("collect")
    project.ok("stop")
    damage(data, content)
    assert "resumes from model.ckpt-3 on the controller" in resumed(project)
    assert data.read_text() == "data-00000-of-00001 of step 3\n"


def test_what_the_run_wrote_after_the_collect_is_used_if_it_is_whole(local):
    project = started(local)
    work = project.work("worker:0")
    for name in ("last.bin", "last.pt"):
        write(work, name, OLD)
    project.ok("collect")
    for name in ("last.bin", "last.pt"):
        write(work, name, NEW)
    write(work, "only_here.bin")
    project.ok("stop")
    output = resumed(project)
    assert "damaged" not in output
    assert (work / "last.bin").read_bytes() == (work / "last.pt").read_bytes() == NEW


def test_a_newer_file_that_was_cut_before_the_end_is_replaced_by_what_was_collected(local):
    """The program was killed in a save, or its disk was full."""
    project = started(local)
    file = write(project.work("worker:0"), "last.pt", OLD)
    project.ok("collect")
    file.write_bytes(NEW[:500])
    project.ok("stop")
    assert "last.pt on here is damaged: BadZipFile" in resumed(project)
    assert file.read_bytes() == OLD
    assert (file.parents[1] / "replaced/last.pt").read_bytes() == NEW[:500]


@pytest.mark.parametrize("damage", [cut, flip_silently])
def test_a_copy_on_the_controller_that_is_damaged_itself_is_not_used(local, damage):
    project = started(local)
    files = [write(project.work("worker:0"), name) for name in ("a.bin", "b.bin")]
    data = project.work("worker:0") / "checkpoints/model.ckpt-3.data-00000-of-00001"
    project.ok("collect")
    project.ok("stop")
    copies = [project.run_folder / "outputs" / file.name for file in files]
    for file in [*copies, files[1], project.run_folder / "checkpoints" / data.name]:
        damage(file, file.read_bytes())
    data.unlink()
    output = resumed(project)
    assert [file.read_bytes() == CONTENT for file in files] == [True, False]
    assert f"{copies[1]} is damaged: its content is not what was collected" in output
    assert "b.bin on here is damaged" in output and "a.bin" not in output.partition("resumes")[0]
    assert "model.ckpt-3 on the controller is damaged" in output
    assert "resumes from model.ckpt-2 on here" in output


def save_set(folder, step, text="data"):
    """Write a checkpoint as Keras' BackupAndRestore does, and name it as the newest."""
    folder.mkdir(parents=True, exist_ok=True)
    for end in ("data-00000-of-00001", "index"):
        (folder / f"ckpt-{step}.{end}").write_text(f"{text} of {step}")
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "ckpt-{step}"\n')


@pytest.mark.parametrize(("damage", "damaged"), [(cut, "data-00000-of-00001"), (delete, "index")])
def test_a_state_file_names_the_newest_whole_checkpoint_of_a_backup(local, damage, damaged):
    project = started(local)
    backup = project.work("worker:0") / "backup/chief"
    save_set(backup, 1)
    project.ok("collect")
    for file in backup.glob("ckpt-1.*"):
        file.unlink()
    save_set(backup, 2)
    project.ok("stop")
    damage(backup / f"ckpt-2.{damaged}", b"data of 2")
    output = resumed(project)
    assert 'model_checkpoint_path: "ckpt-1"' in (backup / "checkpoint").read_text()
    assert (backup / "ckpt-1.index").read_text() == "data of 1"
    assert "backup/chief/checkpoint on here is damaged: it names ckpt-2, which is" in output
    assert "now it names ckpt-1" in output


def test_a_file_that_is_gone_from_a_folder_brings_back_the_collected_folder(local):
    project = started(local)
    folder = project.work("worker:0") / "saves/7"
    for name in ("_CHECKPOINT_METADATA", "d/part"):
        write(folder, name)
    project.ok("collect")
    project.ok("stop")
    (folder / "d/part").unlink()
    assert "saves/7 on here is damaged: it has no part any more" in resumed(project)
    assert (folder / "d/part").read_bytes() == CONTENT


def test_a_program_that_counts_from_the_beginning_again_continues_from_its_newest(local):
    """The controller has a checkpoint of a higher step, which the program has replaced."""
    project = started(local)
    project.ok("collect")
    folder = project.run_folder / "checkpoints"
    for file in sorted(folder.glob("model.ckpt-3.*")):
        (folder / file.name.replace("ckpt-3", "ckpt-999")).write_bytes(file.read_bytes())
    state = folder / "checkpoint"
    state.write_text(state.read_text() + 'all_model_checkpoint_paths: "model.ckpt-999"\n')
    project.ok("stop")
    assert "resumes from model.ckpt-3 on here" in resumed(project)
