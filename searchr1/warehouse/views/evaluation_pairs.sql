-- Each evaluation with the base's evaluation that it may be set against.
CREATE OR REPLACE VIEW evaluation_pairs AS
SELECT
    e.run,
    e.evaluation,
    e.checkpoint,
    e.step,
    base.evaluation AS base_evaluation,
    e.environment_fingerprint = base.environment_fingerprint AS same_environment,
    e.environment_fingerprint = base.environment_fingerprint OR e.forced_mixed AS compared
FROM evaluations AS e
JOIN evaluations AS base
    ON base.run = e.run
    AND base.checkpoint = 'base'
    AND base.questions_digest = e.questions_digest
    AND base.samples = e.samples
    AND base.temperature IS NOT DISTINCT FROM e.temperature
WHERE e.checkpoint <> 'base'
-- Of several evaluations of the base: the one in the same environment, then the latest.
QUALIFY row_number() OVER (
    PARTITION BY e.run, e.evaluation
    ORDER BY (e.environment_fingerprint = base.environment_fingerprint) DESC,
        base.started_at DESC NULLS LAST, base.evaluation
) = 1;
COMMENT ON VIEW evaluation_pairs IS 'One row an evaluation of a checkpoint: the base''s evaluation on the same questions, samples and temperature. compared is false when the environments differ and mixing was not forced.';
