-- Reward with the environment's errors beside it: suspect the environment first.
CREATE OR REPLACE VIEW reward_and_environment AS
WITH sampled AS (
    SELECT
        run,
        step,
        avg(reward) FILTER (valid) AS reward,
        avg(reward) AS reward_with_errors,
        avg(em::INTEGER) FILTER (valid) AS correct,
        count(*) AS trajectories,
        count(*) FILTER (stop_reason = 'environment_error') AS environment_errors,
        count(*) FILTER (stop_reason = 'sampling_error') AS sampling_errors,
        sum(searches)::BIGINT AS searches,
        sum(searches_failed)::BIGINT AS searches_failed
    FROM trajectories
    WHERE phase = 'train'
    GROUP BY run, step
)
SELECT
    run,
    step,
    reward,
    reward_with_errors,
    correct,
    trajectories,
    environment_errors,
    sampling_errors,
    searches,
    searches_failed,
    searches_failed / nullif(searches, 0) AS search_error_rate,
    nullif(corr(correct, searches_failed / nullif(searches, 0)) OVER (
        PARTITION BY run ORDER BY step ROWS BETWEEN 19 PRECEDING AND CURRENT ROW
    ), 'nan') AS correlation_over_20_steps
FROM sampled
ORDER BY run, step;
COMMENT ON VIEW reward_and_environment IS 'Reward by step beside search errors. A strongly negative correlation_over_20_steps: reward falls when searches fail, which is the environment and not the policy.';
