"""The figures of world models and look-ahead draw what they are given: points, intervals, axes and counts."""

from __future__ import annotations

import pandas as pd
import pytest

from wevo_nb import figures_model, paper, synthesis
from wevo_nb.report_card import COLUMNS


def card(model: str, depth: int, metric: str, value: float) -> dict:
    return dict(zip(COLUMNS, (model, "change", depth, metric, 40, value, value - 0.1, value + 0.1), strict=True))


CARD = pd.DataFrame(
    [card(m, d, metric, v / d) for m, v in (("copy_page", 0.3), ("iteration_1", 0.6)) for d in (1, 2, 3)
     for metric in ("exact_match", "hallucinated_facts", "parses")]
)  # fmt: skip


def test_a_report_card_has_a_row_a_model_and_n_on_every_panel():
    frame = pd.DataFrame([card(m, 1, k, v) for m, v in (("copy_page", 0.3), ("iteration_1", 0.6), ("iteration_2", 0.8))
                          for k in ("exact_match", "auc_success")])  # fmt: skip
    drawn = figures_model.report_card_rows(frame)
    exact, auc = drawn.axes
    assert [text.get_text() for text in exact.get_yticklabels()] == ["copy_page", "iteration_1", "iteration_2"]
    assert [(c[0].get_xdata()[0], c[0].get_ydata()[0]) for c in exact.containers] == [
        (pytest.approx(30), 0), (pytest.approx(60), 1), (pytest.approx(80), 2),
    ]  # fmt: skip
    assert exact.get_title(loc="left") == "exact_match\nn = 40"
    dotted = [[set(line.get_xdata()) for line in panel.lines if line.get_linestyle() == ":"] for panel in (exact, auc)]
    assert dotted == [[], [{50}]]


def test_free_walks_stand_beside_the_real_page_and_copying():
    """Depth 1 is no walk; what is not measured (n = 0) is not drawn."""
    rows = [card("copy_page", 2, "exact_match", 0.2), card("iteration_1", 2, "exact_match", 0.4)]
    rows += [card("iteration_1", 2, "teacher_forced_exact_match", 0.7), card("iteration_1", 1, "exact_match", 0.9)]
    rows += [card("untrained", 2, "exact_match", 0.1), card("iteration_1", 2, "element_f1", 0.9)]
    rows += [card("iteration_1", 3, "exact_match", float("nan")) | {"n": 0}]
    frame = figures_model.walk_frame(pd.DataFrame(rows), "iteration_1")
    assert frame[["series", "depth", "value"]].values.tolist() == [
        ["iteration_1, free walk", 2, 0.4], ["iteration_1, real page", 2, 0.7], ["copy_page", 2, 0.2],
    ]  # fmt: skip
    [panel] = figures_model.walk_points(frame).axes
    assert [c[0].get_ydata()[0] for c in panel.containers] == pytest.approx([40, 70, 20])
    assert [text.get_text() for text in panel.get_xticklabels()] == ["2\nn = 40"]


def test_quality_by_depth_stands_beside_the_papers_grades():
    frame = figures_model.depth_frame(CARD, paper.table_2())
    drawn = figures_model.quality_by_depth(frame)
    panels = {panel.get_title(loc="left"): panel for panel in drawn.axes if panel.get_visible()}
    assert list(panels) == ["exact_match", "hallucinated_facts", "STR, paper", "Sim, paper", "OA, paper"]
    assert "lower is better" in panels["hallucinated_facts"].get_ylabel()
    ours = panels["exact_match"].lines[0]
    assert list(ours.get_ydata()) == pytest.approx([30, 15, 10])
    reported = panels["STR, paper"].lines[0]
    assert list(reported.get_ydata()) == pytest.approx([75.96, 57.80, 51.24, 50.54])  # Table 2, iter-2 by depth
    assert [t.get_text() for t in panels["exact_match"].get_xticklabels()][:2] == ["1\nn = 40", "2\nn = 40"]


