"""`infra-agent stack up|status|down|reap`: stacks that outlive the command. Only click is imported here, as in cli.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.result_file import check_writable, write_whole
from flows.stack_command import counted, shown
from serving.errors import BadInput, Broken

if TYPE_CHECKING:
    from serving.stack_status import StackStatus

STACK = click.argument("stack", type=click.Path(path_type=Path), metavar="FILE|NAME")
JSON = click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write what it says.")


@click.command("up")
@click.argument("file", type=click.Path(path_type=Path))
@JSON
def stack_up(file: Path, json_file: Path | None) -> None:
    """Start the stack of FILE and leave it running: done when a token has come through. Nothing to do if it is up.

    Nothing starts from a FILE in which `stack validate` finds an error.
    """
    from flows.local import show_progress
    from serving.detached import up
    from serving.stack import load_stack
    from serving.stack_status import status_of

    check_writable(json_file)
    show_progress()
    _check(file)
    _show([status_of(up(load_stack(file)))], json_file)


def _check(file: Path) -> None:
    """Says every fault. Raises BadInput when one is an error. Without SGLang's options it says that none was looked for."""
    from serving.effective import options_or_why
    from serving.validate import faults_of_file

    unknown = options_or_why()
    if isinstance(unknown, str):
        click.echo(f"warning: {file} was not checked before the start: {unknown}", err=True)
        return
    found = faults_of_file(file)
    for fault in found:
        click.echo(shown(fault), err=True)
    if any(fault.severity == "error" for fault in found):
        raise BadInput(f"`{file}`: {counted(found)}; nothing was started", "correct each field that is named above")


@click.command("status")
@click.argument("stack", type=click.Path(path_type=Path), metavar="[FILE|NAME]", required=False)
@JSON
def stack_status(stack: Path | None, json_file: Path | None) -> None:
    """Roles, processes, ports, memory and health of one stack or of every one that is written down.

    Exit status 4 if one of them is not wholly up, or the one that is asked for is not up at all.
    """
    from serving.detached import named_by
    from serving.home import home
    from serving.stack_record import detached_file, read, records, unreadable
    from serving.stack_status import fault_of, status_of

    check_writable(json_file)
    found, unknown = list(records().values()), unreadable()
    if stack is not None:
        name = named_by(stack)
        read(detached_file(name))
        found, unknown = [record for record in found if record.name == name], []
    looked = [status_of(record) for record in found]
    _show(looked, json_file)
    for file in unknown:
        click.echo(f"{file.stem}: unknown, its record {file} cannot be read")
    if not found and not unknown:
        if stack is not None:
            raise Broken(
                f"stack `{name}` is not up, by what is written in {home()}", "`infra-agent stack up FILE` starts it"
            )
        click.echo(f"no stack is up, by what is written in {home()}")
    if faults := [fault for status in looked if (fault := fault_of(status)) is not None]:
        raise Broken("; ".join(fault.message for fault in faults), "; ".join({fault.hint: None for fault in faults}))


@click.command("down")
@STACK
def stack_down(stack: Path) -> None:
    """End a stack that `up` left running, the router first. Nothing to do if it is not up."""
    from flows.local import show_progress
    from serving.detached import down, named_by

    show_progress()
    name = named_by(stack)
    record = down(name)
    if record is None:
        click.echo(f"stack `{name}` is not up: nothing to end")
    else:
        click.echo(f"stack `{name}`: ended {', '.join(replica.name for replica in record.replicas)}")


@click.command("reap")
def stack_reap() -> None:
    """End what killed runs have left: only what they wrote down, and never a stack that `up` started."""
    from serving.remains import reap
    from serving.scratch import remove_left_over

    said = [f"ended what was left of stack `{name}`" for name in reap()]
    said += [f"removed {folder}" for folder in remove_left_over()]
    click.echo("\n".join(said) or "nothing was left")


COMMANDS = (stack_up, stack_status, stack_down, stack_reap)


def _show(found: Sequence["StackStatus"], json_file: Path | None) -> None:
    if json_file is not None:
        import json

        write_whole(json_file, json.dumps([status.model_dump(mode="json") for status in found], indent=1))
    for status in found:
        for line in _lines(status):
            click.echo(line)


def _lines(status: "StackStatus") -> list[str]:
    owner = "detached" if status.detached else f"owned by process {status.owner_pid}"
    lines = [f"{status.name}: {status.state}, {owner}, at {status.url}"]
    if status.replicas:
        lines.append(f"  {'role':<12}{'health':<11}{'pid':>8}{'processes':>11}{'memory':>10}  ports")
    for one in status.replicas:
        memory = "unknown" if one.memory_mb is None else f"{one.memory_mb:.0f} MB"
        ports = ", ".join(f"{port}" for port in one.ports)
        lines.append(
            f"  {one.name:<12}{one.health:<11}{one.pid or '-':>8}{one.processes:>11}{memory:>10}  {ports or '-'}"
        )
        if one.last_error is not None or one.health == "ended":
            lines.append(f"    last error in its log: {one.last_error or 'none'} ({one.log_file})")
    if status.shut_out:
        from serving.breakers import sentence

        lines += [
            f"  {sentence(status.shut_out)}",
            f"    hint: it asks them again after a minute; else `infra-agent stack down {status.name}`, then `up`",
        ]
    outside = sorted(
        {f"{one.name} on {a}:{p}" for one in status.replicas for p, a in one.ports.items() if not _loopback(a)}
    )
    return lines + ([f"  reachable from outside: {', '.join(outside)}"] if outside else [])


def _loopback(address: str) -> bool:
    return address in ("::1", "::ffff:127.0.0.1") or address.startswith("127.")
