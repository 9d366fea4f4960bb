"""The report in headless Chromium: what a person does with it, and what must never happen."""

import re
from pathlib import Path

import pytest

from searchr1.report import build_report
from searchr1.runs import Run
from searchr1.trajectory import Trajectory
from tests.report.conftest import Visit
from tests.synthetic_run import (
    HOSTILE,
    ByteTokenizer,
    Skill,
    make_questions,
    make_run,
    start_run,
    write_evaluation,
)

pytestmark = pytest.mark.browser


def stored(runs_dir: Path, evaluation: str) -> dict[str, Trajectory]:
    """Trajectories of an evaluation by question id."""
    groups = Run.open(runs_dir, "demo").evaluation(evaluation, evaluation).groups()
    return {group.question.question_id: group.trajectories[0] for group in groups}


def test_the_page_opens_without_network_or_complaint(
    visit: Visit, report: Path, screenshots: Path
) -> None:
    visit.open(report)
    assert "EM" in visit.page.inner_text("h1")
    assert "95% interval" in visit.page.inner_text(".verdict")
    assert visit.page.locator("figure[data-chart] svg").count() >= 8
    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme)
        visit.page.screenshot(path=screenshots / f"{scheme}.png", full_page=True)
    visit.check(report)


def test_light_and_dark_follow_the_system_and_the_button(visit: Visit, report: Path) -> None:
    visit.open(report)
    page = visit.page

    def background() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.emulate_media(color_scheme="light")
    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert light != dark
    page.click("#theme")  # from Auto to Light
    assert (page.inner_text("#theme"), background()) == ("Light", light)
    page.click("#theme")
    page.emulate_media(color_scheme="light")
    assert (page.inner_text("#theme"), background()) == ("Dark", dark)
    page.click("#theme")
    assert (page.inner_text("#theme"), background()) == ("Auto", light)


def test_a_phone_shows_everything_without_scrolling_sideways(
    visit: Visit, report: Path, screenshots: Path
) -> None:
    visit.page.set_viewport_size({"width": 390, "height": 844})
    visit.open(report)
    visit.page.click("#changes ol a >> nth=0")
    visit.page.wait_for_selector(".column .turn")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    visit.page.screenshot(path=screenshots / "phone.png", full_page=True)
    visit.check(report)


def test_filters_narrow_the_list(visit: Visit, report: Path, runs_dir: Path) -> None:
    visit.open(report)
    page = visit.page
    count = page.locator("#filters output")
    assert count.inner_text().startswith("236 of 236")  # 4 evaluations of 35, 6 steps of 16
    page.select_option("[name=place]", "evaluation/step_6")
    page.select_option("[name=source]", "hotpotqa")
    expected = [t for t in stored(runs_dir, "step_6").values() if t.question.source == "hotpotqa"]
    assert count.inner_text().startswith(f"{len(expected)} of")
    assert page.locator("#list a").count() == len(expected)
    page.select_option("[name=outcome]", "right")
    right = [t for t in expected if t.em]
    assert count.inner_text().startswith(f"{len(right)} of")
    page.click("#filters button[type=reset]")
    page.wait_for_function("document.querySelector('#filters output').textContent[0] === '2'")
    page.select_option("[name=stop]", "no_answer")
    for label in page.locator("#list a b").all_inner_texts():
        assert label == "malformed"
    visit.check(report)


def test_search_finds_questions_by_text_and_id(visit: Visit, report: Path) -> None:
    visit.open(report)
    page = visit.page
    page.fill("[name=text]", "BOOK 17?")  # all words, in any order
    for text in page.locator("#list a").all_inner_texts():
        assert "book" in text and "17?" in text
    assert 0 < page.locator("#list a").count() < 20
    page.fill("[name=text]", "dev-00012")
    assert page.locator("#list a").count() == 4  # base and three checkpoints
    page.fill("[name=text]", "no such thing")
    assert page.locator("#filters output").inner_text().startswith("0 of")


def test_an_opened_trajectory_shows_every_turn_and_search(
    visit: Visit, report: Path, runs_dir: Path
) -> None:
    trajectories = stored(runs_dir, "step_6")
    key, shown = max(trajectories.items(), key=lambda pair: len(pair[1].searches))
    visit.open(report)
    page = visit.page
    page.fill("[name=text]", key)
    page.select_option("[name=place]", "evaluation/step_6")
    page.click("#list a")
    page.wait_for_selector(".column .turn")
    column = page.locator(".column", has_text="step 6")
    assert column.locator(".turn").count() == len(shown.turns)
    assert column.locator(".observation").count() == len(shown.searches)
    for turn, text in zip(shown.turns, column.locator(".tokens").all_inner_texts(), strict=True):
        assert text == turn.text
    queries = column.locator(".query").all_inner_texts()
    assert queries == [search.query for search in shown.searches]
    links = column.locator(".observation a")
    assert links.first.get_attribute("href") == shown.searches[0].items[0].url
    assert links.first.get_attribute("rel") == "noopener noreferrer"
    latency = column.locator(".observation .label").first.inner_text()
    assert f"{shown.searches[0].seconds:.2f} s" in latency
    assert page.locator("#detail dd").first.inner_text() == " / ".join(shown.question.answers)
    visit.check(report)


