-- Functions that loading and views share.

-- Text for comparisons: lower case, letters and digits only, single spaces.
CREATE OR REPLACE MACRO plain(text) AS
    trim(regexp_replace(lower(nfc_normalize(text)), '[^\p{L}\p{N}]+', ' ', 'g'));

-- The different words of a plain text.
CREATE OR REPLACE MACRO words(plain_text) AS
    list_distinct(list_filter(string_split(plain_text, ' '), lambda word: word <> ''));

-- Share of two word lists that they have in common (Jaccard); NULL for two empty ones.
CREATE OR REPLACE MACRO jaccard(first, second) AS
    len(list_intersect(first, second))
    / nullif(len(list_distinct(list_concat(first, second))), 0);

-- Whether the words of `answer` stand in `text`, both already plain. Chinese and Japanese have no
-- spaces between words, so there any place counts.
CREATE OR REPLACE MACRO holds(text, answer) AS
    CASE
        WHEN regexp_matches(answer, '[\p{Han}\p{Hiragana}\p{Katakana}]') THEN contains(text, answer)
        ELSE contains(' ' || text || ' ', ' ' || answer || ' ')
    END;

-- Bounds of Wilson's 95% score interval of `successes` among `trials`; NULL for no trial.
CREATE OR REPLACE MACRO wilson_low(successes, trials) AS
    CASE WHEN successes = 0 THEN 0.0 * nullif(trials, 0) ELSE
    (successes + 1.92072941 - 1.95996398
        * sqrt(successes * (trials - successes) / nullif(trials, 0)::DOUBLE + 0.96036471))
    / (trials + 3.84145882) END;

CREATE OR REPLACE MACRO wilson_high(successes, trials) AS
    CASE WHEN successes = trials THEN 1.0 * nullif(trials, 0) / trials ELSE
    (successes + 1.92072941 + 1.95996398
        * sqrt(successes * (trials - successes) / nullif(trials, 0)::DOUBLE + 0.96036471))
    / (trials + 3.84145882) END;

-- How many facts a question needs, as far as its data set says; NULL = unknown.
CREATE OR REPLACE MACRO hops(source) AS
    CASE
        WHEN lower(source) IN ('nq', 'triviaqa', 'popqa', 'one_hop') THEN 'one hop'
        WHEN lower(source) IN ('hotpotqa', '2wikimultihopqa', 'musique', 'bamboogle', 'two_hop')
            THEN 'several hops'
    END;

-- The trajectory's number: stable, the same after a rebuild.
CREATE OR REPLACE MACRO trajectory_number(file, question_id, sample) AS
    md5_number_lower(file || chr(10) || question_id || chr(10) || sample);
