-- Training and evaluation over steps, in one table.
CREATE OR REPLACE VIEW learning_curve AS
SELECT
    run,
    'train' AS phase,
    step,
    NULL AS evaluation,
    count(*) AS trajectories,
    avg(reward) FILTER (valid) AS reward,
    avg(em::INTEGER) FILTER (valid) AS correct,
    wilson_low(count(*) FILTER (valid AND em), count(*) FILTER (valid)) AS correct_low,
    wilson_high(count(*) FILTER (valid AND em), count(*) FILTER (valid)) AS correct_high,
    avg(valid_format::INTEGER) FILTER (valid) AS format,
    avg(searches) FILTER (valid) AS searches,
    avg(turns) FILTER (valid) AS turns,
    avg(tokens) FILTER (valid) AS tokens,
    avg(mean_logprob) FILTER (valid) AS mean_logprob
FROM trajectories
WHERE phase = 'train'
GROUP BY run, step
UNION ALL BY NAME
SELECT
    run,
    'evaluation' AS phase,
    step,
    evaluation,
    count(*) AS trajectories,
    avg(reward) FILTER (valid) AS reward,
    avg(em::INTEGER) FILTER (valid) AS correct,
    wilson_low(count(*) FILTER (valid AND em), count(*) FILTER (valid)) AS correct_low,
    wilson_high(count(*) FILTER (valid AND em), count(*) FILTER (valid)) AS correct_high,
    avg(valid_format::INTEGER) FILTER (valid) AS format,
    avg(searches) FILTER (valid) AS searches,
    avg(turns) FILTER (valid) AS turns,
    avg(tokens) FILTER (valid) AS tokens,
    avg(mean_logprob) FILTER (valid) AS mean_logprob
FROM trajectories
WHERE phase = 'evaluation'
GROUP BY run, step, evaluation
ORDER BY run, phase DESC, step, evaluation;
COMMENT ON VIEW learning_curve IS 'Reward, right answers (with 95% Wilson interval), format, searches by step, for training and evaluations. Trajectories of one question are alike, so training intervals are somewhat too narrow.';
