"""Code that one arm runs instead of what is installed: laid into a folder of the run, before site-packages on its path.

Of a package that a patch touches, the folder holds a copy: its own files where the patch changes or adds one, and links
to the installed ones everywhere else. Nothing is written to the installed files, compiled ones included.
"""

import hashlib
import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from serving.engine_env import installed_packages
from serving.patch import PatchFault, apply_patch, touched_functions


@dataclass(frozen=True)
class Overlay:
    """`files`: path in site-packages to content, of changed files and of new ones.

    `install`: the module after whose import `splice.install()` is called. `counted`: functions as `module:qualified.name`
    whose calls prove that the overlay is at work, and are timed in both arms.
    """

    files: Mapping[str, bytes]
    install: str | None = None
    counted: tuple[str, ...] = ()
    modules: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "modules", tuple(module_of(path) for path in self.files if path.endswith(".py")))

    @property
    def digests(self) -> dict[str, str]:
        """sha256 of each file, by path."""
        return {path: hashlib.sha256(content).hexdigest() for path, content in sorted(self.files.items())}


def module_of(path: str) -> str:
    """`sglang/srt/utils/__init__.py` is `sglang.srt.utils`."""
    return ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")


def patched_files(package: str, version: str, diff: str) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Path to new content and the functions that a patch touches, from the installed files of a package of the engine.

    Raises PatchFault for another version, for a path outside of the package, and for a patch that does not fit it.
    """
    distribution = _installed(package, version)

    def read(path: str) -> str:
        return _own_file(distribution, path).read_bytes().decode()

    found = {}
    for path, patched in apply_patch(diff, read).items():
        module = module_of(path)
        found[path] = patched.text.encode(), tuple(f"{module}:{name}" for name in touched_functions(patched))
    return found


def _installed(package: str, version: str) -> importlib.metadata.Distribution:
    folders = [str(folder) for folder in installed_packages()]
    found = next(iter(importlib.metadata.distributions(name=package, path=folders)), None)
    if found is None:
        raise PatchFault(f"the engine has no package `{package}`")
    if found.version != version:
        raise PatchFault(f"the patch is for {package} `{version}`, the engine has `{found.version}`")
    return found


def _own_file(distribution: importlib.metadata.Distribution, path: str) -> Path:
    """A Python file of the distribution, by the list that its wheel brought. Raises PatchFault."""
    name, parts = distribution.metadata["Name"], PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or "\\" in path:
        raise PatchFault(
            f"`{path}` leads out of the package: paths are relative to site-packages, as in `a/{name}/...`"
        )
    own = next((file for file in distribution.files or () if file.as_posix() == path), None)
    if own is None or not Path(str(own.locate())).is_file():
        raise PatchFault(f"`{path}` is no file of {name} `{distribution.version}`")
    if not path.endswith(".py") or len(parts) < 2:
        raise PatchFault(f"`{path}` is no module of a package: that it runs could not be proved")
    return Path(str(own.locate()))


def lay(overlay: Overlay, folder: Path) -> None:
    """Makes `folder` so that, put before site-packages on the path of a process, it gives it the files of the overlay."""
    folder.mkdir(parents=True)
    for path, content in overlay.files.items():
        _own_folder(PurePosixPath(path).parent, folder)
        file = folder / path
        file.unlink(missing_ok=True)  # a link to the installed file
        file.write_bytes(content)


def _own_folder(wanted: PurePosixPath, root: Path) -> None:
    """A real folder whose entries are links to the installed ones.

    Compiled files are not linked: the compiled form of a patched file would be written over that of the installed one.
    """
    if not wanted.parts:
        return
    _own_folder(wanted.parent, root)
    target = root / wanted
    if target.is_dir() and not target.is_symlink():
        return
    target.unlink(missing_ok=True)
    target.mkdir()
    installed = next(site / wanted for site in installed_packages() if (site / wanted).is_dir())
    for entry in os.scandir(installed):
        if entry.name != "__pycache__":
            (target / entry.name).symlink_to(entry.path)
