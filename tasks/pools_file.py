"""The file in which people say which work pools there are: infra/pools.yaml."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tasks.hypothesis import Text

PoolName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


class PoolPart(BaseModel):
    """`queues` are made beside Prefect's own `default`. `limit`: stages that may hold a device of this pool at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: Text
    queues: tuple[PoolName, ...] = ()
    limit: Annotated[int, Field(ge=1)] | None = None


class PoolsFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    pools: Annotated[dict[PoolName, PoolPart], Field(min_length=1)]
