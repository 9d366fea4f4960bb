-- From `evaluations/<name>.json`: one evaluation a row.
INSERT INTO evaluations
SELECT
    batch.run,
    batch.evaluation,
    content ->> '$.checkpoint',
    (content ->> '$.step')::INTEGER,
    content ->> '$.model_path',
    content ->> '$.question_set',
    content ->> '$.question_ids_digest',
    (content ->> '$.questions')::INTEGER,
    (content ->> '$.samples')::INTEGER,
    (content ->> '$.temperature')::DOUBLE,
    (content -> '$.environment')::JSON,
    content ->> '$.environment_fingerprint',
    (content -> '$.settings')::JSON,
    (content ->> '$.started_at')::TIMESTAMP,
    (content ->> '$.finished_at')::TIMESTAMP,
    coalesce((content ->> '$.forced_mixed')::BOOLEAN, false),
    (content -> '$.search')::JSON::MAP(VARCHAR, DOUBLE),
    batch.file
FROM read_text(getvariable('paths')) AS text
JOIN batch ON batch.path = text.filename;
