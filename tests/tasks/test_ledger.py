"""The ledger loses nothing, hides nothing and overwrites nothing."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from examples import block, build, evidence, experiment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.errors import BadInput, Broken
from tasks.history import attempts, latest
from tasks.ledger import Ledger
from tasks.records import Arm, Outcome, Rung, Verdict
from tasks.stats import statistics_text

STATIC = evidence(Rung.STATIC, block(Arm.CANDIDATE, "warp_instructions", 10.0))


def fill(url: str, records: int = 4) -> list[Path]:
    """An experiment with up to four records, and its files."""
    ledger, view = Ledger(url), experiment()
    stored = [view.hypothesis, view.plan, build(view.hypothesis), STATIC][:records]
    for record in stored:
        ledger.append(view.hypothesis_id, view.attempt, record)
    return sorted(Path(ledger.root).rglob("*.json"))


def test_an_experiment_is_read_back_as_it_was_stored(tmp_path: Path) -> None:
    names = [path.name for path in fill(f"file://{tmp_path}/l")]
    assert names == ["0001-hypothesis.json", "0002-plan.json", "0003-build.json", "0004-evidence.json"]
    found = latest(Ledger(f"file://{tmp_path}/l"), experiment().hypothesis_id[:6])
    assert found.hypothesis == experiment().hypothesis
    assert found.evidence == (STATIC,)
    assert found.build == build(found.hypothesis)


@given(where=st.floats(0, 1), victim=st.integers(0, 3), how=st.sampled_from(["cut", "flip", "empty", "binary"]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_object_is_reported_and_hides_no_other(
    tmp_path_factory: pytest.TempPathFactory, where: float, victim: int, how: str
) -> None:
    url = f"file://{tmp_path_factory.mktemp('ledger')}/l"
    path = fill(url)[victim]
    content = path.read_bytes()
    at = int(where * (len(content) - 2))
    flipped = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    path.write_bytes({"cut": content[:at], "flip": flipped, "empty": b"", "binary": bytes(range(256))}[how])
    found = Ledger(url).read()
    assert len(found.entries) + len(found.damaged) == 4
    assert [damage.path.rsplit("/")[-1] for damage in found.damaged] == [path.name]
    assert "damaged objects: 1" in statistics_text(found)


def test_a_write_that_never_finished_is_reported(tmp_path: Path) -> None:
    path = fill(f"file://{tmp_path}/l")[0]
    (path.parent / "0005-verdict.json.0123.part").write_text('{"kind": "ver')
    found = Ledger(f"file://{tmp_path}/l").read()
    assert len(found.entries) == 4
    assert "never finished" in found.damaged[0].reason


def test_a_process_killed_between_two_stages_loses_no_finished_record(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/l"
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from examples import *; from tasks.ledger import Ledger\n"
        "view, book = experiment(), Ledger(sys.argv[1])\n"
        "for record in (view.hypothesis, view.plan, build(view.hypothesis)):\n"
        "    book.append(view.hypothesis_id, view.attempt, record)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    tests = str(Path(__file__).parents[1])
    ended = subprocess.run([sys.executable, "-P", "-c", code, url, tests], check=False, capture_output=True)
    assert ended.returncode == -9, ended.stderr
    found = Ledger(url).read()
    assert [entry.kind for entry in found.entries] == ["hypothesis", "plan", "build"]
    assert not found.damaged
    Ledger(url).append(experiment().hypothesis_id, "20260102T000000Z-bbbbbb", STATIC)
    assert len(Ledger(url).read().entries) == 4


def test_writers_at_the_same_time_overwrite_nothing(tmp_path: Path) -> None:
    url, view = f"file://{tmp_path}/l", experiment()

    def write() -> None:
        for _ in range(10):
            Ledger(url).append(view.hypothesis_id, view.attempt, STATIC)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = Ledger(url).read()
    assert sorted(entry.seq for entry in found.entries) == list(range(1, 41))


def test_the_same_code_keeps_a_ledger_in_other_storage() -> None:
    url = f"memory://ledger-{os.getpid()}"
    ledger, view = Ledger(url), experiment()
    ledger.check_writable()
    ledger.append(view.hypothesis_id, view.attempt, view.hypothesis)
    ledger.append(view.hypothesis_id, view.attempt, view.plan)
    assert latest(Ledger(url), view.hypothesis_id).plan == view.plan


def test_attempts_at_one_hypothesis_are_kept_apart(tmp_path: Path) -> None:
    url, view = f"file://{tmp_path}/l", experiment()
    fill(url)
    ledger = Ledger(url)
    verdict = Verdict(hypothesis_id=view.hypothesis_id, outcome=Outcome.REJECTED, reason="no")
    for record in (view.hypothesis, view.plan, verdict):
        ledger.append(view.hypothesis_id, "20260102T000000Z-bbbbbb", record)
    first, second = attempts(ledger.read())
    assert (first.verdict, first.evidence) == (None, (STATIC,))
    assert (second.verdict, second.evidence) == (verdict, ())
    assert latest(ledger, view.hypothesis_id) == second


@pytest.mark.parametrize("prefix", ["", "ffff", "no-such-id"])
def test_an_unknown_id_is_bad_input(tmp_path: Path, prefix: str) -> None:
    fill(f"file://{tmp_path}/l")
    with pytest.raises(BadInput, match=f"`{prefix}`"):
        latest(Ledger(f"file://{tmp_path}/l"), prefix)


def test_a_ledger_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Broken, match="not writable"):
        Ledger(f"file://{tmp_path}/file/ledger").check_writable()


def test_foreign_names_pipes_and_many_objects_do_not_disturb_the_ledger(tmp_path: Path) -> None:
    folder = fill(f"file://{tmp_path}/l")[0].parent
    (folder / "²²²²-x.txt").write_text("foreign")
    os.mkfifo(folder / "0007-evidence.json")
    (folder / "9999-note.txt").write_text("foreign")
    ledger, view = Ledger(f"file://{tmp_path}/l"), experiment()
    numbers = [ledger.append(view.hypothesis_id, view.attempt, STATIC).seq for _ in range(3)]
    assert numbers == [10000, 10001, 10002]
    assert len(ledger.read().entries) == 7


def test_an_unknown_protocol_is_bad_input() -> None:
    with pytest.raises(BadInput, match="nosuch"):
        Ledger("nosuch://bucket/ledger")


def test_an_empty_ledger_has_statistics(tmp_path: Path) -> None:
    assert "attempts: 0" in statistics_text(Ledger(f"file://{tmp_path}/none").read())
