-- What a step takes, in seconds and dollars.
CREATE OR REPLACE VIEW cost_and_time AS
SELECT
    run,
    step,
    metrics['time/step_seconds'] AS step_seconds,
    metrics['time/rollout_seconds'] AS rollout_seconds,
    metrics['time/search_seconds'] AS search_seconds,
    metrics['time/update_seconds'] AS update_seconds,
    metrics['time/save_seconds'] AS save_seconds,
    metrics['cost/search_usd'] AS search_usd,
    metrics['cost/sample_usd'] AS sample_usd,
    metrics['cost/train_usd'] AS train_usd,
    metrics['cost/total_usd'] AS total_usd,
    metrics['train/tokens_per_rollout_batch'] AS tokens,
    metrics['train/loss_tokens_per_rollout_batch'] AS loss_tokens
FROM steps
WHERE step > 0
ORDER BY run, step;
COMMENT ON VIEW cost_and_time IS 'Seconds and US dollars by step as the training recorded them.';
