"""The criteria of a kernel problem: limits that people own; a verdict can cite each by file, digest and key."""

from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from serving.documents import read_document, read_text
from serving.home import portable
from tasks.definition import Workloads
from tasks.ending import Limits
from tasks.records import Criterion, Scalar, Text, digest

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Written = TypeVar("Written", bound=BaseModel, covariant=True)
Model = TypeVar("Model", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NumericsCriteria(_Part):
    """`coded_max_rel_error` is for results stored in 8 bits; `toward_zero_max_rel_error` for tensor cores that sum toward
    zero, which no GPU has confirmed or ruled out; `drift_max_rel_error` for what the dtype of a cache alone loses over a
    long generation; `max_differing_elements` for runs that must be bit-equal."""

    fp32_max_rel_error: Positive
    max_ratio_to_ieee_fp32: Positive
    bf16_max_rel_error: Positive
    coded_max_rel_error: Positive | None = None
    toward_zero_max_rel_error: Positive | None = None
    drift_max_rel_error: Positive | None = None
    max_changed_untouched_slots: Annotated[int, Field(ge=0)]
    max_integer_mismatches: Annotated[int, Field(ge=0)] = 0
    max_differing_elements: Annotated[int, Field(ge=0)] = 0

    def lacks(self, workloads: Workloads, coded: bool) -> str | None:
        """The first limit that the workloads need and that is not set. `coded`: some tensor has 8 bits, or may have."""
        needed = {
            "coded_max_rel_error": coded,
            "toward_zero_max_rel_error": any("toward_zero" in x.tensor_cores for x in workloads.checks),
            "drift_max_rel_error": any(x.drift_steps is not None for x in workloads.checks),
        }
        return next((name for name, needs in needed.items() if needs and getattr(self, name) is None), None)


class StaticCriteria(_Part):
    smallest_effect_pct: NotNegative
    max_spill_bytes: Annotated[int, Field(ge=0)]
    max_registers: Annotated[int, Field(ge=16, le=255)]
    max_wide_share_loss_pct: NotNegative


class BytesCriteria(_Part):
    smallest_effect_pct: NotNegative


class MicrobenchCriteria(_Part):
    """The last three are of timings on CPU: pairs of the A/A run, most pairs of a comparison, and its wall time."""

    smallest_effect_pct: NotNegative
    max_regression_pct: NotNegative
    noise_pairs: Annotated[int, Field(ge=4)] = 10
    most_pairs: Annotated[int, Field(ge=2)] = 60
    budget_s: Positive = 180.0


class CriteriaFile(_Part):
    """criteria.yaml, as people write it. A problem that runs on CPU has no `static`."""

    version: Annotated[int, Field(ge=1)]
    numerics: NumericsCriteria
    static: StaticCriteria | None = None
    bytes: BytesCriteria | None = None
    microbench: MicrobenchCriteria
    limits: Limits
    approvers: Annotated[tuple[Text, ...], Field(min_length=1)]


class Criteria(_Part, Generic[Written]):
    """A criteria file with its name and digest, so that a verdict can cite one line of it. Scenarios are such files, too."""

    file: Text
    digest: Text
    values: Written

    def value(self, key: str) -> Scalar:
        """What stands under a dotted key such as `static.max_registers` or `approvers.0`. Raises KeyError."""
        found = self._under(key)
        if not isinstance(found, bool | int | float | str):
            raise KeyError(key)
        return found

    def limit(self, key: str) -> float:
        """The number under a dotted key. Raises KeyError."""
        return float(self.value(key))

    def keys(self, group: str) -> tuple[str, ...]:
        """The dotted keys under a group or list, such as every veto. Raises KeyError."""
        found = self._under(group)
        if not isinstance(found, dict | list):
            raise KeyError(group)
        return tuple(f"{group}.{name}" for name in (found if isinstance(found, dict) else range(len(found))))

    def _under(self, key: str) -> object:
        found: object = self.values.model_dump(mode="json")
        for part in key.split("."):
            if isinstance(found, dict) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
                found = found[int(part)]
            else:
                raise KeyError(key)
        return found

    def cite(self, key: str) -> Criterion:
        """File, digest, key and value, for a verdict. Raises KeyError."""
        return Criterion(file=self.file, digest=self.digest, key=key, value=self.value(key))


def load_criteria(path: Path, model: type[Model]) -> Criteria[Model]:
    """A file that people wrote, with the digest of its text. Raises BadInput."""
    values = read_document(path, model)
    return Criteria[model](file=portable(path), digest=digest(read_text(path)), values=values)  # type: ignore[valid-type]
