"""docs/benchmarks.md for readers, from the figures that `run.py` keeps."""

from collections.abc import Mapping
from dataclasses import dataclass

PAGE_HEAD = """# Benchmarks

Each line says what a benchmark measures, its figures and their goals. A missed goal is marked
**missed**. `python tests/bench/run.py NAME` measures one again; without names it runs all and writes this
page. All figures, with seeds, days and tables: `tests/bench/figures.md`.

*Desk*: the demo's support desk. *Success*: share of held-out tasks that pass on the real tools. *Exact*:
share of answered calls whose answer equals the real one, up to generated IDs (`experience`: of all calls).
*Composed*: recordings and rules; *layered*: with the model. `unseen`: nothing of the environment was
recorded.
"""
TOPICS: Mapping[str, str] = {
    "leaks": "Does a real tool run?",
    "overhead": "Does the kit slow down or change an agent?",
    "soak": "Does a run survive failures?",
    "truth": "Are the dream's answers right?",
    "store": "Is the buffer fast?",
    "findings": "Are reports right?",
    "update_exact": "Is the training exact?",
    "learns": "Does training in the dream help on real tools?",
    "divergence": "Are sim-to-real and deployment controlled?",
    "page": "Reports, vLLM and first minutes",
}
"""Headings, by the bench that each begins with."""
PAGE_ORDER = (
    *("leaks", "mcp_majors", "attack", "sandbox", "crosstalk", "masking", "dos"),
    *("overhead", "call_path", "transparent", "surface", "orchestration"),
    *("soak", "resume", "acks", "weaviate_buffer", "endpoint_faults"),
    *(
        "truth",
        "beds",
        "replays",
        "agents",
        "day_one",
        "probes",
        "effects",
        "experience",
        "pairs",
        "contradictions",
        "mining",
    ),
    *("store", "million"),
    *("findings", "findings_foreign", "advice", "verdict_words"),
    *("update_exact", "gpu_step"),
    *("learns", "algorithms", "faults", "ablations", "curriculum", "s2r"),
    *("divergence", "approval"),
    *("page", "vllm_share", "first_minutes"),
)
SHOWN: Mapping[str, str] = {
    "sandbox": "escapes_landlock start_ms",
    "leaks": "shapes",
    "transparent": "said",
    "truth": "exact_answered coverage_failures coverage_unseen verdict_decided",
    "beds": "workbench_other_whole retail_other_whole bfcl_other_whole workbench_unseen_coverage "
    "retail_unseen_coverage bfcl_unseen_coverage agentdojo_crawl_coverage agentdojo_crawl_exact "
    "airline_crawl_coverage airline_crawl_exact telecom_crawl_coverage telecom_crawl_exact",
    "experience": "exact_composed exact_composed_writes exact_nano exact_layered_writes "
    "right_layered exact_composed_unseen exact_layered_unseen",
    "endpoint_faults": "finished inconclusive",
    "learns": "start dream real",
    "algorithms": "start grpo ppo dpo sft",
    "faults": "start_faulty without_faulty with_faulty start_sound without_sound with_sound",
    "ablations": "start real_whole real_no_history real_no_state real_no_retrieval real_no_reasoning "
    "real_no_curriculum real_no_faults exact_whole exact_no_history exact_no_state exact_no_reasoning",
    "curriculum": "start in_turn chosen gain_points",
    "s2r": "s2r real real_small long",
    "findings": "clean found_unasked_destructive",
    "first_minutes": "setup_s tests_setup_s",
    "gpu_step": "parameters step_s rollouts_share generation_share update_share sync_share sampling_rate "
    "memory "
    "success_first logprob_gap update_fp32 update_bf16",
    "vllm_share": "simulation bare",
}
"""Figures without a goal that the page shows all the same."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure as the page shows it."""

    name: str
    value: str
    unit: str
    goal: str  # "" without one
    missed: bool

    def __str__(self) -> str:
        unit = f" {self.unit.split()[0]}" if self.unit.split()[:1] in UNITS else ""
        goal = f" (goal {self.goal})" if self.goal else ""
        return f"`{self.name}` {self.value}{unit}{goal}{' **missed**' if self.missed else ''}"


UNITS = [[unit] for unit in ("s", "ms", "us", "MB", "GiB", "million", "points", "%", "rows/s", "tokens/s")]


def rendered_page(
    figures: Mapping[str, list[Figure]],
    about: Mapping[str, str],
    places: Mapping[str, str],
    apart: Mapping[str, str],
) -> str:
    """The page: every figure with a goal and those of `SHOWN`, a line for each bench.

    `apart`: machine and day of a bench that was not measured on the first machine.
    """
    text = PAGE_HEAD
    for bench in PAGE_ORDER:
        text += f"\n## {TOPICS[bench]}\n\n" if bench in TOPICS else ""
        names = SHOWN.get(bench, "").split()
        cells = [str(figure) for figure in figures.get(bench, ()) if figure.goal or figure.name in names]
        where = f" ({apart[bench]}.)" if bench in apart else ""
        text += f"- **{bench}**: {about[bench]} {', '.join(cells) or 'Not measured yet'}.{where}\n"
    return f"{text}\n## Where it was measured\n\n" + "".join(f"- {key}: {at}\n" for key, at in places.items())
