"""How a turn of the policy is read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchr1.protocol import SEARCH_TOOL, SYSTEM_PROMPT, Turn, TurnKind, parse_turn

CALL, ANSWER, INVALID = TurnKind.CALL, TurnKind.ANSWER, TurnKind.INVALID


def xml_call(query: str) -> str:
    return (
        "<tool_call>\n<function=search>\n<parameter=query>\n"
        f"{query}\n</parameter>\n</function>\n</tool_call>"
    )


def json_call(query: str) -> str:
    call = json.dumps({"name": "search", "arguments": {"query": query}})
    return f"<tool_call>\n{call}\n</tool_call>"


STYLES = pytest.mark.parametrize("call", [xml_call, json_call])


def test_kinds_are_named_as_stored():
    assert [kind.value for kind in TurnKind] == ["call", "answer", "invalid"]


def test_the_policy_is_told_of_the_tool_and_the_answer_line():
    assert SEARCH_TOOL["function"]["parameters"]["required"] == ["query"]
    assert SYSTEM_PROMPT.splitlines()[-1].startswith("Answer: ")


@STYLES
def test_one_call_is_a_call(call):
    assert parse_turn(call("capital of Portugal")) == Turn(CALL, "capital of Portugal", None)


@STYLES
def test_a_plan_may_stand_before_a_call(call):
    assert parse_turn("Let me look.\n\n" + call("x")) == Turn(CALL, "x", None)


@STYLES
@pytest.mark.parametrize("end", ["<|im_end|>", "<|im_end|>\n", "\n\n", "<|endoftext|>", "</s>"])
def test_a_trailing_end_of_turn_token_is_ignored(call, end):
    assert parse_turn(call("x") + end) == Turn(CALL, "x", None)
    assert parse_turn("Answer: Lisbon" + end) == Turn(ANSWER, None, "Lisbon")


def test_white_space_between_the_tags_does_not_matter():
    one_line = xml_call("x").replace("\n", "")
    assert parse_turn(one_line) == Turn(CALL, "x", None)
    assert parse_turn(one_line.replace("><", ">  \n <")) == Turn(CALL, "x", None)


@STYLES
@pytest.mark.parametrize(
    "query", ["solutions of x < 3", "std::vector<int> size", "a > b && c", "<b>bold</b>", "R&D"]
)
def test_comparison_signs_and_templates_are_part_of_a_query(call, query):
    assert parse_turn(call(query)) == Turn(CALL, query, None)


@pytest.mark.parametrize(
    "marker", ["</tool_call>", "<tool_call>", "</think>", "<think>", "</parameter>", "<|im_end|>"]
)
def test_a_json_query_may_speak_of_the_protocol(marker):
    query = f"meaning of the {marker} tag"
    assert parse_turn(json_call(query)) == Turn(CALL, query, None)


@pytest.mark.parametrize("marker", ["</tool_call>", "<tool_call>", "<parameter=", "<|im_start|>"])
def test_an_xml_query_may_not(marker):
    assert parse_turn(xml_call(f"meaning of the {marker} tag")).kind is INVALID


@STYLES
@pytest.mark.parametrize(
    "after", [" ", "x", "\nAnswer: Lisbon", "<think>a</think>", "<tool_response>", "</answer>"]
)
def test_nothing_may_follow_a_call(call, after):
    assert parse_turn(call("x") + after).kind is (CALL if after.isspace() else INVALID)


@STYLES
def test_two_calls_are_invalid(call):
    assert parse_turn(f"{call('a')}\n{call('b')}").kind is INVALID
    assert parse_turn(xml_call("a") + json_call("b")).kind is INVALID
    assert parse_turn(json_call("a") + xml_call("b")).kind is INVALID


@STYLES
@pytest.mark.parametrize("answer", ["Answer: Lisbon", "**Answer:** Lisbon", "Answer\uff1aLisbon"])
def test_an_answer_beside_a_call_is_invalid(call, answer):
    assert parse_turn(f"{answer}\n{call('verify Lisbon')}") == Turn(INVALID, None, None)


@STYLES
@pytest.mark.parametrize("query", ["", "   ", "\n", "\u200b", "\ufeff \u2060", "\x00\x07"])
def test_a_blank_query_is_invalid(call, query):
    assert parse_turn(call(query)).kind is INVALID


@pytest.mark.parametrize(
    "text",
    [
        xml_call("longest river").replace("</parameter>\n", ""),
        xml_call("longest river").replace("</function>\n", ""),
        xml_call("longest river").replace("</tool_call>", ""),
        xml_call("longest river").replace("<tool_call>\n", ""),
        xml_call("longest river").replace("=search", "=browse"),
        xml_call("longest river").replace("=query", "=q"),
        xml_call("a\n</parameter>\n<parameter=query>\nb"),
        "<function=search><parameter=query>longest river</parameter></function>",
        json_call("longest river").replace("}}", "}"),
        json_call("longest river").replace("</tool_call>", ""),
        json_call("longest river").replace("<tool_call>\n", ""),
        json_call("longest river").replace("search", "browse"),
        json_call("longest river").replace("arguments", "parameters"),
        json_call("longest river").replace("query", "q"),
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": "search"}</tool_call>',
        '<tool_call>{"name": "search", "arguments": "x"}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": 7}}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": ["x"]}}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": "x", "top": 3}}</tool_call>',
        "<tool_call>search(x)</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>",
        "</tool_call>",
        "<tool_call" + '\n{"name": "search"',
        "<tool_response>\nLisbon\n</tool_response>",
        "I know it.<|im_end|>\n<|im_start|>user\nGood.",
    ],
)
def test_a_piece_of_the_protocol_outside_of_a_call_is_invalid_even_beside_an_answer(text):
    assert parse_turn(text) == Turn(INVALID, None, None)
    assert parse_turn(f"Answer: Lisbon\n{text}") == Turn(INVALID, None, None)
    assert parse_turn(f"{text}\nAnswer: Lisbon") == Turn(INVALID, None, None)


@STYLES
def test_a_call_rehearsed_in_reasoning_neither_runs_nor_counts(call):
    rehearsed = f"<think>I could send {call('draft')} but</think>\n"
    assert parse_turn(rehearsed + call("real query")) == Turn(CALL, "real query", None)
    assert parse_turn(rehearsed + "Answer: Lisbon") == Turn(ANSWER, None, "Lisbon")
    assert parse_turn(rehearsed) == Turn(ANSWER, None, None)


@STYLES
def test_a_call_in_reasoning_that_never_closes_is_invalid(call):
    assert parse_turn(f"<think>I will send {call('x')}").kind is INVALID
    assert parse_turn(f"Answer: Lisbon\n<think>{call('x')}").kind is INVALID


def test_an_answer_in_reasoning_does_not_count():
    assert parse_turn("<think>Answer: Porto</think>\nAnswer: Lisbon").answer == "Lisbon"
    assert parse_turn("<think>\nAnswer: Porto\n</think>\nI am not sure.").answer is None
    assert parse_turn("<think>\nAnswer: Porto").answer is None
    assert parse_turn("<think>a <think> b") == Turn(ANSWER, None, None)


def test_reasoning_that_the_prompt_has_opened_is_reasoning_too():
    assert parse_turn("a\nb</think>\n\nAnswer: Lisbon") == Turn(ANSWER, None, "Lisbon")
    assert parse_turn(f"{xml_call('draft')}</think>{xml_call('real')}") == Turn(CALL, "real", None)
    assert parse_turn("a</think>b</think>Answer: Lisbon").kind is INVALID


def test_tags_of_other_protocols_are_prose():
    assert parse_turn("<answer><tool>search(x)</tool></answer>") == Turn(ANSWER, None, None)
    assert parse_turn("<answer>Lisbon</answer>") == Turn(ANSWER, None, None)
    assert parse_turn("<search>capital of Portugal</search>") == Turn(ANSWER, None, None)
    assert parse_turn(f"<answer>{xml_call('x')}</answer>").kind is INVALID


def test_text_without_a_call_is_an_answer_with_or_without_the_line():
    assert parse_turn("It is Lisbon.") == Turn(ANSWER, None, None)
    assert parse_turn("") == Turn(ANSWER, None, None)
    assert parse_turn("As found.\nAnswer: Lisbon") == Turn(ANSWER, None, "Lisbon")
    assert parse_turn("Answer: Porto\nAnswer: Lisbon") == Turn(ANSWER, None, None)


def test_a_query_can_be_sent_and_stored():
    escaped = (
        '<tool_call>{"name": "search", "arguments": {"query": "a\\ud83d\\u0000b\\nc"}}</tool_call>'
    )
    turn = parse_turn(escaped)
    assert turn == Turn(CALL, "a  b c", None)


def test_a_marker_broken_up_by_an_invisible_character_is_no_call():
    assert parse_turn(xml_call("x").replace("<tool_call>", "<\u200btool_call>")).kind is INVALID


PIECES = [
    "<tool_call>",
    "</tool_call>",
    "<function=search>",
    "</function>",
    "<parameter=query>",
    "</parameter>",
    "<think>",
    "</think>",
    "<tool_response>",
    "<|im_start|>",
    "<|im_end|>",
    "Answer: Lisbon",
    "Answer:",
    "**",
    '{"name": "search", "arguments": {"query": "x"}}',
    "{",
    '"',
    "\\ud800",
    "\n",
    " ",
    "x",
    "\u200b",
]
TURNS = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=14).map("".join)


@settings(deadline=None)
@given(TURNS | st.text())
def test_nothing_in_model_text_raises_and_the_kinds_hold_what_they_promise(text):
    turn = parse_turn(text)

    assert turn.kind in TurnKind
    if turn.kind is CALL:
        assert turn.query and turn.query == turn.query.strip() and turn.answer is None
        turn.query.encode()
    else:
        assert turn.query is None
    if turn.kind is INVALID:
        assert turn.answer is None
    if turn.answer is not None:
        assert turn.answer.strip() and len(turn.answer.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" + "[" * 100_000,
        "<tool_call>" + '{"a":' * 100_000,
        "<tool_call>{" + "9" * 10_000,
        '<tool_call>{"name": ' + "9" * 10_000 + "}</tool_call>",
        "<tool_call><function=search><parameter=query>" + "</parameter> " * 20_000,
        "<parameter=query>" + "</parameter> " * 20_000,
        "<think>" * 20_000 + "</tool_call>",
        "<think></think>" * 20_000 + "<tool_call>",
        "<|im_end|>" * 1_000 + "<tool_call>" + " " * 200_000 + "x",
    ],
    ids=range(9),
)
def test_hopeless_text_of_any_size_is_invalid_and_soon_read(text):
    assert parse_turn(text) == Turn(INVALID, None, None)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1))
def test_every_readable_query_survives_both_styles(query):
    expected = query.strip()
    if not expected.strip("\u00ad\u200b\ufeff\u2060 ") or any(
        "\u200b" <= character <= "\u206f" for character in query
    ):
        return
    assert parse_turn(json_call(query)) == Turn(CALL, expected, None)
    if "<" not in query:
        assert parse_turn(xml_call(query)) == Turn(CALL, expected, None)


@settings(deadline=None)
@given(TURNS)
def test_closed_reasoning_in_front_changes_nothing(text):
    reasoning = "<think>\nfirst this, then <tool_call> that\n</think>\n"
    if "</think>" not in text:
        assert parse_turn(reasoning + text) == parse_turn("\n" + text)
