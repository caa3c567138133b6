"""How often the code behind a branch runs, from how often its lines ran in the interpreter.

A kernel that writes its state at one step of eight has the code for it at every step. The count of such a stretch is
weighted with the share of programs in which its lines ran, measured over all steps of a check.
"""

from collections.abc import Callable, Mapping

from tasks.sass import Code, CodeBlock, LineWork

Shares = Mapping[int, float]


def weighted(code: Code, shares: Shares, count: Callable[[LineWork], int]) -> float:
    """`count` of what a warp executes on average. `shares`: line → executions per program, at most 1; absent is 1.

    Each block of the code counts as often as it runs. Code without branches, or without shares, gives its plain count.
    """
    return sum(_runs(block, shares) * count(work) for block in code.blocks for work in block.lines.values())


def _runs(block: CodeBlock, shares: Shares) -> float:
    """A block that every warp passes issues everything in it. Another runs as often as its most frequent own line.

    Work of lines that always run may be sunk into a branch, so these lines do not tell how often it is taken.
    """
    rare = [shares[line] for line in block.lines if shares.get(line, 1.0) < 1.0]
    return max(rare) if rare and not block.always else 1.0
