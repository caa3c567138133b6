"""Starts a module with a key among its arguments that stands on no command line, where everybody could read it.

INFRA_AGENT_ENGINE_KEY=... python -P start_with_key.py MODULE [arguments]
"""

import os
import runpy
import sys

key, module = os.environ.pop("INFRA_AGENT_ENGINE_KEY"), sys.argv[1]
sys.argv = [module, *sys.argv[2:], "--api-key", key]
if __name__ == "__main__":
    runpy.run_module(module, run_name="__main__", alter_sys=True)
