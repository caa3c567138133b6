"""`infra-agent infra apply`: the Prefect server is made to agree with infra/pools.yaml and infra/automations.yaml.

What the files do not name is left alone. Each change is one line of the answer; no change, no line.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from flows.local import use_server
from serving.documents import read_document, read_mapping
from serving.errors import BadInput, Broken
from serving.home import REPOSITORY
from tasks.pools_file import PoolPart, PoolsFile

FOLDER = REPOSITORY / "infra"


def apply_infra(folder: Path = FOLDER) -> list[str]:
    """Create or update what the files in `folder` name. Returns what was changed, in words.

    Raises `BadInput` for a file that is none or without a server, `Broken` if the server fails.
    """
    use_server()
    from prefect.client.orchestration import get_client

    declared = read_document(folder / "pools.yaml", PoolsFile)
    automations = _automations(folder / "automations.yaml")
    changes: list[str] = []
    try:
        with get_client(sync_client=True) as client:
            for name, pool in declared.pools.items():
                changes += _apply_pool(client, name, pool)
                changes += _apply_limit(client, name, pool.limit)
            for automation in automations:
                changes += _apply_automation(client, automation)
    except httpx.HTTPError as error:
        first = str(error).splitlines()[0] if str(error) else repr(error)
        raise Broken(f"Prefect failed: {first}", f"is the server at `{os.environ['PREFECT_API_URL']}` up?") from error
    return changes


def _apply_pool(client: Any, name: str, pool: PoolPart) -> Iterator[str]:
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectNotFound
    from prefect.workers.process import ProcessWorker

    try:
        found = client.read_work_pool(name)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        made = WorkPoolCreate(name=name, type="process", description=pool.description, base_job_template=template)
        client.create_work_pool(made)
        yield f"pool `{name}` created"
    else:
        if found.description != pool.description:
            client.update_work_pool(name, WorkPoolUpdate(description=pool.description))
            yield f"pool `{name}`: description updated"
    known = {queue.name for queue in client.read_work_queues(work_pool_name=name)}
    for queue in pool.queues:
        if queue not in known:
            client.create_work_queue(name=queue, work_pool_name=name)
            yield f"queue `{queue}` of pool `{name}` created"


def _apply_limit(client: Any, name: str, limit: int | None) -> Iterator[str]:
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate
    from prefect.exceptions import ObjectNotFound

    if limit is None:
        return
    try:
        found = client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=limit))
        yield f"limit `{name}` created: {limit}"
    else:
        if (found.limit, found.active) != (limit, True):
            client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(limit=limit, active=True))
            yield f"limit `{name}` updated: {found.limit} → {limit}" + ("" if found.active else ", active again")


def _automations(path: Path) -> list[Any]:
    from prefect.events.schemas.automations import AutomationCore
    from pydantic import ValidationError

    try:
        return [AutomationCore.model_validate(one) for one in read_mapping(path)["automations"]]
    except (KeyError, TypeError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise BadInput(f"`{path}` holds no automations: {first}", "it is a list under the key `automations`") from error


def _apply_automation(client: Any, wanted: Any) -> Iterator[str]:
    found = client.read_automations_by_name(wanted.name)
    if not found:
        client.create_automation(wanted)
        yield f"automation `{wanted.name}` created"
    elif _comparable(found[0]) != _comparable(wanted):
        client.update_automation(found[0].id, wanted)
        yield f"automation `{wanted.name}` updated"


def _comparable(automation: Any) -> Any:
    """As the server hands it out, without what it adds of its own."""
    fields = {"name", "description", "enabled", "trigger", "actions"}
    dumped = automation.model_dump(mode="json", include=fields)
    dumped["trigger"].pop("id", None)
    return {**dumped, "trigger": {k: sorted(v) if isinstance(v, list) else v for k, v in dumped["trigger"].items()}}
