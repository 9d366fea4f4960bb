-- From `batch` (path, file, run, …): one run.json a row.
INSERT INTO runs
SELECT
    batch.run,
    content ->> '$.run_id',
    TRY_CAST(content ->> '$.created_at' AS TIMESTAMP),
    content ->> '$.settings.base_model',
    content ->> '$.settings.search_backend',
    content ->> '$.settings.profile',
    TRY_CAST(content ->> '$.settings.questions_per_batch' AS INTEGER),
    TRY_CAST(content ->> '$.settings.group_size' AS INTEGER),
    TRY_CAST(content ->> '$.settings.max_steps' AS INTEGER),
    (content -> '$.settings')::JSON,
    batch.file
FROM read_text(getvariable('paths')) AS text
JOIN batch ON batch.path = text.filename;
