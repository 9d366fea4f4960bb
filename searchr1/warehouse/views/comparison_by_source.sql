-- Scores of each evaluation by data set, with Wilson's intervals.
CREATE OR REPLACE VIEW comparison_by_source AS
WITH scored AS (
    SELECT
        run,
        evaluation,
        source,
        count(DISTINCT question_id) FILTER (valid) AS questions,
        count(*) FILTER (valid) AS items,
        count(*) FILTER (NOT valid) AS invalid,
        count(*) FILTER (valid AND em) AS correct,
        count(*) FILTER (valid AND valid_format) AS formatted,
        avg(em_squad::INTEGER) FILTER (valid) AS em_squad,
        avg(f1) FILTER (valid) AS f1,
        avg(cover_em::INTEGER) FILTER (valid) AS cover_em,
        avg(searches) FILTER (valid) AS searches,
        avg(turns) FILTER (valid) AS turns,
        avg(tokens) FILTER (valid) AS tokens,
        avg((searches = 0)::INTEGER) FILTER (valid) AS no_search_rate,
        1 - sum(searches_failed) / nullif(sum(searches), 0) AS search_success_rate
    FROM evaluation_items
    GROUP BY run, evaluation, source
)
SELECT
    run,
    evaluation,
    e.checkpoint,
    e.step,
    e.question_set,
    source,
    hops(source) AS hops,
    scored.questions,
    scored.invalid,
    correct / nullif(items, 0) AS em,
    wilson_low(correct, items) AS em_low,
    wilson_high(correct, items) AS em_high,
    em_squad,
    f1,
    cover_em,
    formatted / nullif(items, 0) AS format_rate,
    wilson_low(formatted, items) AS format_low,
    wilson_high(formatted, items) AS format_high,
    searches,
    turns,
    tokens,
    no_search_rate,
    search_success_rate
FROM scored
JOIN evaluations AS e USING (run, evaluation)
ORDER BY run, e.step, evaluation, source;
COMMENT ON VIEW comparison_by_source IS 'Scores by evaluation and data set, invalid items left out. em_low and em_high: 95% Wilson interval, exact for one sample a question.';
