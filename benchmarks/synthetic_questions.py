"""A made-up data set of the published one's size and shape, with its defects at realistic rates.

Every value is a hash of source, split and row number, so one DuckDB release always makes the same
files. Which
rows get which defect is decided the same way; `DEFECTS` says how many in 100,000.
"""

from pathlib import Path

import duckdb

from searchr1.data.verify import PUBLISHED_ROWS

DEFECTS = {
    "blank_question": 20,  # rejected
    "no_answer": 30,  # rejected
    "repeated_question": 60,  # rejected: the question and answers of the row before
    "answers_only_in_reward_model": 500,
    "list_written_as_text": 300,
    "empty_and_missing_in_list": 400,
    "loose_white_space": 1000,
    "evaluation_question_in_training": 200,
}

_WORDS = (
    "river author city first film album capital king team born novel president song county "
    "island mountain band director university bridge actor museum league castle station year "
    "company newspaper village empire painter general opera temple valley season writer series"
)
_INSTRUCTIONS = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first "
    "every time you get new information. After reasoning, if you find you lack some knowledge, "
    "you can call a search engine and it will return the top searched results. You can search as "
    "many times as you want. If you find no further external knowledge needed, you can directly "
    "provide the answer. For example, Beijing. Question: "
)


def write_synthetic(folder: Path, scale: float = 1.0) -> dict[str, Path]:
    """Write train.parquet and test.parquet into `folder` with `scale` times the published rows a
    source (at least 20), and return their paths by split."""
    connection = duckdb.connect()
    connection.execute(_macros())
    paths = {}
    for split, sources in PUBLISHED_ROWS.items():
        parts = [
            _rows(split, source, max(20, round(count * scale))) for source, count in sources.items()
        ]
        paths[split] = folder / f"{split}.parquet"
        connection.execute(
            f"copy ({' union all '.join(parts)}) to '{paths[split]}' "
            "(format parquet, row_group_size 20000)"
        )
    return paths


def _macros() -> str:
    words = ", ".join(f"'{word}'" for word in _WORDS.split())
    bounds, start = {}, 0
    for name, rate in DEFECTS.items():
        bounds[name] = (start, start + rate)
        start += rate
    defects = "\n".join(f"when draw < {end} then '{name}'" for name, (_, end) in bounds.items())
    return f"""
    create macro word(seed, n) as ([{words}])[1 + (hash(seed, n) % {len(_WORDS.split())})::int];
    create macro phrase(seed) as concat_ws(' ', word(seed, 1), word(seed, 2), word(seed, 3));
    create macro defect(draw) as case {defects} end;
    create macro question_text(seed) as concat(
        ['Who was the ', 'What is the ', 'When did the ', 'Which '][1 + (hash(seed) % 4)::int],
        phrase(seed), ' of ', phrase(concat(seed, 'b')), ' number ', hash(seed) % 1000000, '?');
    create macro answer_list(seed) as list_transform(
        range(1 + (hash(seed, 'n') % 3)::int),
        lambda k: concat(phrase(concat(seed, 'answer', k)), ' ', hash(seed, k) % 1000));
    """


def _rows(split: str, source: str, count: int) -> str:
    """SQL for one source's rows; ids are those of a numbering that every source starts anew."""
    return f"""
    select id, question, golden_answers, '{source}' as data_source,
        [{{'role': 'user', 'content': '{_INSTRUCTIONS}' || coalesce(question, '')}}] as prompt,
        'fact-reasoning' as ability,
        {{'ground_truth': {{'target': target}}, 'style': 'rule'}} as reward_model,
        {{'index': i, 'split': '{split}'}} as extra_info,
        {{'type': 'bridge', 'level': 'hard', 'supporting_facts':
            {{'title': [phrase(seed), phrase(seed || 'c')], 'sent_id': [0, 1]}}}} as metadata
    from (
        select *, '{split}_' || i as id,
            case flaw
                when 'blank_question' then ['', '  ', '?', null][1 + (i % 4)]
                when 'loose_white_space' then '  ' || replace(text, ' of ', chr(9) || ' of ') || ' '
                else text
            end as question,
            case flaw
                when 'no_answer' then [null, '', ' ']
                when 'answers_only_in_reward_model' then null
                when 'list_written_as_text'
                then ['[''' || array_to_string(plain, ''', ''') || ''']']
                when 'empty_and_missing_in_list' then list_append(list_append(plain, ''), null)
                else plain
            end as golden_answers,
            case flaw when 'no_answer' then null else plain end as target
        from (
            select *, question_text(seed) as text, answer_list(seed) as plain
            from (
                select i, flaw, case flaw
                    when 'repeated_question' then '{split}{source}' || (i - 1)
                    when 'evaluation_question_in_training' then 'test{source}' || (i % 1000)
                    else '{split}{source}' || i
                end as seed
                from (
                    select i, defect(hash('{split}', '{source}', i) % 100000) as flaw
                    from range({count}) t(i)
                )
            )
        )
    )
    """
