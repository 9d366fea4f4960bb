-- The search service, as the trajectories met it.
CREATE OR REPLACE VIEW search_health AS
SELECT
    t.run,
    t.phase,
    t.step,
    t.evaluation,
    count(*) AS searches,
    avg(s.ok::INTEGER) AS success_rate,
    count(*) FILTER (s.error = 'timeout') AS timeouts,
    count(*) FILTER (s.error = 'rate_limited') AS rate_limited,
    count(*) FILTER (s.error = 'server_error') AS server_errors,
    count(*) FILTER (s.error IN ('bad_query', 'query_rejected')) AS bad_queries,
    count(*) FILTER (NOT s.ok AND s.error NOT IN (
        'timeout', 'rate_limited', 'server_error', 'bad_query', 'query_rejected'
    )) AS other_errors,
    avg((s.ok AND s.results = 0)::INTEGER) AS empty_rate,
    avg(s.cached::INTEGER) AS cached_rate,
    avg(s.results) AS results,
    quantile_cont(s.seconds, 0.5) AS latency_p50,
    quantile_cont(s.seconds, 0.95) AS latency_p95,
    max(s.seconds) AS latency_max,
    sum(s.cost) AS usd
FROM searches AS s
JOIN trajectories AS t USING (trajectory_id)
GROUP BY ALL
ORDER BY t.run, t.phase DESC, t.step, t.evaluation;
COMMENT ON VIEW search_health IS 'Success, errors by kind, empty results, cache, latency (seconds) and cost of searches by step or evaluation.';
