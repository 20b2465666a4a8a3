"""What each MiniWoB++ page is good for: to learn on from chance, to aim at, or not to be solved from text.

Chance is a uniformly random agent over the valid clicks and texts, at most 10 actions. A success is
the full reward: click-checkboxes, find-greatest and others pay a part for pressing Submit at once.
Used by `wevo tasks miniwob` and by whoever chooses tasks.train and tasks.held_out.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

Group = Literal["bootstrap", "target", "easy", "excluded"]
BOOTSTRAP = (0.15, 0.60)  # chance succeeds often enough to learn from, and seldom enough to leave something to learn

# Solvable from the text with the actions of actions.py: successes of chance / episodes.
MEASURED = """
book-flight 0/20 book-flight-nodelay 0/20 buy-ticket 14/40 choose-date 0/20 choose-date-easy 0/20
choose-date-medium 0/20 choose-date-nodelay 0/20 choose-list 6/40 click-button 18/40 click-button-sequence 10/40
click-checkboxes 3/20 click-checkboxes-large 0/20 click-checkboxes-soft 1/20 click-checkboxes-transfer 2/20
click-collapsible 14/40 click-collapsible-2 5/40 click-collapsible-2-nodelay 4/40
click-collapsible-nodelay 10/40 click-dialog 40/40 click-dialog-2 9/40 click-link 13/40 click-option 6/40
click-pie 0/40 click-pie-nodelay 6/40 click-scroll-list 2/40 click-tab 17/40 click-tab-2 4/40
click-tab-2-easy 7/40 click-tab-2-hard 1/40 click-tab-2-medium 15/40 click-test 40/40 click-test-2 16/40
click-test-transfer 15/40 click-widget 15/40 email-inbox 1/40 email-inbox-delete 13/40 email-inbox-forward 0/20
email-inbox-forward-nl 0/20 email-inbox-forward-nl-turk 0/20 email-inbox-important 16/40
email-inbox-nl-turk 2/40 email-inbox-noscroll 3/40 email-inbox-reply 0/20 email-inbox-star-reply 4/40
enter-date 0/20 enter-password 13/40 enter-text 20/40 enter-text-2 0/40 enter-text-dynamic 19/40 enter-time 0/20
find-greatest 4/20 find-word 0/20 focus-text 40/40 focus-text-2 13/40 form-sequence-2 1/40 form-sequence-3 2/40
generate-number 16/40 grid-coordinate 0/20 guess-number 0/40 login-user 4/40 login-user-popup 0/20
multi-layouts 0/20 multi-orderings 0/20 navigate-tree 12/40 odd-or-even 1/20 order-food 2/40 phone-book 2/20
read-table 0/20 read-table-2 0/20 scroll-text 0/20 scroll-text-2 35/40 search-engine 1/40 sign-agreement 8/40
simple-algebra 0/20 simple-arithmetic 0/20 social-media 0/40 social-media-all 0/40 social-media-some 0/40
text-transform 0/20 unicode-test 23/40 use-autocomplete 7/40 use-autocomplete-nodelay 8/40
"""

# Not solvable so, and why.
EXCLUDED = {
    "a colour that the text does not name": "click-color click-shades use-colorwheel use-colorwheel-2",
    "a shape that the text does not name": "click-shape identify-shape",
    "shapes or blocks to count by eye": "count-shape count-sides visual-addition",
    "half of its goals show an icon in place of a word": "click-menu-2",
    "the marks on the board are drawn, not written": "tic-tac-toe",
    "the numbers vanish and only their places are left": "ascending-numbers",
    "a point on a drawing": "bisect-angle circle-center find-midpoint hot-cold right-angle",
    "drawing": "draw-circle draw-line number-checkboxes",
    "dragging": (
        "daily-calendar drag-box drag-circle drag-cube drag-items drag-items-grid drag-shapes drag-shapes-2 "
        "drag-single-shape drag-sort-numbers resize-textarea"
    ),
    "a slider, which is dragged": "form-sequence use-slider use-slider-2",
    "submenus that open under the pointer alone": "click-menu",
    "timing": "button-delay chase-circle hover-shape moving-items simon-says stock-market",
    "selecting text": "highlight-text highlight-text-2 text-editor",
    "the text to copy ends in a space that is not seen": "copy-paste copy-paste-2",
    "listens to single keys": "terminal",
    "takes no typing, and its arrows are hidden from assistive technology": "use-spinner",
}


class Facts(NamedTuple):
    """About one page. successes of chance / episodes; None where it is excluded."""

    group: Group
    reason: str = ""
    successes: int | None = None
    episodes: int | None = None


@cache
def facts() -> dict[str, Facts]:
    """Of every page of the wheel, by name."""
    words = MEASURED.split()
    found = {
        name: _measured(*map(int, counts.split("/"))) for name, counts in zip(words[::2], words[1::2], strict=True)
    }
    for reason, names in EXCLUDED.items():
        found |= {name: Facts("excluded", reason) for name in names.split()}
    return found


def _measured(successes: int, episodes: int) -> Facts:
    low, high = BOOTSTRAP
    share = successes / episodes
    return Facts("target" if share < low else "bootstrap" if share <= high else "easy", "", successes, episodes)
