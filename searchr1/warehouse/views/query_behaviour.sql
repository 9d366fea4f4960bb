-- What the queries look like.
CREATE OR REPLACE VIEW query_behaviour AS
SELECT
    t.run,
    t.phase,
    t.step,
    t.evaluation,
    count(*) AS searches,
    avg(s.query_words) AS query_words,
    avg(s.question_overlap) FILTER (s.search = 0) AS first_query_overlap,
    avg((s.question_overlap = 1)::INTEGER) FILTER (s.search = 0) AS first_query_from_question_only,
    avg(s.question_overlap) FILTER (s.search > 0) AS later_query_overlap,
    avg(s.repeated::INTEGER) AS repeated_rate,
    avg(s.near_repeated::INTEGER) AS near_repeated_rate,
    avg(s.after_answer::INTEGER) AS after_answer_rate,
    avg(s.answer_in_observation::INTEGER) AS answer_found_rate
FROM searches AS s
JOIN trajectories AS t USING (trajectory_id)
GROUP BY ALL
ORDER BY t.run, t.phase DESC, t.step, t.evaluation;
COMMENT ON VIEW query_behaviour IS 'Queries by step or evaluation: length, words taken from the question (first query and later ones), repetition, how often an observation holds the answer.';
