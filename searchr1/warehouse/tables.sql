-- The warehouse's tables.

CREATE TABLE schema_version (version VARCHAR);
COMMENT ON TABLE schema_version IS 'Of the scripts that made this file; one of another version is built again.';
COMMENT ON COLUMN schema_version.version IS 'Their digest.';

CREATE TABLE loaded_files (
    file VARCHAR PRIMARY KEY,
    size BIGINT NOT NULL,
    modified BIGINT NOT NULL
);
COMMENT ON TABLE loaded_files IS 'Files that the warehouse was built from, and their state when read.';
COMMENT ON COLUMN loaded_files.file IS 'Path below the folder of runs.';
COMMENT ON COLUMN loaded_files.size IS 'Bytes.';
COMMENT ON COLUMN loaded_files.modified IS 'Time of the last change, nanoseconds since 1970.';

CREATE TABLE runs (
    run VARCHAR,
    run_id VARCHAR,
    created_at TIMESTAMP,
    base_model VARCHAR,
    search_backend VARCHAR,
    profile VARCHAR,
    questions_per_batch INTEGER,
    group_size INTEGER,
    max_steps INTEGER,
    settings JSON,
    file VARCHAR
);
COMMENT ON TABLE runs IS 'One row a training run.';
COMMENT ON COLUMN runs.run IS 'Name of the run; the key that all tables share.';
COMMENT ON COLUMN runs.run_id IS 'Unique, and new when a run of the same name is made again.';
COMMENT ON COLUMN runs.created_at IS 'When it was started, UTC.';
COMMENT ON COLUMN runs.base_model IS 'Model before training.';
COMMENT ON COLUMN runs.search_backend IS 'Search engine of the environment.';
COMMENT ON COLUMN runs.profile IS 'Named set of settings it was started with.';
COMMENT ON COLUMN runs.questions_per_batch IS 'Questions a step.';
COMMENT ON COLUMN runs.group_size IS 'Trajectories a question.';
COMMENT ON COLUMN runs.max_steps IS 'Steps it was asked to train.';
COMMENT ON COLUMN runs.settings IS 'All resolved settings.';
COMMENT ON COLUMN runs.file IS 'Where the row comes from.';

CREATE TABLE steps (
    run VARCHAR,
    step INTEGER,
    time TIMESTAMP,
    policy_ref VARCHAR,
    state VARCHAR,
    saved BOOLEAN,
    state_size BIGINT,
    sampler_weights VARCHAR,
    checkpoint VARCHAR,
    digest VARCHAR,
    questions INTEGER,
    datums INTEGER,
    updated BOOLEAN,
    metrics MAP(VARCHAR, DOUBLE),
    file VARCHAR
);
COMMENT ON TABLE steps IS 'One row a finished step; step 0 is the policy before any update.';
COMMENT ON COLUMN steps.run IS 'Name of the run.';
COMMENT ON COLUMN steps.step IS 'Number of the step.';
COMMENT ON COLUMN steps.time IS 'When it was finished, UTC.';
COMMENT ON COLUMN steps.policy_ref IS 'State that the step sampled from.';
COMMENT ON COLUMN steps.state IS 'State after the step, with the optimiser.';
COMMENT ON COLUMN steps.saved IS 'Whether the state itself is saved; if not, it is an older one with updates to apply again.';
COMMENT ON COLUMN steps.state_size IS 'Bytes of the state.';
COMMENT ON COLUMN steps.sampler_weights IS 'Weights for sampling, on checkpoints.';
COMMENT ON COLUMN steps.checkpoint IS 'Name as a checkpoint, NULL if it is none.';
COMMENT ON COLUMN steps.digest IS 'Digest of the settings that decide what a step does.';
COMMENT ON COLUMN steps.questions IS 'Questions of the step.';
COMMENT ON COLUMN steps.datums IS 'Trajectories that carried gradient.';
COMMENT ON COLUMN steps.updated IS 'False when no trajectory carried gradient and the update was skipped.';
COMMENT ON COLUMN steps.metrics IS 'All metrics of the step by name, e.g. metrics[''reward/mean''].';
COMMENT ON COLUMN steps.file IS 'Where the row comes from.';

