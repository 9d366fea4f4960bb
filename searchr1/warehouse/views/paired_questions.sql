-- Base and checkpoint on the same question, where both have a valid answer.
CREATE OR REPLACE VIEW paired_questions AS
WITH questions AS (
    SELECT
        run,
        evaluation,
        question_id,
        any_value(source) AS source,
        avg(em::INTEGER) AS em,
        avg(searches) AS searches,
        arg_min(answer, sample) AS answer,
        arg_min(stop_reason, sample) AS stop_reason,
        arg_min(trajectory_id, sample) AS trajectory_id
    FROM evaluation_items
    WHERE valid
    GROUP BY run, evaluation, question_id
)
SELECT
    pair.run,
    pair.evaluation,
    pair.checkpoint,
    pair.step,
    pair.same_environment,
    ours.question_id,
    ours.source,
    base.em AS base_em,
    ours.em AS em,
    CASE WHEN ours.em > base.em THEN 'gained' WHEN ours.em < base.em THEN 'lost' ELSE 'same' END
        AS change,
    base.searches AS base_searches,
    ours.searches AS searches,
    base.answer AS base_answer,
    ours.answer AS answer,
    base.stop_reason AS base_stop_reason,
    ours.stop_reason AS stop_reason,
    base.trajectory_id AS base_trajectory_id,
    ours.trajectory_id AS trajectory_id
FROM evaluation_pairs AS pair
JOIN questions AS ours ON ours.run = pair.run AND ours.evaluation = pair.evaluation
JOIN questions AS base
    ON base.run = pair.run
    AND base.evaluation = pair.base_evaluation
    AND base.question_id = ours.question_id
WHERE pair.compared;
COMMENT ON VIEW paired_questions IS 'One row a question of a checkpoint''s evaluation beside the base''s: EM (mean over samples), searches, answers.';
