-- The long tail, and what it waited for.
CREATE OR REPLACE VIEW slowest_trajectories AS
WITH slowest AS (
    -- Ranked on narrow rows: only the slowest are then read whole.
    SELECT trajectory_id
    FROM (SELECT trajectory_id, run, seconds FROM trajectories)
    QUALIFY row_number() OVER (PARTITION BY run ORDER BY seconds DESC, trajectory_id) <= 50
),
longest AS (
    SELECT trajectory_id, max(seconds) AS seconds, arg_max(query, seconds) AS query
    FROM searches
    WHERE trajectory_id IN (SELECT trajectory_id FROM slowest)
    GROUP BY trajectory_id
)
SELECT
    t.run,
    t.phase,
    t.step,
    t.evaluation,
    t.question_id,
    t.sample,
    t.seconds,
    t.search_seconds,
    t.sampling_seconds,
    CASE
        WHEN t.search_seconds >= greatest(
            t.sampling_seconds, t.seconds - t.search_seconds - t.sampling_seconds
        ) THEN 'searching'
        WHEN t.sampling_seconds >= t.seconds - t.search_seconds - t.sampling_seconds
            THEN 'sampling'
        ELSE 'waiting for its turn'
    END AS mostly,
    longest.seconds AS longest_search_seconds,
    longest.query AS longest_search,
    t.turns,
    t.searches,
    t.searches_failed,
    t.tokens,
    t.stop_reason,
    trajectory_id
FROM trajectories AS t
JOIN slowest USING (trajectory_id)
LEFT JOIN longest USING (trajectory_id)
ORDER BY t.run, t.seconds DESC;
COMMENT ON VIEW slowest_trajectories IS 'The 50 slowest trajectories of each run, and what they mostly spent their time on.';
