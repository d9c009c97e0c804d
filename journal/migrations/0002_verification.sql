-- Version 2. What verification compared and found, and the third mark.

ALTER TABLE phases ADD COLUMN checks TEXT;
ALTER TABLE phases ADD COLUMN verified_blocks INTEGER;
ALTER TABLE phases ADD COLUMN mismatched_blocks INTEGER;

ALTER TABLE checkpoints ADD COLUMN flushed INTEGER;

CREATE TABLE verifications (
    run_id             INTEGER NOT NULL PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    of_run             TEXT,
    of_checkpoint      INTEGER,
    trust              TEXT NOT NULL,
    verified_blocks    INTEGER NOT NULL,
    right_blocks       INTEGER NOT NULL,
    unknown_blocks     INTEGER NOT NULL,
    undecided_blocks   INTEGER NOT NULL,
    lost_blocks        INTEGER NOT NULL,
    stale_blocks       INTEGER NOT NULL,
    misdirected_blocks INTEGER NOT NULL,
    torn_blocks        INTEGER NOT NULL,
    rotten_blocks      INTEGER NOT NULL,
    unreadable_blocks  INTEGER NOT NULL,
    kept_mismatches    INTEGER NOT NULL
) STRICT;

CREATE TABLE mismatches (
    run_id              INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    mismatch            INTEGER NOT NULL,
    second              INTEGER NOT NULL,
    at_unix_ns          INTEGER NOT NULL,
    kind                TEXT NOT NULL,
    lba                 INTEGER NOT NULL,
    expected_generation INTEGER,
    found_generation    INTEGER,
    found_lba           INTEGER,
    found_run           TEXT,
    offset_bytes        INTEGER NOT NULL,
    differing_bytes     INTEGER NOT NULL,
    expected_hex        TEXT NOT NULL,
    found_hex           TEXT NOT NULL,
    status              INTEGER,
    text                TEXT NOT NULL,
    PRIMARY KEY (run_id, mismatch)
) STRICT, WITHOUT ROWID;
