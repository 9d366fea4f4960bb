-- What the queries look like.
CREATE OR REPLACE VIEW query_behaviour AS
SELECT
    run,
    phase,
    step,
    evaluation,
    count(*) AS searches,
    avg(query_words) AS query_words,
    avg(question_overlap) FILTER (search = 0) AS first_query_overlap,
    avg((question_overlap = 1)::INTEGER) FILTER (search = 0) AS first_query_from_question_only,
    avg(question_overlap) FILTER (search > 0) AS later_query_overlap,
    avg(repeated::INTEGER) AS repeated_rate,
    avg(near_repeated::INTEGER) AS near_repeated_rate,
    avg(after_answer::INTEGER) AS after_answer_rate,
    avg(answer_in_observation::INTEGER) AS answer_found_rate
FROM searches
GROUP BY ALL
ORDER BY run, phase DESC, step, evaluation;
COMMENT ON VIEW query_behaviour IS 'Queries by step or evaluation: length, words taken from the question (first query and later ones), repetition, how often an observation holds the answer.';
