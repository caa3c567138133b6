# Two commands set everything up: `make demo` and `make test`. Targets do nothing when up to date.
PYTHON ?= python3
LOCKS := infra/requirements
PIP := -m pip --disable-pip-version-check install --quiet

.PHONY: demo test lint setup engine lock ui clean
.DELETE_ON_ERROR:

demo: setup engine
	.venv/bin/python -P infra/demo.py

test: setup engine lint
	.venv/bin/python -m pytest -n 2 --dist loadfile -m "not live"
	.venv/bin/python -m pytest -m live

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

setup: .venv/.ready
engine: .venv-engine/.ready

.venv/.ready: $(LOCKS)/orchestrator.lock $(LOCKS)/dev.lock $(LOCKS)/dev-nodeps.txt infra/torch_source.py pyproject.toml
	@echo "orchestrator environment: .venv (2-4 minutes the first time)"
	@$(PYTHON) infra/check_machine.py
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP) $$(.venv/bin/python infra/torch_source.py)
	.venv/bin/python $(PIP) --no-deps -r $(LOCKS)/orchestrator.lock -r $(LOCKS)/dev.lock -r $(LOCKS)/dev-nodeps.txt
	.venv/bin/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv-engine/.ready: $(LOCKS)/engine.lock $(LOCKS)/engine-nodeps.txt infra/torch_source.py
	@echo "engine environment: .venv-engine (2-4 minutes the first time)"
	@$(PYTHON) infra/check_machine.py
	$(PYTHON) -m venv .venv-engine
	.venv-engine/bin/python $(PIP) $$(.venv-engine/bin/python infra/torch_source.py)
	.venv-engine/bin/python $(PIP) --no-deps -r $(LOCKS)/engine.lock -r $(LOCKS)/engine-nodeps.txt
	@touch $@

lock: setup
	infra/lock.sh

ui: setup
	PREFECT_HOME="$${INFRA_AGENT_HOME:-$$HOME/.local/share/infra-agent}/prefect" PREFECT_SERVER_ANALYTICS_ENABLED=false \
		DO_NOT_TRACK=1 .venv/bin/prefect server start --host 127.0.0.1

clean:
	rm -rf .venv .venv-engine build *.egg-info .pytest_cache .mypy_cache .ruff_cache
