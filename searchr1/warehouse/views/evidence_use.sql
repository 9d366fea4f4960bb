-- Was the answer in what the policy read, and did it use it?
CREATE OR REPLACE VIEW evidence_use AS
SELECT
    run,
    phase,
    step,
    evaluation,
    count(*) AS trajectories,
    avg((answer_in_evidence AND cover_em)::INTEGER) AS found_and_used,
    avg((answer_in_evidence AND NOT cover_em)::INTEGER) AS found_not_used,
    avg((NOT answer_in_evidence AND cover_em)::INTEGER) AS right_without_evidence,
    avg((NOT answer_in_evidence AND NOT cover_em)::INTEGER) AS not_found,
    count(*) FILTER (answer_in_evidence AND cover_em)
        / nullif(count(*) FILTER (answer_in_evidence), 0) AS used_when_found
FROM trajectories
WHERE valid AND answer_in_evidence IS NOT NULL
GROUP BY ALL
ORDER BY run, phase DESC, step, evaluation;
COMMENT ON VIEW evidence_use IS 'Shares of trajectories: answer found and used, found and not used (reading fails), right without evidence (memory or luck), not found (searching fails). Right means cover_em; yes/no answers are left out.';
