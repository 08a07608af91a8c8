"""The curves of a training as PNG: one picture a curve, and all of them on one sheet, light and dark."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dreamgym_kit.errors import require_extra
from dreamgym_kit.report.training import Training
from dreamgym_kit.report.training_curves import Curve, curves_of

_COLOURS = {
    "light": ("#fbfaf7", "#1b1d21", "#646971", "#e3e0d9", "#17754a", "#b3261e"),
    "dark": ("#14161a", "#e7e6e2", "#8d949e", "#2c3037", "#58c08a", "#ff8a7d"),
}
_LINES = {
    "light": ("#2f6ea5", "#bd7410", "#9a7fce", "#85898f", "#0f3d66"),
    "dark": ("#5795cb", "#d9963b", "#8d78bd", "#6a7079", "#8ec5f5"),
}
_ACROSS = 3
_SIZE = (4.6, 3.1)  # inches of one curve


def draw_training(training: Training, folder: Path) -> list[Path]:
    """Write `training.png`, `training-dark.png` and a picture of each curve; gives their paths.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    require_extra("plots", needed_by="drawing a training")
    curves = curves_of(training)
    if not curves:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    steps = [step.step for step in training.steps]
    made = [_sheet(curves, steps, folder / "training.png", "light")]
    made.append(_sheet(curves, steps, folder / "training-dark.png", "dark"))
    made += [_sheet([curve], steps, folder / f"{curve.key}.png", "light") for curve in curves]
    return made


def _sheet(curves: Sequence[Curve], steps: Sequence[int], path: Path, scheme: str) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(_ACROSS, len(curves))
    down = -(-len(curves) // across)
    figure = Figure(figsize=(_SIZE[0] * across, _SIZE[1] * down), layout="constrained")
    FigureCanvasAgg(figure)
    figure.set_facecolor(_COLOURS[scheme][0])
    for place, curve in enumerate(curves, start=1):
        draw_curve(figure.add_subplot(down, across, place), curve, steps, scheme)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    return path


def draw_curve(axes: Any, curve: Curve, steps: Sequence[int], scheme: str) -> None:
    """Draw one curve, step by step, on a matplotlib axes."""
    paper, ink, faint, grid, good, bad = _COLOURS[scheme]
    gaps = [[float("nan") if value is None else value for value in line.values] for line in curve.lines]
    names = [line.name for line in curve.lines]
    if curve.stacked:
        edges = [edge for step in steps for edge in (step - 0.5, step + 0.5)]
        bars = [[value for value in values for _ in range(2)] for values in gaps]
        axes.stackplot(edges, *bars, labels=names, colors=_LINES[scheme])
    else:
        for values, name, colour in zip(gaps, names, _LINES[scheme], strict=False):
            axes.plot(
                steps, values, label=name, color=colour, linewidth=1.6, marker="." if len(steps) == 1 else ""
            )
    for mark in curve.marks:
        axes.errorbar(
            mark.step,
            mark.value,
            [[mark.value - mark.low], [mark.high - mark.value]],
            fmt="o",
            color=good,
            capsize=3,
            markersize=5,
            label="held-out tasks, 95 %" if mark is curve.marks[0] else None,
        )
    low, top = axes.get_ylim()
    for bound in curve.corridor or ():
        if bound is not None and bound <= max(top, 0) * 4:
            axes.axhline(bound, color=bad, linewidth=1, linestyle="--")
    axes.set_ylim(bottom=min(0, low), top=1.02 if curve.share else None)
    axes.set_facecolor(paper)
    axes.set_title(curve.title, color=ink, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("step", color=faint, fontsize=9)
    axes.tick_params(colors=faint, labelsize=8)
    axes.grid(axis="y", color=grid, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(grid)
    if curve.share:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    if len(names) > 1 or curve.marks:
        if curve.stacked:
            axes.set_ylim(top=1.35 * axes.get_ylim()[1])  # room for the names
        axes.legend(fontsize=8, frameon=False, labelcolor=ink, ncols=2 if curve.stacked else 1)
    last = max([1, *steps, *(mark.step for mark in curve.marks)])
    axes.set_xlim((0.5, last + 0.5) if curve.stacked else (-0.02 * last, 1.02 * last))
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