CREATE TABLE checkpoints (
    run VARCHAR,
    checkpoint VARCHAR,
    step INTEGER,
    time TIMESTAMP,
    state VARCHAR,
    state_size BIGINT,
    sampler_weights VARCHAR,
    file VARCHAR
);
COMMENT ON TABLE checkpoints IS 'Steps whose state and sampler weights are kept.';
COMMENT ON COLUMN checkpoints.run IS 'Name of the run.';
COMMENT ON COLUMN checkpoints.checkpoint IS 'Name, step_<number>.';
COMMENT ON COLUMN checkpoints.step IS 'Step it was saved after.';
COMMENT ON COLUMN checkpoints.time IS 'When, UTC.';
COMMENT ON COLUMN checkpoints.state IS 'To resume from.';
COMMENT ON COLUMN checkpoints.state_size IS 'Bytes of the state.';
COMMENT ON COLUMN checkpoints.sampler_weights IS 'To evaluate.';
COMMENT ON COLUMN checkpoints.file IS 'Where the row comes from.';

CREATE TABLE evaluations (
    run VARCHAR,
    evaluation VARCHAR,
    checkpoint VARCHAR,
    step INTEGER,
    model_path VARCHAR,
    question_set VARCHAR,
    questions_digest VARCHAR,
    questions INTEGER,
    samples INTEGER,
    temperature DOUBLE,
    environment JSON,
    environment_fingerprint VARCHAR,
    settings JSON,
    started_at TIMESTAMP,
    finished_at TIMESTAMP,
    forced_mixed BOOLEAN,
    search MAP(VARCHAR, DOUBLE),
    file VARCHAR
);
COMMENT ON TABLE evaluations IS 'One policy on one question set in one search environment.';
COMMENT ON COLUMN evaluations.run IS 'Name of the run.';
COMMENT ON COLUMN evaluations.evaluation IS 'Name, unique in its run.';
COMMENT ON COLUMN evaluations.checkpoint IS 'Whose policy: base, step_<number>, or a label.';
COMMENT ON COLUMN evaluations.step IS 'Step of the checkpoint, 0 for the base.';
COMMENT ON COLUMN evaluations.model_path IS 'Sampler weights, NULL for the base.';
COMMENT ON COLUMN evaluations.question_set IS 'Name of the question set.';
COMMENT ON COLUMN evaluations.questions_digest IS 'Equal for equal questions with equal answers.';
COMMENT ON COLUMN evaluations.questions IS 'Questions asked.';
COMMENT ON COLUMN evaluations.samples IS 'Trajectories a question.';
COMMENT ON COLUMN evaluations.temperature IS 'Sampling temperature, 0 = greedy.';
COMMENT ON COLUMN evaluations.environment IS 'Search back end and the settings that change its answers.';
COMMENT ON COLUMN evaluations.environment_fingerprint IS 'Equal for equal environments; only those can be compared.';
COMMENT ON COLUMN evaluations.settings IS 'All settings of the evaluation.';
COMMENT ON COLUMN evaluations.started_at IS 'When it began, UTC.';
COMMENT ON COLUMN evaluations.finished_at IS 'When it ended, UTC; NULL while it runs.';
COMMENT ON COLUMN evaluations.forced_mixed IS 'True when comparing across environments was forced.';
COMMENT ON COLUMN evaluations.search IS 'Search health by metric name.';
COMMENT ON COLUMN evaluations.file IS 'Where the row comes from.';

