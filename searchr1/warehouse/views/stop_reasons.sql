-- Why trajectories end.
CREATE OR REPLACE VIEW stop_reasons AS
SELECT
    run,
    phase,
    step,
    evaluation,
    stop_reason,
    count(*) AS trajectories,
    count(*) / sum(count(*)) OVER (PARTITION BY run, phase, step, evaluation) AS share,
    avg(em::INTEGER) AS em,
    avg(searches) AS searches
FROM trajectories
GROUP BY run, phase, step, evaluation, stop_reason
ORDER BY run, phase DESC, step, evaluation, trajectories DESC;
COMMENT ON VIEW stop_reasons IS 'Trajectories by stop reason, by step or evaluation.';
