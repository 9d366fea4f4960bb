"""Answers, exact match, and the metrics beside it."""

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from searchr1.reward import (
    Reward,
    cover_em,
    em_squad,
    exact_match,
    extract_answer,
    f1,
    normalize,
    normalize_squad,
    score,
)

CALL = (
    "<tool_call>\n<function=search>\n<parameter=query>\nverify Lisbon\n</parameter>\n"
    "</function>\n</tool_call>"
)


@pytest.mark.parametrize(
    "text",
    [
        "Answer: Lisbon",
        "Answer:Lisbon",
        "  Answer :  Lisbon  ",
        "**Answer: Lisbon**",
        "**Answer:** Lisbon",
        "**Answer**: Lisbon",
        "Answer: **Lisbon**",
        "***Answer:*** *Lisbon*",
        "__Answer:__ _Lisbon_",
        "`Answer: Lisbon`",
        "**Answer: Lisbon",
        "Answer\uff1aLisbon",
        "**Answer\uff1a** Lisbon",
        "\ufeffAnswer: Lisbon",
        "An\u200bswer: Lis\u200bbon\u200b",
        "Answer: Lisbon<|im_end|>",
        "Answer: Lisbon<|im_end|>\n<|endoftext|>",
        "Answer:\u00a0Lisbon\u3000",
        "The evidence is clear.\n\nAnswer: Lisbon\n",
        "Answer: Lisbon\r\nThat is all.",
        "<think>\na\nb\n</think>\nAnswer: Lisbon",
        "Answer:\n\nAnswer: Lisbon",
    ],
)
def test_presentation_around_an_answer_is_ignored(text):
    assert extract_answer(text) == "Lisbon"
    assert score(text, ["Lisbon"]).reward == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Lisbon",
        "The answer is Lisbon.",
        "A perfect reply cannot be found in the evidence.",
        "Answer:",
        "Answer:\nLisbon",
        "Answer:   \nLisbon",
        "**Answer:**\nLisbon",
        "Answer: ****",
        "Answer: \u200b",
        "Answer Lisbon",
        "answer: Lisbon",
        "Final Answer: Lisbon",
        "My Answer: Lisbon",
        "<answer>Lisbon</answer>",
        "<answer>a</answer> and <answer>Lisbon</answer>",
        "<think>\na\nb</think>\n<answer>Lisbon</answer>",
        "\\boxed{Lisbon}",
        "Answer: Porto\nOn reflection.\nAnswer: Lisbon",
        "Answer: Lisbon\nAnswer: Lisbon",
        "Answer: Lisbon\u2028Answer: Porto",
        "**Answer: Porto**\nAnswer\uff1aLisbon",
        "<think>Answer: Lisbon</think>",
        "<think>Answer: Lisbon",
        f"Answer: Lisbon\n{CALL}",
        f"{CALL}\nAnswer: Lisbon",
        CALL,
        CALL.replace("verify Lisbon", "x\nAnswer: Lisbon"),
        "Answer: Lisbon\n</tool_call>",
        "Answer: Lisbon<|im_end|>\n<|im_start|>user\nAnswer: Porto",
    ],
)
def test_anything_but_one_answer_line_is_malformed(text):
    assert extract_answer(text) is None
    malformed = Reward(-0.1, False, False, False, 0.0, False, None)
    assert score(text, ["Lisbon", "A", "Lisbon and more"]) == malformed


def test_a_wrong_answer_is_well_formed_and_worth_nothing():
    reward = score("Answer: Porto", ["Lisbon"])
    assert (reward.reward, reward.valid_format, reward.em, reward.answer) == (
        0.0,
        True,
        False,
        "Porto",
    )


@pytest.mark.parametrize(
    ("prediction", "answer"),
    [
        ("lisbon.", "Lisbon"),
        ("The Beatles", "Beatles"),
        ("Beyonce\u0301", "Beyonc\u00e9"),
        ("\uff21\uff22\uff23 \u2163", "ABC IV"),
        ("Rock \u2018n\u2019 Roll", "rock 'n' roll"),
        ("Rock \u00b4n\u00b4 Roll", "rock 'n' roll"),
        ("Hawai\u02bbi", "Hawai'i"),
        ("1914\u20131918", "1914-1918"),
        ("1914\u22121918", "1914\u20111918"),
        ("\u00abFaust\u00bb", '"Faust"'),
        ("  New\u00a0 York\t", "New York"),
        ("$5", "5"),
        ("C++", "C"),
        ("vitamin A", "Vitamin A."),
        ("The The", "the"),
        ("?", "?"),
        ("\u2026", "\u2026"),
        ("Lis\u200bbon", "Lisbon"),
        ("STRASSE", "Strasse"),
    ],
)
def test_these_are_the_same_answer(prediction, answer):
    assert exact_match(prediction, [answer])
    assert exact_match(answer, [prediction])


@pytest.mark.parametrize(
    ("prediction", "answer"),
    [
        ("Jean-Luc Godard", "Jean Luc Godard"),
        ("Beyonce", "Beyonc\u00e9"),
        ("11 February 1929", "February 11, 1929"),
        ("Yes, both are", "yes"),
        ("The capital is Lisbon, I think", "Lisbon"),
        ("early-life exercise", "early- life exercise"),
        ("vitamin", "Vitamin A"),
        ("?", "!"),
        ("?", "??"),
        ("...", "Lisbon"),
        ("Lisbon", "..."),
        ("", ""),
        ("", "the"),
        ("A", "the"),
        ("L", "Lima"),
    ],
)
def test_these_are_not(prediction, answer):
    assert not exact_match(prediction, [answer])
    assert not exact_match(answer, [prediction])


