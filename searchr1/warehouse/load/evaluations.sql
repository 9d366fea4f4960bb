-- From `evaluations/<name>.json`: one evaluation a row.
INSERT INTO evaluations
SELECT
    batch.run,
    batch.evaluation,
    content ->> '$.checkpoint',
    TRY_CAST(content ->> '$.step' AS INTEGER),
    content ->> '$.model_path',
    content ->> '$.question_set',
    content ->> '$.questions_digest',
    TRY_CAST(content ->> '$.questions' AS INTEGER),
    TRY_CAST(content ->> '$.samples' AS INTEGER),
    TRY_CAST(content ->> '$.temperature' AS DOUBLE),
    (content -> '$.environment')::JSON,
    content ->> '$.environment_fingerprint',
    (content -> '$.settings')::JSON,
    TRY_CAST(content ->> '$.started_at' AS TIMESTAMP),
    TRY_CAST(content ->> '$.finished_at' AS TIMESTAMP),
    coalesce(TRY_CAST(content ->> '$.forced_mixed' AS BOOLEAN), false),
    TRY_CAST((content -> '$.search')::JSON AS MAP(VARCHAR, DOUBLE)),
    batch.file
FROM read_text(getvariable('paths')) AS text
JOIN batch ON batch.path = text.filename;
