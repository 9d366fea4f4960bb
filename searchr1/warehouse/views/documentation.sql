-- The comments on all columns, to be searched like any table.
CREATE OR REPLACE VIEW documentation AS
SELECT table_name, column_name, data_type, comment AS meaning
FROM duckdb_columns()
WHERE NOT internal AND comment IS NOT NULL
ORDER BY table_name, column_index;
COMMENT ON VIEW documentation IS 'What each column means: from documentation where table_name = ''searches''.';