def test_one_of_several_accepted_answers_is_enough():
    assert exact_match("Lima", ["City of Kings", "Lima"])
    assert not exact_match("Lima", [])


def test_a_single_string_is_one_answer_and_not_its_letters():
    assert exact_match("Lima", "Lima") and em_squad("Lima", "Lima")
    assert not exact_match("L", "Lima") and not em_squad("L", "Lima")
    assert f1("L", "Lima") == 0.0 and not cover_em("x L", "Lima")
    assert score("Answer: L", "Lima").reward == 0.0


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Cat", "cat"),
        ("the cat and a dog in an ark", "cat and dog in ark"),
        ("Vitamin A", "vitamin a"),
        ("An", "an"),
        ("the the the", "the"),
        ("a.b", "ab"),
        ("theory an-other", "theory another"),
        ("\u2002many\n spaces ", "many spaces"),
        ("!?", ""),
    ],
)
def test_an_article_goes_only_where_a_word_follows(text, normal):
    assert normalize(text) == normal


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Cat", "cat"),
        ("Vitamin A", "vitamin"),
        ("the", ""),
        ("C++", "c"),
        ("$5.00", "500"),
        ("Jean-Luc", "jeanluc"),
        ("a\u2013b", "\u2013b"),
        ("Rock \u2018n\u2019 Roll", "rock \u2018n\u2019 roll"),
        ("\uff21\uff22\uff23", "\uff41\uff42\uff43"),
    ],
)
def test_the_squad_normaliser_is_the_published_one(text, normal):
    assert normalize_squad(text) == normal


@pytest.mark.parametrize(
    ("prediction", "answer", "same"),
    [
        ("C++", "C", True),
        ("Vitamin A", "vitamin", True),
        ("Beyonce\u0301", "Beyonc\u00e9", False),
        ("Jean-Luc Godard", "Jean Luc Godard", False),
        ("early-life exercise", "early- life exercise", False),
    ],
)
def test_squad_parity(prediction, answer, same):
    assert em_squad(prediction, [answer]) is same


@pytest.mark.parametrize(
    ("prediction", "answer", "value"),
    [
        ("Lisbon", "Lisbon", 1.0),
        ("Lisbon Portugal", "Lisbon", 2 / 3),
        ("x x y", "x y y", 2 / 3),
        ("Porto", "Lisbon", 0.0),
        ("Yes, both are", "yes", 0.0),
        ("yes", "Yes, both are", 0.0),
        ("no", "no one", 0.0),
        ("yes", "no", 0.0),
        ("noanswer given", "noanswer", 0.0),
        ("Yes.", "yes", 1.0),
        ("?", "?", 1.0),
        ("?", "!", 1.0),  # the published normaliser sees no difference
        ("\uff2c\uff29\uff2d\uff21 Peru", "lima", 2 / 3),
    ],
)
def test_f1_counts_common_words_and_gives_closed_answers_no_partial_credit(
    prediction, answer, value
):
    assert f1(prediction, [answer]) == pytest.approx(value)


def test_f1_and_cover_take_the_best_answer():
    assert f1("Lisbon Portugal", ["Porto", "Lisbon"]) == pytest.approx(2 / 3)
    assert f1("Lisbon", []) == 0.0
    assert cover_em("Lisbon Portugal", ["Porto", "Lisbon"])


def test_containment_has_its_own_name_and_is_no_exact_match():
    reward = score("Answer: The capital is Lisbon, I think", ["Lisbon"])
    assert (reward.em, reward.em_squad, reward.cover_em, reward.reward) == (
        False,
        False,
        True,
        0.0,
    )


def test_an_answer_of_which_nothing_is_left_covers_nothing_else():
    assert not cover_em("Lisbon", ["?"]) and not cover_em("Lisbon", ["the"])
    assert cover_em("?", ["?"])


TEXTS = st.one_of(
    st.lists(
        st.sampled_from(
            [
                "the",
                "a",
                "yes",
                "no",
                "noanswer",
                "Lisbon",
                "C++",
                "?",
                "-",
                ".",
                "\uff39\uff45\uff53",
                "\u2013",
                "\u00e9",
                "e\u0301",
                "\u200b",
                "\u0130",
                "\u00b4",
                "\u249c\u0301",
            ]
        )
    ).map(" ".join),
    st.text(),
    st.text(string.punctuation + " aA"),
)


@settings(deadline=None)
@given(TEXTS)
@example("\u249c\u0301")  # a letter in brackets, then an accent
def test_normalising_twice_changes_nothing(text):
    assert normalize(normalize(text)) == normalize(text)


@settings(deadline=None)
@given(TEXTS, st.lists(TEXTS, max_size=3))
@example("?", ["?"])
@example("the", ["a"])
@example("\uff39\uff45\uff53", ["yes"])
def test_no_exact_match_exceeds_f1_or_containment(prediction, answers):
    em, squad = exact_match(prediction, answers), em_squad(prediction, answers)

    assert em <= f1(prediction, answers)
    assert squad <= f1(prediction, answers)
    assert em <= cover_em(prediction, answers)
    assert 0.0 <= f1(prediction, answers) <= 1.0


@settings(deadline=None)
@given(TEXTS)
def test_every_readable_text_matches_itself(text):
    assert exact_match(text, [text]) is bool(text.strip() or normalize(text))


@settings(deadline=None)
@given(st.text() | TEXTS.map("Answer: {}".format), st.lists(TEXTS, max_size=2))
def test_scoring_never_raises_and_its_parts_agree(text, answers):
    reward = score(text, answers)

    assert reward.valid_format is (reward.answer is not None)
    assert reward.reward == (1.0 if reward.em else 0.0 if reward.valid_format else -0.1)
    assert reward.answer == extract_answer(text)
