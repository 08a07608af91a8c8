"""Facts of imagined environments: one world for repeats, processes and runs."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.dream.environment_facts import EnvironmentFacts
from dreamgym_kit.dream.structured_output import closed, read_object
from dreamgym_kit.errors import NotSerializable, StoreError, UserError
from dreamgym_kit.rollout.environment_files import EnvironmentFile, environments_in, facts_path
from dreamgym_kit.types import Answer, Call, Effect, Environment, Source, ToolSpec, Transition

SHOP = Environment("shop", 3)
ARGS = {"type": "object", "properties": {"order_id": {"type": "string"}}}
GET = ToolSpec("get_order", Effect.READ, args_schema=ARGS)
CANCEL = ToolSpec("cancel_order", Effect.DESTRUCTIVE, args_schema=ARGS)
SPECS = {"get_order": GET, "cancel_order": CANCEL}
ORDER = {"order_id": "O1", "total": 40, "customer": "Ida"}


def imagined(content: object) -> Answer:
    return Answer(content=content, source=Source.IMAGINED, confidence=0.0)


def get(order: str) -> Call:
    return Call("get_order", {"order_id": order})


def facts_in(folder: Path, specs=SPECS, recorded=()) -> EnvironmentFacts:
    """As another process would open them."""
    return EnvironmentFacts(
        lambda environment: EnvironmentFile(facts_path(folder, environment)),
        specs,
        recorded=lambda environment: recorded,
        model="m",
        prompt="1",
        clock=lambda: "2026-11-28",
    )


def test_fact_of_one_run_answers_the_same_call_in_another(tmp_path: Path) -> None:
    first, second = facts_in(tmp_path), facts_in(tmp_path)
    assert second.find(SHOP, get("O1")) is None
    assert first.accept(SHOP, get("O1"), imagined(ORDER)) == []
    answer = second.find(SHOP, get("O1"))
    assert (answer.content, answer.source, answer.confidence) == (ORDER, Source.IMAGINED, 0.0)
    assert second.all_facts(SHOP) == [{"tool": "get_order", "args": {"order_id": "O1"}, "answer": ORDER}]
    assert second.find(Environment("shop", 4), get("O1")) is None
    fact = second.book(SHOP).base()[0]
    assert (fact.model, fact.prompt, fact.date) == ("m", "1", "2026-11-28")
    (tmp_path / "folder-0.json").mkdir()
    assert environments_in(tmp_path) == [(SHOP, tmp_path / "shop-3.json")]


def test_half_of_a_surrogate_pair_ends_no_run(tmp_path: Path) -> None:
    call, answer = get("O\ud800"), {"order_id": "O\ud800", "note": "\udfff"}
    assert facts_in(tmp_path).accept(SHOP, call, imagined(answer)) == []  # an agent's argument, echoed
    again = facts_in(tmp_path).find(SHOP, call)
    assert again is not None
    assert again.content == answer
    with pytest.raises(NotSerializable, match="surrogate"):  # a model's reply is corrected
        read_object('{"a": "\\ud800"}', closed(a={"type": "string"}))


def test_an_id_names_one_thing_and_a_refused_answer_is_not_kept(tmp_path: Path) -> None:
    facts = facts_in(tmp_path)
    facts.accept(SHOP, get("O1"), imagined(ORDER))
    other = imagined({"orders": [{"order_id": "O1", "total": 41, "customer": "Ida"}]})
    problems = facts.accept(SHOP, Call("get_order", {"order_id": "O1", "all": True}), other)
    assert problems
    assert "41" in problems[0]
    assert len(facts_in(tmp_path).all_facts(SHOP)) == 1


def test_seeding_keeps_all_or_none(tmp_path: Path) -> None:
    facts = facts_in(tmp_path)
    facts.accept(SHOP, get("O1"), imagined(ORDER))
    wrong = imagined({"orders": [{"order_id": "O1", "total": 7, "customer": "Ida"}]})
    good = imagined({"order_id": "O3", "total": 5})
    assert facts.seed(
        SHOP, "task", [(get("O3"), good), (Call("get_order", {"order_id": "O1", "all": True}), wrong)]
    )
    assert not facts.is_seeded(SHOP, "task")
    assert facts.find(SHOP, get("O3")) is None
    assert facts.seed(SHOP, "task", [(get("O3"), good)]) == []
    assert facts_in(tmp_path).is_seeded(SHOP, "task")


def test_a_changed_schema_invalidates_what_it_imagined(tmp_path: Path) -> None:
    facts_in(tmp_path).accept(SHOP, get("O1"), imagined(ORDER))
    changed = {**SPECS, "get_order": replace(GET, answer_schema={"type": "string"})}
    assert facts_in(tmp_path, changed).find(SHOP, get("O1")) is None
    assert facts_in(tmp_path).find(SHOP, get("O1")) is not None


def test_recordings_replace_imagined_facts_and_name_what_they_contradict(tmp_path: Path) -> None:
    facts = facts_in(tmp_path)
    facts.accept(SHOP, get("O1"), imagined(ORDER))
    facts.accept(SHOP, get("O2"), imagined({"order_id": "O2", "total": 9}))
    real = Transition(get("O1"), Answer(content={**ORDER, "total": 44}), Effect.READ, "e", 1, SHOP)
    later = facts_in(tmp_path, recorded=[real])
    assert later.find(SHOP, get("O1")) is None
    assert later.find(SHOP, get("O2")) is not None
    assert [row["answer"]["total"] for row in later.all_facts(SHOP)] == [44, 9]
    assert "total': 40" in later.book(SHOP).replaced[0].call
    other = imagined({"orders": [{**ORDER, "total": 1}]})
    assert later.accept(SHOP, Call("get_order", {"order_id": "O1", "all": True}), other)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    facts_path(tmp_path, SHOP).write_text("{")
    with pytest.raises(UserError, match="environments reset"):
        facts_in(tmp_path).all_facts(SHOP)


def test_partial_line_of_a_killed_process_is_dropped_and_overwritten(tmp_path: Path) -> None:
    facts_in(tmp_path).accept(SHOP, get("O1"), imagined(ORDER))
    path = facts_path(tmp_path, SHOP)
    whole = path.read_bytes()
    facts_in(tmp_path).seed(SHOP, "task", [(get(f"O{n}"), imagined({"order_id": f"O{n}"})) for n in (2, 3)])
    path.write_bytes(path.read_bytes()[:-9])  # in the middle of the seeding
    later = facts_in(tmp_path)
    assert len(later.all_facts(SHOP)) == 1
    assert not later.is_seeded(SHOP, "task")
    assert path.read_bytes().startswith(whole)
    assert later.accept(SHOP, get("O4"), imagined({"order_id": "O4"})) == []
    assert [row["args"]["order_id"] for row in facts_in(tmp_path).all_facts(SHOP)] == ["O1", "O4"]


def test_two_runs_see_each_other_and_a_file_that_is_replaced_between(tmp_path: Path) -> None:
    first, second = facts_in(tmp_path), facts_in(tmp_path)
    for number in range(6):
        facts = (first, second)[number % 2]
        assert facts.accept(SHOP, get(f"O{number}"), imagined({"order_id": f"O{number}", "n": number})) == []
        if number == 3:
            changed = {**SPECS, "get_order": replace(GET, answer_schema={"type": "object"})}
            third = facts_in(tmp_path, changed)
            assert third.accept(SHOP, get("O9"), imagined({"order_id": "O9"})) == []
            assert [row["args"]["order_id"] for row in third.all_facts(SHOP)] == ["O9"]
    assert first.all_facts(SHOP) == second.all_facts(SHOP)
    wrong = imagined({"orders": [{"order_id": "O4", "n": 7}]})
    assert second.accept(SHOP, Call("get_order", {"order_id": "O4", "all": True}), wrong)


class CountedFile(EnvironmentFile):
    """Counts the bytes that are read and written."""

    moved = 0

    def read(self, start: int = 0, most: int = 2**26) -> bytes | None:
        data = super().read(start, most)
        self.moved += len(data or b"")
        return data

    @contextmanager
    def changing(self) -> Iterator[Callable[[bytes, bool], None]]:
        with super().changing() as write:

            def counted(data: bytes, whole: bool) -> None:
                self.moved += len(data)
                write(data, whole)

            yield counted


def test_cost_of_an_answer_does_not_grow_with_the_facts(tmp_path: Path) -> None:
    path = facts_path(tmp_path, SHOP)
    files = [CountedFile(path), CountedFile(path)]
    runs = [EnvironmentFacts(lambda _, file=file: file, SPECS) for file in files]
    related = 0
    for number in range(150):
        call, content = get(f"O{number}"), {"order_id": f"O{number}", "state": "open", "total": number + 1000}
        assert runs[number % 2].accept(SHOP, call, imagined(content)) == []
        row = {"tool": call.tool, "args": dict(call.args), "answer": content}
        related += len(runs[0].related(SHOP, row))
    assert related == 150  # itself alone
    heads = 2 * 150 * 200
    assert sum(file.moved for file in files) < 3 * path.stat().st_size + heads
    assert len(facts_in(tmp_path).all_facts(SHOP)) == 150


_OTHER = """\
import sys
from contextlib import closing
from dreamgym_kit.rollout.environment_files import EnvironmentFile
from pathlib import Path
print(EnvironmentFile(Path(sys.argv[1])).begin(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("names", "free"), [(("o1",), False), (("o2",), True), (("",), False), (("o2", "o1"), False)]
)
def test_names_locked_by_another_process_cannot_be_locked(names, free, tmp_path: Path) -> None:
    path = facts_path(tmp_path, SHOP)
    file = EnvironmentFile(path)
    assert file.begin(["o1", "c1"])
    assert not EnvironmentFile(path).begin(["o1"])  # within a process
    done = subprocess.run(
        [sys.executable, "-c", _OTHER, str(path), *names], capture_output=True, text=True, check=True
    )
    file.end(["o1", "c1"])
    assert done.stdout.strip() == str(free)
    assert file.begin([""])
    file.end([""])


def test_no_buffer_takes_an_imagined_answer(tmp_path: Path) -> None:
    row = Transition(get("O1"), imagined(ORDER), Effect.READ, "e", 1, SHOP)
    for store in (SqliteStore(tmp_path / "recordings.db"), MemoryStore()):
        with closing(store), pytest.raises(StoreError, match="imagined"):
            store.put([row])
