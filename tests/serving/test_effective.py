"""What a stack's options amount to, by the real parser of SGLang."""

import pytest

from serving.arguments import known_arguments
from serving.effective import in_effect


@pytest.mark.engine
def test_defaults_and_aliases_of_the_real_parser_change_nothing() -> None:
    options = known_arguments()
    spelled = {"tp-size": 1, "schedule-policy": "fcfs", "schedule-conservativeness": 1, "hicache-size": 0}
    assert in_effect(spelled, options) == {}
    assert in_effect({"enable-hicache": True}, options) == in_effect({"enable-hierarchical-cache": True}, options)
    assert in_effect({"no-dllm-fdfo": True}, options) == {"dllm-fdfo": "off"}
    assert in_effect({"chunked-prefill-size": 512}, options) == {"chunked-prefill-size": "512"}
