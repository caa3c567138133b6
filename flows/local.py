"""The `local` profile: one embedded Prefect server on SQLite per command, everything under INFRA_AGENT_HOME.

Import this before anything imports prefect: its settings are read then. Variables that the user has set are kept.
"""

import logging
import os
import sys

from serving.home import home

SETTINGS = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # the default of 20 s fails on a busy machine
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,serving",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
    "PREFECT_CLI_COLORS": "false",
}


def configure() -> None:
    """Set what the embedded server needs. Raises `Broken` when the home folder cannot be written."""
    os.environ.setdefault("PREFECT_HOME", str(home() / "prefect"))
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def show_progress() -> None:
    """Send the progress of our own packages to stderr; stdout belongs to results."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    for name in ("flows", "tasks", "serving"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.handlers = [handler]
        logger.propagate = False
