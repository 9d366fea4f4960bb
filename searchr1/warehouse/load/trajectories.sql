-- From Parquet files of trajectories: searches, turns, trajectories, evaluation items. Facts that
-- need the text of observations are worked out here, once, so that views only count.

CREATE OR REPLACE TEMP TABLE new_searches AS
WITH asked AS (
    SELECT
        trajectory_number(batch.file, question_id, "index") AS trajectory_id,
        batch.run, batch.phase, batch.step, batch.evaluation,
        words(plain(question)) AS question_words,
        -- Yes and no stand in any text, and so prove nothing.
        list_filter(
            list_transform(answers, lambda answer: plain(answer)),
            lambda answer: answer NOT IN ('', 'yes', 'no')
        ) AS plain_answers,
        list_transform(searches, lambda s: plain(s.query)) AS queries,
        searches
    FROM read_parquet(getvariable('paths'), filename = 'source_path') AS parquet
    JOIN batch ON batch.path = parquet.source_path
    WHERE len(searches) > 0
),
called AS (
    SELECT
        trajectory_id, run, phase, step, evaluation,
        question_words,
        plain_answers,
        queries,
        list_transform(queries, lambda query: words(query)) AS query_words,
        unnest(searches) AS s,
        generate_subscripts(searches, 1) AS number
    FROM asked
),
read AS (
    SELECT
        *,
        query_words[number] AS own_words,
        lower(nfc_normalize(s.observation)) AS observation
    FROM called
),
judged AS (
    SELECT
        trajectory_id, run, phase, step, evaluation,
        number,
        s,
        own_words,
        len(list_intersect(own_words, question_words))
            / nullif(len(own_words), 0) AS question_overlap,
        list_contains(queries[:number - 1], queries[number]) AS repeated,
        coalesce(list_bool_or(list_transform(
            query_words[:number - 1], lambda earlier: jaccard(earlier, own_words) >= 0.7
        )), false) AS alike,
        CASE
            WHEN len(plain_answers) = 0 THEN NULL
            WHEN NOT s.ok THEN false
            -- Most observations lack even the first word of every answer: quickly told, and
            -- spares them the slow part.
            WHEN NOT list_bool_or(list_transform(
                plain_answers, lambda answer: contains(observation, split_part(answer, ' ', 1))
            )) THEN false
            ELSE list_bool_or(list_transform(
                plain_answers, lambda answer: holds(plain(observation), answer)
            ))
        END AS answer_in_observation
    FROM read
)
SELECT
    trajectory_id, run, phase, step, evaluation,
    (number - 1)::INTEGER AS search,
    s.turn AS turn,
    s.query AS query,
    s.ok AS ok,
    s.error AS error,
    len(s.items)::INTEGER AS results,
    list_transform(s.items, lambda item: item.title) AS titles,
    list_transform(s.items, lambda item: item.url) AS urls,
    s.observation AS observation,
    s.seconds AS seconds,
    s.cached AS cached,
    s.cost AS cost,
    len(own_words)::INTEGER AS query_words,
    question_overlap,
    repeated,
    alike AND NOT repeated AS near_repeated,
    answer_in_observation,
    coalesce(bool_or(answer_in_observation) OVER (
        PARTITION BY trajectory_id ORDER BY number
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), false) AS after_answer
FROM judged;

INSERT INTO searches SELECT * FROM new_searches;

INSERT INTO turns
WITH taken AS (
    SELECT
        trajectory_number(batch.file, question_id, "index") AS trajectory_id,
        batch.run, batch.phase, batch.step, batch.evaluation,
        unnest(turns) AS t,
        generate_subscripts(turns, 1) AS number
    FROM read_parquet(getvariable('paths'), filename = 'source_path') AS parquet
    JOIN batch ON batch.path = parquet.source_path
)
SELECT
    trajectory_id, run, phase, step, evaluation,
    (number - 1)::INTEGER, t.kind, t.start, t."end", t.text, t.seconds
FROM taken;

INSERT INTO trajectories
WITH searched AS (
    SELECT
        trajectory_id,
        count(*) FILTER (NOT ok) AS failed,
        count(*) FILTER (repeated OR near_repeated) AS repeated,
        count(*) FILTER (after_answer) AS after_answer,
        bool_or(answer_in_observation) AS answer_in_evidence,
        sum(seconds) AS seconds,
        sum(cost) AS cost
    FROM new_searches
    GROUP BY trajectory_id
),
numbered AS (
    SELECT
        trajectory_number(batch.file, question_id, "index") AS trajectory_id,
        parquet.stop_reason NOT IN ('environment_error', 'sampling_error') AS valid,
        len(list_filter(
            answers, lambda answer: plain(answer) NOT IN ('', 'yes', 'no')
        )) > 0 AS answer_can_be_found,
        list_sum(list_transform(turns, lambda t: t."end" - t.start))::INTEGER AS policy_tokens,
        list_sum(list_transform(turns, lambda t: t.seconds)) AS sampling_seconds,
        batch.run, batch.phase, batch.step, batch.evaluation, batch.file,
        parquet.*
    FROM read_parquet(getvariable('paths'), filename = 'source_path') AS parquet
    JOIN batch ON batch.path = parquet.source_path
),
grouped AS (
    SELECT
        trajectory_id,
        favg(reward) FILTER (valid) OVER same_group AS mean_reward,
        min(reward) FILTER (valid) OVER same_group
            = max(reward) FILTER (valid) OVER same_group AS equal_rewards
    FROM (SELECT trajectory_id, file, question_id, reward, valid FROM numbered WHERE phase = 'train')
    WINDOW same_group AS (PARTITION BY file, question_id)
)
SELECT
    trajectory_id,
    run,
    phase,
    step,
    evaluation,
    question_id,
    "index",
    source,
    question,
    answers,
    stop_reason,
    valid,
    error,
    final_text,
    answer,
    reward,
    CASE
        WHEN phase <> 'train' THEN NULL
        WHEN valid AND NOT equal_rewards THEN reward - mean_reward
        ELSE 0.0
    END,
    valid_format,
    em,
    em_squad,
    f1,
    cover_em,
    len(tokens)::INTEGER,
    policy_tokens,
    list_sum(logprobs)::DOUBLE / nullif(policy_tokens, 0),
    len(turns)::INTEGER,
    len(searches)::INTEGER,
    coalesce(failed, 0)::INTEGER,
    coalesce(repeated, 0)::INTEGER,
    coalesce(after_answer, 0)::INTEGER,
    CASE WHEN answer_can_be_found THEN coalesce(answer_in_evidence, false) END,
    numbered.seconds,
    sampling_seconds,
    coalesce(searched.seconds, 0.0),
    coalesce(searched.cost, 0.0),
    file
FROM numbered
LEFT JOIN grouped USING (trajectory_id)
LEFT JOIN searched USING (trajectory_id);

DROP TABLE new_searches;

INSERT INTO evaluation_items
SELECT
    run, evaluation, question_id, sample, source, valid, em, em_squad, f1, cover_em, valid_format,
    reward, searches, searches_failed, turns, tokens, stop_reason, answer, trajectory_id, file
FROM trajectories
WHERE phase = 'evaluation' AND file IN (SELECT file FROM batch);
