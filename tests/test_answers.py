"""Whether an answer is the right one, case by case; GAIA's rule against verdicts of its published scorer."""

from __future__ import annotations

import pytest

from wevo_nb.answers import quasi_exact, same_answer

RIGHT = [
    # texts
    ("the Beatles", "Beatles"),
    ("It is THE BEATLES!", "Beatles"),
    ("nile", "The Nile"),
    ("São Paulo", "Sao Paulo"),
    ("C++", "C++"),
    ("12:30", "12:30"),
    ("No", "No"),
    # numbers and units
    ("1,234.50", "1234.5"),
    ("1.5 million", "1,500,000"),
    ("$5", "5 dollars"),
    ("5km", "5 kilometers"),
    ("5", "5 km"),
    ("50%", "50 percent"),
    ("-3.9 °C", "-3.9 degrees Celsius"),
    ("−3.9", "-3.9"),
    ("The total is 5.", "5"),
    # dates
    ("5 March 2024", "March 5, 2024"),
    ("2024-03-05", "March 5th, 2024"),
    ("It was on the 5th of March, 2024.", "2024-03-05"),
    ("Mar. 2024", "March 2024"),
    # lists
    ("Paris and London", "London, Paris"),
    ("London; Paris", "London, Paris"),
    ("A 1, B 2", "B 2; A 1"),
    ("a castle, 1,000 m", "The castle, 1000 m"),
    ("5 km & 7 m", "7 m, 5 kilometres"),
]
WRONG = [
    ("not the Beatles", "Beatles"),
    ("the Beatles or the Kinks", "Beatles"),
    ("C", "C++"),
    ("C++", "C"),
    ("Henry VIII", "Henry VII"),
    ("12:35", "12:30"),
    ("yes", "no"),
    ("", "x"),
    ("5 euros", "$5"),
    ("5 miles", "5 km"),
    ("5000 m", "5 km"),  # nothing is converted
    ("5 apples", "5"),
    ("about 5", "5"),
    ("not 5", "5"),
    ("-5", "5"),
    ("5-6", "5"),
    ("5 or 6", "5"),
    ("1,2", "12"),
    ("0.5", "50%"),
    ("1.5", "1.5 million"),
    ("not March 5, 2024", "2024-03-05"),
    ("March 2024", "March 5, 2024"),
    ("March 5, 2024", "March 2024"),
    ("March 6, 2024", "March 5, 2024"),
    ("03/05/2024", "2024-03-05"),  # nobody knows which is the month
    ("March 5, 2024 or March 6, 2024", "March 5, 2024"),
    ("Paris", "London, Paris"),
    ("Paris, London, Rome", "London, Paris"),
    ("Paris, Paris", "London, Paris"),
    ("John Smith", "Smith, John"),
]


@pytest.mark.parametrize(("given", "reference"), RIGHT)
def test_an_answer_is_right_in_any_usual_form(given, reference):
    assert same_answer(given, reference)


@pytest.mark.parametrize(("given", "reference"), WRONG)
def test_an_answer_that_says_less_more_or_something_else_is_wrong(given, reference):
    assert not same_answer(given, reference)


def test_words_of_the_question_may_be_said_again_and_a_unit_only_where_the_question_states_it():
    assert same_answer("5 apples", "5", "How many apples are there?")
    assert same_answer("The tallest tower is the Eiffel Tower", "Eiffel Tower", "Which is the tallest tower?")
    assert same_answer("5 miles", "5", "How many miles is it?")
    assert not same_answer("5 miles", "5 km", "How many km is it, not miles?")


@pytest.mark.parametrize(
    ("given", "reference", "right"),
    [  # the verdicts of the scorer of GAIA's leaderboard
        ("$1,234.5", "1234.5", True),
        ("17%", "17", True),
        ("17 apples", "17", False),
        ("17.0", "17", True),
        ("seventeen", "17", False),
        ("sea gull", "Seagull", True),
        ("St. Petersburg!", "st petersburg", True),
        ("The castle", "castle", False),
        ("a, b, c", "a,b,c", True),
        ("b, a", "a, b", False),  # the order counts
        ("a; b", "a, b", True),
        ("a, b.", "a, b", False),  # in a list marks count
        ("a", "a, b", False),
        ("$3, x", "3, X", True),
        ("x", "3, x", False),
        ("", "0", False),
        ("nothing", "inf", False),  # there both are infinite, hence the same
    ],
)
def test_gaias_rule(given, reference, right):
    assert quasi_exact(given, reference) is right