CREATE TABLE trajectories (
    trajectory_id UBIGINT,
    run VARCHAR,
    phase VARCHAR,
    step INTEGER,
    evaluation VARCHAR,
    question_id VARCHAR,
    sample INTEGER,
    source VARCHAR,
    question VARCHAR,
    answers VARCHAR[],
    stop_reason VARCHAR,
    valid BOOLEAN,
    error VARCHAR,
    final_text VARCHAR,
    answer VARCHAR,
    reward DOUBLE,
    advantage DOUBLE,
    valid_format BOOLEAN,
    em BOOLEAN,
    em_squad BOOLEAN,
    f1 DOUBLE,
    cover_em BOOLEAN,
    tokens INTEGER,
    policy_tokens INTEGER,
    mean_logprob DOUBLE,
    turns INTEGER,
    searches INTEGER,
    searches_failed INTEGER,
    searches_repeated INTEGER,
    searches_after_answer INTEGER,
    answer_in_evidence BOOLEAN,
    seconds DOUBLE,
    sampling_seconds DOUBLE,
    search_seconds DOUBLE,
    search_cost DOUBLE,
    file VARCHAR
);
COMMENT ON TABLE trajectories IS 'One row a trajectory, of training steps and of evaluations.';
COMMENT ON COLUMN trajectories.trajectory_id IS 'Key to turns and searches; the same after a rebuild.';
COMMENT ON COLUMN trajectories.run IS 'Name of the run.';
COMMENT ON COLUMN trajectories.phase IS 'train or evaluation.';
COMMENT ON COLUMN trajectories.step IS 'Training: the step it was sampled in. Evaluation: the step of the checkpoint.';
COMMENT ON COLUMN trajectories.evaluation IS 'Name of the evaluation, NULL in training.';
COMMENT ON COLUMN trajectories.question_id IS 'Question; with run and step it names the group.';
COMMENT ON COLUMN trajectories.sample IS 'Place in its group, or number of the sample, from 0.';
COMMENT ON COLUMN trajectories.source IS 'Data set of the question.';
COMMENT ON COLUMN trajectories.question IS 'Its text.';
COMMENT ON COLUMN trajectories.answers IS 'Accepted answers.';
COMMENT ON COLUMN trajectories.stop_reason IS 'Why it ended (searchr1.trajectory.StopReason).';
COMMENT ON COLUMN trajectories.valid IS 'False when it ended by an environment or sampling error: it says nothing about the policy.';
COMMENT ON COLUMN trajectories.error IS 'What went wrong, in words.';
COMMENT ON COLUMN trajectories.final_text IS 'Text of the last turn.';
COMMENT ON COLUMN trajectories.answer IS 'Answer read from it, NULL if there is no well-formed one.';
COMMENT ON COLUMN trajectories.reward IS '1 right, 0 wrong, -0.1 malformed.';
COMMENT ON COLUMN trajectories.advantage IS 'Training: reward minus the mean of the group''s valid trajectories; 0 when invalid or the group is degenerate.';
COMMENT ON COLUMN trajectories.valid_format IS 'Exactly one well-formed answer line.';
COMMENT ON COLUMN trajectories.em IS 'Exact match by the project''s normaliser.';
COMMENT ON COLUMN trajectories.em_squad IS 'Exact match by the published SQuAD normaliser.';
COMMENT ON COLUMN trajectories.f1 IS 'Word overlap with the best accepted answer.';
COMMENT ON COLUMN trajectories.cover_em IS 'An accepted answer is contained in the given one.';
COMMENT ON COLUMN trajectories.tokens IS 'All tokens, prompt and observations included.';
COMMENT ON COLUMN trajectories.policy_tokens IS 'Tokens that the policy drew.';
COMMENT ON COLUMN trajectories.mean_logprob IS 'Mean log-probability of the drawn tokens.';
COMMENT ON COLUMN trajectories.turns IS 'Assistant turns.';
COMMENT ON COLUMN trajectories.searches IS 'Searches called for.';
COMMENT ON COLUMN trajectories.searches_failed IS 'Searches that brought no result.';
COMMENT ON COLUMN trajectories.searches_repeated IS 'Searches with a query (nearly) like an earlier one.';
COMMENT ON COLUMN trajectories.searches_after_answer IS 'Searches made when an accepted answer stood already in an observation.';
COMMENT ON COLUMN trajectories.answer_in_evidence IS 'An accepted answer stands in some observation; NULL where that cannot be told (yes/no answers).';
COMMENT ON COLUMN trajectories.seconds IS 'Wall time.';
COMMENT ON COLUMN trajectories.sampling_seconds IS 'Of it, waiting for the sampler.';
COMMENT ON COLUMN trajectories.search_seconds IS 'Of it, waiting for searches.';
COMMENT ON COLUMN trajectories.search_cost IS 'US dollars for its searches.';
COMMENT ON COLUMN trajectories.file IS 'Parquet file that also holds its tokens and logprobs.';

