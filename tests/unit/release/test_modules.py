"""What a program imports: its own modules, and what is not in the source tree."""

from __future__ import annotations

import ast

import pytest

from tfdeploy.release import modules, syntax


def read(folder, script="train.py", **files):
    """Write files, whose names have "__" for a slash, and read the program of a script."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return modules.read(folder, [script], lambda path: (folder / path).is_file())


def foreign(program, path="train.py"):
    return [each.statement for each in program[path].foreign]


def test_own_modules_are_read_also_through_others_and_in_circles(tmp_path):
    program = read(
        tmp_path,
        train="import os, lib.a, pip.__main__",
        lib__a="from lib import b",
        lib__b="import train, broken, numpy",
        broken="print 'python 2'",
    )
    assert [*program] == ["train.py", "lib/a.py", "lib/b.py", "broken.py"]
    assert program["broken.py"].unreadable.startswith("line 1: ")
    assert foreign(program) == ["import os"]
    assert foreign(program, "lib/b.py") == ["import numpy"]


def test_modules_of_a_package_are_found_by_dots_and_by_full_names(tmp_path):
    (tmp_path / "pkg/sub").mkdir(parents=True)
    (tmp_path / "pkg/sub/__init__.py").touch()
    program = read(
        tmp_path,
        script="pkg/train.py",
        pkg__train="from . import a\nfrom .sub import b\nfrom .. import outside\nimport c, d",
        pkg__a="from .nothing import x",
        pkg__sub__b="from ..a import x",
        c="",
        src__d="",
    )
    own = ["pkg/a.py", "pkg/sub/__init__.py", "pkg/sub/b.py", "c.py", "src/d.py"]
    assert [*program] == ["pkg/train.py", *own]
    assert foreign(program, "pkg/train.py") == foreign(program, "pkg/a.py") == []


@pytest.mark.parametrize(
    "statement",
    [
        "sys.path.append('common')",
        "sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'common'))",
        "path.append(str(Path(__file__).parent.parent / 'common'))",
    ],
)
def test_modules_in_a_folder_that_the_script_adds_to_the_path_are_its_own(tmp_path, statement):
    program = read(
        tmp_path,
        script="jobs/train.py",
        jobs__train=f"{statement}\nimport helper, pandas",
        common__helper="import other",
        common__other="",
    )
    assert [*program] == ["jobs/train.py", "common/helper.py", "common/other.py"]
    assert foreign(program, "jobs/train.py") == ["import pandas"]


def test_a_file_around_the_script_hides_no_module_of_python(tmp_path):
    assert [*read(tmp_path, script="a/train.py", a__train="import json", json="")] == ["a/train.py"]
    assert [*read(tmp_path, train="import json", json="")] == ["train.py", "json.py"]


@pytest.mark.parametrize(
    ("text", "is_optional"),
    [
        ("import x", False),
        ("def main():\n    with scope():\n        from x import y", False),
        ("if __name__ == '__main__':\n    import x", False),
        ("try:\n    import x\nfinally:\n    pass", False),
        ("try:\n    import x\nexcept OSError:\n    pass", False),
        ("try:\n    import x\nexcept (ImportError, OSError):\n    pass", True),
        ("try:\n    import x\nexcept:\n    pass", True),
        ("try:\n    pass\nexcept ImportError:\n    import x", True),
        ("with contextlib.suppress(ImportError):\n    import x", True),
        ("if TYPE_CHECKING:\n    import x", True),
        ("if sys.version_info < (3, 11):\n    import x\nelse:\n    pass", True),
        ("match a:\n    case 1:\n        import x", False),
        ("if a:\n    import x\nimport x", False),
    ],
)
def test_an_import_is_optional_if_the_program_goes_on_without_it(text, is_optional):
    [found] = syntax.read_imports(ast.parse(text))
    assert (found.top, found.is_optional) == ("x", is_optional)


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("import keras\nkeras.callbacks.TensorBoard('logs')", "tensorboard"),
        ("from tensorflow.keras.callbacks import TensorBoard as T\nT()", "tensorboard"),
        ("import tensorflow as tf\ntf.keras.callbacks.TensorBoard()", "tensorboard"),
        ("import tensorflow as tf\ntf.summary.scalar('a', 1)", "tensorboard"),
        ("import tensorflow as tf\ntf.compat.v1.summary.scalar('a', 1)", None),
        ("import tensorflow.compat.v1 as tf\ntf.summary.scalar('a', 1)", None),
        ("import tensorflow as tf\ntf.summary.create_file_writer('a')", None),
        ("import mine\nmine.summary.scalar('a', 1)", None),
        ("from keras import utils\nutils.load_img('a')", "PIL"),
        ("import tensorflow\ntensorflow.keras.utils.plot_model(m)", "pydot"),
    ],
)
def test_features_that_import_packages_later_are_recognized(text, module):
    found = [each.module for each in syntax.read_imports(ast.parse(text)) if each.feature]
    assert found == ([module] if module else [])
