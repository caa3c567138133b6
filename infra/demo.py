"""`make demo`: three hypotheses through the real rungs, with their verdicts. Run after set-up; prints progress throughout."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [str(Path(sys.executable).parent / "infra-agent")]
STEPS = (
    ("kernels/kda_decode/hypotheses/hoist_gate.yaml", "less work in the machine code", (0,)),
    ("kernels/kda_decode/hypotheses/clamp_gate.yaml", "wrong on purpose: must be rejected", (1,)),
    ("serving/hypotheses/chunked_prefill.yaml", "an engine argument, on two live SGLang servers", (0, 1, 3)),
)
WORDS = {0: "PASSED", 1: "REJECTED", 2: "BAD INPUT", 3: "INCONCLUSIVE", 4: "BROKEN"}


def main() -> int:
    started, ended = time.monotonic(), []
    for number, (path, what, expected) in enumerate(STEPS, 1):
        print(f"\n=== {number} of {len(STEPS)}: {path}\n    {what}", flush=True)
        status = subprocess.run([*COMMAND, "run", path], cwd=ROOT, check=False).returncode
        ended.append((path, status, status in expected))
    print(f"\n=== {time.monotonic() - started:.0f} s after set-up")
    for path, status, fine in ended:
        print(f"  {WORDS.get(status, status):<13} {path}{'' if fine else '   (not what the demo expects)'}")
    print("where to look next:")
    print("  .venv/bin/infra-agent ledger list            every attempt, with its id")
    print("  .venv/bin/infra-agent ledger show ID         one of them, with its findings")
    print("  make ui                                      Prefect UI on http://127.0.0.1:4200: flow runs and artifacts")
    print("  docs/one-hypothesis.md                       the same run, followed through the code")
    return 0 if all(fine for _, _, fine in ended) else 1


if __name__ == "__main__":
    sys.exit(main())
