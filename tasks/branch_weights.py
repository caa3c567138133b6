"""How often the code behind a branch runs, from how often its lines ran in the interpreter.

A kernel that writes its state at one step of eight has the code for it at every step. The count of such a stretch is
weighted with the share of programs in which its lines ran, measured over all steps of a check.
"""

from collections.abc import Callable, Mapping

from tasks.sass import Code, CodeBlock, LineWork

Shares = Mapping[int, float]
OF_RARE_LINES = 0.75  # share of its instructions from which on a block is one of rare lines


def weighted(code: Code, shares: Shares, count: Callable[[LineWork], int]) -> float:
    """`count` of what a warp executes on average. `shares`: line → executions per program, at most 1; absent is 1.

    Code without branches, or without shares, gives its plain count.
    """
    return sum(_runs(block, line, shares) * count(work) for block in code.blocks for line, work in block.lines.items())


def _runs(block: CodeBlock, line: int, shares: Shares) -> float:
    """A block that every warp passes issues everything in it. One of rare lines runs as often as the most frequent of
    them, with all that was sunk into it. In any other a few rare instructions may stand predicated among those that
    always run, so there each line counts for itself.
    """
    if block.always:
        return 1.0
    rare = {x: work.instructions for x, work in block.lines.items() if shares.get(x, 1.0) < 1.0}
    if sum(rare.values()) >= OF_RARE_LINES * sum(work.instructions for work in block.lines.values()) > 0:
        return max(shares[x] for x in rare)
    return shares.get(line, 1.0)