def test_base_and_checkpoints_stand_side_by_side(
    visit: Visit, report: Path, runs_dir: Path, screenshots: Path
) -> None:
    visit.open(report)
    page = visit.page
    page.click("#changes [data-kind=gained] ol a >> nth=0")
    page.wait_for_selector(".column .turn")
    heads = page.locator(".column h4").all_inner_texts()
    assert [head.split() for head in heads] in (
        [["base", "wrong"], ["step", "6", "right"]],
        [["base", "malformed"], ["step", "6", "right"]],
    )
    page.screenshot(path=screenshots / "compare.png")
    page.click(".chip:has-text('step 2')")
    page.wait_for_function("document.querySelectorAll('.column').length === 3")
    page.click(".chip:has-text('base')")
    page.wait_for_function("document.querySelectorAll('.column').length === 2")
    assert page.locator(".column h4").first.inner_text().startswith("step 2")
    visit.check(report)


def test_a_deep_link_opens_the_same_columns_and_filters(visit: Visit, report: Path) -> None:
    visit.open(report)
    page = visit.page
    page.select_option("[name=outcome]", "right")
    page.click("#list a >> nth=2")
    page.wait_for_selector(".column .turn")
    title, columns = page.inner_text("#detail h3"), page.locator(".column h4").all_inner_texts()
    address = page.url[page.url.index("#") :]
    page.goto("about:blank")
    visit.open(report, address)
    page.wait_for_selector(".column .turn")
    assert page.inner_text("#detail h3") == title
    assert page.locator(".column h4").all_inner_texts() == columns
    assert page.input_value("[name=outcome]") == "right"
    assert page.locator("#list a[aria-current=true]").count() >= 1


def test_back_returns_to_the_trajectory_before(visit: Visit, report: Path) -> None:
    visit.open(report)
    page = visit.page
    page.select_option("[name=place]", "evaluation/base")
    titles = []
    for number in (0, 3):
        page.click(f"#list a >> nth={number}")
        page.wait_for_function(
            "previous => document.querySelector('#detail h3')?.textContent !== previous",
            arg=titles[-1] if titles else None,
        )
        page.wait_for_selector(".column .turn")
        titles.append(page.inner_text("#detail h3"))
    page.go_back()
    page.wait_for_function(
        "title => document.querySelector('#detail h3').textContent === title", arg=titles[0]
    )


def hover(visit: Visit, selector: str) -> str:
    """The tooltip over an element."""
    spot = visit.page.locator(selector).first
    spot.scroll_into_view_if_needed()
    visit.page.wait_for_timeout(200)  # scrolling hides tooltips
    visit.page.mouse.move(0, 0)
    spot.hover()
    visit.page.wait_for_selector("#tip:not([hidden])")
    return visit.page.inner_text("#tip")


def test_tokens_of_training_show_advantage_logprob_and_loss(
    visit: Visit, report: Path, runs_dir: Path, screenshots: Path
) -> None:
    visit.open(report)
    page = visit.page
    page.select_option("[name=place]", "train")
    page.select_option("[name=outcome]", "right")
    page.wait_for_selector("#list a")
    rows = page.locator("#list a").count()
    for number in range(rows):  # one whose group carries gradient
        page.click(f"#list a >> nth={number}")
        page.wait_for_selector(".column .turn")
        if page.locator(".token.drawn.gain").count():
            break
    about = page.inner_text(".column .meta")
    advantage = re.search(r"advantage (\+[0-9.]+)", about)
    assert advantage
    text = hover(visit, ".token.drawn.gain")
    assert f"advantage {advantage[1]}: carries loss" in text
    assert re.search(r"logprob -[0-9.]+ \([0-9.]+%\)", text)
    page.screenshot(path=screenshots / "token.png")
    page.click(".chip:has-text('All tokens')")
    page.wait_for_selector(".token:not(.drawn)")
    assert "carries no loss" in hover(visit, ".column .token:not(.drawn)")
    visit.check(report)


