"""What a stack's options amount to: each under one name, without those that spell out what holds anyway."""

from collections.abc import Mapping

from serving.arguments import Option, known_arguments
from serving.engagement import ABSENT, as_text
from serving.errors import Broken

OFF = "off"  # a switch that is on by default, turned off by its `no-` form


def options_or_why() -> Mapping[str, Option] | str:
    """SGLang's options, or the reason why they are not known on this machine."""
    try:
        return known_arguments()
    except Broken as error:
        return error.message


def canonical(arguments: Mapping[str, object], options: Mapping[str, Option]) -> dict[str, object]:
    """Options by the name of what they set, so that aliases are one; an unknown option keeps its own."""
    found: dict[str, object] = {}
    for name, value in arguments.items():
        option = options.get(name)
        setting = option.dest.replace("_", "-") if option else name
        negates = option is not None and option.flag and name == f"no-{setting}"
        found[setting] = (OFF if value is True else None) if negates else value
    return found


def in_effect(arguments: Mapping[str, object], options: Mapping[str, Option]) -> dict[str, str]:
    """Canonical options with their values as text, less those that are absent or their parser's default.

    A default of None is chosen by the engine from the hardware, so no stated value is known to be equal to it.
    """
    defaults = {option.dest.replace("_", "-"): as_text(option.default) for option in options.values()}
    stated = {name: as_text(value) for name, value in canonical(arguments, options).items()}
    off = {name for name, value in defaults.items() if value == ABSENT}
    told = {name: ABSENT if value == OFF and name in off else value for name, value in stated.items()}
    return {name: value for name, value in sorted(told.items()) if value not in (ABSENT, defaults.get(name, ABSENT))}
