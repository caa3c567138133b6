"""What asking a model may cost: caps, bounds and prices, in a file that people own (infra/model.yaml)."""

import os
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serving.documents import read_document
from serving.errors import BadInput
from serving.home import located
from tasks.records import Text

DEFAULT = "infra/model.yaml"
Positive = Annotated[int, Field(ge=1)]
Dollars = Annotated[float, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Caps(_Part):
    """Of one `propose`, failed calls included; None is no cap."""

    calls: Positive
    seconds: Annotated[float, Field(gt=0)]
    tokens: Positive | None = None
    usd: Annotated[float, Field(gt=0)] | None = None


class Price(_Part):
    """US dollars per million tokens, and where the figures come from."""

    input_usd: Dollars
    output_usd: Dollars
    source: Text

    def usd(self, input_tokens: int, output_tokens: int) -> float:
        return (input_tokens * self.input_usd + output_tokens * self.output_usd) / 1e6


class ModelFile(_Part):
    """Bounds are in tokens; `findings_tokens` is part of `prompt_tokens`."""

    caps: Caps
    prompt_tokens: Positive
    findings_tokens: Positive
    answer_tokens: Positive
    prices: dict[str, Price] = {}

    def price_of(self, model: str) -> Price | None:
        """Raises `BadInput` where money has a cap and the model no price: unknown money is not no money."""
        price = self.prices.get(model)
        if price is None and self.caps.usd is not None:
            raise BadInput(
                f"there is a cap on money (`caps.usd: {self.caps.usd:g}`) and no price of the model `{model}`",
                "add it to `prices` of the model file (0 for a server of your own), or set `caps.usd: null`",
            )
        return price


def load_model_file() -> ModelFile:
    """`INFRA_AGENT_MODEL_FILE`, else infra/model.yaml. Raises `BadInput`."""
    return read_document(located(os.environ.get("INFRA_AGENT_MODEL_FILE") or DEFAULT), ModelFile)