def test_tokens_of_evaluations_say_that_nothing_is_trained(visit: Visit, report: Path) -> None:
    visit.open(report)
    visit.page.select_option("[name=place]", "evaluation/base")
    visit.page.click("#list a >> nth=0")
    visit.page.wait_for_selector(".token.drawn")
    assert "evaluations are not trained on" in hover(visit, ".token.drawn")
    assert visit.page.locator(".token.gain, .token.loss").count() == 0


def test_all_tokens_join_to_the_whole_sequence(visit: Visit, report: Path, runs_dir: Path) -> None:
    """Letters of several tokens are whole, and no token is lost between turns."""
    key, shown = next(
        (key, t)
        for key, t in stored(runs_dir, "base").items()
        if any("ö" in search.observation for search in t.searches)
    )
    visit.open(report, f"#t=evaluation%252Fbase%7C{key}%7C0")
    page = visit.page
    page.wait_for_selector(".column .turn")
    page.click(".chip:has-text('All tokens')")
    page.wait_for_selector(".token:not(.drawn)")
    text = page.locator(".column .tokens").evaluate("e => e.textContent")
    assert text == ByteTokenizer().decode(shown.tokens)
    assert page.locator(".column .token").count() == len(shown.tokens)
    drawn = page.locator(".column .token.drawn").count()
    assert drawn == sum(shown.loss_mask)


def test_charts_tell_their_values_and_mark_the_watchdogs_steps(visit: Visit, report: Path) -> None:
    visit.open(report)
    page = visit.page
    assert "step 4: all wrong groups" in page.inner_text(".alarm")
    chart = page.locator("figure[data-chart=training_reward] svg")
    assert chart.locator(".watchdog").count() == 1
    chart.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    chart.focus()
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    tip = page.inner_text("#tip")
    assert tip.startswith("step 4")
    assert "watchdog/all_wrong_groups" in tip
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#tip").startswith("step 5")
    evaluation = page.locator("figure[data-chart=evaluation] svg")
    evaluation.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    evaluation.hover()
    assert re.search(r"macro EM %: [0-9.]+ \[[0-9]+, [0-9]+\]", page.inner_text("#tip"))


def test_every_measure_is_there_by_source(visit: Visit, report: Path) -> None:
    visit.open(report)
    visit.page.click("#checkpoints summary >> nth=1")
    details = visit.page.locator("#checkpoints details").nth(1)
    assert details.locator("h4").all_inner_texts() == ["base", "step 2", "step 4", "step 6"]
    assert details.locator("tbody tr").count() == 4 * 7
    assert details.locator("thead").first.locator("th").count() == 13


def test_gained_and_lost_switch_with_the_checkpoint(visit: Visit, report: Path) -> None:
    visit.open(report)
    page = visit.page

    def heads() -> list[str]:
        return page.locator("#changes h3").all_inner_texts()

    last = heads()
    page.select_option("#changes select", label="step 2")
    assert heads() != last
    gained = page.locator("#changes [data-kind=gained] li").count()
    assert heads()[0] == f"gained ({gained})"


