"""What a ledger adds up to: attempts by outcome and the time they took, derived from its objects each time."""

from collections import Counter

from tasks.ledger import Contents, attempts


def statistics_text(contents: Contents) -> str:
    """Counts by outcome (BROKEN apart: it says nothing about a hypothesis), by rung, and seconds of everything."""
    found = attempts(contents)
    outcomes = Counter(e.verdict.outcome.value if e.verdict else "no verdict" for e in found)
    rungs = Counter(evidence.rung.value for e in found for evidence in e.evidence if evidence.not_run is None)
    wall = sum(e.build.wall_s for e in found if e.build) + sum(v.wall_s for e in found for v in e.evidence)
    device = sum(evidence.device_s for e in found for evidence in e.evidence)
    judged = sum(outcomes[o] for o in ("PASSED", "REJECTED", "INCONCLUSIVE"))
    lines = [
        f"attempts: {len(found)} at {len({e.hypothesis_id for e in found})} hypotheses",
        f"judged: {judged} ("
        + ", ".join(f"{o.lower()} {outcomes[o]}" for o in ("PASSED", "REJECTED", "INCONCLUSIVE"))
        + ")",
        f"broken: {outcomes['BROKEN']}, without a verdict: {outcomes['no verdict']}",
        "rungs run: " + (", ".join(f"{rung} {n}" for rung, n in sorted(rungs.items())) or "none"),
        f"wall time: {wall:.1f} s, device time: {device:.1f} s, all attempts included",
        f"damaged objects: {len(contents.damaged)}",
    ]
    lines += [f"  `{damage.path}`: {damage.reason}" for damage in contents.damaged]
    return "\n".join(lines)
