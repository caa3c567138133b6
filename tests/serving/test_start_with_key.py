"""A server gets its key as an argument, and whatever it says of its arguments is written without it."""

import os
import subprocess
import sys
from pathlib import Path

from serving.engine_env import SCRIPTS

SERVER = """
import logging, sys
logging.basicConfig(format="%(message)s")
logging.warning("server_args=%s", {"api_key": sys.argv[-1]})
print(f"started with {sys.argv[1:]}", flush=True)
assert sys.argv[-2:] == ["--api-key", "k-" + "secret"]
raise ValueError(f"refused: {sys.argv[-1]}")
"""


def test_a_key_is_among_the_arguments_and_in_nothing_that_is_printed_logged_or_raised(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPTS / "start_with_key.py"), "server", "--port", "1"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "INFRA_AGENT_ENGINE_KEY": "k-secret"},
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.stdout == "started with ['--port', '1', '--api-key', '***']\n"
    assert "server_args={'api_key': '***'}" in done.stderr
    assert done.stderr.endswith("ValueError: refused: ***\n")
