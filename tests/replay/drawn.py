"""Any transition that can be written, for properties of what reads it again."""

from hypothesis import strategies as st

from dreamgym_kit.types import Answer, Call, Effect, Environment, Reply, Source, Split, Transition

Drawn = st.SearchStrategy


def json_values(texts: Drawn, numbers: Drawn) -> Drawn:
    """JSON of these texts and numbers."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | numbers | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    )


def transitions(texts: Drawn, numbers: Drawn, *, content: Drawn, seconds: Drawn, **answer: Drawn) -> Drawn:
    """Of these texts and numbers; `content` of the answer, `seconds` of the clock."""
    values = json_values(texts, numbers)
    objects = st.dictionaries(texts, values, max_size=3)
    return st.builds(
        Transition,
        call=st.builds(
            Call,
            tool=texts,
            args=objects,
            call_id=st.none() | texts,
            node=st.none() | texts,
            replies=st.lists(st.builds(Reply, values, values), max_size=2).map(tuple),
        ),
        answer=st.builds(
            Answer,
            content=content | values,
            source=st.sampled_from(sorted(set(Source) - {Source.IMAGINED})),  # which no buffer takes
            confidence=st.floats(0, 1),
            artifact=values,
            error=st.none() | texts,
            error_type=st.none() | texts,
            update=st.none() | objects,
            cites=st.lists(texts, max_size=2).map(tuple),
            why=texts,
            **answer,
        ),
        effect=st.sampled_from(Effect),
        episode=texts,
        step=st.integers(1, 2**70),
        environment=st.builds(Environment, name=texts, variant=st.integers()),
        task=texts,
        after=texts,
        tenant=texts,
        split=st.sampled_from(Split),
        elapsed_s=seconds,
        recorded_at=seconds,
    )