def test_our_own_grades_stand_before_the_papers():
    grade = {"model": "iteration_2", "target": "change", "n": 8}
    rows = [{"metric": m, "depth": d, "value": v, "low": v - 0.1, "high": v + 0.1} for m, d, v in
            (("STR", 1, 0.60), ("STR", 2, 0.45), ("error: other", 1, 0.5))]  # fmt: skip
    frame = figures_model.depth_frame(CARD, paper.table_2(), pd.DataFrame([grade | row for row in rows]))
    drawn = figures_model.quality_by_depth(frame)
    panels = {panel.get_title(loc="left"): panel for panel in drawn.axes if panel.get_visible()}
    named = ["exact_match", "hallucinated_facts", "STR", "STR, paper", "Sim, paper", "OA, paper"]
    assert list(panels) == named  # and no panel for the classes of errors, which the paper has not by depth
    assert list(panels["STR"].lines[0].get_ydata()) == pytest.approx([60.0, 45.0])


def test_truth_by_threshold_draws_only_what_was_replayed():
    frame = pd.DataFrame(synthesis.truth_by_threshold([(0.6, False), (0.8, True), (0.8, True)]))
    [panel] = figures_model.truth_by_threshold(frame).axes
    points = [(c[0].get_xdata()[0], c[0].get_ydata()[0]) for c in panel.containers]
    assert points == [(0, pytest.approx(200 / 3)), (1, pytest.approx(200 / 3)), (2, 100), (3, 100)]
    assert [label.get_text() for label in panel.get_xticklabels()][-2:] == ["0.9\nn = 0", "0.95\nn = 0"]


def test_a_grid_has_a_panel_for_each_axis_of_each_source():
    drawn = figures_model.lookahead_grid(paper.grids())
    by_k, by_depth = drawn.axes
    assert list(by_k.lines[0].get_xdata()) == [2, 3, 5]
    assert list(by_k.lines[0].get_ydata()) == pytest.approx([48.62, 51.37, 50.73])  # Table 4
    assert list(by_depth.lines[0].get_ydata()) == pytest.approx([42.49, 46.24, 51.37])  # Table 1
    assert by_k.get_title(loc="left") == "paper, d = 2 (n = 473)"
    assert by_depth.get_title(loc="left") == "paper, k = 3 (n = 473)" and by_k.get_ylim() == by_depth.get_ylim()


def test_lines_of_a_grid_that_differ_in_what_is_fixed_say_so_in_the_legend_of_their_panel():
    same = {"source": "r", "axis": "k", "n": 9, "low": 0.1, "high": 0.6}
    rows = [same | {"series": f"p, d = {d}", "x": k, "rate": 0.1 * k} for d in (1, 2) for k in (2, 3)]
    drawn = figures_model.lookahead_grid(pd.concat([pd.DataFrame(rows), paper.grids()], ignore_index=True))
    legends = [[text.get_text() for text in panel.get_legend().get_texts()] for panel in drawn.axes]
    assert legends == [["p, d = 1", "p, d = 2"], ["webevolver"], ["webevolver"]]
    assert drawn.axes[0].get_title(loc="left") == "r (n = 9)"


@pytest.mark.parametrize(
    "draw", ["report_card_rows", "walk_points", "quality_by_depth", "truth_by_threshold", "lookahead_grid"]
)
def test_nothing_to_draw_is_said(draw):
    figure = getattr(figures_model, draw)(pd.DataFrame())
    assert figure.texts[0].get_text() == f"{draw}: nothing to draw yet"


def test_what_judges_are_worth_a_panel_a_metric_with_counts():
    row = lambda judge, metric, n, value: (  # noqa: E731
        dict(stage="s", judge=judge, model="", prompt="", metric=metric, n=n, value=value, low=value, high=value)
    )
    rows = [row("llm", "precision", 8, 0.25), row("llm", "accuracy", 9, 0.5)]
    drawn = figures_model.judges_worth(pd.DataFrame([*rows, row("world_model", "precision", 4, 1.0)]))
    [panel] = drawn.axes
    assert panel.get_title(loc="left") == "precision" and "higher is better" in panel.get_xlabel()
    assert [text.get_text() for text in panel.get_yticklabels()] == ["llm\ns", "world_model\ns"]
    assert sorted(line.get_xdata()[0] for line in panel.lines if len(line.get_xdata()) == 1)[-1] == 100
    assert [text.get_text() for text in panel.texts] == ["2/8", "4/4"]
    nothing = figures_model.judges_worth(pd.DataFrame(columns=list(rows[0])))
    assert [text.get_text() for text in nothing.texts] == ["judges_worth: nothing to draw yet"]
