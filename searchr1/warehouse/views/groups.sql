-- The trajectories of one question in one step, and whether they carry gradient.
CREATE OR REPLACE VIEW groups AS
SELECT
    run,
    step,
    question_id,
    any_value(source) AS source,
    count(*) AS trajectories,
    count(*) FILTER (valid) AS valid,
    count(*) FILTER (valid AND em) AS correct,
    avg(reward) FILTER (valid) AS reward,
    CASE
        WHEN count(*) FILTER (valid) < 2 THEN 'too_few'
        WHEN min(reward) FILTER (valid) < max(reward) FILTER (valid) THEN 'mixed'
        WHEN min(reward) FILTER (valid) = 1 THEN 'all_right'
        WHEN min(reward) FILTER (valid) <= 0 THEN 'all_wrong'
        ELSE 'all_equal'
    END AS kind
FROM trajectories
WHERE phase = 'train'
GROUP BY run, step, question_id;
COMMENT ON VIEW groups IS 'One row a group. kind: mixed carries gradient; all_right, all_wrong and all_equal (equal rewards) and too_few (fewer than two valid trajectories) carry none.';
