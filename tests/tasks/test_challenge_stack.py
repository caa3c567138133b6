"""Stack edits and code patches: what SGLang lacks, refuses, ignores or does anyway, and files that nobody may patch."""

from pathlib import Path

import pytest
import yaml
from examples import stack_hypothesis

from serving.arguments import Option
from serving.engine_env import Engine
from serving.errors import Broken
from serving.patch import PatchFault, apply_patch
from serving.stack import load_stack
from tasks.challenge import challenge, unchecked
from tasks.past import Past
from tasks.records import CodePatch, Hypothesis, RefusedFor, RoleEdit, StackEdit, StackTarget


def option(dest: str, default: object, flag: bool = False, choices: tuple[str, ...] | None = None) -> Option:
    kind = "int" if isinstance(default, int) and not flag else "str"
    return Option(dest=dest, flag=flag, type=kind, choices=choices, default=default)


OPTIONS = {
    "chunked-prefill-size": option("chunked_prefill_size", None),
    "max-prefill-tokens": option("max_prefill_tokens", 16384),
    "tp-size": option("tp_size", 1),
    "tensor-parallel-size": option("tp_size", 1),
    "schedule-policy": option("schedule_policy", "fcfs", choices=("fcfs", "lpm", "lof")),
    "enable-metrics": option("enable_metrics", False, flag=True),
    "device": option("device", None),
    "max-total-tokens": option("max_total_tokens", None),
    "disable-radix-cache": option("disable_radix_cache", False, flag=True),
    "enable-hierarchical-cache": option("enable_hierarchical_cache", False, flag=True),
    "enable-hicache": option("enable_hierarchical_cache", False, flag=True),
    "hicache-ratio": option("hicache_ratio", None),
    "enable-linear-replayssm": option("enable_linear_replayssm", False, flag=True),
    "linear-replayssm-cache-len": option("linear_replayssm_cache_len", 16),
}
STATED = {"device": "cpu", "chunked-prefill-size": 512, "enable-metrics": True, "disable-radix-cache": True}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine environment that has the options above."""
    installed = Engine(Path("python"), {"sglang": "0.5.23"}, "x")
    monkeypatch.setattr("serving.arguments.engine", lambda: installed)
    for place in ("serving.arguments", "serving.effective"):
        monkeypatch.setattr(f"{place}.known_arguments", lambda: OPTIONS)


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise Broken("there is no engine environment", "run `make engine`")

    monkeypatch.setattr("serving.effective.known_arguments", absent)
    monkeypatch.setenv("INFRA_AGENT_ENGINE", "/nowhere")


@pytest.fixture
def target(tmp_path: Path) -> StackTarget:
    role = {"port": 31400, "arguments": STATED, "environment": {"OMP_NUM_THREADS": "1"}}
    stack = {"name": "s", "model": "tiny-glm4-moe", "ready_timeout_s": 1, "roles": {"server": role}}
    path = tmp_path / "stack.yaml"
    path.write_text(yaml.safe_dump(stack))
    return StackTarget(stack=str(path), scenario="scenario.yaml", incumbent_digest=load_stack(path).digest)


def edits(target: StackTarget, **parts: object) -> Hypothesis:
    change = StackEdit(roles={"server": RoleEdit.model_validate(parts)})
    return stack_hypothesis().model_copy(update={"target": target, "change": change, "origin": "model"})


def reason(hypothesis: Hypothesis, past: Past | None = None) -> RefusedFor | None:
    refusal = challenge(hypothesis, past or Past())
    return refusal.reason if refusal else None


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"chunked-prefill-size": 1024}, None),
        ({"chunked-prefill-size": None}, None),
        ({"chunked-prefill-size": 512}, RefusedFor.NO_CHANGE),
        ({"chunked-prefill-size": "512"}, RefusedFor.NO_CHANGE),
        ({"max-prefill-tokens": 16384}, RefusedFor.NO_CHANGE),
        ({"max-prefill-tokens": 8192}, None),
        ({"tensor-parallel-size": 1}, RefusedFor.NO_CHANGE),
        ({"schedule-policy": "fcfs"}, RefusedFor.NO_CHANGE),
        ({"schedule-policy": "lof"}, None),
        ({"tp-size": None}, RefusedFor.NO_CHANGE),
        ({"enable-hicache": False}, RefusedFor.NO_CHANGE),
        ({"chunked-prefill-size": 1024, "max-prefill-tokens": 16384}, RefusedFor.NO_CHANGE),
        ({"chunky": 1}, RefusedFor.UNKNOWN_ARGUMENT),
        ({"chunked-prefil-size": 1024}, RefusedFor.UNKNOWN_ARGUMENT),
        ({"schedule-policy": "whenever"}, RefusedFor.UNKNOWN_ARGUMENT),
        ({"tp-size": "many"}, RefusedFor.UNKNOWN_ARGUMENT),
        ({"enable-metrics": None}, RefusedFor.UNKNOWN_ARGUMENT),
        ({"port": 31500}, RefusedFor.UNKNOWN_ARGUMENT),
        ({"schedule-policy": "lpm"}, RefusedFor.IGNORED_ARGUMENT),
        ({"schedule-policy": "lpm", "disable-radix-cache": None}, None),
        ({"enable-hierarchical-cache": True}, RefusedFor.IGNORED_ARGUMENT),
        ({"enable-hicache": True}, RefusedFor.IGNORED_ARGUMENT),
        ({"enable-hicache": True, "disable-radix-cache": None}, None),
        ({"hicache-ratio": 2}, RefusedFor.IGNORED_ARGUMENT),
        ({"linear-replayssm-cache-len": 8}, RefusedFor.IGNORED_ARGUMENT),
        ({"enable-linear-replayssm": True}, RefusedFor.IGNORED_ARGUMENT),
    ],
    ids=str,
)  # fmt: skip
def test_an_edit_is_held_against_what_sglang_has_and_does(
    arguments: dict[str, object], expected: RefusedFor | None, target: StackTarget
) -> None:
    assert reason(edits(target, arguments=arguments)) is expected


@pytest.mark.usefixtures("engine")
def test_variables_and_counts_that_stay_as_they_are_change_nothing(target: StackTarget) -> None:
    assert reason(edits(target, environment={"OMP_NUM_THREADS": "1"})) is RefusedFor.NO_CHANGE
    assert reason(edits(target, environment={"SGLANG_X": None})) is RefusedFor.NO_CHANGE
    assert reason(edits(target, environment={"OMP_NUM_THREADS": "2"})) is None
    assert reason(edits(target, count=1)) is RefusedFor.NO_CHANGE
    assert reason(edits(target, environment={"LD_PRELOAD": "x.so"})) is RefusedFor.UNKNOWN_ARGUMENT


@pytest.mark.usefixtures("engine")
def test_what_the_stack_itself_states_in_vain_is_not_the_fault_of_an_edit(target: StackTarget) -> None:
    path = Path(target.stack)
    path.write_text(path.read_text().replace("chunked-prefill-size", "linear-replayssm-cache-len"))
    assert reason(edits(target, arguments={"max-prefill-tokens": 8192})) is None


@pytest.mark.usefixtures("engine")
def test_an_edit_whose_stack_would_not_fit_is_unservable(target: StackTarget) -> None:
    path = Path(target.stack)
    limited = yaml.safe_load(path.read_text())
    limited["roles"]["server"]["resources"] = {"memory_gb": 1}
    path.write_text(yaml.safe_dump(limited))
    assert reason(edits(target, arguments={"max-total-tokens": 4096})) is None
    assert reason(edits(target, arguments={"max-total-tokens": 400_000_000})) is RefusedFor.UNSERVABLE


@pytest.mark.usefixtures("engine")
def test_the_same_edit_by_another_name_or_with_a_default_spelled_out_is_a_duplicate(target: StackTarget) -> None:
    past = Past().with_accepted(edits(target, arguments={"tp-size": 2, "chunked-prefill-size": 64}))
    alias = edits(target, arguments={"chunked-prefill-size": "64", "tensor-parallel-size": 2})
    assert reason(alias, past) is RefusedFor.DUPLICATE
    assert reason(edits(target, arguments={"tp-size": 2}), past) is None
    assert reason(alias.model_copy(update={"target": target.model_copy(update={"scenario": "b.yaml"})}), past) is None


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_the_check_that_was_not_made_is_said_and_the_rest_is_made(target: StackTarget) -> None:
    asked = edits(target, arguments={"max-prefill-tokens": 16384})
    assert reason(asked) is None
    assert "there is no engine environment" in (unchecked(asked) or "")
    assert reason(edits(target, arguments={"chunked-prefill-size": 512})) is RefusedFor.NO_CHANGE
    assert reason(asked, Past().with_accepted(asked)) is RefusedFor.DUPLICATE


PATH = "sglang/srt/layers/attention/linear/kernels/kda_triton.py"
DIFF = f"""--- a/{PATH}
+++ b/{PATH}
@@ -10,3 +10,3 @@
     before = 1
