-- The search service, as the trajectories met it.
CREATE OR REPLACE VIEW search_health AS
SELECT
    run,
    phase,
    step,
    evaluation,
    count(*) AS searches,
    avg(ok::INTEGER) AS success_rate,
    count(*) FILTER (error = 'timeout') AS timeouts,
    count(*) FILTER (error = 'rate_limited') AS rate_limited,
    count(*) FILTER (error = 'server_error') AS server_errors,
    count(*) FILTER (error IN ('bad_query', 'query_rejected')) AS bad_queries,
    count(*) FILTER (NOT ok AND error NOT IN (
        'timeout', 'rate_limited', 'server_error', 'bad_query', 'query_rejected'
    )) AS other_errors,
    avg((ok AND results = 0)::INTEGER) AS empty_rate,
    avg(cached::INTEGER) AS cached_rate,
    avg(results) AS results,
    quantile_cont(seconds, 0.5) AS latency_p50,
    quantile_cont(seconds, 0.95) AS latency_p95,
    max(seconds) AS latency_max,
    sum(cost) AS usd
FROM searches
GROUP BY ALL
ORDER BY run, phase DESC, step, evaluation;
COMMENT ON VIEW search_health IS 'Success, errors by kind, empty results, cache, latency (seconds) and cost of searches by step or evaluation.';
