-- What the watchdog saw.
CREATE OR REPLACE VIEW collapse_warnings AS
SELECT run, step, warning.key AS warning, warning.value AS value
FROM (SELECT run, step, unnest(map_entries(metrics)) AS warning FROM steps)
WHERE starts_with(warning.key, 'watchdog/') AND warning.value <> 0
ORDER BY run, step, warning;
COMMENT ON VIEW collapse_warnings IS 'Early warnings of collapse that a step recorded (metrics named watchdog/…).';
