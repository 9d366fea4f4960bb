-- Questions whose EM changed from the base to a checkpoint.
CREATE OR REPLACE VIEW gained_lost AS
SELECT
    paired.run,
    paired.evaluation,
    paired.checkpoint,
    paired.step,
    paired.change,
    paired.question_id,
    paired.source,
    trajectories.question,
    trajectories.answers,
    paired.base_answer,
    paired.answer,
    paired.base_searches,
    paired.searches,
    paired.base_stop_reason,
    paired.stop_reason,
    paired.base_em,
    paired.em,
    paired.same_environment,
    paired.base_trajectory_id,
    paired.trajectory_id
FROM paired_questions AS paired
JOIN trajectories ON trajectories.trajectory_id = paired.trajectory_id
WHERE paired.change <> 'same'
ORDER BY paired.run, paired.step, paired.evaluation, paired.change, paired.source, paired.question_id;
COMMENT ON VIEW gained_lost IS 'Questions that a checkpoint answers rightly and the base does not (gained), and the reverse (lost), with both answers.';
