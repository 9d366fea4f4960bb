-- From ledgers: whole lines only, and of a step that stands twice the last line.
INSERT INTO steps
WITH lines AS (
    SELECT
        batch.run,
        batch.file,
        unnest(string_split(content, chr(10))) AS line,
        generate_subscripts(string_split(content, chr(10)), 1) AS number
    FROM read_text(getvariable('paths')) AS text
    JOIN batch ON batch.path = text.filename
)
SELECT
    run,
    TRY_CAST(line ->> '$.step' AS INTEGER) AS step,
    TRY_CAST(line ->> '$.time' AS TIMESTAMP),
    line ->> '$.policy_ref',
    line ->> '$.state',
    TRY_CAST(line ->> '$.saved' AS BOOLEAN),
    TRY_CAST(line ->> '$.state_size' AS BIGINT),
    line ->> '$.sampler_weights',
    CASE WHEN line ->> '$.sampler_weights' IS NOT NULL THEN 'step_' || (line ->> '$.step') END,
    line ->> '$.digest',
    json_array_length(line, '$.question_ids')::INTEGER,
    TRY_CAST(line ->> '$.datums' AS INTEGER),
    TRY_CAST(line ->> '$.updated' AS BOOLEAN),
    TRY_CAST((line -> '$.metrics')::JSON AS MAP(VARCHAR, DOUBLE)),
    file
FROM lines
WHERE json_valid(line) AND TRY_CAST(line ->> '$.step' AS INTEGER) IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY run, step ORDER BY number DESC) = 1;

INSERT INTO checkpoints
SELECT run, checkpoint, step, time, state, state_size, sampler_weights, file
FROM steps
WHERE checkpoint IS NOT NULL AND file IN (SELECT file FROM batch);