# ---- hostile text


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose questions, answers, sources, results and links all attack the page."""
    folder = tmp_path_factory.mktemp("hostile") / "runs"
    make_run(folder, steps=2, save_every=2, evaluation_questions=14, hostile=True)
    return build_report(folder, "demo", tokenizer=ByteTokenizer())


def test_hostile_text_is_shown_and_does_not_run(
    visit: Visit, hostile_report: Path, screenshots: Path
) -> None:
    visit.open(hostile_report)
    page = visit.page
    for address in page.locator("#list a").evaluate_all("all => all.map(a => a.hash)")[:6]:
        page.evaluate("hash => { location.hash = hash }", address)
        page.wait_for_selector(".column .turn")
        page.wait_for_timeout(100)
    page.wait_for_selector(".observation li")
    page.click(".chip:has-text('All tokens')")
    page.wait_for_selector(".token:not(.drawn)")
    page.click(".chip:has-text('All tokens')")
    page.wait_for_selector(".observation li")
    page.screenshot(path=screenshots / "hostile.png", full_page=True)
    assert page.title() == "demo · Search-R1 report"
    assert HOSTILE.split("\u2028")[0].split("<!--")[0].strip() in page.inner_text(
        ".observation li p"
    )
    assert page.locator("img, [onerror], b:has-text('bold')").count() == 0
    assert page.locator("a[href^='javascript:' i]").count() == 0
    assert page.evaluate("document.querySelectorAll('script:not([type])').length") == 1
    visit.check(hostile_report)


def test_injected_script_is_stopped_by_the_policy_even_in_the_page(
    visit: Visit, report: Path
) -> None:
    """The second line of defence: markup that did become part of the page cannot run or fetch."""
    visit.open(report)
    answered: list[str] = []
    visit.page.on("response", lambda response: answered.append(response.url))
    visit.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', "
        "`<img src=https://example.org/x.png onerror=\"document.title='owned'\">`)"
    )
    visit.page.wait_for_timeout(300)
    assert visit.page.title() == "demo · Search-R1 report"
    assert any("Content Security Policy" in complaint for complaint in visit.complaints)
    assert answered == []


# ---- odd runs


def test_a_run_without_steps_or_evaluations_has_a_page_that_says_so(
    visit: Visit, tmp_path: Path
) -> None:
    start_run(tmp_path / "runs", "young")
    page = build_report(tmp_path / "runs", "young", tokenizer=ByteTokenizer())
    visit.open(page)
    assert "Nothing is evaluated yet" in visit.page.inner_text("h1")
    assert "No step is finished yet" in visit.page.inner_text("#training")
    visit.check(page)


def test_several_samples_open_by_their_number(visit: Visit, tmp_path: Path) -> None:
    run = start_run(tmp_path / "runs")
    for name, step in (("base", 0), ("step_1", 1)):
        write_evaluation(
            run,
            name,
            make_questions(7, "dev"),
            Skill.at(step),
            checkpoint=name,
            step=step,
            samples=3,
            temperature=1.0,
        )
    page = build_report(tmp_path / "runs", "demo", tokenizer=ByteTokenizer())
    visit.open(page)
    visit.page.click("#checkpoints summary >> nth=0")
    row = visit.page.locator("#checkpoints tr", has_text="pass@3").inner_text()
    assert row.count("[") == 2  # base and step 1, each with its interval
    visit.page.fill("[name=text]", "dev-00003")
    visit.page.select_option("[name=place]", "evaluation/step_1")
    visit.page.click("#list a >> nth=2")
    visit.page.wait_for_selector(".column .turn")
    pressed = visit.page.locator(".chip[aria-pressed=true]").all_inner_texts()
    assert pressed == ["base #2", "step 1 #2"]
    visit.check(page)


def test_without_a_tokenizer_turns_are_coloured_whole(visit: Visit, tmp_path: Path) -> None:
    make_run(tmp_path / "runs", steps=1, evaluation_questions=7)
    page = build_report(tmp_path / "runs", "demo")  # "tiny" is no model on this machine
    visit.open(page)
    assert "tokenizer is not on this machine" in visit.page.inner_text("#trajectories")
    visit.page.click("#list a >> nth=0")
    visit.page.wait_for_selector(".turn .token.drawn")
    assert visit.page.locator(".column .turn").count() >= 1
    visit.check(page)


def test_a_page_that_would_be_too_large_is_trimmed_with_a_note(
    visit: Visit, tmp_path: Path
) -> None:
    make_run(tmp_path / "runs", steps=8, group_size=8, evaluation_questions=28)
    page = build_report(
        tmp_path / "runs", "demo", tokenizer=ByteTokenizer(), detail_characters=60_000
    )
    visit.open(page)
    note = visit.page.inner_text("#trajectories .quiet >> nth=0")
    match = re.match(r"([0-9,]+) of the ([0-9,]+) listed trajectories can be opened", note)
    assert match and 0 < int(match[1]) < int(match[2]) == 368
    packed = visit.page.locator("script[id^=chunk-]").evaluate_all(
        "all => all.reduce((sum, one) => sum + one.textContent.length, 0)"
    )
    assert packed <= 60_000 + 30_000
    visit.page.select_option("[name=place]", "train/4")
    visit.page.click("#list a >> nth=0")
    visit.page.wait_for_selector(".column")
    assert "Not in this page" in visit.page.inner_text(".column")
    visit.check(page)


@pytest.mark.slow
def test_twenty_thousand_trajectories_open_and_filter_quickly(
    visit: Visit, tmp_path: Path, screenshots: Path
) -> None:
    make_run(
        tmp_path / "runs",
        steps=150,
        questions_per_batch=16,
        group_size=8,
        save_every=75,
        evaluation_questions=300,
    )
    page = build_report(tmp_path / "runs", "demo", tokenizer=ByteTokenizer())
    assert page.stat().st_size < 32_000_000
    visit.open(page)
    assert visit.page.inner_text("#filters output").startswith("20,100 of 20,100")
    milliseconds = visit.page.evaluate(
        """() => {
            const started = performance.now();
            const box = document.querySelector("[name=text]");
            box.value = "book 1234";
            box.dispatchEvent(new Event("input", { bubbles: true }));
            return performance.now() - started;
        }"""
    )
    assert milliseconds < 1000
    visit.page.click("#list a >> nth=0")
    visit.page.wait_for_selector(".column")
    visit.page.screenshot(path=screenshots / "twenty-thousand.png")
    visit.check(page)
