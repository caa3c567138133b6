"""Whose fault the end of a process was, by its status and its log."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from serving.endings import EngineEnded, last_error, why_it_ended

# As SGLang 0.5.23 writes it at every start without its own warm-up.
HARMLESS = """[2026-11-30 21:20:34] post-warmup freeze_gc failed
Traceback (most recent call last):
  File "connection.py", line 1, in connect
ConnectionRefusedError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
urllib3.exceptions.MaxRetryError: HTTPConnectionPool(host='127.0.0.1', port=1): Max retries exceeded with url: /freeze_gc

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
requests.exceptions.ConnectionError: HTTPConnectionPool(host='127.0.0.1', port=1): Max retries exceeded with url: /freeze_gc
[2026-11-30 21:20:34] The server is fired up and ready to roll!
"""
REAL = "[2026-11-30 21:20:40] Scheduler hit an exception: Traceback\nValueError: planted\n"
CHAINED = "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\nRuntimeError: b\n"
NO_ADDRESS = """[2026-12-01 03:23:31] INFO:     Application startup complete.
ERROR:    [Errno 99] error while attempting to bind on address ('10.9.1.2', 1): cannot assign requested address
"""
CHILD_FAILED = "[2026-11-30 21:20:40] Received sigquit from a child process. It usually means the child failed.\n"


def ended(status: int, log: str, folder: Path) -> EngineEnded:
    file = folder / "engine.log"
    file.write_text(log)
    process = SimpleNamespace(name="decode", exit_status=lambda: status, log_file=file)
    return why_it_ended(process)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (HARMLESS, None),
        (HARMLESS + REAL, "ValueError: planted"),
        (REAL + HARMLESS, "ValueError: planted"),
        (CHAINED, "RuntimeError: b"),
        (CHAINED + HARMLESS, "RuntimeError: b"),
        ("nothing of note\n", None),
        (NO_ADDRESS + HARMLESS, NO_ADDRESS.splitlines()[1].strip()),
    ],
)
def test_the_last_error_is_the_last_exception_that_did_harm(log: str, said: str | None) -> None:
    assert last_error(log) == said


@pytest.mark.parametrize("log", [HARMLESS, HARMLESS + REAL])
def test_who_was_killed_is_not_to_blame_whatever_its_log_held_before(log: str, tmp_path: Path) -> None:
    told = ended(-9, log, tmp_path)
    assert told.message == "`decode` was ended from outside, by SIGKILL"
    assert not told.refused


@pytest.mark.parametrize(
    ("status", "log", "refused"),
    [
        (1, REAL, True),
        (-11, REAL, True),
        (-9, REAL + CHILD_FAILED, True),  # SGLang ends itself so when its scheduler has failed
        (1, HARMLESS, False),
        (1, REAL + "OSError: [Errno 28] No space left on device\n", False),
    ],
)
def test_an_end_of_its_own_is_its_fault_if_its_log_has_the_reason(
    status: int, log: str, refused: bool, tmp_path: Path
) -> None:
    told = ended(status, log, tmp_path)
    assert told.refused is refused
    assert f"ended with status {status}; last error in its log" in told.message
