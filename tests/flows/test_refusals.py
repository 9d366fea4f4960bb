"""What is wrong or missing is said before anything starts."""

import pytest


@pytest.mark.parametrize(
    ("flow", "arguments", "status", "words"),
    [
        ("train_flow", ("--max-steps", "0"), 2, "--max-steps"),
        ("train_flow", ("--profile", "local"), 2, "prepare_flow"),
        ("train_flow", ("--profile", "deepseek"), 2, "PYTRIO_API_KEY"),
        ("train_flow", ("--profile", "deepseek", "--source", "world"), 2, "DEEPSEEK_API_KEY"),
        ("eval_flow", ("--run", "nothing"), 2, "nothing"),
        ("eval_flow", ("--question-set", "dev7"), 2, "--question-set"),
        ("analyse_flow", (), 2, "train_flow"),
    ],
)
def test_what_is_wrong_or_missing_is_said_at_once_without_a_traceback(
    flows, flow, arguments, status, words
):
    flows.environment = {
        name: value
        for name, value in flows.environment.items()
        if not name.startswith(("DEEPSEEK", "PYTRIO"))
    }
    if words == "DEEPSEEK_API_KEY":
        flows.run("prepare_flow", "--profile", "local")
        flows.environment["PYTRIO_API_KEY"] = "a key that is never used"
    printed = flows.run(flow, *arguments, status=status, seconds=60)
    assert words in printed
    assert "Traceback" not in printed
