"""Every call counts, what is unknown is not nothing, and no call is made that could break a cap."""

import pytest

from serving.errors import BadInput
from tasks.model_file import Caps, ModelFile, Price, load_model_file
from tasks.spending import Call, CallEnd, Tokens, believable, cap_in_the_way, spent_on, total_spent

PRICE = Price(input_usd=1.0, output_usd=10.0, source="a test")
COMING = Tokens(input=100, output=50)


def made(ended: CallEnd = CallEnd.ANSWERED, given: int | None = 1000, got: int | None = 200) -> Call:
    return Call(
        ended=ended, status=200, says="", wall_s=2.0, input_tokens=given, output_tokens=got, sent_bytes=4000, asked_tokens=500
    )  # fmt: skip


def test_tokens_and_money_add_up() -> None:
    spent = spent_on([made(), made()], PRICE)
    assert (spent.calls, spent.wall_s, spent.input_tokens, spent.output_tokens) == (2, 4.0, 2000, 400)
    assert spent.usd == pytest.approx((2000 * 1 + 400 * 10) / 1e6)
    assert spent.most_tokens == 2400


@pytest.mark.parametrize("ended", [CallEnd.BUSY, CallEnd.TURNED_DOWN, CallEnd.NOT_REACHED])
def test_a_call_that_was_not_served_counts_as_a_call_and_used_nothing(ended: CallEnd) -> None:
    spent = spent_on([made(ended, None, None)], PRICE)
    assert (spent.calls, spent.input_tokens, spent.output_tokens, spent.usd) == (1, 0, 0, 0.0)


def test_a_call_that_is_turned_down_after_it_began_is_unknown_and_charged_with_all_that_it_could_have_used() -> None:
    call = made(CallEnd.TURNED_DOWN, 90, None)
    assert call.used() is None
    assert call.at_most() == Tokens(input=90, output=call.asked_tokens)


@pytest.mark.parametrize("ended", [CallEnd.BROKEN_OFF, CallEnd.TIMED_OUT])
def test_a_call_that_was_cut_short_is_unknown_and_charged_with_all_that_it_could_have_used(ended: CallEnd) -> None:
    for given, most in ((None, 4500), (1000, 1500)):
        spent = spent_on([made(ended, given, None)], PRICE)
        assert (spent.input_tokens, spent.output_tokens, spent.usd) == (None, None, None)
        assert spent.most_tokens == most


def test_an_answer_without_usage_is_unknown_and_bars_the_way_where_tokens_or_money_have_a_cap() -> None:
    spent = spent_on([made(given=None)], PRICE)
    assert (spent.input_tokens, spent.usd, spent.most_tokens, spent.most_usd) == (None, None, None, None)
    assert "did not say what it used" in str(
        cap_in_the_way(spent, 0, Caps(calls=9, seconds=9, tokens=10**9), PRICE, COMING)
    )
    assert "unknown" in str(cap_in_the_way(spent, 0, Caps(calls=9, seconds=9, usd=1e9), PRICE, COMING))
    assert cap_in_the_way(spent, 0, Caps(calls=9, seconds=9), PRICE, COMING) is None


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        (Caps(calls=2, seconds=100), "2 calls"),
        (Caps(calls=9, seconds=30), "30 s"),
        (Caps(calls=9, seconds=100, tokens=2549), "2549 tokens: another call may use 150 after 2400"),
        (Caps(calls=9, seconds=100, usd=0.0065), "another call may cost"),
        (Caps(calls=9, seconds=100, tokens=2550, usd=0.0066), "None"),
    ],
)
def test_a_call_that_could_break_a_cap_is_not_made(caps: Caps, words: str) -> None:
    assert words in str(
        cap_in_the_way(spent_on([made(), made()], PRICE), 31 if caps.seconds == 30 else 1, caps, PRICE, COMING)
    )


def test_without_a_price_money_is_unknown_and_a_cap_on_it_is_an_error_before_any_call() -> None:
    assert spent_on([made()], None).usd is None
    file = ModelFile(caps=Caps(calls=1, seconds=1, usd=1), prompt_tokens=1, findings_tokens=1, answer_tokens=1)
    with pytest.raises(BadInput, match="no price of the model `x`"):
        file.price_of("x")
    assert file.model_copy(update={"caps": Caps(calls=1, seconds=1)}).price_of("x") is None


def test_what_one_ask_does_not_know_no_sum_knows() -> None:
    total = total_spent([spent_on([made()], PRICE), spent_on([made(given=None)], PRICE)])
    assert (total.calls, total.input_tokens, total.usd) == (2, None, None)


def test_so_much_text_cannot_be_so_few_tokens() -> None:
    assert believable(10, 640) == 10
    assert believable(9, 640) is None
    assert believable(None, 0) is None
    assert believable(10**400, 640) is None


def test_the_file_that_people_own_has_caps_and_says_where_prices_come_from() -> None:
    file = load_model_file()
    assert file.findings_tokens == 12_000
    assert file.caps.tokens
    assert all(price.source for price in file.prices.values())
