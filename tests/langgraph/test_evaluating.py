"""`evaluate` in Python: real or dreamed, against another run, and what it refuses before anything runs."""

from pathlib import Path
from typing import Any

import pytest
from each_row import each_row

import dreamgym_kit
from dreamgym_kit import Environment, Task
from dreamgym_kit.adapters.stores.memory import MemoryStore
from dreamgym_kit.adapters.stores.sqlite import SqliteStore
from dreamgym_kit.errors import RunDirectoryError, UserError
from dreamgym_kit.report.summary import facts_of, summarize
from dreamgym_kit.rollout.rundir import RunDirectory
from dreamgym_kit.settings.load import parse_settings
from dreamgym_kit.settings.schema import Settings
from dreamgym_kit.trust.comparison import Conclusion
from dreamgym_kit.types import Split

SHOP = '''
class Shop:
    """Puts the orders back for each episode."""

    def configurable(self, world, episode):
        return {}

    async def reset(self, world, episode):
        STATUS["o1"] = "open"
        touch("reset")

    async def close(self, episode):
        touch("close")


lazy = create_agent(ScriptedModelDouble(turns=TURNS[:1] + ["Done."]), [get_order, cancel_order])
'''


def shop(project: Any) -> Settings:
    return parse_settings(f'[environments.shop]\nref = "{project.module}:Shop"\n')


def tasks(project: Any, count: int = 2) -> list[Task]:
    said = {"messages": [{"role": "user", "content": "cancel o1 please"}]}
    return [
        Task(
            f"cancel-{seed}",
            said,
            Environment("shop", seed),
            checker=f"{project.module}:check",
            split=Split.HELD_OUT if seed else Split.TRAIN,
            meta={"family": "cancel"},
        )
        for seed in range(count)
    ]


@each_row(("share", "asked", "reads"), [("", None, 4), ("0.0", None, 4), ("1.0", None, 0), ("1.0", 0.0, 4)])
def test_real_calls_fail_by_plan_at_the_share_of_the_settings_or_of_the_caller_alone(
    project: Any, share: str, asked: float | None, reads: int
) -> None:
    graph = project.write(SHOP)
    plan = "[faults.get_order]\nrate = 1.0\n" + (f"[evaluate]\nfaults = {share}\n" if share else "")
    environment = f'[environments.shop]\nref = "{project.module}:Shop"\n'
    settings = parse_settings(plan + environment)
    found = dreamgym_kit.evaluate(graph, tasks(project), settings=settings, real=True, faults=asked)
    assert (found.b.summary.faults, project.touched().count("get_order")) == (0 if reads else 2, reads)


def test_a_real_evaluation_runs_real_tools_in_worlds_put_back_and_keeps_nothing(project: Any) -> None:
    graph = project.write(SHOP)
    found = dreamgym_kit.evaluate(graph, tasks(project), settings=shop(project), real=True, repeats=2)
    assert project.touched().count("reset") == project.touched().count("close") == 4
    assert project.touched().count("cancel_order") == 4
    assert found.b.real
    assert found.b.summary.real_calls == 12
    assert found.b.once is not None
    assert (found.b.once.mean, found.b.in_a_row[2].mean) == (1.0, 1.0)
    assert not Path("dreamgym.db").exists()
    assert str(found).startswith("EVALUATED  4 passed, 0 failed, 0 inconclusive, 0 errors\n  Pass rate ")
    directory = RunDirectory.open(Path(found.directory))
    again = summarize(directory.episodes(), facts_of(directory))
    assert again.headline == "EVALUATED  4 passed, 0 failed, 0 inconclusive, 0 errors"


def test_a_dreamed_evaluation_runs_nothing_real(project: Any) -> None:
    graph, store = project.write(SHOP), MemoryStore()
    dreamgym_kit.record(graph, tasks(project), settings=shop(project), buffer=store)
    before = project.touched()
    found = dreamgym_kit.evaluate(graph, tasks(project), settings=shop(project), buffer=store)
    assert project.touched() == before
    assert (found.b.real, found.b.summary.real_calls) == (False, 0)
    assert found.sentence.startswith("The pass rate in the dream is 100% of 2 tasks")


