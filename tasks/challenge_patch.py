"""What is wrong with a code patch before it is laid over a package: files that it may not touch, and edits that are none."""

import re
from pathlib import PurePosixPath

from serving.engine_env import files_in_engine, version_in_engine
from serving.patch import shape_fault
from tasks.patch import NOWHERE, FilePatch, read_patch
from tasks.records import CodePatch
from tasks.refusal import Objection, RefusedFor

# By a part of the path: what measures, tests or watches the engine judges the patch, so no patch may change it.
JUDGING = re.compile(
    r"(tests?|test_.*|bench(mark)?s?|bench_.*|observability|metrics.*|profil.*|debug_utils|eval.*)(\.py)?"
)
# What says which arguments and modules run, and where the account of weights is taken.
PROVING = frozenset({"sglang/srt/entrypoints/http_server.py", "sglang/version.py", "sglang/srt/model_loader/loader.py"})
# Names by which code of an engine process gets hold of what tells of it (serving/watch).
WATCHING = re.compile(
    r"INFRA_AGENT_\w*|\bwatched_process\b|\baccount_of_weights\b|\b(site|user)customize\b|\bmeta_path\b|\bpath_hooks\b"
)


def object_to_patch(patch: CodePatch) -> Objection | None:
    """The first objection to the patch. Version and files are only looked at where an engine environment is."""
    files = read_patch(patch.diff)
    if files is None:
        return Objection(
            reason=RefusedFor.UNREADABLE_PATCH,
            says=shape_fault(patch.diff) or "`diff` is no unified diff",
            hint="lines `--- a/PATH` and `+++ b/PATH`, then hunks that begin with `@@ -1,2 +1,2 @@`",
        )
    installed = files_in_engine(patch.package)
    for file in files:
        for path in {file.old, file.new} - {NOWHERE}:
            why = _forbidden(path, patch.package, installed)
            if why is not None:
                hint = f"a patch touches `.py` files of `{patch.package}` itself, and none that judge the engine"
                return Objection(reason=RefusedFor.FORBIDDEN_FILE, says=f"`{path}` {why}", hint=hint)
    return _watched(files) or _version(patch, files, installed) or _misshapen(patch.diff) or _idle(files)


def unchecked_patch(patch: CodePatch) -> str | None:
    """What the rules could not look at on this machine, or None."""
    if files_in_engine(patch.package) is not None:
        return None
    return f"version and files of `{patch.package}` were not looked at: the engine environment here does not have it"


def _forbidden(path: str, package: str, installed: frozenset[str] | None) -> str | None:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\\" in path:
        return "is not a path inside of the package"
    if pure.suffix != ".py":
        return "is no Python source"
    tops = {name.split("/")[0] for name in installed} if installed else {package.replace("-", "_")}
    if pure.parts[0] not in tops:
        return f"is not a file of `{package}`"
    if path in PROVING or any(JUDGING.fullmatch(part) for part in pure.parts[1:]):
        return "belongs to what measures or proves what runs"
    return None


def _version(patch: CodePatch, files: tuple[FilePatch, ...], installed: frozenset[str] | None) -> Objection | None:
    if installed is None:
        return None
    version = version_in_engine(patch.package)
    if version != patch.version:
        says = f"the patch is for `{patch.package}` `{patch.version}`, and the engine has `{version}`"
        return Objection(reason=RefusedFor.WRONG_VERSION, says=says, hint=f"write it against `{version}`")
    absent = [file.old for file in files if file.old != NOWHERE and file.old not in installed]
    if not absent:
        return None
    says = f"`{absent[0]}` is no file of `{patch.package}` `{version}`"
    return Objection(reason=RefusedFor.FORBIDDEN_FILE, says=says, hint="name a file that is there: a patch adds none")


def _watched(files: tuple[FilePatch, ...]) -> Objection | None:
    """A process tells of itself, so its code can lie; this finds what does not even hide it."""
    added = "\n".join(line for file in files for edit in file.edits for line in edit.added)
    found = WATCHING.search(added)
    if found is None:
        return None
    says = f"the patch names `{found[0]}`, by which its process tells what runs in it"
    return Objection(reason=RefusedFor.FORBIDDEN_FILE, says=says, hint="leave what watches the engine alone")


def _misshapen(diff: str) -> Objection | None:
    """What the build would say of it, before a build."""
    says = shape_fault(diff)
    if says is None:
        return None
    hint = "change lines of modules that are there, with hunks whose counts are right"
    return Objection(reason=RefusedFor.UNREADABLE_PATCH, says=says, hint=hint)


def _idle(files: tuple[FilePatch, ...]) -> Objection | None:
    if any(file.edits or file.old != file.new for file in files):
        return None
    return Objection(
        reason=RefusedFor.NO_CHANGE,
        says="the patch changes nothing but spaces and comments",
        hint="change what the code does",
    )
