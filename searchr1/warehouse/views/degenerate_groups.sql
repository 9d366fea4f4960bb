-- Groups without gradient, all-right and all-wrong apart.
CREATE OR REPLACE VIEW degenerate_groups AS
SELECT
    run,
    step,
    count(*) AS groups,
    count(*) FILTER (kind = 'mixed') AS mixed,
    count(*) FILTER (kind = 'all_right') AS all_right,
    count(*) FILTER (kind = 'all_wrong') AS all_wrong,
    count(*) FILTER (kind = 'too_few') AS too_few,
    count(*) FILTER (kind <> 'mixed') / count(*) AS degenerate_rate,
    count(*) FILTER (kind = 'all_right') / count(*) AS all_right_rate,
    count(*) FILTER (kind = 'all_wrong') / count(*) AS all_wrong_rate
FROM groups
GROUP BY run, step
ORDER BY run, step;
COMMENT ON VIEW degenerate_groups IS 'Groups without gradient by step. Many all_right: the questions are too easy by now; many all_wrong: too hard, or something is broken.';
