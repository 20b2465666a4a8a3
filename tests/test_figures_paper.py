"""The papers' figures draw what they are given: points, intervals, marks of who measured, and what is missing."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from runs_by_hand import one_and_two

from wevo_nb import exhibits, figures, figures_paper, paper, results

DRAWN = {name: exhibit for name, exhibit in exhibits.EXHIBITS.items() if exhibit.draw}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """No run, one, and two added up."""
    with one_and_two(tmp_path_factory.mktemp("outputs")):
        yield {len(names): results.read(names) for names in ([], ["one"], ["one", "two"])}


def draw(name: str, found: results.Results):
    frame = exhibits.frame(name, found)
    before = frame.copy()
    figure = exhibits.draw(name, frame, found)
    pd.testing.assert_frame_equal(frame, before)  # drawing changes nothing
    return figure


def panels(figure) -> dict:
    """The visible panels by the first line of their title."""
    return {
        p.get_title(loc="left").split("\n")[0]: p for p in figure.axes if p.get_visible() and p.get_title(loc="left")
    }


def drawn_points(panel) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for bar in panel.containers for x, y in zip(*bar.lines[0].get_data(), strict=True)]


def marks(panel) -> set[str]:
    return {bar.lines[0].get_marker() for bar in panel.containers}


def test_table_1_draws_the_papers_numbers_with_derived_intervals(found):
    by_name = panels(draw("webevolver_table_1", found[0]))
    assert list(by_name) == ["WebVoyager", "Mind2Web-Live", "held-out seeds", "held-out tasks"]
    panel = by_name["WebVoyager"]
    assert panel.get_title(loc="left") == "WebVoyager\nreported, n = 473"
    assert [x for x, _ in drawn_points(panel)] == [
        32.55, 38.83, 32.98, 38.68, 38.23, 38.65, 38.98, 42.49, 44.61, 46.24, 51.37,
    ]  # fmt: skip
    last = panel.containers[-1].lines[2][0].get_segments()[0][:, 0]
    assert [round(x, 2) for x in last] == [46.87, 55.85]  # Wilson, 51.37% of 473
    assert marks(panel) == {"D"} and panel.containers[0].lines[0].get_markerfacecolor() == "white"
    assert [text.get_text() for text in by_name["held-out seeds"].texts] == ["not run"]
    assert "higher is better" in panel.get_xlabel() and "%" in panel.get_xlabel()


def test_a_run_stands_beside_them_as_filled_circles(found):
    figure = draw("webevolver_table_1", found[1])
    panel = panels(figure)["held-out seeds"]
    assert panel.get_title(loc="left") == "held-out seeds\none, n = 20"
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert {rows[round(y)]: x for x, y in drawn_points(panel)} == pytest.approx({
        "Llama-3.3-70B zero-shot": 25, "self-improve (1)": 40, "WebEvolver": 50, "WebEvolver + WMLA (d=1)": 70,
    })  # fmt: skip
    assert marks(panel) == {"o"}
    colours = {bar.lines[0].get_color() for bar in panel.containers}
    assert figures.ORANGE in colours and figures.GREEN in colours  # a method's colour, as everywhere
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["reported", "one"]


def test_runs_added_up_are_there_one_by_one_without_an_interval(found):
    panel = panels(draw("webevolver_table_1", found[2]))["held-out seeds"]
    assert panel.get_title(loc="left") == "held-out seeds\n2 runs, n = 40"
    together = [x for x, _ in drawn_points(panel)]
    assert together == pytest.approx([30, 45, 55, 75])
    faint = [line.get_xdata()[0] for line in panel.lines if line.get_alpha() == 0.45]
    assert sorted(faint) == pytest.approx([25, 35, 40, 50, 50, 60, 70, 80])
    both = panels(draw("wma_table_1", found[2]))["without selection"]  # the paper gives no n
    assert both.get_title(loc="left") == "without selection\nours: n = 40"


def test_figure_3_has_four_lines_and_crosses_where_the_paper_only_draws(found):
    by_name = panels(draw("webevolver_figure_3", found[0]))
    panel = by_name["WebVoyager"]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0", "1", "2", "3", "final"]
    lines = {bar.get_label(): [round(float(y), 2) for y in bar.lines[0].get_ydata()] for bar in panel.containers}
    assert lines == {
        "self-improve": [32.98, 38.68, 38.23, 38.65],
        "WebEvolver": [42.49],
        "with look-ahead (d=1)": [46.24],
        "with look-ahead (d=2)": [51.37],
    }
    crosses = [line for line in panel.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in crosses] == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert all(y < 0 for line in crosses for y in line.get_ydata())  # where no rate can be
    assert min(panel.get_yticks()) == 0
    ours = by_name["held-out seeds"]
    assert ours.get_title(loc="left") == "held-out seeds\nour runs, not run" and not ours.containers


def test_figure_3_of_a_run_breaks_its_lines_where_nothing_was_run(found):
    figure = draw("webevolver_figure_3", found[1])
    panel = panels(figure)["held-out seeds"]
    lines = {bar.get_label(): list(bar.lines[0].get_ydata()) for bar in panel.containers}
    assert lines == {
        "self-improve": pytest.approx([25, 40]),
        "WebEvolver": pytest.approx([50]),
        "with look-ahead (d=1)": pytest.approx([70]),
    }
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["no number", "self-improve", "WebEvolver", "with look-ahead (d=1)", "with look-ahead (d=2)"]


def test_the_walk_by_depth_is_the_papers_and_ours(found):
    by_name = panels(draw("webevolver_table_2_by_depth", found[1]))
    assert list(by_name)[:4] == ["structure (STR)", "similarity (Sim)", "overall (OA)", "exact match"]
    graded = {bar.get_label(): list(bar.lines[0].get_ydata()) for bar in by_name["structure (STR)"].containers}
    assert graded == {"reported": [75.96, 57.80, 51.24, 50.54], "one": pytest.approx([50, 50])}
    exact = by_name["exact match"]
    assert [y for _, y in drawn_points(exact)] == pytest.approx([80, 50])
    assert "lower is better" in by_name["invented facts"].get_ylabel()
    assert [label.get_text() for label in exact.get_xticklabels()] == ["1", "2", "3", ">=4"]


def test_candidates_and_imagined_steps(found):
    by_k = panels(draw("webevolver_table_4", found[1]))
    assert [y for _, y in drawn_points(by_k["WebVoyager"])] == [48.62, 51.37, 50.73]
    assert [y for _, y in drawn_points(by_k["webevolver, d = 1"])] == pytest.approx([70])
    study = panels(draw("webevolver_depth_study", found[1]))
    assert [y for _, y in drawn_points(study["Mind2Web-Live"])] == [22.64, 28.30, 24.53]
    assert [y for _, y in drawn_points(study["held-out seeds"])] == pytest.approx([50, 70])


def test_success_by_site_is_ours_alone(found):
    figure = draw("webevolver_table_1_by_task", found[1])
    panel = figure.axes[0]
    texts = [text.get_text() for text in panel.texts]
    assert texts.count("2/10") == 2 and texts.count("7/10") == 2 and "one\nheld-out seeds" in texts
    empty = draw("webevolver_table_1_by_task", found[0])
    assert [text.get_text() for text in empty.texts] == ["success_by_site: nothing to draw yet"]


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("runs", [0, 2])
def test_every_figure_has_a_papers_width_and_nothing_cut_or_overlapping(found, name, runs):
    """Texts that a reader needs lie inside the figure, and titles and labels do not cover one another."""
    figure = draw(name, found[runs])
    assert figure.get_size_inches()[0] in (figures_paper.SINGLE, figures_paper.DOUBLE)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, whole = canvas.get_renderer(), figure.bbox
    for panel in (p for p in figure.axes if p.get_visible()):
        low, high = sorted(panel.get_ylim())
        ticks = [
            tick for tick in panel.get_yticklabels() if low <= tick.get_position()[1] <= high
        ]  # others are not drawn
        shown = [panel.xaxis.label, panel.yaxis.label, panel._left_title, *ticks]
        for text in (t for t in shown if t.get_text() and t.get_visible()):
            box = text.get_window_extent(renderer)
            assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= whole.x1 + 1 and box.y1 <= whole.y1 + 1, text.get_text()
    titles = [p._left_title for p in figure.axes if p.get_visible() and p._left_title.get_text()]
    boxes = [title.get_window_extent(renderer) for title in titles]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :]), titles[i].get_text()
    sizes = {t.get_fontsize() for p in figure.axes for t in (*p.get_xticklabels(), *p.get_yticklabels(), *p.texts)}
    assert min(sizes, default=7) >= 5.5  # points, at the printed width


def test_the_colours_of_lines_can_be_told_apart():
    """Okabe and Ito's palette for six lines, and one more pair for look-ahead by depth."""
    assert len(set(figures_paper.LINES)) == 6
    named = [paper.SELF_IMPROVE, paper.WEBEVOLVER, *paper.AHEAD.values()]
    assert len({figures.colour(name) for name in named}) == 4


def test_a_single_column_can_be_drawn_of_any_frame_without_rows():
    figure = figures_paper.points(pd.DataFrame(columns=paper.COLUMNS))
    assert [text.get_text() for text in figure.texts] == ["points: nothing to draw yet"]
