#!/usr/bin/env bash
# Resolve infra/requirements/*.in into exact versions, with no index address in them. Run by `make lock`.
set -euo pipefail
cd "$(dirname "$0")/requirements"
for name in orchestrator dev engine; do
    ../../.venv/bin/pip-compile --quiet --strip-extras --allow-unsafe --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file "$name.lock.new" "$name.in"
    # A CPU build has a local version such as +cpu; the lock names the release and infra/torch_source.py the build.
    sed -E -e '/^(#|$)/d' -e 's/^(torch==[0-9.]+)\+[a-z0-9]+/\1/' "$name.lock.new" > "$name.lock"
    rm "$name.lock.new"
done
# The GPU engine is resolved from wheels and metadata alone: nothing of it is built or installed here.
../../.venv/bin/pip install --quiet --dry-run --ignore-installed --only-binary :all: --report engine-gpu.json -r engine-gpu.in
../../.venv/bin/python -P ../resolved.py engine-gpu.json > engine-gpu.lock
rm engine-gpu.json
# nvidia-ml-py only asks the driver: it is pure Python.
if grep -nE '://' ./*.lock || grep -E '^nvidia-|^cuda-' orchestrator.lock dev.lock engine.lock | grep -v ':nvidia-ml-py=='; then
    echo "a lock holds an address or a CUDA wheel: resolve on a machine whose torch is the CPU build" >&2
    exit 1
fi
