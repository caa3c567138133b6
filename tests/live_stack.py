"""The real stack that tests/serving/test_live_stack.py starts: what is asked of it, and what transformers says to the same."""

import base64
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fake_stack import ROOT, free_ports
from PIL import Image

from serving.checkpoint import Checkpoint
from serving.engine_env import run_script
from serving.stack import StackSpec, load_stack
from serving.stack_record import StackRecord

SHIPPED = ROOT / "serving" / "stacks" / "tiny-glm53-epd-cpu.yaml"
KEY_VARIABLE = "LIVE_STACK_KEY"
NEW_TOKENS = 6


@dataclass(frozen=True)
class Live:
    """A stack that `stack up` has started, and what that said. `run`: the command `infra-agent stack`, in the same home."""

    home: Path
    file: Path
    key: str
    model: Checkpoint
    record: StackRecord
    said: str
    run: Callable[..., subprocess.CompletedProcess[str]]

    @property
    def spec(self) -> StackSpec:
        return load_stack(self.file)

    def client(self, role: str) -> httpx.Client:
        (url,) = [replica.url for replica in self.record.replicas if replica.role == role]
        return client(url, self.key)


def client(url: str, key: str | None = None) -> httpx.Client:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)


def infra_agent(home: Path, key: str, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.argv[0] = 'infra-agent'; from flows.cli import main; main()"
    environment = os.environ | {"INFRA_AGENT_HOME": str(home), KEY_VARIABLE: key}
    command = [sys.executable, "-c", code, "stack", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=280, check=False)


def locked_on_free_ports(folder: Path) -> Path:
    """The stack as it is shipped, with a key."""
    content = {**yaml.safe_load(SHIPPED.read_text()), "api_key_variable": KEY_VARIABLE}
    ports = iter(free_ports(6))
    for role in content["roles"].values():
        role |= {name: next(ports) for name in ("port", "bootstrap_port", "prometheus_port") if name in role}
    file = folder / SHIPPED.name
    file.write_text(yaml.safe_dump(content))
    return file


@contextmanager
def homed(home: Path) -> Iterator[None]:
    """For a fixture that outlives one test: each test has a home of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFRA_AGENT_HOME", str(home))
        yield


def generate(asked: httpx.Client, **body: Any) -> dict[str, Any]:
    sampling = {"max_new_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
    whole = {"sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0, **body}
    answer = asked.post("/generate", json=whole)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def prompt_of(length: int) -> list[int]:
    """Spread over the vocabulary without its special tokens, the same every time."""
    return [20 + (37 * length + 101 * place * place) % 1000 for place in range(length)]


@dataclass(frozen=True)
class Answer:
    """`logprobs`: of the last of `ids`, which are prompt and answer, as the engine gave them."""

    ids: list[int]
    logprobs: list[float]


def answers(asked: httpx.Client, lengths: Iterable[int]) -> list[Answer]:
    """With log-probabilities of every token but the first."""
    found = []
    for prompt in map(prompt_of, lengths):
        meta = generate(asked, input_ids=prompt)["meta_info"]
        before, after = meta["input_token_logprobs"][1:], meta["output_token_logprobs"]
        assert len(after) == NEW_TOKENS
        found.append(Answer(prompt + [token for _, token, _ in after], [value for value, _, _ in (*before, *after)]))
    return found


def answers_of_decode(prefill: httpx.Client, decode: httpx.Client, port: int, lengths: Iterable[int]) -> list[Answer]:
    """As the router asks, which does not know this decode: both at once, with where they meet (the bootstrap `port`).

    With log-probabilities of what decode itself computed: the first new token is from prefill.
    """
    found = []
    for prompt in map(prompt_of, lengths):
        room = {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": secrets.randbits(62)}
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(generate, prefill, input_ids=prompt, **room)
            after = generate(decode, input_ids=prompt, **room)["meta_info"]["output_token_logprobs"]
            sent.result()
        found.append(Answer(prompt + [token for _, token, _ in after], [value for value, _, _ in after[1:]]))
    return found


def distances(given: Sequence[Answer], model: Path, tmp_path: Path) -> list[list[float]]:
    """From transformers, of each log-probability that was given."""
    reference = asked_of_transformers(model, [{"ids": answer.ids} for answer in given], tmp_path)
    return [
        [abs(a - b) for a, b in zip(answer.logprobs, values[-len(answer.logprobs) :], strict=True)]
        for answer, values in zip(given, reference, strict=True)
    ]


def largest(gaps: Iterable[Sequence[float]]) -> dict[str, float]:
    """In prefill and in decode, of answers that hold both."""
    parts = [(max(gap[:-NEW_TOKENS], default=0.0), max(gap[-NEW_TOKENS:])) for gap in gaps]
    return {"prefill": max(prefill for prefill, _ in parts), "decode": max(decode for _, decode in parts)}


def asked_of_transformers(model: Path, asked: list[dict[str, Any]], tmp_path: Path) -> list[list[float]]:
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    run_script("reference_logprobs.py", str(model), "asked.json", "answer.json", cwd=tmp_path)
    found: list[list[float]] = json.loads((tmp_path / "answer.json").read_text())
    return found


def picture(file: Path) -> str:
    """A picture of 56 x 56 pixels in `file`, and as a URI."""
    image = Image.new("RGB", (56, 56))
    image.putdata([(4 * x, 4 * y, (x * y) % 256) for y in range(56) for x in range(56)])
    image.save(file)
    return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"
