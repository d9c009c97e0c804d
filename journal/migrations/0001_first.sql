-- Version 1. Integers are in base units, the unit is the end of the name;
-- SCHEMA.md explains each column.

CREATE TABLE drives (
    drive_id      INTEGER PRIMARY KEY,
    subsystem_nqn TEXT NOT NULL,
    serial        TEXT NOT NULL,
    model         TEXT NOT NULL,
    UNIQUE (serial, subsystem_nqn, model)
) STRICT;

CREATE TABLE transactions (
    transaction_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    drive_id         INTEGER NOT NULL REFERENCES drives,
    cntlid           INTEGER NOT NULL,
    title            TEXT NOT NULL,
    address          TEXT NOT NULL,
    state            TEXT NOT NULL,
    message          TEXT NOT NULL,
    began_at_unix_ns INTEGER NOT NULL,
    ended_at_unix_ns INTEGER,
    plan_json        TEXT NOT NULL,
    records          INTEGER NOT NULL,
    head_sha256      BLOB NOT NULL CHECK (length(head_sha256) = 32)
) STRICT;

CREATE INDEX transactions_unfinished ON transactions (drive_id)
    WHERE state IN ('open', 'rolling_back');

CREATE TABLE steps (
    transaction_id INTEGER NOT NULL REFERENCES transactions ON DELETE CASCADE,
    record         INTEGER NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('intent', 'outcome', 'state')),
    seq            INTEGER,
    step_index     INTEGER,
    direction      TEXT,
    attempt        INTEGER,
    result         TEXT,
    at_unix_ns     INTEGER NOT NULL,
    record_json    TEXT NOT NULL,
    prev_sha256    BLOB NOT NULL CHECK (length(prev_sha256) = 32),
    sha256         BLOB NOT NULL CHECK (length(sha256) = 32),
    PRIMARY KEY (transaction_id, record)
) STRICT, WITHOUT ROWID;
