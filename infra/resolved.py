"""Print the exact versions in a report of `pip install --dry-run --report FILE`, one a line, as a lock holds them."""

import json
import re
import sys
from pathlib import Path


def lines(report: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    """`name==version` of everything that pip would install, by normalised name, without local versions such as +cu130."""
    found = [package["metadata"] for package in report["install"]]
    names = {re.sub(r"[-_.]+", "-", package["name"]).lower(): package["version"] for package in found}
    return [f"{name}=={version.partition('+')[0]}" for name, version in sorted(names.items())]


if __name__ == "__main__":
    print("\n".join(lines(json.loads(Path(sys.argv[1]).read_text()))))
