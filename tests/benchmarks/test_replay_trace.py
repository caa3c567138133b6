"""The replay of a scenario against a server that runs: what it writes, prints and refuses."""

import json
import sys
from pathlib import Path

import pytest
from fake_engine import FakeEngine, listening
from fake_stack import free_ports

from serving.home import REPOSITORY
from serving.jsonl import read_jsonl
from serving.request_record import RequestRecord

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

from replay_trace import main, parser

SCENARIO = REPOSITORY / "serving" / "scenarios" / "mooncake-conversation-cpu.yaml"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["replay_trace.py", *map(str, arguments)])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_replay_writes_a_line_for_each_request_and_a_summary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(FakeEngine()) as engine:
        assert run(monkeypatch, "--url", engine.base_url, "--requests", 5, "--out", tmp_path) == 0
    records = read_jsonl(tmp_path / "mooncake-conversation-cpu.requests.jsonl", RequestRecord)
    assert len(records) == 5
    assert json.loads((tmp_path / "mooncake-conversation-cpu.json").read_text())["completed"] == 5
    printed = capsys.readouterr().out
    assert "5 requests: 5 completed, 0 failed, 0 cancelled; 0 found cached tokens" in printed
    assert "the trace's hashes find 64 prompt tokens" in printed


def test_a_sweep_prints_a_line_for_each_rate_and_the_best_with_its_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(FakeEngine()) as engine:
        arguments = ("--url", engine.base_url, "--devices", 2, "--requests", 4, "--rates", 50, 100, "--out", tmp_path)
        assert run(monkeypatch, *arguments) == 0
    assert [point["rate_per_s"] for point in json.loads((tmp_path / "sweep.json").read_text())] == [50, 100]
    assert {file.name for file in tmp_path.glob("*.requests.jsonl")} == {
        "rate-50.requests.jsonl",
        "rate-100.requests.jsonl",
    }
    assert "4 of 4 requests within TTFT 2500 ms and TPOT 150 ms" in capsys.readouterr().out


def test_a_client_that_is_late_ends_as_broken_and_keeps_its_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = tmp_path / "strict.yaml"
    text = SCENARIO.read_text().replace("greatest_send_lag_ms: 50 ", "greatest_send_lag_ms: 0.000001 ")
    strict.write_text(text.replace("../traces", str(SCENARIO.parents[1] / "traces")))
    with listening(FakeEngine()) as engine:
        arguments = (strict, "--url", engine.base_url, "--requests", 3, "--out", tmp_path)
        assert run(monkeypatch, *arguments) == 4
    assert "the client was late" in capsys.readouterr().err
    assert len(read_jsonl(tmp_path / "mooncake-conversation-cpu.requests.jsonl", RequestRecord)) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--requests", "201"), "has 200 requests, a block takes 201"),
        ((SCENARIO.with_name("mixed-lengths-cpu.yaml"), "--rates", "1"), "there is no rate to set"),
        ((SCENARIO.with_name("images-epd-cpu.yaml"), "--trace", "x"), "is `images`"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_a_server_starts(
    arguments: tuple[object, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--url", "nowhere"), "is not `http://host:port`"),
        (("--url", "http://127.0.0.1:99999"), "Port out of range"),
        (("--url", "http://somebody:secret@127.0.0.1:9"), "without a user"),
        (("--url", "http://127.0.0.1:9", "--devices", -2), "`--devices` is `-2`"),
        (("--url", "http://127.0.0.1:9", "--devices", 0), "`--devices` is `0`"),
        (("--url", "http://127.0.0.1:9", "--rates", 5, 5), "the same files"),
        (("--url", "http://127.0.0.1:9", "--rates", "nan"), "is no rate"),
        (("--url", "http://127.0.0.1:9", "--out", SCENARIO), "`--out`: cannot make"),
    ],
)
def test_an_option_that_cannot_be_used_is_bad_input_and_shows_no_password(
    arguments: tuple[object, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "secret" not in shown


def test_a_replay_whose_requests_failed_is_broken_and_keeps_its_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(FakeEngine(fail_every=2)) as engine:
        assert run(monkeypatch, "--url", engine.base_url, "--requests", 4, "--out", tmp_path) == 4
    assert "2 of 4 requests failed; the limit is" in capsys.readouterr().err
    assert len(read_jsonl(tmp_path / "mooncake-conversation-cpu.requests.jsonl", RequestRecord)) == 4


@pytest.mark.parametrize("more", [(), ("--devices", 1)])
def test_a_url_where_nobody_answers_brings_the_question_whether_the_stack_is_up(
    more: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    assert run(monkeypatch, "--url", f"http://127.0.0.1:{port}", *more, "--out", tmp_path) == 4
    err = capsys.readouterr().err
    assert f"no answer at `http://127.0.0.1:{port}`" in err
    assert "hint: is the stack up?" in err


def test_every_option_of_the_replay_has_a_help_text() -> None:
    assert [action.dest for action in parser()._actions if not action.help] == []
