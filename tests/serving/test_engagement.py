"""What a process was started with is read from its command line where it does not tell it."""

import pytest

from serving.engagement import ABSENT, differences, in_force, options_of


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engagement.known_arguments", dict)


def test_a_command_line_is_read_into_options() -> None:
    words = [
        "python",
        "-P",
        "-m",
        "x",
        "--policy=round_robin",
        "--pd-disaggregation",
        "--prefill",
        "http://a:1",
        "31997",
    ]
    read = options_of(words)
    assert read == {"policy": "round_robin", "pd_disaggregation": True, "prefill": "http://a:1 31997"}
    assert in_force(read, "policy") == "round_robin"
    assert in_force(read, "max-concurrent-requests") == ABSENT


def test_arms_side_by_side_differ_in_where_their_roles_are_and_that_is_no_difference() -> None:
    ours, theirs = ({"policy": policy, "prefill": url} for policy, url in (("a", "http://x:1"), ("b", "http://x:6")))
    assert list(differences(ours, theirs)) == ["policy"]
