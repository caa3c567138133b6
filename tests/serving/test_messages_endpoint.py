"""The proposer against the real SGLang with a tiny GLM of random weights: what it says is nonsense, and ends as such."""

import socket
from pathlib import Path

import pytest

from serving.home import REPOSITORY
from serving.launch import running
from serving.stack import load_stack
from tasks.asking import Line
from tasks.endpoint import endpoint_of
from tasks.ledger import Ledger
from tasks.model_file import load_model_file
from tasks.proposals import Ended
from tasks.proposals_text import proposals_text
from tasks.propose import propose
from tasks.spending import CallEnd
from tasks.subject import read_subject

pytestmark = pytest.mark.engine
STACK = REPOSITORY / "serving" / "stacks" / "tiny-glm-cpu.yaml"
ANSWER_TOKENS = 200


def test_nonsense_of_a_model_on_our_own_server_ends_as_refused_proposals(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    bounds = load_model_file().model_copy(update={"prompt_tokens": 3900, "answer_tokens": ANSWER_TOKENS})
    with running(load_stack(STACK).on_port("server", port), tmp_path, "model") as server:
        environment = {
            "ANTHROPIC_BASE_URL": server.base_url,
            "ANTHROPIC_API_KEY": "none",
            "INFRA_AGENT_MODEL": "tiny-glm4-moe",
        }
        ledger = Ledger(f"file://{tmp_path}/ledger")
        ended = propose(read_subject("kda_cpu"), 2, ledger, Line(endpoint_of(environment), bounds))
    assert ended.accepted == ()
    assert ended.ended is Ended.ASKED_OUT
    assert [call.ended for call in ended.calls] == [CallEnd.ANSWERED] * 3
    assert ended.faults or ended.refused
    assert ended.answered_as == ("tiny-glm4-moe",)
    for call in ended.calls:  # the server's own count; a byte of this prompt is about a token of the tiny vocabulary
        assert call.input_tokens is not None
        assert call.output_tokens is not None
        assert call.sent_bytes >= call.input_tokens > 4000
        assert 0 < call.output_tokens <= ANSWER_TOKENS
    assert "workloads.json" in " ".join(ended.left_out)
    assert "unusable" in proposals_text(ended) or "refused" in proposals_text(ended)
