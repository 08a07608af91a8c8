"""A run directory to where spans are wanted: one episode in memory at a time, spans sent in batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import environ
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from dreamgym_kit.adapters.otel.episode_spans import RunFacts, Value, cleaned, episode_spans
from dreamgym_kit.adapters.otel.sinks import EndpointSink, file_sink, headers_from
from dreamgym_kit.errors import UserError
from dreamgym_kit.replay.masking import Masker, masked_answer, process_masker
from dreamgym_kit.rollout.atomic_files import is_folder
from dreamgym_kit.rollout.journal import masked_episode
from dreamgym_kit.rollout.rundir import Manifest, RunDirectory
from dreamgym_kit.types import Episode, Transition

Send = Callable[[Sequence[ReadableSpan]], None]  # takes a batch for good, or raises
_SPANS, _CHARACTERS = 500, 1_000_000  # of one request; collectors take 20 MiB, some backends 4
SERVICE = "dreamgym-kit"
_PROJECT = "openinference.project.name"  # where Phoenix puts traces; else among those of no project


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was exported.

    Attributes:
        to: the file or the address.
        episodes: traces.
        spans: of all of them.
        refused: spans that the endpoint says it did not keep.
        warnings: what a person has to know.
    """

    to: str
    episodes: int
    spans: int
    refused: int = 0
    warnings: tuple[str, ...] = ()


def is_endpoint(target: str) -> bool:
    """Whether a target is an address and no file."""
    return target.strip().lower().startswith(("http://", "https://"))


def export_run(directory: RunDirectory, target: str, *, headers: str | None = None) -> ExportReport:
    """Export every finished episode of a run.

    Args:
        directory: the run, open for reading; it is not changed.
        target: a file, or an OTLP/HTTP endpoint.
        headers: name of the environment variable that holds an endpoint's headers.

    Raises:
        UserError: the target cannot be used or does not take the spans.
        RunDirectoryError: the journal is damaged, or the file cannot be written.
    """
    if is_endpoint(target):
        with closing(EndpointSink(target, headers_from(headers))) as endpoint:
            done = _export(directory, endpoint.send, to=endpoint.url)
        lost = (f"{endpoint.url}: {endpoint.refused:,} spans were refused ({endpoint.outcome})",)
        return replace(
            done, refused=endpoint.refused, warnings=(*done.warnings, *(lost if endpoint.refused else ()))
        )
    if headers is not None:
        raise UserError("--otel-headers: a file has no headers; leave it out, or name an endpoint.")
    path = Path(target)
    if "://" in target or is_folder(path) or not is_folder(path.absolute().parent):
        raise UserError(f"-o otel:{target}: name a file in a folder that is there, or an http(s) endpoint.")
    with file_sink(path) as send:
        return _export(directory, send, to=str(path))


def _in_batches(spans: Iterable[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
    """Spans as requests."""
    batch, size = list[ReadableSpan](), 0
    for span in spans:
        batch.append(span)
        size += sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))
        if len(batch) >= _SPANS or size >= _CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _export(directory: RunDirectory, send: Send, *, to: str) -> ExportReport:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise UserError("OTEL_SDK_DISABLED is set, and OpenTelemetry writes nothing then; unset it.")
    manifest, masker = directory.manifest, process_masker()
    kit = version("dreamgym-kit")
    # the run's short id may come again on another machine, its moment does not
    name = f"{manifest.run}-{manifest.created_at!r}"
    facts = RunFacts(
        name=name,
        run=manifest.run,
        graph=masker.text(_fact(manifest, "graph")),
        created_at=manifest.created_at,
        resource=Resource.create(cleaned(_resource(manifest, name, kit, masker))),
        scope=InstrumentationScope("dreamgym-kit", kit),
    )
    episodes, count, sent = directory.episodes(), 0, 0

    def spans() -> Iterator[ReadableSpan]:
        nonlocal count
        for episode in episodes:
            yield from episode_spans(_masked(episode, masker), facts)
            count += 1

    for batch in _in_batches(spans()):
        send(batch)
        sent += len(batch)
    torn = () if episodes.torn is None else (f"{directory.path}: {episodes.torn}",)
    return ExportReport(to=to, episodes=count, spans=sent, warnings=torn)


def _resource(manifest: Manifest, name: str, kit: str, masker: Masker) -> dict[str, Value]:
    """What all spans of a run are of; names that the environment gives go first."""
    facts: dict[str, Value] = {
        "service.version": kit,
        "service.instance.id": name,
        "dreamgym.run": manifest.run,
        "dreamgym.mode": _fact(manifest, "mode"),
        "dreamgym.graph": masker.text(_fact(manifest, "graph")),
        "dreamgym.seed": _fact(manifest, "seed"),
    }
    given = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in given:
        facts["service.name"] = SERVICE
    if f"{_PROJECT}=" not in given:
        facts[_PROJECT] = environ.get("OTEL_SERVICE_NAME") or SERVICE
    return facts


def _fact(manifest: Manifest, name: str) -> str:
    return str(manifest.matters.get(name, ""))


def _masked(episode: Episode, masker: Masker) -> Episode:
    """Once more, as the process knows secrets now: this leaves the machine."""
    steps = tuple(_masked_step(step, masker) for step in episode.transitions)
    return replace(masked_episode(episode, masker), transitions=steps)


def _masked_step(step: Transition, masker: Masker) -> Transition:
    args, answer = masker.plain(step.call.args), masked_answer(step.answer, masker)
    if args is step.call.args and answer is step.answer:
        return step
    return replace(step, call=replace(step.call, args=args), answer=answer)