-    x = 1 / y
+    x = reciprocal(y)
     after = 2
"""


def patches(diff: str = DIFF, package: str = "sglang", version: str = "0.5.23", **changes: object) -> Hypothesis:
    asked = stack_hypothesis().model_copy(update={"change": CodePatch(package=package, version=version, diff=diff)})
    return asked.model_copy(update={"origin": "model"} | changes)


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PATH, None),
        ("sglang/kernels/ops/attention/a.py", None),
        ("/etc/passwd", RefusedFor.FORBIDDEN_FILE),
        ("sglang/../tasks/decide.py", RefusedFor.FORBIDDEN_FILE),
        ("tasks/decide.py", RefusedFor.FORBIDDEN_FILE),
        ("kernels/kda_decode/criteria.yaml", RefusedFor.FORBIDDEN_FILE),
        ("sglang/srt/observability/metrics_collector.py", RefusedFor.FORBIDDEN_FILE),
        ("sglang/bench_serving.py", RefusedFor.FORBIDDEN_FILE),
        ("sglang/benchmark/x.py", RefusedFor.FORBIDDEN_FILE),
        ("sglang/test/x.py", RefusedFor.FORBIDDEN_FILE),
        ("sglang/srt/entrypoints/http_server.py", RefusedFor.FORBIDDEN_FILE),
        ("sglang/srt/configs/a.json", RefusedFor.FORBIDDEN_FILE),
    ],
)
def test_a_patch_touches_sources_of_its_package_that_judge_nothing(path: str, expected: RefusedFor | None) -> None:
    assert reason(patches(DIFF.replace(PATH, path))) is expected


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = os.environ['INFRA_AGENT_WATCH']", RefusedFor.FORBIDDEN_FILE),
        ("sys.modules['watched_process'].told['weights'] = []", RefusedFor.FORBIDDEN_FILE),
        ("import sitecustomize", RefusedFor.FORBIDDEN_FILE),
        ("sys.meta_path.clear()", RefusedFor.FORBIDDEN_FILE),
        ("x = os.environ['SGLANG_WATCHDOG']", None),
        ("x = customize(y)", None),
    ],
)
def test_a_patch_may_not_name_what_its_process_is_watched_by(line: str, expected: RefusedFor | None) -> None:
    assert reason(patches(DIFF.replace("x = reciprocal(y)", line))) is expected
    taken_away = DIFF.replace("-    x = 1 / y", f"-    {line}")
    assert reason(patches(taken_away)) is None


@pytest.mark.usefixtures("no_engine")
def test_a_patch_of_spaces_and_comments_or_no_diff_at_all_is_refused() -> None:
    assert reason(patches(DIFF.replace("reciprocal(y)", "1/y  # fast"))) is RefusedFor.NO_CHANGE
    assert reason(patches(DIFF.replace("+    x = reciprocal(y)", "+    x = 1 / y"))) is RefusedFor.NO_CHANGE
    assert reason(patches("x = reciprocal(y)")) is RefusedFor.UNREADABLE_PATCH
    assert reason(patches(DIFF.replace("@@ -10,3 +10,3 @@", ""))) is RefusedFor.UNREADABLE_PATCH
    assert "were not looked at" in (unchecked(patches()) or "")


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("diff", "same"),
    [
        (DIFF.replace("-10,3 +10,3", "-99,3 +99,3"), True),
        (DIFF.replace("reciprocal(y)", "reciprocal( y )  # why"), True),
        (DIFF.replace("     after = 2\n", ""), True),
        (DIFF.replace("reciprocal(y)", "reciprocal(z)"), False),
        (DIFF.replace("+    x", "+        x"), False),
        (DIFF.replace("before = 1", "before = 3"), False),
        (DIFF.replace("kda_triton", "kda_cpu"), False),
    ],
)
def test_a_patch_is_known_again_by_what_it_changes(diff: str, same: bool) -> None:
    earlier = patches(title="earlier")
    assert diff != DIFF
    assert reason(patches(diff), Past().with_accepted(earlier)) is (RefusedFor.DUPLICATE if same else None)


@pytest.mark.parametrize(
    ("version", "files", "expected"),
    [
        ("0.5.23", {PATH}, None),
        ("0.5.24", {PATH}, RefusedFor.WRONG_VERSION),
        ("0.5.23", {"sglang/other.py"}, RefusedFor.FORBIDDEN_FILE),
    ],
)
def test_a_patch_is_held_against_the_package_that_is_installed(
    version: str, files: set[str], expected: RefusedFor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.challenge_patch.version_in_engine", lambda _: version)
    monkeypatch.setattr("tasks.challenge_patch.files_in_engine", lambda _: frozenset(files))
    assert reason(patches()) is expected
    assert unchecked(patches()) is None


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("diff", "words"),
    [
        (DIFF.replace(f"--- a/{PATH}", "--- /dev/null"), "makes and deletes none"),
        (DIFF.replace(f"+++ b/{PATH}", "+++ /dev/null"), "makes and deletes none"),
        ("new file mode 100644\n" + DIFF, "files that are there, nothing else"),
        ("deleted file mode 100644\n" + DIFF, "files that are there, nothing else"),
        ("rename from a\nrename to b\n" + DIFF, "files that are there, nothing else"),
        (f"Binary files a/{PATH} and b/{PATH} differ\n", "files that are there, nothing else"),
        ("GIT binary patch\nliteral 3\n", "files that are there, nothing else"),
        (DIFF.replace("-10,3 +10,3", "-10,9 +10,9"), "fewer lines than it says"),
    ],
)
def test_a_patch_that_no_build_would_take_is_refused_before_one_in_the_words_of_the_build(
    diff: str, words: str
) -> None:
    refusal = challenge(patches(diff), Past())
    assert refusal is not None
    assert refusal.reason is RefusedFor.UNREADABLE_PATCH
    assert words in refusal.says
    with pytest.raises(PatchFault) as built:
        apply_patch(diff, lambda _: "")
    assert str(built.value) == refusal.says
