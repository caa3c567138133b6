"""The criteria of the service rung: a scenario file, whose limits a verdict can cite by file, digest and key."""

from dataclasses import dataclass
from pathlib import Path

from serving.scenario import Scenario, load_scenario
from tasks.records import Criterion, Scalar


@dataclass(frozen=True)
class ServiceCriteria:
    file: str
    scenario: Scenario

    def value(self, key: str) -> Scalar:
        """What stands under a dotted key such as `vetoes.itl_max_ms`. Raises KeyError."""
        found: object = self.scenario.model_dump(mode="json")
        for part in key.split("."):
            if not isinstance(found, dict) or part not in found:
                raise KeyError(key)
            found = found[part]
        if not isinstance(found, bool | int | float | str):
            raise KeyError(key)
        return found

    def limit(self, key: str) -> float:
        """The number under a dotted key. Raises KeyError."""
        return float(self.value(key))

    def keys(self, group: str) -> tuple[str, ...]:
        """The dotted keys under a group, such as every veto. Raises KeyError."""
        found = self.scenario.model_dump(mode="json")[group]
        return tuple(f"{group}.{name}" for name in found)

    def cite(self, key: str) -> Criterion:
        """File, digest, key and value, for a verdict. Raises KeyError."""
        return Criterion(file=self.file, digest=self.scenario.digest, key=key, value=self.value(key))


def load_criteria(path: Path | str) -> ServiceCriteria:
    """Raises BadInput for a file that is not a scenario."""
    return ServiceCriteria(str(path), load_scenario(Path(path)))