@pytest.mark.slow
def test_b_is_held_against_an_evaluation_or_a_run_directory_of_the_same_tasks(project: Any) -> None:
    graph = project.write(SHOP)
    lazy = graph.replace(":graph", ":lazy")
    settings = shop(project)
    a = dreamgym_kit.evaluate(lazy, tasks(project, 6), settings=settings, real=True)
    b = dreamgym_kit.evaluate(graph, tasks(project, 6), settings=settings, real=True, baseline=a)
    assert b.beating is not None
    assert b.beating.word is Conclusion.BETTER
    assert b.sentence.startswith("B solves 100 points more than A on the same 6 tasks (95 %: ")
    assert [b.a.agent if b.a else None, b.b.agent] == [lazy, graph]
    again = dreamgym_kit.evaluate(
        lazy, tasks(project, 3), settings=settings, real=True, baseline=b.directory, split="held_out"
    )
    assert again.a is not None
    assert [one.task for one in again.a.outcomes] == ["cancel-1", "cancel-2"]
    assert (again.a.episodes, again.a.summary.not_run) == (2, 0)
    assert again.beating is not None
    assert again.beating.change == -1.0


def test_a_world_that_nobody_puts_back_is_not_evaluated_for_real(project: Any) -> None:
    graph = project.write(SHOP)
    with pytest.raises(
        UserError, match=r"settings: nothing resets the environment 'shop' between episodes, and "
    ):
        dreamgym_kit.evaluate(graph, tasks(project), settings=Settings(), real=True)
    assert project.touched() == []
    assert not list(Path("runs").glob("*"))


def test_the_recordings_are_not_even_opened_by_a_real_evaluation(project: Any) -> None:
    graph = project.write(SHOP)
    SqliteStore(Path("dreamgym.db")).close()
    before = Path("dreamgym.db").read_bytes()
    dreamgym_kit.evaluate(graph, tasks(project), settings=shop(project), real=True, buffer="no-such.db")
    assert Path("dreamgym.db").read_bytes() == before
    assert not Path("no-such.db").exists()


@each_row(
    ("asked", "told"),
    [
        ({"split": "tests"}, r"split: there is no 'tests'; known: train, held_out\."),
        ({"baseline": 7}, r"baseline: expected a run directory or an evaluation, got int\."),
        ({"repeats": 0}, r"repeats: episodes per task are a whole number from 1 on"),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_anything_runs(
    project: Any, asked: dict[str, Any], told: str
) -> None:
    graph = project.write(SHOP)
    with pytest.raises(UserError, match=told):
        dreamgym_kit.evaluate(graph, tasks(project), settings=shop(project), real=True, **asked)
    assert project.touched() == []


def test_a_run_without_these_tasks_or_no_run_at_all_is_refused(project: Any, tmp_path: Path) -> None:
    graph, settings = project.write(SHOP), shop(project)
    other = dreamgym_kit.evaluate(graph, tasks(project, 1), settings=settings, real=True)
    held_out = {"settings": settings, "real": True, "split": Split.HELD_OUT}
    with pytest.raises(UserError, match=r"has no episode of any of these 1 tasks\. Nothing was run\."):
        dreamgym_kit.evaluate(graph, tasks(project), baseline=other.directory, **held_out)
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        dreamgym_kit.evaluate(graph, tasks(project), baseline=tmp_path / "none", **held_out)
    with pytest.raises(UserError, match=r"split: none of the 1 tasks is held_out\. Nothing was run\."):
        dreamgym_kit.evaluate(graph, tasks(project, 1), **held_out)


def test_the_real_tools_can_be_evaluated_after_a_dream_in_the_same_process(project: Any) -> None:
    graph, store, settings = project.write(SHOP), MemoryStore(), shop(project)
    dreamgym_kit.record(graph, tasks(project), settings=settings, buffer=store)
    dreamt = dreamgym_kit.evaluate(graph, tasks(project), settings=settings, buffer=store)
    real = dreamgym_kit.evaluate(graph, tasks(project), settings=settings, real=True, baseline=dreamt)
    assert real.beating is not None
    assert real.beating.word is Conclusion.NO_DIFFERENCE
    assert real.differs == ('mode: "dream" of A, "record" of B',)


def test_a_policy_answers_for_the_graphs_own_model_and_is_named(project: Any) -> None:
    from capture.policy_server_double import PolicyServerDouble, calls, says  # type: ignore[import-not-found]

    def cancels(request: Any) -> Any:
        answered = sum(message.role == "tool" for message in request.messages)
        return says("Done.") if answered else calls(("cancel_order", '{"order_id": "o1"}'))

    graph, settings = project.write(SHOP).replace(":graph", ":lazy"), shop(project)
    own = dreamgym_kit.evaluate(graph, tasks(project, 5), settings=settings, real=True)
    found = dreamgym_kit.evaluate(
        graph,
        tasks(project, 5),
        settings=settings,
        real=True,
        policy=PolicyServerDouble(cancels),
        baseline=own,
    )
    assert found.beating is not None
    assert found.beating.word is Conclusion.BETTER
    assert found.b.agent == f"{graph}, policy of the caller"
    assert found.differs == ()
    assert found.b.summary.calls == 5
