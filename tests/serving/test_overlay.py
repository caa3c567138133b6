"""Code is laid over a copy of a package: a process finds it there, and nothing that is installed changes."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from serving.errors import Broken
from serving.launch import with_variables
from serving.overlay import Overlay, lay, patched_files
from serving.patch import PatchFault
from serving.replicas import Replica
from serving.witness import WATCH, Witness, check_weights, watched

FILES = {
    "pack/__init__.py": "",
    "pack/deep/__init__.py": "",
    "pack/deep/mod.py": "def f():\n    return 1\n\n\nclass C:\n    @staticmethod\n    def s():\n        return 2\n",
    "pack/deep/other.py": "from pack.deep.mod import f\n",
    "pack/data.txt": "text\n",
    "pack-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: pack\nVersion: 1.0\n",
}
PATCH = "--- a/pack/deep/mod.py\n+++ b/pack/deep/mod.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 10\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package, compiled, with the list of its files."""
    site = tmp_path / "lib" / "python3.0" / "site-packages"
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / "pack-1.0.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in FILES))
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(site)], check=True)
    monkeypatch.setattr("serving.overlay.installed_packages", lambda: [site])
    return site


def patched() -> Overlay:
    ((path, (content, functions)),) = patched_files("pack", "1.0", PATCH).items()
    return Overlay({path: content}, counted=functions)


def content_of(folder: Path) -> dict[str, str]:
    """Every file with its digest, and every entry with its time of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        shown = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[path.relative_to(folder).as_posix()] = f"{shown} {path.lstat().st_mtime_ns}"
    return found


def python(code: str, site: Path, path: list[str], **variables: str) -> str:
    environment = {"PYTHONPATH": ":".join([*path, str(site)]), "PATH": os.environ["PATH"], **variables}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_process_runs_the_patched_file_and_its_neighbours_as_installed(site: Path, tmp_path: Path) -> None:
    lay(patched(), tmp_path / "overlay")
    code = "import pack.deep.other as o, pack.deep.mod as m; print(o.f(), m.__file__)"
    shown = python(code, site, [str(tmp_path / "overlay")])
    assert shown == f"10 {tmp_path / 'overlay' / 'pack/deep/mod.py'}"
    assert (tmp_path / "overlay" / "pack" / "data.txt").read_text() == "text\n"


def test_an_overlay_leaves_no_trace_in_the_installed_files(site: Path, tmp_path: Path) -> None:
    """A link to the folder of compiled files would let the patched module overwrite the installed one's."""
    before = content_of(site)
    lay(patched(), tmp_path / "overlay")
    python("import pack.deep.other", site, [str(tmp_path / "overlay")])
    assert content_of(site) == before
    assert python("import pack.deep.other as o; print(o.f())", site, []) == "1"


