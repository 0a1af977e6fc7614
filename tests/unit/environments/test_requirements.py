"""Requirements files are read as pip reads them, without what only the controller has."""

from __future__ import annotations

import pytest
from support.builders import hosts_toml

from tfdeploy.config import inventory as inventories
from tfdeploy.environments import requirements
from tfdeploy.errors import PlanError


def project(folder, **files):
    """Write files into a folder; return the inventory whose requirements are its main.txt."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return of(folder, "main.txt")


def of(folder, file):
    text = hosts_toml(top=f'[env]\nrequirements = "{file}"')
    return inventories.parse(text, folder / "hosts.toml")


def lines(folder, text, **files):
    return requirements.read(project(folder, main_txt=text, **files)).lines


def refusal(folder, text, **files):
    with pytest.raises(PlanError) as refused:
        lines(folder, text, **files)
    return refused.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("numpy>=2\n\npandas\n", ("numpy>=2", "pandas")),
        ("# all\nnumpy  # why\n#pandas\n", ("numpy",)),
        ("numpy==2 \\\n  --hash=sha256:ab \\\n  --hash=sha256:cd\nsix",
         ("numpy==2 --hash=sha256:ab --hash=sha256:cd", "six")),
        ("a \\\n# of a\nb", ("a", "b")),
        ("x @ https://host/x.whl#egg=x", ("x @ https://host/x.whl#egg=x",)),
        ("--extra-index-url https://host/simple\nnumpy",
         ("--extra-index-url https://host/simple", "numpy")),
        ("/nfs/wheels/x-1-py3-none-any.whl", ("/nfs/wheels/x-1-py3-none-any.whl",)),
        ("--find-links /nfs/wheels", ("--find-links /nfs/wheels",)),
        ("\ufeffnumpy\r\npandas\r\n", ("numpy", "pandas")),
        ("", ()),
    ],
)  # fmt: skip
def test_a_file_is_read_as_pip_reads_it(tmp_path, text, expected):
    assert lines(tmp_path, text) == expected


@pytest.mark.parametrize(
    "option", ["-r b.txt", "-rb.txt", "--requirement b.txt", "--requirement=b.txt"]
)
def test_included_files_are_part_of_it(tmp_path, option):
    assert lines(tmp_path, f"a\n{option}\nc", b_txt="b\n-r main.txt") == ("a", "c", "b")


def test_constraints_are_kept_apart_with_what_they_include(tmp_path):
    read = requirements.read(
        project(tmp_path, main_txt="a\n-c c.txt\n", c_txt="a<2\n-r d.txt", d_txt="b<3")
    )
    assert read == requirements.Requirements(("a",), ("a<2", "b<3"))


@pytest.mark.parametrize(
    "path",
    ["-e .", "--editable ./lib", ".", "./x.whl", "../lib", "lib/x", "x-1.whl", "~/x",
     "-f wheels", "-f wheels/", "--find-links=./wheels"],
)  # fmt: skip
def test_a_path_of_the_controller_is_refused_with_its_line(tmp_path, path):
    assert refusal(tmp_path, f"numpy\n\n{path}\n") == (
        f"env.requirements: main.txt, line 3: {path} is a path on the controller, which the hosts "
        "do not have"
    )


def test_a_missing_file_is_named(tmp_path):
    message = refusal(tmp_path, "-r other.txt")
    assert message == f"env.requirements: {tmp_path / 'other.txt'} does not exist"


def test_a_package_in_place_of_a_file_is_explained(tmp_path):
    with pytest.raises(PlanError) as refused:
        requirements.read(of(tmp_path, "tensorflow"))
    assert refused.value.hint == 'for packages, write a list: requirements = ["tensorflow"]'


def test_a_folder_or_a_binary_file_is_refused(tmp_path):
    (tmp_path / "folder.txt").mkdir()
    assert "is not a file" in refusal(tmp_path, "-r folder.txt")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in refusal(tmp_path, "-r binary.txt")


def test_a_pyproject_gives_its_dependencies(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["a >= 1", "b"]')
    assert requirements.read(of(tmp_path, "pyproject.toml")).lines == ("a >= 1", "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[project]\ndynamic = ["dependencies"]', "are dynamic"),
        ("[project", r"pyproject\.toml: not valid TOML"),
        ("project = 1", r"pyproject\.toml: project is not a table"),
        ("project.dynamic = 1", r"project\.dynamic is not a list"),
        ("a = " + "9" * 5000, r"pyproject\.toml: it has a number of too many digits"),
        (".".join("a" * 1000) + " = 1", r"pyproject\.toml: its values are nested too deeply"),
        ('[project]\ndependencies = "a"', "is not a list of texts"),
    ],
)
def test_a_pyproject_without_readable_dependencies_is_refused(tmp_path, text, words):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(PlanError, match=words):
        requirements.read(of(tmp_path, "pyproject.toml"))


def test_a_lock_is_kept_as_it_is_with_its_project(tmp_path):
    texts = {"uv.lock": "version = 1", "pyproject.toml": "[project]"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert requirements.read(of(tmp_path, "uv.lock")).locked == texts
    (tmp_path / "pyproject.toml").unlink()
    with pytest.raises(PlanError, match=r"pyproject\.toml does not exist"):
        requirements.read(of(tmp_path, "uv.lock"))


def test_all_files_are_found_also_those_that_do_not_exist(tmp_path):
    found = requirements.files(project(tmp_path, main_txt="-r /etc/a\n-r b.txt", b_txt="-c ../c"))
    names = [str(file) for file in found]
    assert names == [f"{tmp_path}/main.txt", "/etc/a", f"{tmp_path}/b.txt"]


def test_a_list_has_no_files(tmp_path):
    listed = inventories.parse(
        hosts_toml(top='[env]\nrequirements = ["a"]'), tmp_path / "hosts.toml"
    )
    assert [*requirements.files(listed)] == []
    assert requirements.read(listed).lines == ("a",)
