"""The selfcheck as a flow: before a night's verdicts are believed, does the evaluator still tell right from wrong?"""

import logging

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from serving.errors import Broken
from tasks.selfcheck import SelfcheckReport, run_selfcheck, summary

log = logging.getLogger(__name__)


@flow(name="selfcheck", persist_result=False)
def check_evaluator(quick: bool = False) -> SelfcheckReport:
    """Judge candidates and experiments whose fate is known. Raises `Broken` if one was misjudged: the run is Failed.

    Args:
        quick: only a stated subset.
    """
    report = run_selfcheck(quick, say=log.info)
    text = summary(report)
    create_markdown_artifact(
        "\n\n".join(text.splitlines()), key="selfcheck", description="sound" if report.sound else "not sound"
    )
    if not report.sound:
        raise Broken(f"the evaluator misjudged: {text}", "trust no verdict until this is understood")
    return report
