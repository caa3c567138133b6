"""Proposals in words: for the terminal, and as the markdown that the Prefect UI shows."""

from tasks.one_line import one_line
from tasks.proposals import Proposals, best
from tasks.records import Hypothesis
from tasks.refusal import Refusal
from tasks.spending import Spent


def proposals_text(proposals: Proposals) -> str:
    """Accepted first, then refused with the reason, then what was no hypothesis, then the account."""
    chosen = best(proposals)
    lines = [line for x in proposals.accepted for line in _accepted(x, len(proposals.accepted) > 1 and x == chosen)]
    lines += [line for refusal in proposals.refused for line in _refused(refusal)]
    lines += [f"unusable  {one_line(fault)}" for fault in proposals.faults]
    lines.append(account_text(proposals))
    if proposals.left_out:
        lines.append(f"left out of the prompt: {'; '.join(proposals.left_out)}")
    return "\n".join(lines)


def account_text(proposals: Proposals) -> str:
    """One line: who was asked, how it ended, and what it took."""
    why = f": {one_line(proposals.says)}" if proposals.says else ""
    other = [one_line(name, 80) for name in proposals.answered_as if name != proposals.model]
    who = proposals.model + (f" (answers as {', '.join(other)})" if other else "")
    return f"asked {who}: {proposals.ended}{why}; {spent_text(proposals.spent)}"


def spent_text(spent: Spent) -> str:
    """What is unknown is said to be."""
    money = "cost unknown" if spent.usd is None else f"{spent.usd:.4f} USD"
    return (
        f"{_counted(spent.calls, 'call')}, {_tokens(spent.input_tokens)} tokens in, {_tokens(spent.output_tokens)} out, "
        f"{money}, {spent.wall_s:.1f} s"
    )


def proposals_markdown(proposals: Proposals) -> str:
    """For the artifact of the propose stage."""
    spent = proposals.spent
    rows = [
        f"| {number} | {call.ended} | {_tokens(call.input_tokens)} | {_tokens(call.output_tokens)} | {call.wall_s:.1f} s |"
        for number, call in enumerate(proposals.calls, 1)
    ]
    lines = [
        f"## {len(proposals.accepted)} accepted, {len(proposals.refused)} refused for `{proposals.target}`",
        "",
        account_text(proposals),
        "",
        "| call | ended | tokens in | tokens out | wall |",
        "|---|---|---|---|---|",
        *rows,
        f"| **all** |  | {_tokens(spent.input_tokens)} | {_tokens(spent.output_tokens)} | {spent.wall_s:.1f} s |",
        "",
        *(f"- accepted: {one_line(x.title)} ({_prediction(x)})" for x in proposals.accepted),
        *(f"- refused, {x.reason}: {one_line(x.hypothesis.title)}: {one_line(x.says)}" for x in proposals.refused),
        *(f"- unusable: {one_line(fault)}" for fault in proposals.faults),
    ]
    return "\n".join(lines)


def _accepted(hypothesis: Hypothesis, is_best: bool) -> list[str]:
    return [
        f"accepted  {one_line(hypothesis.title)}{'  (best)' if is_best else ''}",
        f"  asks: {hypothesis.question}; predicts {_prediction(hypothesis)}",
        f"  rationale: {one_line(hypothesis.rationale)}",
        f"  mechanism: {one_line(hypothesis.mechanism)}",
        f"  id: {hypothesis.id[:16]}" + (f"  builds on: {hypothesis.parent[:16]}" if hypothesis.parent else ""),
    ]


def _refused(refusal: Refusal) -> list[str]:
    return [
        f"refused   {one_line(refusal.hypothesis.title)}",
        f"  {refusal.reason}: {one_line(refusal.says)}",
        f"  hint: {one_line(refusal.hint)}",
    ]


def _prediction(hypothesis: Hypothesis) -> str:
    said = hypothesis.prediction
    return f"{one_line(said.observable)} {said.direction}" + (
        f" by {said.size:g} {one_line(said.unit)}" if said.size else ""
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _tokens(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