CREATE TABLE turns (
    trajectory_id UBIGINT,
    run VARCHAR,
    phase VARCHAR,
    step INTEGER,
    evaluation VARCHAR,
    turn INTEGER,
    kind VARCHAR,
    token_start INTEGER,
    token_end INTEGER,
    text VARCHAR,
    seconds DOUBLE
);
COMMENT ON TABLE turns IS 'One row an assistant turn.';
COMMENT ON COLUMN turns.trajectory_id IS 'Trajectory it belongs to.';
COMMENT ON COLUMN turns.run IS 'Name of the run.';
COMMENT ON COLUMN turns.phase IS 'train or evaluation.';
COMMENT ON COLUMN turns.step IS 'Step, as in trajectories.';
COMMENT ON COLUMN turns.evaluation IS 'Name of the evaluation, NULL in training.';
COMMENT ON COLUMN turns.turn IS 'Number of the turn, from 0.';
COMMENT ON COLUMN turns.kind IS 'call, answer or invalid.';
COMMENT ON COLUMN turns.token_start IS 'Position of its first token.';
COMMENT ON COLUMN turns.token_end IS 'Position after its last token.';
COMMENT ON COLUMN turns.text IS 'What the policy wrote.';
COMMENT ON COLUMN turns.seconds IS 'Time to sample it.';

CREATE TABLE searches (
    trajectory_id UBIGINT,
    run VARCHAR,
    phase VARCHAR,
    step INTEGER,
    evaluation VARCHAR,
    search INTEGER,
    turn INTEGER,
    query VARCHAR,
    ok BOOLEAN,
    error VARCHAR,
    results INTEGER,
    titles VARCHAR[],
    urls VARCHAR[],
    observation VARCHAR,
    seconds DOUBLE,
    cached BOOLEAN,
    cost DOUBLE,
    query_words INTEGER,
    question_overlap DOUBLE,
    repeated BOOLEAN,
    near_repeated BOOLEAN,
    answer_in_observation BOOLEAN,
    after_answer BOOLEAN
);
COMMENT ON TABLE searches IS 'One row a search.';
COMMENT ON COLUMN searches.trajectory_id IS 'Trajectory it belongs to.';
COMMENT ON COLUMN searches.run IS 'Name of the run.';
COMMENT ON COLUMN searches.phase IS 'train or evaluation.';
COMMENT ON COLUMN searches.step IS 'Step, as in trajectories.';
COMMENT ON COLUMN searches.evaluation IS 'Name of the evaluation, NULL in training.';
COMMENT ON COLUMN searches.search IS 'Number of the search in its trajectory, from 0.';
COMMENT ON COLUMN searches.turn IS 'Turn that called for it.';
COMMENT ON COLUMN searches.query IS 'What was searched for.';
COMMENT ON COLUMN searches.ok IS 'Whether it brought an answer from the service.';
COMMENT ON COLUMN searches.error IS 'Kind of the error, empty when ok.';
COMMENT ON COLUMN searches.results IS 'Items shown.';
COMMENT ON COLUMN searches.titles IS 'Their titles by rank.';
COMMENT ON COLUMN searches.urls IS 'Their links by rank.';
COMMENT ON COLUMN searches.observation IS 'Text that the policy read.';
COMMENT ON COLUMN searches.seconds IS 'Latency.';
COMMENT ON COLUMN searches.cached IS 'Whether it was answered from the cache.';
COMMENT ON COLUMN searches.cost IS 'US dollars.';
COMMENT ON COLUMN searches.query_words IS 'Different words in the query.';
COMMENT ON COLUMN searches.question_overlap IS 'Share of the query''s words that stand in the question.';
COMMENT ON COLUMN searches.repeated IS 'Same words in the same order as an earlier query of the trajectory.';
COMMENT ON COLUMN searches.near_repeated IS 'Not repeated, but shares at least 7 of 10 words with an earlier query.';
COMMENT ON COLUMN searches.answer_in_observation IS 'An accepted answer stands in the observation, as whole words; NULL for yes/no answers.';
COMMENT ON COLUMN searches.after_answer IS 'An earlier observation of the trajectory already held an accepted answer.';

