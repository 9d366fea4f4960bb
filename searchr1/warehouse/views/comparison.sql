-- The table of base and checkpoints: one row an evaluation.
CREATE OR REPLACE VIEW comparison AS
WITH by_source AS (
    SELECT
        run,
        evaluation,
        source,
        count(*) FILTER (valid) AS items,
        avg(em::INTEGER) FILTER (valid) AS em,
        avg(em_squad::INTEGER) FILTER (valid) AS em_squad,
        avg(f1) FILTER (valid) AS f1,
        avg(cover_em::INTEGER) FILTER (valid) AS cover_em
    FROM evaluation_items
    GROUP BY run, evaluation, source
),
macro AS (
    SELECT
        run,
        evaluation,
        avg(em) AS em_macro,
        sqrt(sum(em * (1 - em) / nullif(items - 1, 0))) / count(em) AS em_macro_se,
        avg(em_squad) AS em_squad_macro,
        avg(f1) AS f1_macro,
        avg(cover_em) AS cover_em_macro
    FROM by_source
    GROUP BY run, evaluation
),
overall AS (
    SELECT
        run,
        evaluation,
        count(*) FILTER (valid) AS items,
        count(*) FILTER (NOT valid) AS invalid,
        count(*) FILTER (valid AND valid_format) AS formatted,
        avg(searches) FILTER (valid) AS searches,
        avg(turns) FILTER (valid) AS turns,
        avg(tokens) FILTER (valid) AS tokens,
        avg((searches = 0)::INTEGER) FILTER (valid) AS no_search_rate,
        1 - sum(searches_failed) / nullif(sum(searches), 0) AS search_success_rate
    FROM evaluation_items
    GROUP BY run, evaluation
),
changed AS (
    SELECT
        run,
        evaluation,
        count(*) FILTER (change = 'gained') AS gained,
        count(*) FILTER (change = 'lost') AS lost
    FROM paired_questions
    GROUP BY run, evaluation
)
SELECT
    e.run,
    e.evaluation,
    e.checkpoint,
    e.step,
    e.question_set,
    e.questions,
    e.samples,
    e.temperature,
    macro.em_macro,
    greatest(em_macro - 1.95996398 * em_macro_se, 0) AS em_low,
    least(em_macro + 1.95996398 * em_macro_se, 1) AS em_high,
    em_squad_macro,
    f1_macro,
    cover_em_macro,
    formatted / nullif(items, 0) AS format_rate,
    wilson_low(formatted, items) AS format_low,
    wilson_high(formatted, items) AS format_high,
    searches,
    turns,
    tokens,
    no_search_rate,
    search_success_rate,
    invalid,
    gained,
    lost,
    coalesce(pair.same_environment, e.checkpoint = 'base') AS same_environment,
    e.forced_mixed,
    e.search['search/error_rate'] AS search_error_rate
FROM evaluations AS e
LEFT JOIN macro USING (run, evaluation)
LEFT JOIN overall USING (run, evaluation)
LEFT JOIN changed USING (run, evaluation)
LEFT JOIN evaluation_pairs AS pair ON pair.run = e.run AND pair.evaluation = e.evaluation
ORDER BY e.run, e.question_set, e.step, e.evaluation;
COMMENT ON VIEW comparison IS 'Base and checkpoints side by side. em_low and em_high: 95% normal interval stratified by source; the report has bootstrap intervals and exact tests. same_environment = false: do not compare with the base.';
