"""What a ledger adds up to, derived from its objects each time: outcomes, costs, and the noise that was measured."""

from collections import Counter

from tasks.accounting import cost_of, total
from tasks.history import attempts, refusals
from tasks.ledger import Contents
from tasks.noise import Noise, smallest_detectable_pct
from tasks.proposals import Proposals
from tasks.proposals_text import spent_text
from tasks.records import Experiment, Refusal
from tasks.spending import total_spent

JUDGED = ("PASSED", "REJECTED", "INCONCLUSIVE")
ALPHA, PAIRS = 0.05, (8, 16, 32)


def statistics_text(contents: Contents) -> str:
    """Counts by outcome (BROKEN apart: it says nothing about a hypothesis), costs of everything, noise by environment."""
    found = attempts(contents)
    lines = [*_outcomes(found), _refused(refusals(contents)), *_costs(found), *_models(contents)]
    noises = [Noise.model_validate(entry.record) for entry in contents.entries if entry.kind == "noise"]
    lines += [line for noise in noises for line in noise_lines(noise)]
    lines.append(f"damaged objects: {len(contents.damaged)}")
    return "\n".join([*lines, *(f"  `{damage.path}`: {damage.reason}" for damage in contents.damaged)])


def noise_lines(noise: Noise) -> list[str]:
    """What an A/A run lets one see: the smallest effect that so many pairs show with 80 % power at 95 %."""
    machine = f"{noise.facts.get('cpu', 'unknown CPU')}, {noise.facts.get('cores', '?')} cores"
    lines = [f"noise of {noise.rung} at {noise.workload} on {machine}, measured in {noise.wall_s:.0f} s:"]
    for observable in noise.changes:
        scale = noise.scale(observable)
        if scale is None:
            continue
        seen = [(pairs, smallest_detectable_pct(pairs, scale, ALPHA)) for pairs in PAIRS]
        shown = ", ".join(f"{pairs} pairs {'none' if least is None else f'{least:.0f} %'}" for pairs, least in seen)
        lines.append(f"  {observable}: {100 * scale:.1f} % a pair; smallest detectable effect: {shown}")
    return lines


def _outcomes(found: list[Experiment]) -> list[str]:
    outcomes = Counter(e.verdict.outcome.value if e.verdict else "no verdict" for e in found)
    rungs = Counter(evidence.rung.value for e in found for evidence in e.evidence if evidence.not_run is None)
    judged = ", ".join(f"{name.lower()} {outcomes[name]}" for name in JUDGED)
    return [
        f"attempts: {len(found)} at {len({e.hypothesis_id for e in found})} hypotheses",
        f"judged: {sum(outcomes[name] for name in JUDGED)} ({judged})",
        f"broken: {outcomes['BROKEN']}, without a verdict: {outcomes['no verdict']}",
        "rungs run: " + (", ".join(f"{rung} {n}" for rung, n in sorted(rungs.items())) or "none"),
    ]


def _refused(found: list[Refusal]) -> str:
    """Refusals apart: no evidence speaks for or against them."""
    reasons = Counter(refusal.reason.value for refusal in found)
    named = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items()))
    return f"refused before a build: {len(found)}" + (f" ({named})" if named else "")


def _models(contents: Contents) -> list[str]:
    """What asking models took, failed calls included; nothing where none was asked."""
    asks = [Proposals.model_validate(entry.record) for entry in contents.entries if entry.kind == "proposals"]
    accepted = sum(len(ask.accepted) for ask in asks)
    spent = spent_text(total_spent(ask.spent for ask in asks))
    return [f"models asked: {len(asks)} times, {accepted} proposals accepted; {spent}"] if asks else []


def _costs(found: list[Experiment]) -> list[str]:
    spent = total(cost_of(e) for e in found)
    device = "unknown" if spent.device_s is None else f"{spent.device_s:.1f} s"
    lost = sum(e.verdict.lost_s for e in found if e.verdict)
    return [
        f"wall time: {spent.wall_s:.1f} s, device time: {device}, all attempts included; {lost:.1f} s lost to our faults"
    ]
