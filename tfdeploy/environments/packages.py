"""The packages that a program needs, and those in which hosts differ. Pure."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdeploy.release.modules import Module
    from tfdeploy.release.syntax import Import

    Packages = Mapping[str, str]

# By module, if the name of its package is another one.
PACKAGES = {
    "absl": "absl-py",
    "attr": "attrs",
    "Bio": "biopython",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "gflags": "python-gflags",
    "gin": "gin-config",
    "git": "gitpython",
    "google.protobuf": "protobuf",
    "googleapiclient": "google-api-python-client",
    "grpc": "grpcio",
    "hydra": "hydra-core",
    "imblearn": "imbalanced-learn",
    "mpl_toolkits": "matplotlib",
    "official": "tf-models-official",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pylab": "matplotlib",
    "pywt": "pywavelets",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "sonnet": "dm-sonnet",
    "tree": "dm-tree",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
GOOGLE_CLOUD = "google.cloud."


def find(program: Mapping[str, Module]) -> dict[str, tuple[str, Import]]:
    """Return the packages that the modules of a program can't go on without, except Python's own,
    each with the file and the import that needs it first."""
    found: dict[str, tuple[str, Import]] = {}
    for path, module in program.items():
        for each in module.foreign:
            if not each.is_optional and each.top not in sys.stdlib_module_names:
                found.setdefault(package_of(each.full_name), (path, each))
    return found


def missing(program: Mapping[str, Module], file: str, line: int, module: str) -> str:
    """Return the package to install if an import in a line of a program does not find a module.

    The module may be only the start of what the line names: `google` of google.cloud.storage.
    """
    written = program[file].foreign if file in program else ()
    names = [each.full_name for each in written if each.line == line]
    return package_of(next((n for n in names if f"{n}.".startswith(f"{module}.")), module))


def package_of(module: str) -> str:
    """Return the name of the package that has a module."""
    words = module.split(".")
    for count in range(len(words), 0, -1):
        if name := PACKAGES.get(".".join(words[:count])):
            return name
    if module.startswith(GOOGLE_CLOUD):
        return "-".join(words[:3])
    return words[0]


MAX_NAMED = 3  # packages that an error names
# What venv and uv put into an environment by themselves, in any version.
TOOLS = ("pip", "setuptools", "wheel")


def differences(packages: Mapping[str, Packages]) -> Iterator[AgentError]:
    """Yield an error for each host that has another version of a package than most of the hosts
    that have it; `packages` are the versions by package and host."""
    versions: dict[str, Counter[str]] = {}
    for installed in packages.values():
        for name, version in installed.items():
            versions.setdefault(name, Counter())[version] += 1
    mixed = (name for name in versions if len(versions[name]) > 1 and name not in TOOLS)
    usual = {name: versions[name].most_common(1)[0][0] for name in sorted(mixed)}
    for host, installed in packages.items():
        names = [name for name in usual if installed.get(name, usual[name]) != usual[name]]
        if names:
            yield _differs(host, installed, {name: usual[name] for name in names})


def _differs(host: str, installed: Packages, usual: Packages) -> AgentError:
    named = [f"{name} {installed[name]} instead of {usual[name]}" for name in usual][:MAX_NAMED]
    more = len(usual) - len(named)
    others = f" and {format_count(more, 'other package')}" if more else ""
    first = next(iter(usual))
    return AgentError(
        host,
        f"its environment differs from those of other hosts: {', '.join(named)}{others}",
        f'name the version in env.requirements, such as "{first}=={usual[first]}", and push again',
    )
