"""Hypothesis strategies for records, shared by the property tests."""

from hypothesis import strategies as st

from tasks.records import (
    Hypothesis,
    KernelCandidate,
    KernelTarget,
    Prediction,
    Question,
    RoleEdit,
    StackEdit,
    StackTarget,
    digest,
)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
digests = st.binary(max_size=8).map(digest)
numbers = st.floats(min_value=0.01, max_value=1e6, allow_nan=False)
scalars = st.one_of(st.booleans(), st.integers(-10_000, 10_000), numbers, texts)
predictions = st.builds(
    Prediction, observable=texts, direction=st.sampled_from(["down", "up"]), size=numbers, unit=texts
)
kernel_parts = st.tuples(
    st.builds(KernelTarget, problem=texts, incumbent_digest=digests, runs_on=st.just("gpu")),
    st.builds(KernelCandidate, source_name=texts, source=texts, launch=st.dictionaries(texts, scalars, max_size=3)),
)
edits = st.builds(RoleEdit, arguments=st.dictionaries(texts, st.one_of(st.none(), scalars), min_size=1, max_size=3))
stack_parts = st.tuples(
    st.builds(StackTarget, stack=texts, scenario=texts, incumbent_digest=digests),
    st.builds(StackEdit, roles=st.dictionaries(texts, edits, min_size=1, max_size=2)),
)


@st.composite
def hypotheses(draw: st.DrawFn) -> Hypothesis:
    target, change = draw(st.one_of(kernel_parts, stack_parts))
    return Hypothesis(
        title=draw(texts),
        rationale=draw(texts),
        target=target,
        change=change,
        question=draw(st.sampled_from(list(Question))),
        prediction=draw(predictions),
        mechanism=draw(texts),
        origin=draw(st.sampled_from(["person", "catalogue", "sampler", "model"])),
        parent=draw(st.one_of(st.none(), digests)),
    )
