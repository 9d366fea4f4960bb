-- The long tail, and what it waited for.
CREATE OR REPLACE VIEW slowest_trajectories AS
WITH slowest AS (
    SELECT *
    FROM trajectories
    QUALIFY row_number() OVER (PARTITION BY run ORDER BY seconds DESC, trajectory_id) <= 50
)
SELECT
    run,
    phase,
    step,
    evaluation,
    question_id,
    sample,
    seconds,
    search_seconds,
    sampling_seconds,
    CASE
        WHEN search_seconds >= greatest(sampling_seconds, seconds - search_seconds - sampling_seconds)
            THEN 'searching'
        WHEN sampling_seconds >= seconds - search_seconds - sampling_seconds THEN 'sampling'
        ELSE 'waiting for its turn'
    END AS mostly,
    (SELECT max(s.seconds) FROM searches AS s WHERE s.trajectory_id = slowest.trajectory_id)
        AS longest_search_seconds,
    (SELECT arg_max(s.query, s.seconds) FROM searches AS s
        WHERE s.trajectory_id = slowest.trajectory_id) AS longest_search,
    turns,
    searches,
    searches_failed,
    tokens,
    stop_reason,
    trajectory_id
FROM slowest
ORDER BY run, seconds DESC;
COMMENT ON VIEW slowest_trajectories IS 'The 50 slowest trajectories of each run, and what they mostly spent their time on.';
