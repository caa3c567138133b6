"""`stack up` and `stack down`: a stack that outlives the command that started it and is known by its record alone."""

import contextlib
import fcntl
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from serving.deployment import bring_up
from serving.endings import named_at_once
from serving.errors import BadInput, Broken
from serving.identity import still_there, was_before_boot
from serving.process import stop
from serving.remains import reap
from serving.signals import signals_held_back, terminated_as_exception
from serving.stack import StackName, StackSpec, load_stack
from serving.stack_record import ReplicaRecord, StackRecord, detached_file, folder, read
from serving.witness import Witness, watched, weights_fault

log = logging.getLogger(__name__)


def up(spec: StackSpec) -> StackRecord:
    """The record of the stack, which runs and answers when this returns; the one that is up already, if one is.

    Raises BadInput when it is up as something else, Broken when it is up in part, when nobody can say whether it is, and
    when it does not come up; then nothing stays.
    """
    with _alone(spec.name), terminated_as_exception(), ExitStack() as teardown, named_at_once():
        reap()
        if (found := _already_up(spec)) is not None:
            log.info("%s is up already", spec.name)
            return found
        if not any(part.url is None for part in spec.roles.values()):
            raise BadInput(f"stack `{spec.name}` has only roles with a `url`", "there is nothing to start")
        witness, variables = watched(folder() / spec.name)
        made = bring_up(spec, folder() / spec.name, teardown, detached_file(spec.name), variables)
        _say_of_weights(spec, witness)
        with signals_held_back():
            # Written first: what is killed from here on leaves a record that `down` can work with.
            made.note.owner = None
            made.note.write()
            for process in made.processes.values():
                process.release()
            teardown.pop_all()
        assert made.note.written is not None
        return made.note.written


def down(name: str) -> StackRecord | None:
    """Ends the detached stack of this name, router first, and forgets it; None when there is none.

    Raises BadInput for one that is being started or runs on another machine, Broken when something does not end.
    """
    with _alone(name):
        record = _record_of(name)
        if record is None:
            return None
        with ExitStack() as teardown:
            teardown.callback(lambda: stop([r.process() for r in record.replicas if r.role != "router"]))
            teardown.callback(lambda: stop([r.process() for r in record.replicas if r.role == "router"]))
        detached_file(name).unlink(missing_ok=True)
        return record


def named_by(argument: Path) -> str:
    """The name of the stack that a file describes, or the word itself if a stack can be called so, up or not.

    Raises BadInput for what is neither; a word that ends as a YAML file does is a file, unless a stack of that name is up.
    """
    with contextlib.suppress(OSError, ValueError):  # such as a name that is too long for a file
        if argument.exists():
            return load_stack(argument).name
        word = str(argument)
        if _may_be_a_name(word) and (argument.suffix not in (".yaml", ".yml") or detached_file(word).exists()):
            return word
    raise BadInput(
        f"no such file: `{argument}`, and no stack of that name is up", "`infra-agent stack status` lists what is up"
    )


def _may_be_a_name(word: str) -> bool:
    try:
        TypeAdapter(StackName).validate_python(word)
    except ValidationError:
        return False
    return True


def has_ended(replica: ReplicaRecord) -> bool:
    """Whether its leader is gone: it ends as its engine ends."""
    return still_there(replica.leader) is None


def _say_of_weights(spec: StackSpec, witness: Witness) -> None:
    """Only said, because it may be meant: a stack without speculation leaves the draft's layers in the checkpoint."""
    here = all(part.url is None for part in spec.roles.values())
    if here and (fault := weights_fault(spec.name, witness, several_roles=len(spec.roles) > 1)) is not None:
        log.warning("%s; answers may be wrong", fault)


def _already_up(spec: StackSpec) -> StackRecord | None:
    record = _record_of(spec.name)
    if record is None:
        return None
    down_first = f"`infra-agent stack down {spec.name}` first"
    ended = [replica.name for replica in record.replicas if has_ended(replica)]
    if ended and not any(replica.process().alive() for replica in record.replicas):
        log.info("%s was up, and all of it has ended", spec.name)
        detached_file(spec.name).unlink(missing_ok=True)
        return None
    if ended:
        raise Broken(f"stack `{spec.name}` is up, but {' and '.join(f'`{name}`' for name in ended)} ended", down_first)
    if record.digest != spec.digest:
        raise BadInput(f"stack `{spec.name}` is up, and it was started from another text than this one", down_first)
    return record


def _record_of(name: str) -> StackRecord | None:
    """None when there is none that could still run.

    Raises BadInput for one of another machine or container, Broken for one that cannot be read.
    """
    record = read(detached_file(name))
    if record is None or record.is_here:
        return record
    if was_before_boot(record.machine):
        detached_file(name).unlink(missing_ok=True)
        return None
    raise BadInput(
        f"stack `{name}` was started on `{record.machine.partition('/')[0]}`, or in another container of this machine",
        f"end it there; if it is gone, remove {detached_file(name)}",
    )


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One `up` or `down` of a stack at a time. Raises BadInput when another one is at it."""
    with (folder() / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(
                f"another command is starting or ending stack `{name}`", "wait until it is done, or interrupt it"
            ) from error
        yield