REFUSED = {
    "the engine has `1.0`": ("2.0", PATCH),
    "is no file of pack": ("1.0", PATCH.replace("mod.py", "missing.py")),
    "leads out of the package": ("1.0", PATCH.replace("pack/deep/mod.py", "pack/../../secret.py")),
    "is no module": ("1.0", "--- a/pack/data.txt\n+++ b/pack/data.txt\n@@ -1,1 +1,1 @@\n-text\n+other\n"),
    "SyntaxError": ("1.0", PATCH.replace("+    return 10", "+    return (")),
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_patch_that_cannot_be_laid_is_refused_with_the_reason(said: str, site: Path) -> None:
    version, text = REFUSED[said]
    with pytest.raises(PatchFault, match=said):
        patched_files("pack", version, text)


def test_an_absolute_path_and_an_unknown_package_are_refused(site: Path) -> None:
    with pytest.raises(PatchFault, match="leads out"):
        patched_files("pack", "1.0", PATCH.replace("a/pack", "/pack").replace("b/pack", "/pack"))
    with pytest.raises(PatchFault, match="no package `other`"):
        patched_files("other", "1.0", PATCH)


def watch(folder: Path, overlay: Overlay, laid: bool = True) -> tuple[Witness, dict[str, str]]:
    return watched(folder, "gpu", overlay, overlay if laid else None)


def test_a_process_tells_the_digest_of_what_it_imported_and_counts_its_calls(site: Path, tmp_path: Path) -> None:
    overlay = patched()
    witness, variables = watch(tmp_path / "arm", overlay)
    path = variables.pop("PYTHONPATH").split(":")
    python("from pack.deep.other import f; [f() for _ in range(3)]", site, path, **variables)
    assert witness.modules() == {"pack.deep.mod": {overlay.digests["pack/deep/mod.py"]}}
    (counted,) = witness.calls().values()
    assert counted.calls == 3
    assert counted.ns > 0


def test_the_other_arm_tells_another_digest_for_the_same_module(site: Path, tmp_path: Path) -> None:
    overlay = patched()
    witness, variables = watch(tmp_path / "arm", overlay, laid=False)
    path = variables.pop("PYTHONPATH").split(":")
    python("import pack.deep.mod", site, path, **variables)
    assert witness.modules() == {"pack.deep.mod": {hashlib.sha256(FILES["pack/deep/mod.py"].encode()).hexdigest()}}


def test_what_is_never_imported_or_cannot_be_counted_is_told_and_not_assumed(site: Path, tmp_path: Path) -> None:
    overlay = Overlay(patched().files, counted=("pack.deep.mod:C.s", "pack.deep.mod:gone", "pack.never:f"))
    witness, variables = watch(tmp_path / "arm", overlay)
    path = variables.pop("PYTHONPATH").split(":")
    python("import pack.deep.mod as m; m.C.s()", site, path, **variables)
    (report,) = witness.reports()
    assert "staticmethod" in report.uncounted["pack.deep.mod:C.s"]
    assert "not there" in report.uncounted["pack.deep.mod:gone"]
    assert {found.calls for found in witness.calls().values()} == {0}


def test_a_splice_is_installed_after_the_import_of_the_module_that_it_changes(site: Path, tmp_path: Path) -> None:
    splice = (
        b"from importlib import import_module\n\nfrom candidate import run\n\n\n"
        b"def install():\n    import_module('pack.deep.mod').f = run\n"
    )
    files = {"splice.py": splice, "candidate.py": b"def run():\n    return 99\n"}
    overlay = Overlay(files, install="pack.deep.mod", counted=("pack.deep.mod:f",))
    witness, variables = watch(tmp_path / "arm", overlay)
    path = variables.pop("PYTHONPATH").split(":")
    assert python("from pack.deep.other import f; print(f())", site, path, **variables) == "99"
    assert set(witness.modules()) == {"candidate", "splice"}
    assert [found.calls for found in witness.calls().values()] == [1]


def test_the_start_file_that_was_first_on_the_path_still_runs(site: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("import os\nos.environ['RAN'] = 'yes'\n")
    assert python("import os; print(os.environ.get('RAN'))", site, [str(WATCH), str(tmp_path / "other")]) == "yes"


def test_a_path_for_python_goes_before_the_one_that_a_process_is_started_with_anyway() -> None:
    replica = Replica("server", "server", ("python",), {"PYTHONPATH": "/stand-ins", "A": "1"}, "127.0.0.1", 1, (), "")
    added = with_variables(replica, {"PYTHONPATH": "/watch", "B": "2"}).environment
    assert added == {"PYTHONPATH": "/watch:/stand-ins", "A": "1", "B": "2"}
    bare = dataclasses.replace(replica, environment={})
    assert with_variables(bare, {"PYTHONPATH": "/watch"}).environment == {"PYTHONPATH": "/watch"}
    assert with_variables(bare, {}).environment == {}


def account(folder: Path, weights: Sequence[dict[str, object]] | None) -> Witness:
    folder.mkdir()
    report = {"pid": 1, "modules": {}, "counted": [], "uncounted": {}, "weights": weights}
    (folder / "1.json").write_text(json.dumps(report))
    return Witness(folder, ())


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([{"unused": ["a.weight"], "unfilled": []}], "no use of weights in the checkpoint: `a.weight`"),
        ([{"unused": ["a.weight"], "unfilled": ["b", "c", "d", "e", "f"]}], "`b`, `c`, `d`, `e` and 1 more"),
        (None, "no account"),
    ],
)
def test_weights_that_were_not_accounted_for_are_broken_with_their_names(
    weights: list[dict[str, object]] | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(Broken, match=said):
        check_weights("server", account(tmp_path / "reports", weights))


def test_of_several_roles_a_key_must_be_used_by_one_and_a_parameter_filled_in_each(tmp_path: Path) -> None:
    """Each role takes its own part of the checkpoint."""
    encode = {"unused": ["norm", "head"], "unfilled": []}
    whole = account(tmp_path / "whole", [encode, {"unused": ["tower"], "unfilled": []}])
    check_weights("stack", whole, several_roles=True)
    with pytest.raises(Broken, match="no use of weights in the checkpoint: `head`, `norm`, `tower`"):
        check_weights("server", whole)
    for prefill, said in (
        ({"unused": ["tower", "head"], "unfilled": []}, "no use of weights in the checkpoint: `head`"),
        ({"unused": ["tower"], "unfilled": ["norm"]}, "nothing was loaded into: `norm`"),
    ):
        with pytest.raises(Broken, match=said):
            check_weights("stack", account(tmp_path / said.split()[1], [encode, prefill]), several_roles=True)


def test_weights_that_are_all_used_and_filled_say_nothing(tmp_path: Path) -> None:
    check_weights("server", account(tmp_path / "reports", [{"unused": [], "unfilled": []}]))


def test_weights_that_are_left_out_on_purpose_say_what_is_computed_instead(tmp_path: Path) -> None:
    whole = {"unused": [], "unfilled": []}
    witness = account(tmp_path / "reports", [whole | {"left_out": {"dense attention": ["indexer.wk.weight"]}}])
    check_weights("server", witness)
    assert witness.departures() == ("dense attention",)
    assert account(tmp_path / "others", [whole]).departures() == ()
