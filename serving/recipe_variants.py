"""The variants of a srt-slurm recipe: `base` with `override_*`, `zip_override_*`, and the first point of a `sweep`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serving.errors import BadInput
from serving.faults import Fault, warning

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Variant:
    """One recipe without lists of alternatives. `notes`: what was chosen among several. `beside`: place and value of what
    stands beside `base` and is no variant of it."""

    recipe: dict[str, Any]
    notes: tuple[Fault, ...]
    beside: tuple[tuple[str, Any], ...]


def variant_of(document: Mapping[str, Any], wanted: str | None) -> Variant:
    """The variant called `wanted` (`base`, `override_x`, `zip_override_x[0]`), by default the first there is.

    Raises BadInput for a name that there is not, and for alternatives that do not fit each other.
    """
    document = _with_text_keys(document)
    found = _variants(document)
    if wanted is not None and wanted not in found:
        known = ", ".join(f"`{name}`" for name in found if name)
        hint = f"there are {known}" if known else "the recipe has no variants: leave the option away"
        raise BadInput(f"the recipe has no variant `{wanted}`", hint)
    others = [name for name in found if name not in ("", "base")]
    name = wanted if wanted is not None else next(iter(others), next(iter(found)))
    notes = []
    if wanted is None and len(found) > 1:
        known = ", ".join(f"`{other}`" for other in found if other != name)
        notes.append(warning(name, f"variant `{name}` was taken; there are also {known}", "name one with --variant"))
    chosen, point = _first_point(found[name])
    if point:
        values = ", ".join(f"{key} = {value}" for key, value in point.items())
        notes.append(
            warning("sweep", f"the first point of the sweep was taken: {values}", "write out another one by hand")
        )
    return Variant(chosen, tuple(notes), tuple(_beside(document)) if "base" in found else ())


def _with_text_keys(part: Any) -> Any:
    """YAML lets a key be a number; here each is a name."""
    if isinstance(part, dict):
        return {str(key): _with_text_keys(value) for key, value in part.items()}
    return [_with_text_keys(value) for value in part] if isinstance(part, list) else part


def _variants(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    base = document.get("base")
    if not isinstance(base, dict):
        return {"": dict(document)}
    found = {"base": dict(base)}
    for key, change in document.items():
        if not isinstance(change, dict):
            continue
        if key.startswith("zip_override_"):
            for index in range(_length(change, key)):
                made = _merged(base, _at(change, index))
                found[f"{key}[{index}]"] = _named(made, base, f"{key.removeprefix('zip_override_')}_{index}")
        elif key.startswith("override_"):
            found[key] = _named(_merged(base, change), base, key.removeprefix("override_"))
    return found


def _beside(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        variant = key.startswith(("override_", "zip_override_")) and isinstance(value, dict)
        if key not in ("base", "schema") and not variant and value is not None:
            yield key, value


def _named(made: dict[str, Any], base: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """A variant that does not say its name is called by its base and its key."""
    return made if made.get("name") != base.get("name") else {**made, "name": f"{base.get('name', 'stack')}_{suffix}"}


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged, everything else is replaced, and null takes a key away."""
    made = dict(base)
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = _merged(made[key], value)
        else:
            made[key] = value
    return made


def _length(change: Any, key: str) -> int:
    """How many variants the lists among the leaves make together; a list of one counts for all."""
    lengths = {len(leaf) for leaf in _lists(change)} - {1}
    if len(lengths) > 1 or 0 in lengths:
        shown = ", ".join(str(length) for length in sorted(lengths))
        raise BadInput(
            f"`{key}` has lists of {shown} values, which cannot be taken side by side", "make them equally long"
        )
    return next(iter(lengths), 1)


def _lists(part: Any) -> list[list[Any]]:
    if isinstance(part, dict):
        return [leaf for value in part.values() for leaf in _lists(value)]
    return [part] if isinstance(part, list) else []


def _at(part: Any, index: int) -> Any:
    if isinstance(part, dict):
        return {key: _at(value, index) for key, value in part.items()}
    if isinstance(part, list):
        return part[index if len(part) > 1 else 0]
    return part


def _first_point(recipe: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe with each `{name}` of its sweep replaced by the first value, and these values."""
    sweep = recipe.get("sweep")
    if not isinstance(sweep, dict):
        return recipe, {}
    point = {key: values[0] for key, values in sweep.items() if isinstance(values, list) and values}
    rest = {key: value for key, value in recipe.items() if key != "sweep"}
    return {key: _filled(value, point) for key, value in rest.items()}, point


def _filled(part: Any, point: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        return {key: _filled(value, point) for key, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, point) for value in part]
    if not isinstance(part, str):
        return part
    whole = _PLACEHOLDER.fullmatch(part)
    if whole and whole[1] in point:
        return point[whole[1]]
    return _PLACEHOLDER.sub(lambda match: str(point.get(match[1], match[0])), part)