CREATE TABLE evaluation_items (
    run VARCHAR,
    evaluation VARCHAR,
    question_id VARCHAR,
    sample INTEGER,
    source VARCHAR,
    valid BOOLEAN,
    em BOOLEAN,
    em_squad BOOLEAN,
    f1 DOUBLE,
    cover_em BOOLEAN,
    valid_format BOOLEAN,
    reward DOUBLE,
    searches INTEGER,
    searches_failed INTEGER,
    turns INTEGER,
    tokens INTEGER,
    stop_reason VARCHAR,
    answer VARCHAR,
    trajectory_id UBIGINT,
    file VARCHAR
);
COMMENT ON TABLE evaluation_items IS 'One row a (question, sample) of an evaluation: what its statistics are made from.';
COMMENT ON COLUMN evaluation_items.run IS 'Name of the run.';
COMMENT ON COLUMN evaluation_items.evaluation IS 'Name of the evaluation.';
COMMENT ON COLUMN evaluation_items.question_id IS 'Question.';
COMMENT ON COLUMN evaluation_items.sample IS 'Number of the sample, from 0.';
COMMENT ON COLUMN evaluation_items.source IS 'Data set of the question.';
COMMENT ON COLUMN evaluation_items.valid IS 'False when it ended by an environment or sampling error: a missing answer, not a wrong one.';
COMMENT ON COLUMN evaluation_items.em IS 'Exact match by the project''s normaliser.';
COMMENT ON COLUMN evaluation_items.em_squad IS 'Exact match by the published SQuAD normaliser.';
COMMENT ON COLUMN evaluation_items.f1 IS 'Word overlap with the best accepted answer.';
COMMENT ON COLUMN evaluation_items.cover_em IS 'An accepted answer is contained in the given one.';
COMMENT ON COLUMN evaluation_items.valid_format IS 'Exactly one well-formed answer line.';
COMMENT ON COLUMN evaluation_items.reward IS 'What training would have paid.';
COMMENT ON COLUMN evaluation_items.searches IS 'Searches called for.';
COMMENT ON COLUMN evaluation_items.searches_failed IS 'Searches that brought no result.';
COMMENT ON COLUMN evaluation_items.turns IS 'Assistant turns.';
COMMENT ON COLUMN evaluation_items.tokens IS 'All tokens.';
COMMENT ON COLUMN evaluation_items.stop_reason IS 'Why it ended.';
COMMENT ON COLUMN evaluation_items.answer IS 'Answer given.';
COMMENT ON COLUMN evaluation_items.trajectory_id IS 'Key to trajectories, turns and searches.';
COMMENT ON COLUMN evaluation_items.file IS 'Where the row comes from.';
