"""The real SGLang with what a CPU has no kernels for: sparse attention, served dense, and W8A8. One start for the whole file.

The two models have the same weights but for the indexer and the rounding to INT8, so one reference speaks for both.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_stack import ROOT, free_ports

from serving.engine_env import run_script
from serving.launch import Server, running_together
from serving.stack import StackSpec, load_stack
from serving.witness import check_weights

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

STACKS = ("tiny-glm53-dsa-cpu", "tiny-glm53-w8a8-cpu")
SELECTED = 128  # `index_topk` of the checkpoint
LENGTHS = (1, 5, 31, 64, 100, 115)
NEW_TOKENS = 6
LIMIT = 1e-5
LABEL = "dense attention in place of sparse attention (DSA)"


@dataclass(frozen=True)
class Live:
    """`asked`: the prompts with what the sparse model answered; `told`: its log-probabilities, for all tokens but the first."""

    servers: Mapping[str, Server]
    asked: list[list[int]]
    told: list[list[float]]


def at_free_port(name: str) -> StackSpec:
    shipped = load_stack(ROOT / "serving" / "stacks" / f"{name}.yaml")
    role = shipped.roles["server"].model_copy(update={"port": free_ports(1)[0]})
    return shipped.model_copy(update={"roles": {"server": role}})


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("formats")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFRA_AGENT_HOME", str(folder / "home"))
        with running_together({name: at_free_port(name) for name in STACKS}, folder / "run") as servers:
            asked, told = [], []
            for prompt in map(prompt_of, LENGTHS):
                meta = generate(servers[STACKS[0]], prompt, NEW_TOKENS).json()["meta_info"]
                tokens = (*meta["input_token_logprobs"][1:], *meta["output_token_logprobs"])
                asked.append(prompt[:1] + [token for _, token, _ in tokens])
                told.append([value for value, _, _ in tokens])
            yield Live(servers, asked, told)


def generate(server: Server, ids: list[int], new: int) -> httpx.Response:
    sampling = {"max_new_tokens": new, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}
    return httpx.post(f"{server.base_url}/generate", json=body, timeout=60, trust_env=False)


def prompt_of(length: int) -> list[int]:
    """Spread over the vocabulary without its special tokens, the same every time."""
    return [20 + (37 * length + 101 * place * place) % 1000 for place in range(length)]


def by_transformers(
    model: Path, asked: list[list[int]], folder: Path, script: str = "reference_logprobs.py"
) -> list[list[float]]:
    (folder / "asked.json").write_text(json.dumps([{"ids": ids} for ids in asked]))
    run_script(script, str(model), "asked.json", "answer.json", cwd=folder)
    found: list[list[float]] = json.loads((folder / "answer.json").read_text())
    return found


def gaps(one: list[list[float]], other: list[list[float]]) -> list[float]:
    return [abs(a - b) for pair in zip(one, other, strict=True) for a, b in zip(*pair, strict=True)]


def share_within(differences: list[float]) -> float:
    return sum(one <= LIMIT for one in differences) / len(differences)


def selecting_fewer(model: Path, folder: Path) -> Path:
    """The checkpoint as transformers would read it if its indexer selected only 16 tokens."""
    fewer = shutil.copytree(model, folder / "fewer")
    file = fewer / "reference" / "config.json"
    config = json.loads(file.read_text())
    config["text_config"]["index_topk"] = 16
    file.write_text(json.dumps(config))
    return fewer


def test_dense_attention_agrees_with_the_sparse_attention_of_transformers_and_not_when_fewer_tokens_are_selected(
    live: Live, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    model = live.servers[STACKS[0]].checkpoint.folder
    found = max(gaps(live.told, by_transformers(model, live.asked, tmp_path)))
    fewer = max(gaps(live.told, by_transformers(selecting_fewer(model, tmp_path), live.asked, tmp_path)))
    record_property("differences", {"all selected": found, "16 selected": fewer})
    assert found <= LIMIT
    assert fewer > 10 * LIMIT


def test_the_account_of_weights_says_what_is_computed_instead_and_names_the_indexers_keys(live: Live) -> None:
    witness = live.servers[STACKS[0]].witness
    check_weights(STACKS[0], witness)
    assert witness.departures() == (LABEL,)
    (account,) = [one for report in witness.reports() for one in report.weights or ()]
    assert len(account.left_out[LABEL]) == 7
    assert all(".layers.3.self_attn.indexer." in key for key in account.left_out[LABEL])
    assert LABEL in live.servers[STACKS[0]].log_file.read_text()


@pytest.mark.parametrize(("prompt", "new"), [(SELECTED + 1, 1), (SELECTED - 8, NEW_TOKENS + 3)])
def test_a_request_that_the_indexer_would_not_select_whole_is_refused(live: Live, prompt: int, new: int) -> None:
    answer = generate(live.servers[STACKS[0]], prompt_of(prompt), new)
    assert answer.status_code == 400
    assert "length" in answer.text


def test_w8a8_is_served_with_all_its_weights_and_rounds_as_transformers_with_the_same_codes(
    live: Live, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """By the share of tokens: an input between two codes may fall to either, and what comes after in that prompt differs."""
    server, model = live.servers[STACKS[1]], live.servers[STACKS[0]].checkpoint.folder
    check_weights(STACKS[1], server.witness)
    assert server.witness.departures() == ()
    told: list[list[float]] = []
    for ids in live.asked:
        meta: dict[str, Any] = generate(server, ids, 1).json()["meta_info"]
        told.append([value for value, _, _ in meta["input_token_logprobs"][1:]])
    same_codes = gaps(told, by_transformers(model, live.asked, tmp_path, "reference_w8a8.py"))
    no_codes = gaps(told, live.told)
    found = {"same codes": share_within(same_codes), "not quantised": share_within(no_codes)}
    record_property("shares within the limit", found)
    assert found["same codes"] > 0.2  # 0.42 was seen
    assert found["not quantised"] < 0.02
