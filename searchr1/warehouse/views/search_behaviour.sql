-- How the policy searches, by how many facts a question needs.
CREATE OR REPLACE VIEW search_behaviour AS
SELECT
    run,
    phase,
    step,
    evaluation,
    coalesce(hops(source), 'unknown') AS hops,
    count(*) AS trajectories,
    avg(searches) AS searches,
    avg((searches = 0)::INTEGER) AS no_search_rate,
    avg(em::INTEGER) AS em,
    avg(em::INTEGER) FILTER (searches = 0) AS em_without_search,
    avg(em::INTEGER) FILTER (searches > 0) AS em_with_search,
    sum(searches_repeated) / nullif(sum(searches), 0) AS repeated_rate,
    sum(searches_after_answer) / nullif(sum(searches), 0) AS after_answer_rate
FROM trajectories
WHERE valid
GROUP BY ALL
ORDER BY run, phase DESC, step, evaluation, hops;
COMMENT ON VIEW search_behaviour IS 'Searches by step or evaluation and by hops of the question; repeated_rate counts repeated and nearly repeated queries, after_answer_rate searches made when the answer was already in an observation.';
