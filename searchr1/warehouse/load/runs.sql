-- From `batch` (path, file, run, …): one run.json a row.
INSERT INTO runs
SELECT
    batch.run,
    content ->> '$.run_id',
    (content ->> '$.created_at')::TIMESTAMP,
    content ->> '$.settings.base_model',
    content ->> '$.settings.search_backend',
    content ->> '$.settings.profile',
    (content ->> '$.settings.questions_per_batch')::INTEGER,
    (content ->> '$.settings.group_size')::INTEGER,
    (content ->> '$.settings.max_steps')::INTEGER,
    (content -> '$.settings')::JSON,
    batch.file
FROM read_text(getvariable('paths')) AS text
JOIN batch ON batch.path = text.filename;
