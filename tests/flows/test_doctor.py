"""The doctor says which Triton compiles here, and whether the engine has the same."""

import pytest

from flows import doctor
from serving import engine_env, libraries
from serving.errors import Broken
from tasks import toolchain


@pytest.mark.parametrize(
    ("engines", "words"),
    [
        (None, "the engine environment has none"),
        ("3.8.0", "as in the engine environment"),
        ("3.6.0", "but 3.6.0 in the engine"),
    ],
)
def test_the_triton_of_the_engine_is_told_beside_ours(
    engines: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "version", lambda package: "3.8.0")
    monkeypatch.setattr(engine_env, "version_in_engine", lambda package: engines)
    need = doctor._attempt("triton", doctor._triton, "make setup")
    assert need.met
    assert words in need.found


def test_the_library_of_mooncake_is_looked_for_as_the_engine_will(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "loads", lambda library: library == "libibverbs.so.1")
    assert doctor._ibverbs().met
    monkeypatch.setattr(libraries, "loads", lambda library: False)
    need = doctor._ibverbs()
    assert (need.found, need.hint) == ("not installed", "apt-get install libibverbs1")


def test_a_triton_that_is_not_supported_is_a_need_that_is_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "version", lambda package: "3.7.0")
    need = doctor._attempt("triton", doctor._triton, "make setup")
    assert not need.met
    assert "Triton `3.7.0`" in need.found
    with pytest.raises(Broken):
        doctor._triton()
